"""Blocks in planes: the rows of any types, cuts and columns come back; the format as its specification; small bytes."""

import decimal
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import storage_key
from tussock.statestore.hummock.plane_reader import PlaneReader, bytes_by_column
from tussock.statestore.hummock.planes import PlaneLayout, encode_planes
from tussock.statestore.hummock.sst_format import block_schema
from tussock.statestore.hummock.sst_reader import _UNDECODABLE, SstReader
from tussock.statestore.hummock.sst_writer import build_sst, encode_blocks
from tussock.statestore.nested import bits_of, zero_under_nulls

GOLDEN = Path(__file__).parent / "golden" / "every_type_in_planes.sst"

_VALUES: dict[pa.DataType, Callable[[random.Random], object]] = {
    pa.int8(): lambda chance: chance.randrange(-128, 128),
    pa.int16(): lambda chance: chance.randrange(-400, 400),
    pa.int32(): lambda chance: chance.randrange(-9, 9),
    pa.int64(): lambda chance: chance.choice([chance.randrange(50), -(2**63), 2**63 - 1]),
    pa.float32(): lambda chance: chance.choice([0.0, -0.0, 1.5, float("inf"), float("nan")]),
    pa.float64(): lambda chance: chance.choice([-0.0, chance.random(), float("nan")]),
    pa.bool_(): lambda chance: chance.random() < 0.5,
    pa.string(): lambda chance: "".join(chance.choices("abcß€", k=chance.randrange(40))),
    pa.binary(): lambda chance: chance.randbytes(chance.randrange(5)),
    pa.binary(15): lambda chance: bytes(9) + chance.randbytes(3) + bytes(3),
    pa.date32(): lambda chance: chance.randrange(20_000),
    pa.timestamp("us", tz="UTC"): lambda chance: chance.randrange(10**15),
    pa.duration("us"): lambda chance: chance.randrange(10**6),
    pa.time64("ns"): lambda chance: chance.randrange(10**6) * 1000,
    pa.decimal128(12, 2): lambda chance: decimal.Decimal(chance.randrange(-(10**6), 10**6)).scaleb(-2),
    pa.decimal128(38, 5): lambda chance: decimal.Decimal(chance.randrange(-(10**30), 10**30)).scaleb(-5),
    pa.list_(pa.int64()): lambda chance: [chance.randrange(9) for _ in range(chance.randrange(4))],
    pa.struct([("a", pa.int32()), ("b", pa.string())]): lambda chance: {"a": 1, "b": "x" * chance.randrange(3)},
    pa.map_(pa.string(), pa.int64()): lambda chance: [(f"k{i}", i) for i in range(chance.randrange(3))],
}


def _column(chance: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    """Random values, often with NULLs or all equal, often a slice."""
    nulls, value = chance.choice([0, 0, 0.1, 0.9, 1]), _VALUES[kind](chance)
    same = chance.random() < 0.2
    values = [None if chance.random() < nulls else value if same else _VALUES[kind](chance) for _ in range(rows + 3)]
    return (
        zero_under_nulls(pa.array(values, kind).slice(2, rows))
        if chance.random() < 0.5
        else pa.array(values[:rows], kind)
    )


@pytest.mark.parametrize("seed", range(3))
def test_any_blocks_and_columns_give_the_rows_that_were_written(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        rows = chance.choice([1, 2, 7, 8, 9, 63, 64, 200, 700])
        kinds = chance.choices(list(_VALUES), k=chance.randrange(1, 9))
        columns = [zero_under_nulls(_column(chance, kind, rows)) for kind in kinds]
        batch = pa.record_batch(columns, [f"c{i}" for i in range(len(kinds))])
        step = chance.choice([8, 7, 64, rows])
        cuts = [*range(0, rows, step), rows]
        bounds = list(pairwise(cuts))
        layout = PlaneLayout(batch.schema)
        blocks = list(encode_planes(layout, batch, bounds))
        first = chance.randrange(len(bounds))
        end = chance.randrange(first, len(bounds)) + 1
        wanted = chance.choices(range(len(kinds)), k=chance.randrange(1, len(kinds) + 2))
        found = PlaneReader(layout, wanted).decode_blocks(
            memoryview(b"".join(blocks[first:end])),
            [len(block) for block in blocks[first:end]],
            [stop - start for start, stop in bounds[first:end]],
        )
        each = PlaneReader(layout, wanted).decode_each(
            [memoryview(block) for block in blocks], [stop - start for start, stop in bounds]
        )
        for (start, stop), arrays in zip(bounds, each, strict=True):
            for number, array in zip(wanted, arrays, strict=True):
                array.validate(full=True)
                assert bits_of(array).equals(bits_of(batch.column(number).slice(start, stop - start)))
        for number, array in zip(wanted, found, strict=True):
            array.validate(full=True)
            expected = batch.column(number).slice(cuts[first], cuts[end] - cuts[first])
            assert array.type == expected.type
            assert bits_of(array).equals(bits_of(expected)), (kinds[number], array, expected)


def _every_type() -> pa.Table:
    """300 rows with a column of each type."""
    chance = random.Random(11)
    kinds = [kind for kind in _VALUES if kind != pa.binary(15)]
    schema = block_schema(pa.binary(12), pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]))
    heads = [
        pa.array([storage_key(5, i // 64, b"%05d" % i) for i in range(300)], pa.binary(12)),
        pa.array([1 + i % 2 for i in range(300)], pa.uint64()),
        pa.array([1] * 300, pa.uint8()),
    ]
    return pa.table([*heads, *(_column(chance, kind, 300) for kind in kinds)], schema=schema)


def test_every_type_can_be_read_by_the_specification_alone(request: pytest.FixtureRequest) -> None:
    """Written from the head of planes.py with Arrow, value by value, without any code of the store."""
    rows = _every_type()
    data = build_sst([encode_blocks(5, rows, rows_per_block=130)], "data/planes").data
    if request.config.getoption("--update-cases"):
        GOLDEN.write_bytes(data)
    assert data == GOLDEN.read_bytes(), "the format moved: add a version and keep reading this one, or undo the change"
    start = len(data) - 64 - sum(int.from_bytes(data[-52 + 4 * i :][:4], "little") for i in range(3))
    sizes = [int.from_bytes(data[-52 + 4 * i :][:4], "little") for i in range(3)]
    (section,) = pa.ipc.open_stream(data[start : start + sizes[0]]).read_all().to_pylist()
    blocks = pa.ipc.open_stream(data[start + sizes[0] :]).read_all().to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(section["schema"]))
    assert [block["rows"] for block in blocks] == [130, 130, 40]
    found = [values_by_hand(schema, data[block["offset"] :][: block["length"]], block["rows"]) for block in blocks]
    for name, column in zip(schema.names, rows.columns, strict=True):
        values = [value for part in found for value in part[name]]
        assert _shown(values) == _shown(column.to_pylist()), name


def test_sections_of_equal_columns_share_what_reads_know_about_blocks() -> None:
    rows, readers = _every_type(), []
    for part in (rows.slice(0, 100), rows.slice(100)):
        built = build_sst([encode_blocks(5, part)], "data/planes")
        readers.append(SstReader(built.info, built.data[-built.info.footer_size :]).open_section(5))
    first, second = readers
    assert first.schema is second.schema
    assert first.planes is second.planes
    assert first.find_layout(True, False, None).planes is second.find_layout(True, False, None).planes


def _shown(values: list[object]) -> list[str]:
    return [repr(value) for value in values]  # NaN equals NaN, and -0.0 differs from 0.0


def values_by_hand(schema: pa.Schema, block: bytes, rows: int) -> dict[str, list[object]]:
    """The values of each column of a block, read with Arrow alone."""
    widths, texts, nested = [], [], []
    for number, kind in enumerate(schema.types):
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            texts.append(number)
            widths.append(4)
        elif pa.types.is_nested(kind):
            nested.append(number)
            widths.append(0)
        else:
            widths.append(0 if pa.types.is_boolean(kind) else kind.bit_width // 8)
    extents = len(texts) + bool(nested)
    numbers = [int.from_bytes(block[4 * i : 4 * i + 4], "little") for i in range(1 + 2 * extents)]
    at = 4 * len(numbers)
    codecs = block[at : at + 1 + extents]
    at += 1 + extents

    def flags(count: int) -> list[bool]:
        nonlocal at
        size = -(-count // 8)
        bits = int.from_bytes(block[at : at + size], "little")
        at += size
        return [bool(bits >> i & 1) for i in range(count)]

    nullable, varying = flags(len(schema)), flags(sum(widths))
    constants = block[at : at + sum(widths)]
    at += sum(widths)

    def part(codec: int, size: int, stored: int) -> bytes:
        nonlocal at
        data = block[at : at + stored]
        at += stored
        return data if codec == 0 else pa.decompress(data, size, ["", "lz4_raw", "zstd"][codec], asbytes=True)

    bitmaps = sum(nullable) + sum(pa.types.is_boolean(kind) for kind in schema.types)
    planes = part(codecs[0], sum(varying) * rows + bitmaps * -(-rows // 8), numbers[0])
    contents = [
        part(codec, size, stored) for codec, size, stored in zip(codecs[1:], numbers[1::2], numbers[2::2], strict=True)
    ]
    assert at == len(block)
    every: list[bytes] = []  # all planes
    read = 0
    for constant, varies in zip(constants, varying, strict=True):
        every.append(planes[read : read + rows] if varies else bytes([constant]) * rows)
        read += rows if varies else 0

    def bitmap() -> list[bool]:
        nonlocal read
        bits = int.from_bytes(planes[read : read + -(-rows // 8)], "little")
        read += -(-rows // 8)
        return [bool(bits >> i & 1) for i in range(rows)]

    others = schema.empty_table()
    if nested:
        kept = pa.schema([schema.field(number) for number in nested])
        others = pa.ipc.open_stream(kept.serialize().to_pybytes() + contents[-1]).read_all()
    answer: dict[str, list[object]] = {}
    plane = 0
    for number, field in enumerate(schema):
        own = every[plane : plane + widths[number]]
        plane += widths[number]
        raw = [bytes(column[row] for column in own) for row in range(rows)]
        if number in nested:
            answer[field.name] = others.column(field.name).to_pylist()
            continue
        values: list[object]
        if pa.types.is_boolean(field.type):
            values = list(bitmap())
        elif number in texts:
            lengths = [int.from_bytes(value, "little") for value in raw]
            ends = np.cumsum(lengths).tolist()
            text = contents[texts.index(number)]
            strings = [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]
            values = [string.decode() if pa.types.is_string(field.type) else string for string in strings]
        else:
            values = pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(b"".join(raw))]).to_pylist()
        there = bitmap() if nullable[number] else [True] * rows
        answer[field.name] = [value if live else None for value, live in zip(values, there, strict=True)]
    assert read == len(planes)
    return answer


def _texts(rows: int, digits: int) -> tuple[PlaneLayout, bytearray]:
    """A block of texts of equal length in the only column."""
    batch = pa.record_batch({"text": pa.array([f"{row:0{digits}}" for row in range(rows)])})
    layout = PlaneLayout(batch.schema)
    (block,) = encode_planes(layout, batch, [(0, rows)])
    return layout, bytearray(block)


def _unreadable(layout: PlaneLayout, block: bytearray, rows: int) -> str:
    """The error of decoding a block whose checksum is right."""
    with pytest.raises((ValueError, IndexError)) as stopped:
        PlaneReader(layout, [0]).decode_blocks(memoryview(block), [len(block)], [rows])
    return str(stopped.value)


def test_a_block_whose_parts_do_not_fit_is_refused() -> None:
    layout, block = _texts(64, 10)
    size, stored = (int.from_bytes(block[at : at + 4], "little") for at in (4, 8))
    assert (size, block[13]) == (640, 1), "packed by LZ4"
    early = block[:]
    early[4:8] = (704).to_bytes(4, "little")
    early[layout.constants_at] = 11  # bytes of each text
    assert _unreadable(layout, early, 64) == "a part that does not unpack to 704 bytes"
    assert _unreadable(layout, block + b"x", 64) == f"parts of (0, {stored}) bytes in a block of {len(block) + 1} bytes"
    assert "parts of" in _unreadable(layout, block[:-1], 64)
    unknown = block[:]
    unknown[13] = 3
    assert _unreadable(layout, unknown, 64) == "tuple index out of range"
    for rows, highest in ((2, 0x80), (4, 0x40)):  # negative lengths; a sum of more than 31 bits
        layout, block = _texts(rows, 3)
        block[layout.constants_at + 3] = highest
        assert f"{3 * rows} bytes of text instead of" in _unreadable(layout, block, rows)


def test_changed_bytes_of_a_block_are_refused_or_give_valid_columns() -> None:
    table = _every_type()
    batch = table.combine_chunks().to_batches()[0]
    layout = PlaneLayout(batch.schema)
    (block,) = encode_planes(layout, batch, [(0, batch.num_rows)])
    chance, reader = random.Random(4), PlaneReader(layout, range(batch.num_columns))
    refused = 0
    for _ in range(300):
        changed = bytearray(block)
        changed[chance.randrange(min(len(block), 2 * layout.head_bytes))] ^= 1 << chance.randrange(8)
        try:
            found = reader.decode_blocks(memoryview(changed), [len(block)], [batch.num_rows])
        except _UNDECODABLE:
            refused += 1
            continue
        for array in found:
            assert len(array) == batch.num_rows
            array.validate()
    assert 0 < refused < 300


def test_a_column_costs_the_bytes_in_which_its_values_differ() -> None:
    chance = np.random.default_rng(3)
    numbers = chance.permutation(1024).astype(np.int64)
    keys = np.zeros((1024, 14), np.uint8)
    keys[:, 6:] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    letters = chance.integers(ord("a"), ord("z") + 1, (1024, 20), dtype=np.uint8)
    texts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(20), 1024, [None, pa.py_buffer(letters.tobytes())])
    batch = pa.record_batch(
        {
            "number": numbers,
            "same": np.full(1024, 5),
            "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(14), 1024, [None, pa.py_buffer(keys.tobytes())]),
            "letters": texts.cast(pa.binary()).cast(pa.string()),
            "digits": pa.array(["0123456789"] * 1024),
        }
    )
    layout = PlaneLayout(batch.schema)
    (block,) = encode_planes(layout, batch, [(0, 1024)])
    planes = int.from_bytes(block[:4], "little")
    assert planes < 2 * 1024 + 100, "two bytes of each number, which the key repeats"
    number, same, key, letter, digit = bytes_by_column(layout, memoryview(block), 1024)
    assert number + key == pytest.approx(planes, abs=2)
    assert same == 0
    assert 20 * 1024 * 0.58 < letter < 20 * 1024 * 0.62, "26 letters have 4.7 bits"
    assert digit < 100
    assert len(block) == pytest.approx(planes + letter + digit + layout.head_bytes, abs=2)
