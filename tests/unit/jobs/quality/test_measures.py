"""Hidden views of suites: their names, their samples, and the expectations that are left to Spark."""

import json
import re
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.jobs.quality.measures import FILLED, GREATER, ITEMS, MEAN, UNIQUE, expectation, pipeline_in, where
from tests.support.memory_store import MemoryObjectStore
from tests.support.names import QUICK
from tussock.jobs.operations.deploy import derive_measures
from tussock.jobs.quality.assertions import _shown
from tussock.jobs.quality.expectations import ROWS, Number, find_needs
from tussock.jobs.quality.measured import (
    MeasuredRows,
    MeasureReader,
    ViewMetrics,
    WrongRows,
    _is_overflow,
    duplicate_rows,
)
from tussock.jobs.quality.measures import Measures, find_measures, select_statements
from tussock.jobs.quality.record import SAMPLE_KEYS
from tussock.jobs.quality.rows import RowsOfMetrics
from tussock.jobs.quality.suite import QualitySuiteError, Suite, read_suite
from tussock.jobs.quality.suite_runs import SuiteRuns
from tussock.jobs.quality.valid_suite import require_valid
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.settings import StoreSettings, initial_version
from tussock.statestore.types import arrow_type


def test_a_sum_beyond_its_type_is_left_to_spark() -> None:
    total, nulls, most = (Number(kind, ("n",)) for kind in ("sum", "nulls", "max"))
    numbers = {ROWS.column: 3, nulls.column: 1, total.column: None}
    assert _is_overflow(total, numbers)
    assert not _is_overflow(total, {**numbers, nulls.column: 3})
    assert not _is_overflow(most, {**numbers, most.column: None})


def test_a_value_that_half_of_a_large_view_holds_is_sampled_and_not_written_out() -> None:
    rows = pa.table({"c0": ["a", "b"], "rows": [10**12, 2]})
    wrong = duplicate_rows(rows.slice(0, 0), iter([rows]), ["code"])
    assert (wrong.count, wrong.sample.to_pylist()) == (10**12 + 2, [{"code": "a"}] * SAMPLE_KEYS)


#: 10000-01-01, which Spark's types hold and Python's do not, and the last instants of 9999.
FAR = {
    "at": pa.array([2_932_897], pa.int32()).cast(pa.date32()),
    "seen": pa.array([253_402_300_799_000_000]).cast(pa.timestamp("us", "UTC")),
}


def test_dates_that_python_lacks_are_shown_as_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        wrong = WrongRows(1, pa.table(FAR))
        shown = {"at": "10000-01-01", "seen": "9999-12-31 23:59:59+00:00"}
        assert wrong.rows() == [shown]
        assert wrong.values(["at"], 5) == [("10000-01-01",)]
        assert _shown(pa.table(FAR)) == [shown]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_extreme_that_python_lacks_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [expectation(f"expect_column_{kind}_to_be_between", column="at", min_value="2024-01-01") for kind in ENDS]
    columns = ColumnSpec("at", "date"), ColumnSpec("n", "int")
    view = Relation(1, "kept", RelationKind.VIEW, columns, msgspec.Raw(b"{}"))
    wanted = find_measures(Suite("kept", Path("kept.json"), tuple(items), None, False, "", ""), view)
    sqls = wanted.parts[""].numbers
    numbers = {number.column: FAR["at"] if number.kind == "max" else pa.array([3]) for number in sqls}
    monkeypatch.setattr(MeasureReader, "_is_maintained", lambda *_: True)
    monkeypatch.setattr(MeasureReader, "_table", lambda *_: pa.table(numbers))
    reader = MeasureReader(MemoryObjectStore(), initial_version(StoreSettings(1, 8, 2, "UTC")), {}, view, 1)
    _, answered, reasons = reader.read(wanted)
    assert [item["type"] for item in answered] == [items[1]["type"]]
    assert list(reasons.values()) == ["its date is outside of the years 1 to 9999"]


ENDS = ("max", "min")


def test_a_set_may_hold_numbers_that_its_column_cannot() -> None:
    values = {"n": pa.table({"value": pa.array([1, 2], pa.int8()), "rows": [1, 1]})}
    metrics = ViewMetrics((("n", "tinyint"),), {"": MeasuredRows({ROWS: 2}, values, {}, {}, {})})
    wanted = {"value_set": [1, 300]}
    assert metrics.metric("column.distinct_values.not_in_set", {"column": "n"}, wanted) == [2]
    assert metrics.metric("column.distinct_values.missing_from_column", {"column": "n"}, wanted) == [300]


TYPES = {"id": "bigint", "list": "array<int>", "text": "string", "wide": "decimal(38,0)", "fine": "decimal(38,18)"}


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (
            expectation("expect_column_values_to_match_regex", column="text", regex="(?i)a"),
            "has a pattern with '(?i)', which is not among the supported elements of patterns",
        ),
        (expectation("expect_column_values_to_be_unique", column="list"), "column 'list' is array<int>"),
        (expectation("expect_column_values_to_be_between", column="text", min_value="a"), "column 'text' is string"),
        (expectation("expect_column_values_to_be_between", column="id", min_value="1"), "bound '1'"),
        (expectation("expect_column_values_to_be_between", column="id", min_value=2**60), f"bound {2**60}"),
        (
            expectation("expect_column_values_to_be_between", column="id", min_value=5, max_value=1),
            "no value is between its bounds",
        ),
        (expectation("expect_column_values_to_be_between", column="id"), "no bound"),
        (
            expectation("expect_column_values_to_be_in_set", column="id", value_set=["1"]),
            "values of another type than bigint",
        ),
        (
            expectation("expect_column_values_to_be_in_set", column="text", value_set=["a", None]),
            "values of another type than string",
        ),
        (
            where({"type": "comparison", "column": {"name": "id"}, "operator": "in", "parameter": [1]}, FILLED),
            "row_condition {'type': 'comparison', 'column': {'name': 'id'}, 'operator': 'in', 'parameter': [1]}",
        ),
        (
            expectation(GREATER, column_A="wide", column_B="fine"),
            "columns ['wide', 'fine'] have no common decimal type",
        ),
        (
            expectation("expect_column_pair_values_to_be_equal", column_A="id", column_B="text"),
            "column 'text' is string",
        ),
        (
            where("id > 1", expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch}")),
            "a query with a row_condition",
        ),
    ],
)
def test_expectations_that_may_differ_run_in_spark(item: dict[str, Any], why: str) -> None:
    assert find_needs(item, TYPES) == why


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
        derive_measures(pipeline)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"expectations": [], "meta": ["key"]}', 'meta ["key"]'),
        ('{"expectations": [], "meta": {"severity": ["error"]}}', 'meta.severity ["error"]'),
        ('{"expectations": [{"type": "t", "meta": ["x"]}]}', 'expectation 1: meta ["x"]'),
        ('{"expectations": [{"type": "t", "severity": {}}]}', "expectation 1: severity {}"),
        ("[" * 100_000, "maximum recursion depth exceeded"),
    ],
)
def test_values_of_another_kind_in_a_suite_are_named(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(QualitySuiteError, match=re.escape(f"kept.json: found {found}")):
        read_suite(tmp_path / "kept.json")


@pytest.mark.parametrize("arguments", [{"column": ["n"]}, {"column_list": [["n"], "id"]}, {"column": {"a": 1}}])
def test_a_column_that_is_no_text_is_named(tmp_path: Path, arguments: dict[str, Any]) -> None:
    kind = "expect_compound_columns_to_be_unique" if "column_list" in arguments else UNIQUE["type"]
    (tmp_path / "kept.json").write_text(json.dumps({"expectations": [expectation(kind, **arguments)]}))
    view = Relation(1, "kept", RelationKind.VIEW, (ColumnSpec("n", "int"),), msgspec.Raw(b"{}"))
    with pytest.raises(QualitySuiteError, match=r"kept\.json: found expectation 1: column"):
        require_valid(read_suite(tmp_path / "kept.json"), view)


#: Names that a separator would join to the same text, and names like those of the measures' columns.
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
    with patch("tussock.jobs.quality.measures.is_unique_by_key", return_value=False):
        parts = [
            find_measures(
                Suite(name, Path("x.json"), tuple(items), None, False, "", ""),
                msgspec.structs.replace(relation, name=name),
            ).parts[""]
            for name in (view, "v_")
        ]
        names, others = (
            [each for each, _ in select_statements(msgspec.structs.replace(relation, name=name), part)]
            for name, part in zip((view, "v_"), parts, strict=True)
        )
    assert len({*names}) == len(names) == 1 + len(keys) + 2, "the numbers, each list, the column's own"
    assert all(re.fullmatch(r"__quality__[a-z0-9_]+", name) and len(name) <= 100 for name in names)
    numbers = parts[0].numbers
    assert len({number.column.casefold() for number in numbers}) == len(numbers) == 1 + len(keys) + 1
    assert {*names}.isdisjoint(others)


@pytest.mark.parametrize(("condition", "doubled"), [("n", True), ("`n` -- x", True), ("n > 1", False), ("'", False)])
def test_a_condition_of_one_word_is_no_name_of_the_view(condition: str, doubled: bool) -> None:
    """Spark reads `FROM v WHERE (n)` as the view v by the name `WHERE`; tests/spark has the rows."""
    view = Relation(1, "v", RelationKind.VIEW, (ColumnSpec("n", "boolean"),), msgspec.Raw(b"{}"))
    ((_, select),) = select_statements(view, Measures(condition))
    assert ("WHERE ((" in select) == doubled


COLUMNS = {"id": "int", "shop": "string", "at": "date", "n": "int", "amount": "double"}
COLUMNS |= {"price": "decimal(10,2)", "code": "string"}


def empty_rows(measures: Measures) -> MeasuredRows:
    """The contents of measures over no rows."""
    no_rows = pa.table({name: pa.array([], arrow_type(kind)) for name, kind in COLUMNS.items()})
    wrong = WrongRows(0, no_rows)
    values = {c: pa.table({"value": no_rows[c], "rows": pa.array([], pa.int64())}) for c in measures.values}
    return MeasuredRows(
        {number: None if number.kind in ("max", "min", "mean", "sum", "stdev") else 0 for number in measures.numbers},
        values,
        dict.fromkeys(measures.duplicates, wrong),
        {number: (rule, wrong) for number, rule in measures.rules.items()},
        dict.fromkeys(measures.queries, wrong),
    )


def test_great_expectations_requests_no_metric_that_hidden_views_lack(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({"expectations": ITEMS}))
    suite = read_suite(file)
    columns = tuple(ColumnSpec(name, kind) for name, kind in COLUMNS.items())
    found = find_measures(suite, Relation(1, "kept", RelationKind.VIEW, columns, msgspec.Raw(b"{}")))
    assert found.by_spark == {}
    metrics = ViewMetrics(tuple(COLUMNS.items()), {c: empty_rows(part) for c, part in found.parts.items()})
    with SuiteRuns(None, spark=False) as runs:
        result = runs.check(suite, suite.whole, RowsOfMetrics(metrics), 1 << 16, ["id"])
    assert [failure for failure in result.failures if "error" in failure.observed] == []
    assert len(result.metrics) == len(ITEMS)
