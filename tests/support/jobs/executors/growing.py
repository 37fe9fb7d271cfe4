"""Operators over groups of different sizes, and changes that touch a few rows of some groups.

An `Entry` is a node with its input. Its changes are applied to a loaded state that no process has in memory, so that
each read reaches the store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.reads import Reads, count_reads
from tests.support.jobs.executors.harness import VNODES, kernel
from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.aggregates.registry import aggregate_of
from tussock.jobs.executors.group_top_n import GroupTopN
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin, joined_types
from tussock.jobs.executors.keyed_changes import KeyedChanges
from tussock.jobs.executors.keyed_deliveries import KeyedDeliveries
from tussock.jobs.executors.materialize import Materialize
from tussock.jobs.executors.null_aware_anti import NullAwareAnti
from tussock.jobs.executors.number_copies import NumberCopies
from tussock.jobs.executors.operator import Actor
from tussock.jobs.executors.operator import Entry as LogEntry
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.registry import Node
from tussock.jobs.executors.row_join import RowJoin
from tussock.jobs.executors.single_row import SingleRowNode
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.executors.top_n import TopNNode
from tussock.jobs.executors.value_layout import value_layout
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical.nodes import (
    AggFunction,
    Call,
    Column,
    Comparison,
    FrameEdge,
    JoinKind,
    Literal,
    WindowFunction,
)
from tussock.jobs.logical.statements import Delete, Insert, RowChange
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type

GROUPS = 4
TYPES = (
    "bigint",  # the group
    "bigint",  # the order within the group
    "bigint",  # the stream key
    "bigint",
    "double",
    "string",
    "int",  # a position in a bitmap
    "binary",  # a bitmap
    "array<double>",
    "bigint",  # the end of sessions of seven rows
    "bigint",  # the end of sessions that never end
)
GROUP, ORDER, KEY, VALUE, REAL, TEXT, POSITION, BITMAP, VECTOR, END, NO_END = range(len(TYPES))
_SKETCH = (
    ("precision", "6"),
    ("threshold", "10.0"),
    ("estimates", "1.0,2.0,3.0,4.0,5.0,6.0,7.0"),
    ("biases", "0,0,0,0,0,0,0"),
)

Chunks = Callable[[int], list[pa.Table]]
"""Chunks, one per input, for groups of this many rows."""


@dataclass(frozen=True)
class GrowingCase:
    """A node, the rows that its state has, and changes by name.

    `grows`: the changes whose reads grow with the groups.
    """

    name: str
    node: Node
    load: Chunks
    changes: Mapping[str, Chunks]
    grows: tuple[str, ...] = ()
    log: Mapping[str, Callable[[int], list[RowChange]]] = field(default_factory=dict)  # changes of a table's log


# --- rows -----------------------------------------------------------------------------------------


def rows_at(group: np.ndarray, place: np.ndarray, more: int = 0) -> pa.Table:
    """The row of each group at a place in its order. `more` is added to its value."""
    value = (place * 7_919 + group) % 10_007 + more
    order = place * 10
    columns = [
        pa.array(group),
        pa.array(order),
        pa.array(group * 1_000_000 + place),
        pa.array(value),
        pa.array(value / 7),
        pa.array([f"text {v}" for v in value.tolist()]),
        pa.array(value % 32_768, pa.int32()),
        pa.array([v.to_bytes(4, "little") for v in value.tolist()], pa.binary()),
        pa.array([[float(v), 1.0] for v in value.tolist()], arrow_type("array<double>")),
        pa.array(order + np.where(place % 7 == 0, 5, 12)),
        pa.array(order + 100),
    ]
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    return make_chunk(rows.columns, pa.array(np.full(rows.num_rows, weight)))


def all_rows(size: int) -> list[pa.Table]:
    """The rows of all groups."""
    group, place = np.divmod(np.arange(GROUPS * size), size)
    return [weighted(rows_at(group, place), 1)]


def appended(size: int) -> list[pa.Table]:
    """A new last row in each group."""
    group = np.arange(GROUPS)
    return [weighted(rows_at(group, np.full(GROUPS, size)), 1)]


def corrected(size: int) -> list[pa.Table]:
    """Near the middle of each group, another value of a row, and a row that disappears."""
    group = np.arange(GROUPS)
    updated, deleted = size // 2 + 5 * group, size // 2 + 5 * group + 2
    return [
        pa.concat_tables(
            [
                weighted(rows_at(group, updated), -1),
                weighted(rows_at(group, updated, 20_000), 1),
                weighted(rows_at(group, deleted), -1),
            ]
        )
    ]


def first_deleted(_: int) -> list[pa.Table]:
    """The first row of each group disappears."""
    group = np.arange(GROUPS)
    return [weighted(rows_at(group, np.zeros(GROUPS, np.int64)), -1)]


OF_GROUPS = {"appended": appended, "corrected": corrected, "first deleted": first_deleted}
_ROWS_CHANGE = ("corrected", "first deleted")  # if a change reaches all later rows

# --- one input --------------------------------------------------------------------------------------


def aggregate(function: AggFunction) -> Agg:
    """A call of each function."""
    double, more = "double", (REAL,)
    match function:
        case AggFunction.COUNT:
            return Agg(function, None, None, "bigint")
        case AggFunction.MODE:
            return Agg(function, VALUE, TYPES[VALUE], TYPES[VALUE], params=(("prefer", "least"),))
        case AggFunction.PERCENTILE | AggFunction.PERCENTILE_DISC:
            shares = (("percentages", "0.5"), ("reverse", "false"))
            return Agg(function, VALUE, TYPES[VALUE], double, params=shares)
        case AggFunction.FIRST | AggFunction.LAST:
            return Agg(function, TEXT, TYPES[TEXT], TYPES[TEXT], params=(("ignoreNulls", "true"),))
        case AggFunction.MIN_BY | AggFunction.MAX_BY:
            return Agg(function, TEXT, TYPES[TEXT], TYPES[TEXT], None, (VALUE,), (TYPES[VALUE],))
        case AggFunction.LISTAGG:
            return Agg(function, TEXT, TYPES[TEXT], TYPES[TEXT], params=(("delimiter", ","),))
        case AggFunction.COLLECT_LIST | AggFunction.COLLECT_SET:
            return Agg(function, VALUE, TYPES[VALUE], "array<bigint>", params=(("ignoreNulls", "true"),))
        case AggFunction.APPROX_COUNT_DISTINCT:
            return Agg(function, VALUE, TYPES[VALUE], "bigint", params=_SKETCH)
        case AggFunction.BITMAP_CONSTRUCT:
            return Agg(function, POSITION, TYPES[POSITION], "binary")
        case AggFunction.BITMAP_OR | AggFunction.BITMAP_AND:
            return Agg(function, BITMAP, TYPES[BITMAP], "binary")
        case AggFunction.VECTOR_SUM | AggFunction.VECTOR_AVG:
            return Agg(function, VECTOR, TYPES[VECTOR], TYPES[VECTOR])
        case AggFunction.SUM | AggFunction.MIN | AggFunction.MAX | AggFunction.ONLY:
            return Agg(function, VALUE, TYPES[VALUE], TYPES[VALUE])
        case AggFunction.BIT_AND | AggFunction.BIT_OR | AggFunction.BIT_XOR:
            return Agg(function, VALUE, TYPES[VALUE], TYPES[VALUE])
        case _ if function in _OF_PAIRS:
            return Agg(function, REAL, double, double, None, more, (double,))
        case _:
            return Agg(function, REAL, double, double)


_OF_PAIRS = {
    AggFunction.COVAR_POP,
    AggFunction.COVAR_SAMP,
    AggFunction.CORR,
    AggFunction.REGR_SXX,
    AggFunction.REGR_SXY,
    AggFunction.REGR_R2,
    AggFunction.REGR_SLOPE,
    AggFunction.REGR_INTERCEPT,
}


def of_aggregates(name: str, *calls: Agg, append_only: bool = False, grows: tuple[str, ...] = ()) -> GrowingCase:
    types = (TYPES[GROUP], *(call.type for call in calls))
    node = HashAgg(TYPES, (GROUP,), calls, (KEY,), append_only, False, types)
    return GrowingCase(name, node, all_rows, {"appended": appended} if append_only else OF_GROUPS, grows)


def aggregate_cases() -> Iterator[GrowingCase]:
    """All aggregates whose state is columns in one case, and each other aggregate in its own."""
    of_columns = []
    for function in AggFunction:
        call = aggregate(function)
        if not value_layout((call,), False).sides:
            of_columns.append(call)
            continue
        grows = tuple(OF_GROUPS) if aggregate_of(call).unbounded_cost(call) is not None else ()
        yield of_aggregates(function.sql, call, grows=grows)
    yield of_aggregates(
        "aggregates in columns", *(call for call in of_columns if call.function is not AggFunction.ONLY)
    )
    distinct = msgspec.structs.replace(aggregate(AggFunction.SUM), distinct=True)
    yield of_aggregates("sum of distinct values", distinct)
    by = msgspec.structs.replace(aggregate(AggFunction.MAX_BY), type="array<string>", params=(("k", "3"),))
    yield of_aggregates("max_by of three", by)
    yield of_aggregates("max of inserts only", aggregate(AggFunction.MAX), append_only=True)


BEGIN, HERE = FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.CURRENT)
NEAR = (True, FrameEnd(FrameEdge.OFFSET, -2), HERE)
SO_FAR, WHOLE = (True, BEGIN, HERE), (True, BEGIN, BEGIN)


def over(function: WindowFunction, frame: tuple[bool, FrameEnd, FrameEnd]) -> Over:
    """A call of each function."""
    match function:
        case WindowFunction.LAG | WindowFunction.LEAD:
            return Over(function, (VALUE,), TYPES[VALUE], TYPES[VALUE], *frame, 1)
        case WindowFunction.NTILE:
            return Over(function, (), None, "int", *frame, 4)
        case WindowFunction.ROW_NUMBER | WindowFunction.RANK | WindowFunction.DENSE_RANK:
            return Over(function, (), None, "int", *frame)
        case WindowFunction.PERCENT_RANK | WindowFunction.CUME_DIST:
            return Over(function, (), None, "double", *frame)
        case WindowFunction.FIRST | WindowFunction.LAST:
            return Over(function, (VALUE,), TYPES[VALUE], TYPES[VALUE], *frame)
        case WindowFunction.NTH:
            return Over(function, (VALUE,), TYPES[VALUE], TYPES[VALUE], *frame, 2)
        case WindowFunction.SESSION:
            return Over(function, (ORDER, END), TYPES[ORDER], TYPES[ORDER], *frame, more_types=(TYPES[END],))
        case _:
            call = aggregate(AggFunction(function.value))
            return Over(
                function,
                call.args,
                call.arg_type,
                call.type,
                *frame,
                more_types=call.more_types,
                params=call.params,
            )


def of_windows(name: str, *calls: Over, grows: tuple[str, ...] = ()) -> GrowingCase:
    types = (*TYPES, *(call.type for call in calls))
    node = OverWindow((GROUP,), (Order(ORDER, False, False),), (KEY,), (GROUP,), calls, TYPES, types)
    return GrowingCase(name, node, all_rows, OF_GROUPS, grows)


def window_cases() -> Iterator[GrowingCase]:
    """All aggregates over a bounded frame in one case, and each other function in its own."""
    of_frames = [over(f, NEAR) for f in WindowFunction if f.value in set(AggFunction)]
    yield of_windows("aggregates over three rows", *of_frames)
    for function in WindowFunction:
        if function.shifts_rows:
            yield of_windows(function.sql, over(function, SO_FAR))
        if function.numbers_rows:
            yield of_windows(function.sql, over(function, SO_FAR), grows=_ROWS_CHANGE)
    yield of_windows("nth_value over three rows", over(WindowFunction.NTH, NEAR), grows=_ROWS_CHANGE)
    for function in (WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST):
        yield of_windows(function.sql, over(function, SO_FAR), grows=tuple(OF_GROUPS))
    yield of_windows("ntile", over(WindowFunction.NTILE, SO_FAR))
    yield of_windows("sessions of seven rows", over(WindowFunction.SESSION, SO_FAR))
    endless = msgspec.structs.replace(over(WindowFunction.SESSION, SO_FAR), args=(ORDER, NO_END))
    yield of_windows("a session without end", endless, grows=("first deleted",))
    so_far = {
        WindowFunction.SUM: _ROWS_CHANGE,
        WindowFunction.MAX: ("corrected",),  # the deleted row is not the greatest
        WindowFunction.FIRST: ("first deleted",),
    }
    for function, grows in so_far.items():
        yield of_windows(f"{function.sql} over all rows so far", over(function, SO_FAR), grows=grows)
        yield of_windows(f"{function.sql} over the partition", over(function, WHOLE), grows=tuple(OF_GROUPS))
    skipping = msgspec.structs.replace(over(WindowFunction.LAG, SO_FAR), ignore_nulls=True)
    yield of_windows("lag that skips NULLs", skipping, grows=tuple(OF_GROUPS))


def digests_of(chunks: Chunks) -> Chunks:
    """A text and two numbers in place of its digest."""

    def digest_rows(rows: pa.Table) -> pa.Table:
        return make_chunk([rows.column(c) for c in (TEXT, KEY, KEY)], rows.column(len(TYPES)))

    return lambda size: [digest_rows(rows) for rows in chunks(size)]


def ranked_cases() -> Iterator[GrowingCase]:
    order = (Order(VALUE, True, True),)
    for function in (f for f in WindowFunction if f.numbers_rows):
        for append_only in (False, True):
            node = GroupTopN((GROUP,), order, (KEY,), (GROUP,), function, 3, TYPES, (*TYPES, "int"), append_only)
            changes = {"appended": appended} if append_only else OF_GROUPS
            name = f"first three by {function.sql}{' of inserts only' if append_only else ''}"
            yield GrowingCase(name, node, all_rows, changes)
        if function is not WindowFunction.ROW_NUMBER:
            ties = GroupTopN(
                (GROUP,), (Order(GROUP, True, True),), (KEY,), (GROUP,), function, 3, TYPES, (*TYPES, "int")
            )
            yield GrowingCase(f"ties of {function.sql}", ties, all_rows, OF_GROUPS, tuple(OF_GROUPS))
    yield GrowingCase("top ten", TopNNode(order, 10, 0, (KEY,), TYPES), all_rows, OF_GROUPS)
    yield GrowingCase("offset ten", TopNNode(order, None, 10, (KEY,), TYPES), all_rows, OF_GROUPS)
    yield GrowingCase("view", Materialize(1, (KEY,), (KEY,), TYPES), all_rows, OF_GROUPS)
    yield GrowingCase("view in an order", Materialize(1, (KEY,), (KEY,), TYPES, order), all_rows, OF_GROUPS)

    copies = NumberCopies((TYPES[TEXT], "bigint", "bigint", "bigint"))
    yield GrowingCase(
        "number of copies", copies, digests_of(all_rows), {n: digests_of(c) for n, c in OF_GROUPS.items()}
    )
    bound = Call("UnixMicros", "bigint", (Column(0, "timestamp"),))
    passes = TemporalFilterNode(ORDER, Comparison.GREATER, bound, False, (KEY,), (KEY,), TYPES)
    yield GrowingCase("temporal filter", passes, all_rows, OF_GROUPS)
    one = make_chunk([pa.array([7])], pa.array([1]))
    other = pa.concat_tables([make_chunk([pa.array([7])], pa.array([-1])), make_chunk([pa.array([8])], pa.array([1]))])
    yield GrowingCase("scalar subquery", SingleRowNode(("bigint",)), lambda _: [one], {"corrected": lambda _: [other]})


# --- two inputs -------------------------------------------------------------------------------------

DIMENSION = ("bigint", "bigint")  # the group, which is the stream key, and a value


def dimension(groups: Sequence[int], value: int, weight: int) -> pa.Table:
    """A row per group."""
    count = len(groups)
    return make_chunk(
        [pa.array(groups, pa.int64()), pa.array([value] * count, pa.int64())], pa.array([weight] * count, pa.int64())
    )


def no_facts() -> pa.Table:
    return all_rows(1)[0].slice(0, 0)


def both(facts: Chunks) -> Chunks:
    return lambda size: [*facts(size), dimension([], 0, 1)]


def renamed(_: int) -> list[pa.Table]:
    """Another value of a dimension's row."""
    return [no_facts(), pa.concat_tables([dimension([3], 0, -1), dimension([3], 1, 1)])]


def join_cases() -> Iterator[GrowingCase]:
    """The facts of each group join one row of a dimension, if the group has one."""
    changes = {**{name: both(change) for name, change in OF_GROUPS.items()}, "other side": renamed}
    changes["new on the other side"] = lambda _: [no_facts(), dimension([1], 0, 1)]
    dimensions = [0, 2, 3]
    for kind in JoinKind:
        sides = (TYPES, DIMENSION, (GROUP,), (0,))
        if kind is JoinKind.NULL_AWARE_ANTI:
            yield _not_in_case(NullAwareAnti(*sides, (KEY,), (0,), TYPES), changes, dimensions)
            continue
        node = HashJoin(*sides, (False,), (KEY,), (0,), None, joined_types(kind, TYPES, DIMENSION, (GROUP,)), kind)
        grows = ("other side", "new on the other side") if node.looks_at_pairs else ("new on the other side",)
        yield GrowingCase(
            f"join {kind}", node, lambda size: [*all_rows(size), dimension(dimensions, 0, 1)], changes, grows
        )
    above = Call("GreaterThan", "boolean", (Column(VALUE, "bigint"), Column(len(TYPES), "bigint")))
    one = make_chunk([pa.array([5_000])], pa.array([1]))
    of_row = {name: with_chunk(change, one.slice(0, 0)) for name, change in OF_GROUPS.items()}
    of_row["other row"] = lambda _: [no_facts(), make_chunk([pa.array([5_000, 5_001])], pa.array([-1, 1]))]
    row = RowJoin(TYPES, ("bigint",), (KEY,), (KEY,), above, False, TYPES)
    yield GrowingCase("join with one row", row, with_chunk(all_rows, one), of_row, ("other row",))


def _not_in_case(node: NullAwareAnti, changes: Mapping[str, Chunks], dimensions: Sequence[int]) -> GrowingCase:
    counts = make_chunk([pa.array([9]), pa.array([9])], pa.array([1]))  # right rows, and those without NULL
    null = make_chunk([pa.array([9, 10]), pa.array([9, 9])], pa.array([-1, 1]))
    of_three = {name: with_chunk(change, counts.slice(0, 0)) for name, change in changes.items()}
    of_three["first NULL"] = lambda _: [no_facts(), dimension([], 0, 1), null]
    load = with_chunk(lambda size: [*all_rows(size), dimension(dimensions, 0, 1)], counts)
    return GrowingCase("join null_aware_anti", node, load, of_three, ("first NULL", "new on the other side"))


def with_chunk(chunks: Chunks, last: pa.Table) -> Chunks:
    """The same chunks and a last one."""
    return lambda size: [*chunks(size), last]


def table_cases() -> Iterator[GrowingCase]:
    """Statements on a table: `load` is what its first INSERT inserts."""
    types = TYPES[:5]
    node = TableReplay(1, (KEY,), types)

    def insert(size: int) -> list[RowChange]:
        return [Insert("t", GROUPS, "appended")]

    def by_key(size: int) -> list[RowChange]:
        return [
            Delete("t", Call("EqualTo", "boolean", (Column(KEY, "bigint"), Literal(1_000_000 * g + 9, "bigint"))))
            for g in range(GROUPS)
        ]

    def by_condition(size: int) -> list[RowChange]:
        return [Delete("t", Call("EqualTo", "boolean", (Column(VALUE, "bigint"), Literal(-1, "bigint"))))]

    log = {"appended": insert, "by key": by_key, "by a condition": by_condition}
    yield GrowingCase("table", node, all_rows, {}, ("by a condition",), log)


def keyed_cases() -> Iterator[GrowingCase]:
    """Changes of a keyed source: `load` is a first change of each key."""
    types = TYPES[:5]

    def changes(rows: pa.Table, position: int) -> pa.Table:
        """Upserts at a position."""
        count, at = rows.num_rows, position.to_bytes(4, "big")
        marks = [pa.repeat(pa.scalar(False), count), pa.repeat(pa.scalar(at, pa.binary()), count)]
        return make_chunk([*rows.columns[: len(types)], *marks], rows.column(rows.num_columns - 1))

    def load(size: int) -> list[pa.Table]:
        return [changes(all_rows(size)[0], 5), no_truncations()]

    def touched(size: int, more: int, weight: int) -> pa.Table:
        group = np.arange(GROUPS)
        return weighted(rows_at(group, size // 2 + 3 * group, more), weight)

    def newer(size: int) -> list[pa.Table]:
        return [changes(touched(size, 20_000, 1), 7), no_truncations()]

    def late(size: int) -> list[pa.Table]:
        return [changes(touched(size, 20_000, 1), 3), no_truncations()]

    def taken_back(size: int) -> list[pa.Table]:
        return [changes(touched(size, 0, -1), 5), no_truncations()]

    def no_truncations() -> pa.Table:
        return make_chunk([pa.array([], pa.binary())], pa.array([], pa.int64()))

    def truncated(size: int) -> list[pa.Table]:
        at = make_chunk([pa.array([(6).to_bytes(4, "big")], pa.binary())], pa.array([1], pa.int64()))
        return [changes(touched(size, 20_000, 1), 7), at]

    node = KeyedChanges((KEY,), types, 7, keeps_history=True, truncates=True)
    named = {"newer": newer, "late": late, "taken back": taken_back, "truncated": truncated}
    yield GrowingCase("keyed source", node, load, named, ("truncated",))

    def dump(size: int, file: int) -> list[pa.Table]:
        rows = all_rows(size)[0]
        numbers = pa.repeat(pa.scalar(file, pa.int32()), rows.num_rows)
        at = [pa.array([file.to_bytes(4, "big")], pa.binary()), pa.array([file], pa.int32())]
        delivered = make_chunk([*rows.columns[: len(types)], numbers], rows.column(rows.num_columns - 1))
        return [delivered, make_chunk(at, pa.array([1], pa.int64()))]

    def first_dump(size: int) -> list[pa.Table]:
        return dump(size, 5)

    def second_dump(size: int) -> list[pa.Table]:
        return dump(size, 7)

    yield GrowingCase("dumps", KeyedDeliveries((KEY,), types), first_dump, {"dump": second_dump}, ("dump",))


def cases() -> list[GrowingCase]:
    """Every case, by operator."""
    return [
        *aggregate_cases(),
        *window_cases(),
        *ranked_cases(),
        *join_cases(),
        *table_cases(),
        *keyed_cases(),
    ]


# --- measuring --------------------------------------------------------------------------------------


class Loaded:
    """A case's state after its load, in SSTs that no cache holds."""

    def __init__(self, case: GrowingCase, size: int, folder: Path) -> None:
        self.case, self.size = case, size
        self.schemas = [msgspec.structs.replace(s, table_id=i + 1) for i, s in enumerate(case.node.state_tables())]
        self.objects = LocalObjectStore(folder)
        self.version = HummockVersion(0, 0, 0, 0, 0, ((),), Catalog(), VnodeMapping(0, (0,) * VNODES))
        tables = self._open_tables()
        if case.log:
            self._replay(tables, [Insert("t", GROUPS * size, "load")])
        else:
            case.node.make_executor(tables, self._actor()).apply(*case.load(size))
        sealed = [batch for table in tables if (batch := table.seal_changes()) is not None]
        infos = batch_ingest(self.objects, sealed, 1, "data/1") if sealed else []
        self.version = msgspec.structs.replace(self.version, epoch=1, levels=(tuple(reversed(infos)),))

    def reads_of(self, change: str) -> Reads:
        """The reads of a change that is not committed, so that changes do not affect each other."""
        tables = self._open_tables()
        with count_reads() as reads:
            if self.case.log:
                self._replay(tables, self.case.log[change](self.size))
            else:
                self.case.node.make_executor(tables, self._actor()).apply(*self.case.changes[change](self.size))
        return reads

    def _open_tables(self) -> list[StateTable]:
        store = HummockStore(self.objects, self.version, BlockCache())
        return [StateTable(schema, store, self.version.epoch, VNODES) for schema in self.schemas]

    def _replay(self, tables: Sequence[StateTable], statements: Sequence[RowChange]) -> None:
        chunks = {"load": all_rows, "appended": appended}

        def payload(name: str) -> pa.Table:
            (chunk,) = chunks[name](self.size)
            return chunk.select(range(len(self.case.node.types)))

        entries = [LogEntry(position, statement) for position, statement in enumerate(statements)]
        actor = Actor(kernel(), range(VNODES), VNODES, entries=entries, payload=payload)
        self.case.node.make_executor(tables, actor).apply()

    def _actor(self) -> Actor:
        return Actor(kernel(), range(VNODES), VNODES)
