"""Measures of views answer suites that need all rows.

Their verdicts equal Great Expectations' own over all rows in Spark.
"""

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.jobs.quality.measures import FILLED, MEAN, UNIQUE, expectation, pipeline_in
from tests.support.names import QUICK
from tussock.jobs.operations.deploy import measures
from tussock.jobs.quality.measured import ViewMeasures, _cannot_be_null, _repeated
from tussock.jobs.quality.measures import ROWS, Measures, Number, measures_of
from tussock.jobs.quality.record import (
    SAMPLE_KEYS,
    Failure,
    Metric,
    QualityRecord,
    ViewQuality,
    passed_before,
)
from tussock.jobs.quality.suite import QualitySuiteError, Suite, read_suite
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind


def test_a_sum_beyond_its_type_is_left_to_spark() -> None:
    total, nulls, most = Number("sum", ("n",)), Number("nulls", ("n",)), Number("max", ("n",))
    numbers = {ROWS: 3, nulls: 1, total: None}
    assert _cannot_be_null(total, numbers)
    assert not _cannot_be_null(total, {**numbers, nulls: 3})
    assert not _cannot_be_null(most, {**numbers, most: None})


def test_a_value_that_half_of_a_large_view_holds_is_sampled_and_not_written_out() -> None:
    found = _repeated(iter([pa.table({"c0": ["a", "b"], "rows": [10**12, 2]})]), ["code"])
    assert (found.rows, found.sample) == (10**12 + 2, ({"code": "a"},) * SAMPLE_KEYS)


def test_a_set_may_hold_numbers_that_its_column_cannot() -> None:
    values = {"n": pa.table({"value": pa.array([1, 2], pa.int8()), "rows": [1, 1]})}
    kept = ViewMeasures(Measures((), (), (), (), (), {}), (("n", "tinyint"),), {ROWS: 2}, values, {})
    wanted = {"value_set": [1, 300]}
    assert kept.metric("column.distinct_values.not_in_set", {"column": "n"}, wanted) == [2]
    assert kept.metric("column.distinct_values.missing_from_column", {"column": "n"}, wanted) == [300]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({**UNIQUE, "meta": {"history": {"runs": 3, "within": 0.3}}}, "history of expect_column_values_to_be_unique"),
        ({**MEAN, "meta": {"history": {"runs": 3, "within": 0.3}}}, "history together with min_value"),
        ({"type": MEAN["type"], "meta": {"history": {"runs": 0, "within": 0.3}}}, "history.runs 0"),
        ({"type": MEAN["type"], "meta": {"history": {"runs": 1, "within": "30%"}}}, 'history.within "30%"'),
        ({"type": MEAN["type"], "meta": {"history": {"runs": 1}}}, 'history {"runs": 1}'),
    ],
)
def test_an_invalid_history_is_named(tmp_path: Path, item: dict[str, Any], found: str) -> None:
    pipeline = pipeline_in(tmp_path, [item])
    with pytest.raises(QualitySuiteError, match=re.escape(f"kept.json: found expectation 1: {found}, expected ")):
        measures(pipeline)


def test_a_pass_of_a_suites_row_rules_is_recorded(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, [MEAN, FILLED])
    assert pipeline.quality is not None
    suite = read_suite(pipeline.quality.suites()[0])
    mean, filled = (
        "expect_column_mean_to_be_between(column='n', min_value=10)",
        "expect_column_values_to_not_be_null(column='shop')",
    )

    def passed(*failed: str, metrics: bool = True, digest: str = suite.digest) -> bool:
        kept = (Metric(mean, 1.0), Metric(filled, 0.0)) if metrics else ()
        found = ViewQuality("kept", 1, 2, warnings=tuple(Failure(f, "") for f in failed), suite=digest, metrics=kept)
        return passed_before(QualityRecord(1, (found,)), suite)

    assert passed()
    assert passed(mean)
    assert not passed(filled)
    assert not passed(mean, filled)
    assert not passed(mean, metrics=False), "a record of a release before calls expectations otherwise"
    assert passed(metrics=False)
    assert not passed(digest="another")
    assert not passed_before(None, suite)


#: Names that a separator would join to the same text, and names like the measures' columns.
NAMES = [
    "a",
    "b",
    "a__b",
    "b__c",
    "c",
    "a b",
    "A`b",
    "rows",
    "value",
    "c0",
    "c1",
    "select",
    "\xe9",
    "e\u0301",
    "nulls `a`",
]
NAMES += ["a`, `b", '["a"]', "x" * 120]


@given(
    st.sampled_from(["v", "v__values__x", "v" * 100, "v" * 99]),
    st.lists(
        st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True), min_size=1, max_size=6, unique_by=tuple
    ),
    st.sampled_from(NAMES),
)
@QUICK
def test_each_rule_has_separate_measures_with_any_names(view: str, keys: list[list[str]], column: str) -> None:
    """There are as many views and numbers as lists of columns.

    Every view name is valid, and each number has a separate column.
    """
    items = [expectation("expect_compound_columns_to_be_unique", column_list=key) for key in keys]
    items += [expectation("expect_column_values_to_be_unique", column=column)]
    items += [expectation("expect_column_distinct_values_to_be_in_set", column=column, value_set=[1])]
    relation = Relation(
        1, view, RelationKind.VIEW, tuple(ColumnSpec(name, "int") for name in NAMES), msgspec.Raw(b"{}")
    )
    with patch("tussock.jobs.quality.measures._is_unique_by_key", return_value=False):
        found, other = (
            measures_of(
                Suite(name, Path("x.json"), tuple(items), None, False, "", ""),
                msgspec.structs.replace(relation, name=name),
            )
            for name in (view, "v_")
        )
    assert len(found.views) == 1 + len(keys) + 2, "the numbers, each list, the column's own"
    assert all(re.fullmatch(r"__quality__[a-z0-9_]+", name) and len(name) <= 100 for name in found.views)
    assert len({number.column.casefold() for number in found.numbers}) == len(found.numbers) == 1 + len(keys) + 1
    assert found.views.keys().isdisjoint(other.views)
