"""Proposes a first suite for a view, from its rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.types import type_name

MOST_VALUES = 12
"""A column of strings with at most this many distinct values gets a set."""

_FEWEST_ROWS = 50  # with fewer rows, a small number of distinct values says nothing
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def proposed(rows: pa.Table, key: Sequence[str]) -> dict[str, Any]:
    """Return a suite, as the document of its file, that these rows pass.

    It contains the rules that most views need: the row count within half of its recent median, a key without
    duplicates, and by column no NULL, no negative number, and a set of values, if the rows are like this now.

    Args:
        key: the visible columns of the view's key; empty: none is visible.

    Cost: a few passes over each column.
    """
    expectations = [_expectation("expect_table_row_count_to_be_between", {"history": {"runs": 10, "within": 0.5}})]
    if key and rows.num_rows:
        one = len(key) == 1
        kind = "expect_column_values_to_be_unique" if one else "expect_compound_columns_to_be_unique"
        expectations.append(_expectation(kind, **({"column": key[0]} if one else {"column_list": list(key)})))
    for name in rows.column_names:
        expectations += _of_column(name, rows[name])
    return {"meta": {}, "expectations": expectations}


def _of_column(name: str, column: Any) -> Iterator[dict[str, Any]]:
    if not len(column) or column.null_count == len(column):
        return
    if column.null_count == 0:
        yield _expectation("expect_column_values_to_not_be_null", column=name)
    kind = type_name(column.type).partition("(")[0]
    if kind in _NUMBERS and not pc.any(pc.less(column, pa.scalar(0).cast(column.type))).as_py():
        yield _expectation("expect_column_values_to_be_between", column=name, min_value=0)
    if kind == "string" and len(column) >= _FEWEST_ROWS:
        values = sorted(pc.unique(column.drop_null()).to_pylist())
        if len(values) <= MOST_VALUES:
            yield _expectation("expect_column_values_to_be_in_set", column=name, value_set=values)


def _expectation(kind: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": arguments, **({"meta": meta} if meta else {})}
