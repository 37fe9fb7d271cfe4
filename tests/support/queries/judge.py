"""Spark's own answers over the same rows, and the comparison of a view's rows with them."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.support.queries.data import Database, names, rows_of
from tests.support.truth.compare import assert_same_answer
from tests.support.truth.judge import judge_session

_LIMIT = re.compile(r"\blimit\s+(\d+)\s*$", re.IGNORECASE)


class Judge:
    """Spark over the tables as they are in one epoch."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = judge_session(spark)

    def look_at(self, database: Database) -> None:
        """The tables' rows from now on."""
        for table in names(database):
            self.look_at_rows(table, rows_of(database, table))

    def look_at_rows(self, table: str, rows: pa.Table) -> None:
        """A table's rows from now on."""
        self._session.createDataFrame(rows).createOrReplaceTempView(f"`{table}`")

    def look_at_files(self, folders: Mapping[str, Path]) -> None:
        """The rows of Parquet files, by table."""
        for table, folder in folders.items():
            self._session.read.parquet(str(folder)).createOrReplaceTempView(f"`{table}`")

    def columns(self, sql: str) -> list[str]:
        """The names of a query's columns; nothing runs."""
        return self._session.sql(sql).columns

    def compare(self, found: pa.Table, sql: str, what: str) -> int:
        """Fail with the first differences between a view's rows and Spark's answer; return the answer's number of rows.

        A LIMIT may cut through rows that are equal in its order, and any of them may stay. The view's rows must then be
        rows of the query without its LIMIT, as many, and equal to Spark's in the order's columns.
        """
        expected = self._session.sql(sql).toArrow()
        expected = (
            expected.rename_columns(found.column_names)
            if len(set(expected.column_names)) < expected.num_columns
            else expected
        )
        scale = _scale(expected)
        try:
            assert_same_answer(found, expected, what, scale=scale)
        except AssertionError:
            if (
                not (limited := _LIMIT.search(sql))
                or expected.num_rows < int(limited[1])
                or found.num_rows != expected.num_rows
            ):
                raise
            order = self._ordered_by(sql)
            assert_same_answer(found, expected, what, only=order, scale=scale)
            everything = self._session.sql(sql[: limited.start()]).toArrow()
            extra = Counter(map(repr, found.to_pylist())) - Counter(map(repr, everything.to_pylist()))
            assert not extra, f"{what}: rows {list(extra)[:5]}, which the query has none of without its LIMIT"
        return int(expected.num_rows)

    def _ordered_by(self, sql: str) -> list[str]:
        """The output columns that a query's ORDER BY names."""
        plan = self._session.sql(sql)._jdf.queryExecution().analyzed()
        while (name := plan.productPrefix()) in ("GlobalLimit", "LocalLimit", "Project", "WithCTE"):
            plan = plan.plan() if name == "WithCTE" else plan.child()
        assert plan.productPrefix() == "Sort", plan.productPrefix()
        out = {plan.output().apply(i).exprId().id(): plan.output().apply(i).name() for i in range(plan.output().size())}
        keys = [plan.order().apply(i).child() for i in range(plan.order().size())]
        return [
            out[k.exprId().id()] for k in keys if k.productPrefix() == "AttributeReference" and k.exprId().id() in out
        ]


def _scale(expected: pa.Table) -> float:
    """The largest absolute float in the answer."""
    floats = [c for c in expected.columns if pa.types.is_floating(c.type)]
    return max((abs(v) for c in floats for v in c.to_pylist() if v is not None), default=1.0)


def counts_text(counts: Mapping[str, int]) -> str:
    """How many of the queries found something."""
    return f"{sum(n > 0 for n in counts.values())} of {len(counts)} queries have rows"
