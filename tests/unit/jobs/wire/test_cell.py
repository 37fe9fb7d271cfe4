"""Cells: each address has one meaning, each cell reaches the levels of its readers, and each row reaches its vnode's
unit.
"""

from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tests.support.jobs.plan.catalogs import catalog_of, counted, joined, scan, source, table, view
from tussock.jobs.chunks import chunk as chunks
from tussock.jobs.chunks.chunk import decode_tables, encode_parts, encode_table
from tussock.jobs.plan.fragments import ROW_ID, input_number, input_ref, is_input
from tussock.jobs.schedule.schedule import make_schedule
from tussock.jobs.wire import cell
from tussock.jobs.wire.cell import Address, LeafInput, Mail, Route, addresses_of, make_cells, split_by_unit

DEEP = make_schedule(
    catalog_of(
        table("t"),
        table("u"),
        source("s"),
        view("v", counted(scan("s"), 1)),
        view("x", joined(scan("v", 2), scan("t"), 0, 1)),
        view("y", joined(scan("t"), scan("u"), 1, 1)),
    ),
    1,
)


def routes(in_flight: int = 0, flushes: bool = False) -> list[Route]:
    return [Route.of_level(DEEP, level, in_flight, flushes) for level in range(len(DEEP.levels))]


def test_no_number_below_zero_has_two_meanings() -> None:
    inputs = [input_ref(i) for i in range(50)]  # of stored plans
    numbers = [*Mail, *LeafInput, *inputs[1:]]
    assert len(set(map(int, numbers))) == len(numbers)
    assert ROW_ID not in {int(n) for n in (*Mail, *LeafInput)}
    assert all(m > Mail.IN_FLIGHT for m in Mail if m is not Mail.IN_FLIGHT)
    assert min(LeafInput) > max(Mail)


def test_references_to_inputs_and_operators_are_distinguished() -> None:
    assert [input_ref(0), input_ref(3)] == [-1, -4], "stored with every view: these numbers stay"
    assert [is_input(r) for r in (-4, -1, 0, 7)] == [True, True, False, False]
    assert [input_number(input_ref(i)) for i in range(4)] == [0, 1, 2, 3]


def test_an_address_survives_its_cell() -> None:
    for address in (
        Address.of_leaf(3, LeafInput.TICK),
        Address.in_flight(2, 40),
        Address.of_answer(Mail.SST),
        Address.of_exchange(0, 1),
    ):
        assert addresses_of(make_cells(1, address, [b"x"])) == [address]
    assert [
        a.epoch_in_flight for a in (Address.in_flight(2, 40), Address.of_sealed(40), Address.of_exchange(0, 1))
    ] == [
        2,
        None,
        None,
    ]


def test_a_cell_passes_every_level_between_its_producer_and_its_deepest_reader() -> None:
    found = routes()
    for scheduled in DEEP.all_fragments():
        for exchange in scheduled.exchanges:
            address = Address.of_exchange(scheduled.id, exchange.index)
            reading = {
                s.level
                for s in DEEP.all_fragments()
                for f in s.origins
                if (f.producer, f.exchange) == (scheduled.id, exchange.index)
            }
            assert {level for level, route in enumerate(found) if route.is_read(address)} == reading
            assert {level for level, route in enumerate(found) if route.is_passed_on(address)} == set(
                range(scheduled.level + 1, max(reading))
            )


def test_answers_pass_every_level_and_leaf_inputs_none() -> None:
    for level, route in enumerate(routes()):
        assert all(route.is_passed_on(Address.of_answer(mail)) for mail in (Mail.REPORT, Mail.SST, Mail.FAILURE))
        for scheduled in DEEP.all_fragments():
            leaf = Address.of_leaf(scheduled.id, LeafInput.ENTRIES)
            assert (route.is_read(leaf), route.is_passed_on(leaf)) == (scheduled.level == level, False)


def test_a_failure_that_reached_one_unit_alone_does_not_pass_before_it_is_announced() -> None:
    for route in routes():
        assert not route.is_passed_on(Address(Mail.FAILURE, LeafInput.ROWS))


def test_sealed_memtables_pass_every_level_but_end_at_the_last_one_if_units_flush() -> None:
    assert all(route.is_passed_on(Address.of_sealed(1)) for route in routes())
    assert [route.is_passed_on(Address.of_sealed(1)) for route in routes(flushes=True)] == [True] * (
        len(DEEP.levels) - 1
    ) + [False]


def test_memtables_in_flight_are_read_by_the_levels_that_read_their_table_and_pass_none() -> None:
    tables = {t for s in DEEP.all_fragments() if s.fragment for o in s.fragment.operators for t in o.tables}
    read = {t: [route.is_read(Address.in_flight(1, t)) for route in routes(in_flight=2)] for t in tables}
    assert all(any(levels) for levels in read.values())
    assert not any(route.is_passed_on(Address.in_flight(1, t)) for t in tables for route in routes(in_flight=2))
    assert not any(route.is_read(Address.in_flight(2, t)) for t in tables for route in routes(in_flight=2))


UNITS = np.array([2, 0, 2, 1, 0, 1, 2, 2])  # of eight vnodes


def unit_of(value: int) -> int:
    return int(UNITS[xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), 42) % 8])


@pytest.mark.parametrize("weights", [[1, 1], [1, -1], [-1, -1]], ids=["come", "come and go", "go"])
@pytest.mark.parametrize("part", [7, 1 << 15])
def test_rows_reach_the_unit_of_their_vnode_in_their_order(
    part: int, weights: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "_DISPATCHED", part)
    monkeypatch.setattr(chunks, "MAX_CELL_BYTES", 128)
    monkeypatch.setattr(chunks, "COMPRESSED_BYTES", 64 if part == 7 else 1 << 20)
    pieces = [[5, -1, 0, 9], [], list(range(100, 140)), [7]]
    columns = {
        "c0": pa.chunked_array(pieces, pa.int64()),
        "w": pa.chunked_array([np.resize(weights, len(p)) for p in pieces], pa.int64()),
    }
    rows = pa.table({"c0": columns["c0"], "c1": [str(v.as_py()) for v in columns["c0"]], "w": columns["w"]})
    streams: dict[int, list[pa.Buffer]] = defaultdict(list)
    for unit, stream in encode_parts(split_by_unit(rows, [0], UNITS), rows.nbytes):
        streams[unit].append(stream)
    expected = {u: [r for r in rows.to_pylist() if unit_of(r["c0"]) == u] for u in (0, 1, 2)}
    assert {u: decode_tables(found).to_pylist() for u, found in streams.items()} == expected  # type: ignore[union-attr]
    assert part != 7 or len(streams[2]) > 1, "a full stream makes room for another"


def test_rows_without_a_key_and_those_of_one_unit_are_not_copied() -> None:
    rows = pa.table({"c0": pa.array([3] * 5), "w": pa.array([1] * 5)})
    ((unit, alone),) = split_by_unit(rows, [], UNITS)
    assert (unit, alone) == (2, rows)
    ((unit, alone),) = split_by_unit(rows, [0], UNITS)
    assert unit == unit_of(3)
    assert alone["c0"].chunk(0).buffers()[1].address == rows["c0"].chunk(0).buffers()[1].address
    assert list(split_by_unit(rows.slice(0, 0), [0], UNITS)) == []


def test_many_rows_for_one_unit_go_in_cells_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_CELL_BYTES", 1 << 10)
    rows = pa.table({"c0": pa.array(range(2_000)), "w": pa.array([1] * 2_000)})
    for parts in (split_by_unit(rows, [], UNITS), cell.broadcast_chunk(rows, np.array([4]))):
        found = [stream for _, stream in encode_parts(parts, rows.nbytes)]
        assert decode_tables(found) == rows
        assert max(len(stream) for stream in found) < 4 << 10


def test_several_chunks_of_one_address_are_separate_cells() -> None:
    held = [b"one", pa.py_buffer(b"two"), b""]
    assert make_cells(1, Address.of_sealed(4), held).column(3).to_pylist() == [b"one", b"two", b""]
    assert make_cells(1, Address.of_sealed(4), held[1:2]).to_pylist() == [
        {"slot": 1, "fragment": int(Mail.SEALED), "input": 4, "chunk": b"two"}
    ]
    assert make_cells(1, Address.of_sealed(4), []).num_rows == 0


HELD: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, None, 3, None, None],
    pa.float64(): [None, 1.5, None, float("nan"), 0.0],
    pa.decimal128(10, 2): [Decimal("1.25"), None, None, Decimal("-3.00"), None],
    pa.date32(): [None, date(2024, 2, 29), None, None, date(1, 1, 1)],
    pa.bool_(): [True, None, None, False, None],
    pa.string(): ["a", None, "", None, "longer"],
    pa.binary(): [None, b"x", None, b"", None],
    pa.list_(pa.int32()): [[1, None], None, [], None, [None, 7]],
    pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])): [
        [None, {"a": 1, "b": None}],
        None,
        [],
        [None],
        [{"a": 3, "b": "y"}],
    ],
    pa.struct([("a", pa.int64()), ("b", pa.string())]): [
        {"a": None, "b": "x"},
        None,
        {"a": 2, "b": None},
        None,
        {"a": 3, "b": "y"},
    ],
}


def poisoned(array: pa.Array, chance: np.random.Generator) -> pa.Array:
    """The same values, with arbitrary bytes under the NULLs."""
    nulls, kind, n = array.is_null().to_numpy(zero_copy_only=False), array.type, len(array)
    there = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    if pa.types.is_struct(kind):
        filled = pa.array(
            [{"a": 99, "b": "under"} if null else value for null, value in zip(nulls, array.to_pylist(), strict=True)],
            kind,
        )
        return pa.Array.from_buffers(
            kind, n, [there], children=[poisoned(filled.field(i), chance) for i in range(kind.num_fields)]
        )
    if pa.types.is_list(kind):
        filled = pa.array(
            [[None, None] if null else value for null, value in zip(nulls, array.to_pylist(), strict=True)], kind
        )
        return pa.Array.from_buffers(kind, n, [there, filled.buffers()[1]], children=[poisoned(filled.values, chance)])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        held = [
            b"under" if value is None else value.encode() if isinstance(value, str) else value
            for value in array.to_pylist()
        ]
        return pa.Array.from_buffers(kind, n, [there, *pa.array(held, pa.binary()).buffers()[1:]])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(
            kind, n, [there, pa.array([value is not False for value in array.to_pylist()]).buffers()[1]]
        )
    held = np.frombuffer(array.buffers()[1], np.uint8, n * kind.bit_width // 8).reshape(n, -1).copy()
    held[nulls] = chance.integers(1, 255, held[nulls].shape)
    return pa.Array.from_buffers(kind, n, [there, pa.py_buffer(held)])


@pytest.mark.parametrize("kind", HELD, ids=str)
def test_the_bytes_of_a_cell_depend_only_on_its_rows(kind: pa.DataType) -> None:
    """Cells are sorted by their bytes, so the memory under a NULL must not influence that order."""
    values = pa.array(HELD[kind], kind)
    found = set()
    for seed in range(4):
        other = poisoned(values, np.random.default_rng(seed)) if seed else values
        assert other.equals(values) or pa.types.is_floating(kind)
        rows = pa.table({"c0": pa.chunked_array([other, other.slice(1, 3)]), "w": pa.array(range(8), pa.int64())})
        parts = [
            bytes(cell) for _, cell in encode_parts([(0, rows), (1, rows.slice(2, 5)), (0, rows.slice(1))], rows.nbytes)
        ]
        found.add((*map(bytes, encode_table(rows)), *parts))
    assert len(found) == 1
