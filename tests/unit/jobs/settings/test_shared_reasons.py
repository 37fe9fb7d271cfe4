"""Errors of several subjects print a reason that they share once."""

import pytest

from tests.unit.end_to_end.test_remedies import repeated_part
from tussock.jobs.barriers.source_holds import HeldSourcesError
from tussock.jobs.driver.pauses import PausedViewsError
from tussock.jobs.quality.record import Failure, QualityCheckError, QualityRecord, ViewQuality
from tussock.jobs.settings.shared_reasons import shared_reasons
from tussock.jobs.sinks.publication import TablesNotPublishedError
from tussock.statestore.errors import TussockError

REMEDY = "Omit the relation from the tables to publish, or create it again with another name for that column."
DAMAGED = f"file /data/1.csv cannot be read as csv: it ends within a record of three columns. {REMEDY}"
RAISED = "k + a raised: Overflow in addition of INT32 (100 + 2147483647). The row: k=100, g=1, a=2147483647"
ROWS = ({"file": "/data/a file with a long name.csv", "rejects": "1"},)


def test_equal_reasons_and_equal_ends_are_separated() -> None:
    assert shared_reasons({"a": "x is bad. Omit it.", "b": "y is bad. Omit it.", "c": "y is bad. Omit it."}) == (
        ((("a",), "x is bad."), (("b", "c"), "y is bad.")),
        "Omit it.",
    )
    assert shared_reasons({"a": "Omit it.", "b": "Omit it."}) == (((("a", "b"), "Omit it."),), "")
    assert shared_reasons({"a": "x. y. z.", "b": "z."}) == (((("a",), "x. y. z."), (("b",), "z.")), "")
    assert shared_reasons({}) == ((), "")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (HeldSourcesError({"a": DAMAGED, "b": DAMAGED}), f"sources 'a', 'b' are held: {DAMAGED}"),
        (HeldSourcesError({"a": DAMAGED, "b": f"no file. {REMEDY}"}), f"source 'b' is held: no file.\n  {REMEDY}\n"),
        (PausedViewsError({"a": RAISED, "b": RAISED}), f"view 'a', view 'b' are paused: {RAISED}"),
        (
            PausedViewsError({f"__quality__paid_assertion_{'0' * 32}": RAISED}),
            f"assertion paid is paused: {RAISED}",
        ),
        (
            TablesNotPublishedError({"a": f"column 'how long'. {REMEDY}", "b": f"column 'x y'. {REMEDY}"}, 3),
            f"2 of 5 tables were not published:\n  a: column 'how long'.\n  b: column 'x y'.\n  {REMEDY}",
        ),
        (
            QualityCheckError(
                QualityRecord(
                    1,
                    (
                        ViewQuality(
                            "v", 3, 2, failures=(Failure("a is set", "1 row", ROWS), Failure("b > 0", "1 row", ROWS))
                        ),
                    ),
                )
            ),
            "a is set: found 1 row\n  view 'v': b > 0: found 1 row\n    failing rows: file=/data/a file",
        ),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, TussockError) else "",
)
def test_an_error_of_several_subjects_repeats_nothing(error: TussockError, shown: str) -> None:
    assert shown in str(error)
    assert repeated_part(str(error)) is None


def test_a_view_that_another_message_reports_is_not_reported_again() -> None:
    error = PausedViewsError({"a": RAISED, "b": f"{RAISED}."})
    assert error.without_views(f"assertion a cannot be evaluated: {RAISED}. Correct the row.") is None
    left = error.without_views("something else")
    assert left is not None
    assert left.reasons == error.reasons


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_a_quoted_value_is_not_cut(quote: str) -> None:
    values = {"a": f"{quote}St. John{quote}", "b": f"{quote}Mt. John{quote}"}
    found = shared_reasons({name: f"It isn't {value} here. Correct it." for name, value in values.items()})
    assert found == (tuple(((name,), f"It isn't {value} here.") for name, value in values.items()), "Correct it.")
