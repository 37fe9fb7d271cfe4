"""Texts of comparisons: a view whose columns differ, and no row."""

import pyarrow as pa

from tests.support.memory_store import MemoryObjectStore
from tussock.jobs.compare.preview_record import Preview, PreviewCheck, add_preview, read_previews
from tussock.jobs.compare.record import (
    DIFFERENCE,
    SIDE,
    ComparedSide,
    RelationDifference,
    RetypedColumn,
    StoreDifference,
)
from tussock.jobs.texts.comparison import comparison_markdown, comparison_text, counts_text
from tussock.jobs.texts.preview_report import preview_markdown
from tussock.statestore.objectstore.requests import Requests

SAMPLES = pa.table({DIFFERENCE: ["added"], SIDE: ["to"], "k": ["7"]})


def view_with(**more: object) -> RelationDifference:
    counts = {"missing": 0, "added": 0, "changed": 0, "rows_before": 5, "rows_after": 5}
    fields = {"columns": (), "day_column": "", "days": (), "samples": SAMPLES.slice(0, 0), **counts, **more}
    return RelationDifference("v", ("k",), **fields)  # type: ignore[arg-type]


def difference_of(view: RelationDifference) -> StoreDifference:
    return StoreDifference(ComparedSide("shop", 1), ComparedSide("pr-1", 2), (view,), (), (), 0.0, Requests())


def test_a_view_of_which_only_columns_differ_is_described_by_them() -> None:
    view = view_with(retyped_columns=(RetypedColumn("n", "int", "bigint"),), added_columns=("a", "b"))
    text = "1 retyped column, 2 new columns; the other columns are equal (5 rows before, 5 after)"
    assert counts_text(view) == text
    difference = difference_of(view)
    assert "no rows differ" not in comparison_text(difference, "UTC") + comparison_markdown(difference, "UTC")
    assert "| `v` | 0 | 0 | 0 | 5 | `n` int → bigint, `a` new, `b` new |" in comparison_markdown(difference, "UTC")
    assert counts_text(view_with()) == "no rows differ (5 rows before, 5 after)"


def test_a_preview_is_read_as_it_was_recorded_and_a_repetition_replaces_it() -> None:
    objects = MemoryObjectStore()
    for number in range(12):
        checks = (PreviewCheck("tests of views", number != 11, ("a ``` b",)),)
        difference = difference_of(view_with(added=1, samples=SAMPLES))
        preview = Preview(f"b{number}", "abc", "r", 1, 2, difference, checks)
        add_preview(objects, preview)
        add_preview(objects, preview)
    previews = read_previews(objects)
    assert [one.branch for one in previews] == [f"b{number}" for number in range(11, 1, -1)]
    assert previews[0].difference.views[0].samples.equals(SAMPLES)
    assert previews[0].failed == ("tests of views",)
    report = preview_markdown(previews[0], "UTC")
    assert "````\na ``` b\n````" in report
    assert "abc on branch b11, over 2 more epochs" in report
