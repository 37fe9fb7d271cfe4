"""The Nexmark benchmark: all its sides answer as Spark does, a wrong answer is reported, and the figures are right."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.nexmark.figures import Record, table_of
from benchmarks.nexmark.workload import Events, Query, Sizes, queries
from tests.support.spark_types import SparkSession

if TYPE_CHECKING:  # imports pyspark
    from benchmarks.nexmark.peers import Peer, Stopwatch

_SMALL = Sizes(events=2_000, epochs=1, small_events=100, small_epochs=1)


@dataclass(frozen=True)
class _Wrong:
    """A side that loses a row of the right result, or changes one."""

    inner: "Peer"
    loses: bool
    title: str = "a wrong side"

    def run(self, query: Query, events: Events, folder: Path, watch: "Stopwatch") -> pa.Table:
        rows = self.inner.run(query, events, folder, watch)
        if self.loses:
            return rows.slice(1)
        return rows.set_column(0, rows.column_names[0], pa.array(range(rows.num_rows), rows.schema[0].type))


def test_the_sides_answer_as_spark_does_and_a_wrong_answer_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    from benchmarks.nexmark.compare import compare_nexmark
    from benchmarks.nexmark.peers import PEERS, RecomputingDuckDB

    sides = {name: PEERS[name](spark) for name in ("local", "spark", "duckdb")}
    sides |= {f"wrong-{loses}": _Wrong(RecomputingDuckDB(), loses) for loses in (True, False)}
    chosen = [queries()[name] for name in ("q2", "q17")]  # only a filter, and a group-by with floats
    record = Record({}, _SMALL, {name: side.title for name, side in sides.items()})
    for results in compare_nexmark(spark, tmp_path, chosen, sides, _SMALL, lambda _: None):
        record = record.plus(results)
    for one in record.results:
        assert bool(one.wrong) == one.peer.startswith("wrong"), one
        assert len(one.runs[0].wall) == len(one.runs[0].cpu) == 2
    lost, changed = (record.of("q17", f"wrong-{loses}") for loses in (True, False))
    assert lost.wrong == f"found {lost.rows} rows, expected {lost.rows + 1}"
    assert changed.wrong.startswith("found the row {'auction': 0, 'day': '2015-07-15', ")
    assert f"WRONG: {lost.wrong}" in table_of(record)
