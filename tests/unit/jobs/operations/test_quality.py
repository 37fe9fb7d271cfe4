"""The failures of the quality check that a cleared run still reports. The tests set the verdicts. No JVM."""

from pathlib import Path

from tests.support.jobs.driver.embedded import epoch, insert
from tests.unit.jobs.facts.test_status import files, shop
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.operations.quality import require_none_held_back
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.record import Failure, HeldViewsError, QualityRecord, ViewQuality, write_record
from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
FAILED = (Failure("e", "found 2"),)


def judged(meta: MetaStore, *failed: str) -> int:
    """An epoch in which the suites of these views, or an assertion over no view, fail."""
    insert(meta, "t", (2, 7, 1))
    done = epoch(meta).epoch
    views = [ViewQuality(name, 1, 1, FAILED if name in failed else ()) for name in ("per_g", "per_t")]
    nothing_held = ViewQuality("paid.sql", 1, 1, FAILED if "paid.sql" in failed else (), holds=())
    write_record(meta.objects, QualityRecord(done, (*views, nothing_held)))
    publish_epoch(meta, done, [r.id for r in meta.read_latest().catalog.live_relations() if r.name in failed])
    return done


def left(meta: MetaStore, epoch: int) -> tuple[str, ...]:
    """The failures that a cleared run of this epoch reports."""
    try:
        require_none_held_back(PipelineStore(Pipeline("shop", Path(), meta.objects.uri, ()), meta), epoch)
    except HeldViewsError as err:
        return err.record.failed
    return ()


def test_a_run_reports_its_own_failures_until_readers_see_later_rows_whatever_fails_then(shop: MetaStore) -> None:
    first = judged(shop, "per_g")
    assert left(shop, first) == ("per_g",)
    second = judged(shop, "per_t")
    assert (left(shop, first), left(shop, second)) == ((), ("per_t",))
    third = judged(shop, "per_g", "per_t")
    assert [left(shop, e) for e in (first, second, third)] == [(), ("per_t",), ("per_g", "per_t")]
    judged(shop, "per_g")
    assert [left(shop, e) for e in (second, third)] == [(), ("per_g",)], "only the failure that remains"


def test_a_failure_that_holds_back_nothing_ends_with_a_later_epoch_that_passes(shop: MetaStore) -> None:
    first = judged(shop, "paid.sql")
    second = judged(shop, "paid.sql", "per_g")
    assert (left(shop, first), left(shop, second)) == (("paid.sql",), ("per_g", "paid.sql"))
    judged(shop, "per_g")
    assert (left(shop, first), left(shop, second)) == ((), ("per_g",))
