"""Rows on which Spark computes expressions between two levels: typed columns in the frame that carries cells.

For an exchange with a `project`, units emit typed rows instead of cells. Such a row has no chunk, but a value in the
column of its *step*:

    slot | fragment | input | chunk | p0: the rows of step 0 | p1 …            the output of units
    slot | fragment | input | chunk | p0: Spark's results    | p1 …            the input of the next level

    p0, output:  struct<unit, row, w, c0, c1, …>        the exchange's columns; `unit` and `row`: the row's position
    p0, input:   struct<unit, row, w, c0, …, raised>    a column per expression of the exchange; `raised`: the
                                                        original row if an expression raised on it

A cell has NULL in p0, so that Spark's CASE skips it. On arrival, the rows of a step are sorted by (unit, row), because
the shuffle reorders them. They then become cells, so that later code handles cells only.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, encode_table, make_chunk
from tussock.jobs.chunks.failure import encode_failure
from tussock.jobs.executors.base import net_chunk
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import BY_SPARK, Call, Column
from tussock.jobs.schedule.schedule import Exchange, Schedule, ScheduledFragment
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, LeafInput, Mail, make_cells
from tussock.jobs.wire.failed_row import RaisedInSpark, short_values
from tussock.statestore.errors import DamagedError, TussockError
from tussock.statestore.months import carried_rows, carried_type
from tussock.statestore.nested import is_nested, relabel_column
from tussock.statestore.types import arrow_type, type_name

UNIT, ROW, RAISED, VALUE = "unit", "row", "raised", "v"
BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class SparkStep:
    """The expressions that Spark computes on the rows of one exchange, after the producer's level."""

    number: int  # index among the steps of the level
    producer: ScheduledFragment
    exchange: Exchange

    @property
    def column(self) -> str:
        """The name of the column that holds its rows."""
        return f"p{self.number}"

    @property
    def address(self) -> Address:
        """The address of its rows, and of the cells that they become."""
        return Address.of_exchange(self.producer.id, self.exchange.index)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that Spark computes, in order."""
        return tuple(e for e in self.exchange.needed.project if isinstance(e, Call) and e.node == BY_SPARK)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the exchange's columns."""
        read = {
            c.index: c.type
            for e in self.exchange.needed.project
            for c in ((e,) if isinstance(e, Column) else _columns_of(e))
        }
        return tuple(arrow_type(read[i]) for i in range(len(self.exchange.needed.columns)))

    @property
    def handed_type(self) -> pa.DataType:
        """The type of a row in the unit's output."""
        columns = [(f"c{i}", carried_type(kind)) for i, kind in enumerate(self.types)]
        return pa.struct([(UNIT, pa.int32()), (ROW, pa.int64()), (WEIGHT, pa.int64()), *columns])


def steps_behind(schedule: Schedule, level: int) -> tuple[SparkStep, ...]:
    """The steps that Spark computes between a level and the next one."""
    if level < 0:
        return ()
    steps = ((s, x) for s in schedule.levels[level] for x in s.exchanges if x.needed.project)
    return tuple(SparkStep(number, s, x) for number, (s, x) in enumerate(steps))


def frame_schema(steps: Sequence[SparkStep]) -> pa.Schema:
    """The schema of the output of a level's units."""
    return pa.schema([*CELL_SCHEMA, *(pa.field(s.column, s.handed_type) for s in steps)])


def typed_rows(slot: int, step: SparkStep, unit: int, chunk: pa.Table) -> Iterator[pa.RecordBatch]:
    """Convert a chunk for unit `slot` to rows of a step. `unit` is the sending unit."""
    pieces = max(1, -(-chunk.nbytes // BATCH_BYTES))
    size = max(1, -(-chunk.num_rows // pieces))
    schema = frame_schema([step])
    for start in range(0, chunk.num_rows, size):
        piece = carried_rows(chunk.slice(start, size)).combine_chunks()
        n = piece.num_rows
        places = [pa.array(np.full(n, unit, np.int32)), pa.array(np.arange(start, start + n, dtype=np.int64))]
        columns = [c.chunk(0) if c.num_chunks else c.combine_chunks() for c in piece.columns]
        rows = pa.StructArray.from_arrays([*places, columns[-1], *columns[:-1]], fields=list(step.handed_type))
        address = [pa.array(np.full(n, v, np.int32)) for v in (slot, *step.address)]
        yield pa.record_batch([*address, pa.nulls(n, pa.binary()), rows], schema=schema)


def widen_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Add the columns of all steps of the level to a unit's cells or rows."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        batch.column(f.name) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.record_batch(columns, schema=schema)


def as_cells(
    batches: Iterator[pa.RecordBatch], steps: Sequence[SparkStep], schedule: Schedule
) -> Iterator[pa.RecordBatch]:
    """Convert the input of units to cells. The input's cells come first, then the rows of each step and unit, in order.

    If an expression raised on rows, a failure that holds the first such row replaces the cells of its step.
    """
    waiting: dict[tuple[int, int], list[pa.StructArray]] = {}  # by number of the step, and unit
    width = len(CELL_SCHEMA)
    for batch in batches:
        if not steps:
            yield batch
            continue
        chunks = batch.column(3)
        if chunks.null_count < len(chunks):
            yield pa.record_batch(batch.columns[:width], schema=CELL_SCHEMA).filter(chunks.is_valid())
        if chunks.null_count:
            for step in steps:
                typed = batch.filter(batch.column(step.column).is_valid())
                for slot in pc.unique(typed.column(0)).to_pylist():
                    rows = typed.column(step.column).filter(pc.equal(typed.column(0), slot))
                    waiting.setdefault((step.number, slot), []).append(rows)
    for step in steps:
        for slot in sorted(slot for number, slot in waiting if number == step.number):
            try:
                yield _cells_of_rows(step, pa.concat_arrays(waiting.pop((step.number, slot))), schedule, slot)
            except TussockError as err:
                yield _failure_cell(slot, encode_failure(err, step.producer.shown_name, step.producer.level + 1))


def _failure_cell(slot: int, failure: bytes) -> pa.RecordBatch:
    """A failure that has reached this unit only. The unit will announce it to the others."""
    return make_cells(slot, Address(Mail.FAILURE, LeafInput.ROWS), [failure])


def _cells_of_rows(step: SparkStep, rows: pa.StructArray, schedule: Schedule, slot: int) -> pa.RecordBatch:
    order = np.lexsort((rows.field(ROW).to_numpy(), rows.field(UNIT).to_numpy()))
    rows = rows.take(pa.array(order))
    raised = rows.field(RAISED)
    if raised.null_count < len(raised):
        first = raised.take([pc.index(raised.is_valid(), True)])
        return _failure_cell(slot, _encode_failure(step, first, schedule))
    columns = [
        _as_bound(rows.field(f"c{i}"), e.type, expression_text(e)) for i, e in enumerate(step.exchange.needed.project)
    ]
    return make_cells(slot, step.address, encode_table(net_chunk(make_chunk(columns, rows.field(WEIGHT)))))


def _as_bound(column: pa.Array, kind: str, text: str) -> pa.Array:
    """Convert a column to the bound type.

    Arrow names timestamps after the session's time zone; other types must match.
    """
    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(column.type):
        return column.cast(wanted)
    if is_nested(column.type) or column.type == carried_type(wanted):
        return relabel_column(column, wanted)
    raise SparkTypeError(text, str(column.type), kind)


def _encode_failure(step: SparkStep, raw: pa.StructArray, schedule: Schedule) -> bytes:
    """Encode a RaisedInSpark. `raw`: the row as the unit emitted it."""
    reader, input_index = next(
        (s, number)
        for s in schedule.all_fragments()
        for number, origin in enumerate(s.origins)
        if (origin.producer, origin.exchange) == (step.producer.id, step.exchange.index)
    )
    names = [f"c{i}" for i in range(len(step.exchange.needed.columns))]
    table = pa.table(
        [_as_bound(raw.field(name), type_name(kind), name) for name, kind in zip(names, step.types, strict=True)],
        names=names,
    )
    calls = [
        [c.params[0][1], [a.index for a in c.args if isinstance(a, Column)], expression_text(c)] for c in step.calls
    ]
    values = short_values(table, 0)
    (data,) = encode_table(table)
    error = RaisedInSpark(reader.shown_name, reader.id, input_index, calls, values, base64.b64encode(data).decode())
    return encode_failure(error, reader.shown_name, reader.level)


def _columns_of(call: object) -> Iterator[Column]:
    if isinstance(call, Call):
        yield from (a for a in call.args if isinstance(a, Column))


class SparkTypeError(DamagedError):
    """Spark returned a column of another type than the bound one."""

    text: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return (
            f"Spark returned {self.finding} for {self.text}, expected {self.expected}. "
            "Nothing of this epoch was committed."
        )
