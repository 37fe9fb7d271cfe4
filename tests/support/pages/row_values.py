"""A value of a row in everything that a store tells and its pages show."""

from tests.support.pages.serving import Shop
from tussock.jobs.driver.run_record import record_failure
from tussock.jobs.quality.record import Failure, QualityRecord, ViewQuality, write_record
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.verify.record import Example, Verdict, Verification, ViewCheck, write_last

CARD = "4929-1234-5678"


def tell_card(shop: Shop) -> None:
    """Write `CARD` into a quality record, a verification with differing rows, the Data Docs and a failed run."""
    failure = Failure("expect_x(column='g')", f"1 of 2 rows, e.g. {CARD}", ({"g": CARD},))
    least = Failure("expect_column_min_to_be_between(column='g')", CARD)
    epoch = shop.epochs[2]
    write_record(
        shop.meta.objects, QualityRecord(epoch, (ViewQuality("per_g", 2, 2, (failure, least), warnings=(least,)),))
    )
    example = Example({"g": CARD}, {"g": CARD, "n": "1"}, {"g": CARD, "n": "2"})
    reason = f"[CAST_INVALID_INPUT] The value '{CARD}' cannot be cast"
    checks = (
        ViewCheck("per_g", Verdict.DIFFERENT, epoch=epoch, rows=2, missing=1, examples=(example,)),
        ViewCheck("other", Verdict.UNVERIFIABLE, reason, epoch=epoch),
    )
    write_last(shop.meta.objects, Verification(checks), {"per_g", "other"})
    (shop.folder / "docs/index.html").write_text(f"<h1>Data quality</h1>{CARD}")
    record_failure(shop.meta, "epoch", {"run": "r"}, clock_ms(), f"failed: {reason}")
