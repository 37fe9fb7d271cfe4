"""Rows on which Spark computes between two levels. They return as the cells they would have been, in any order of
arrival.
"""

import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.chunks.chunk import decode_tables, make_chunk
from tussock.jobs.chunks.failure import first_failure
from tussock.jobs.logical.nodes import BY_SPARK, Call, Column
from tussock.jobs.plan.fragments import Dispatch
from tussock.jobs.schedule.schedule import Exchange, InputOrigin, NeededOutput, Schedule, ScheduledFragment
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, Mail, addresses_of, make_cells
from tussock.jobs.wire.failed_row import RaisedInSpark
from tussock.jobs.wire.typed_rows import (
    RAISED,
    ROW,
    UNIT,
    SparkStep,
    as_cells,
    frame_schema,
    steps_behind,
    typed_rows,
    widen_batch,
)

UPPER = Call(BY_SPARK, "string", (Column(1, "string"),), params=(("sql", "initcap(`a0`)"),))
TYPES = ("bigint", "string")
EXCHANGE = Exchange(0, NeededOutput((0, 1), Dispatch.STAY, project=(Column(0, "bigint"), UPPER)), 1)


def fragment(
    id: int, level: int, origins: tuple[InputOrigin, ...] = (), exchanges: tuple[Exchange, ...] = ()
) -> ScheduledFragment:
    return ScheduledFragment(
        id, level, 1, "v", "view", False, False, None, None, (), origins, exchanges, (), None, False
    )


SCHEDULE = Schedule(
    ((fragment(0, 0, exchanges=(EXCHANGE,)),), (fragment(1, 1, origins=(InputOrigin(0, 0, EXCHANGE.needed, TYPES),)),)),
)


@pytest.fixture
def step() -> SparkStep:
    (step,) = steps_behind(SCHEDULE, 0)
    return step


def chunk(*rows: tuple[int, str | None, int]) -> pa.Table:
    ids, texts, weights = zip(*rows, strict=True)
    return make_chunk([pa.array(ids, pa.int64()), pa.array(texts, pa.string())], pa.array(weights, pa.int64()))


def as_spark_would(batch: pa.RecordBatch, step: SparkStep, raises: str = "") -> pa.RecordBatch:
    """Spark's result for a unit's batch: `initcap` of the text, and the row itself if its text is `raises`."""
    rows = batch.column(step.column).to_pylist()
    columns = [("c0", pa.int64()), ("c1", pa.string()), (RAISED, step.handed_type)]
    kind = pa.struct([(UNIT, pa.int32()), (ROW, pa.int64()), ("w", pa.int64()), *columns])

    def computed(row: dict[str, object]) -> dict[str, object]:
        text = row["c1"]
        return {**row, "c1": None if text is None else str(text).title(), RAISED: row if text == raises else None}

    made = [None if r is None else computed(r) for r in rows]
    return pa.record_batch([*batch.columns[:4], pa.array(made, kind)], names=[*CELL_SCHEMA.names, step.column])


def test_rows_and_cells_are_in_order_after_any_shuffle(step: SparkStep) -> None:
    handed = [
        widen_batch(batch, frame_schema([step]))
        for unit, rows in ((1, chunk((5, "e", 1), (4, None, -1))), (0, chunk((1, "a", 1), (2, "b", 2))))
        for batch in typed_rows(3, step, unit, rows)
    ]
    cell = widen_batch(make_cells(3, Address.of_exchange(7, 0), [b"as it was"]), frame_schema([step]))
    arriving = [as_spark_would(batch, step) for batch in (handed[0], cell, handed[1])]
    singles = [batch.slice(i, 1) for batch in arriving for i in reversed(range(batch.num_rows))]
    for order in (arriving, singles, singles[::-1]):
        found = [batch for batch in as_cells(iter(order), (step,), SCHEDULE) if batch.num_rows]
        assert [a for batch in found for a in addresses_of(batch)] == [
            Address.of_exchange(7, 0),
            Address.of_exchange(0, 0),
        ]
        assert found[0].column(3).to_pylist() == [b"as it was"]
        rows = decode_tables(found[1].column(3).to_pylist())
        assert rows is not None
        assert sorted(rows.to_pylist(), key=lambda r: r["c0"]) == [
            {"c0": 1, "c1": "A", "w": 1},
            {"c0": 2, "c1": "B", "w": 2},
            {"c0": 4, "c1": None, "w": -1},
            {"c0": 5, "c1": "E", "w": 1},
        ]


def test_the_same_rows_become_the_same_bytes_in_any_order(step: SparkStep) -> None:
    rows = chunk(*((i, f"text {i}", 1) for i in range(1000)))
    (batch,) = typed_rows(0, step, 0, rows)
    arrived = as_spark_would(batch, step)
    shuffled = arrived.take(pa.array(np.random.default_rng(7).permutation(1000)))
    (one,), (other,) = (list(as_cells(iter([b]), (step,), SCHEDULE)) for b in (arrived, shuffled))
    assert one.equals(other)


def test_the_first_row_that_raises_is_named_with_sparks_input(step: SparkStep) -> None:
    (batch,) = typed_rows(0, step, 0, chunk((1, "a", 1), (2, "bad", 1), (3, "bad", 1)))
    (answer,) = as_cells(iter([as_spark_would(batch, step, raises="bad")]), (step,), SCHEDULE)
    assert answer.column(1).to_pylist() == [Mail.FAILURE]
    error = first_failure(answer.column(3).to_pylist())
    assert isinstance(error, RaisedInSpark)
    assert (error.relation, error.fragment, error.input_index, error.values) == ("v", 1, 0, ["2", "'bad'"])
    assert "initcap(c1)" in str(error)


def test_a_large_chunk_goes_out_in_several_batches(step: SparkStep) -> None:
    rows = chunk(*((i, "x" * 100_000, 1) for i in range(1000)))
    batches = list(typed_rows(0, step, 2, rows))
    assert len(batches) == 3
    assert [b.column("p0").field(ROW)[0].as_py() for b in batches] == [0, 334, 668]
    assert all(b.column(3).null_count == b.num_rows for b in batches)
