"""Packed blocks: searches and rows as in decoded blocks, for any columns, versions and blocks."""

import datetime
import decimal
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import Row, StoreModel, sealed
from tussock.statestore.hummock import block_source, prefix_scan, shared_buffer, sst_writer
from tussock.statestore.hummock import store as hummock
from tussock.statestore.hummock.block_source import BlockRequest, BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.errors import DamagedSstError
from tussock.statestore.hummock.packed_blocks import PackedBlock, PackedBlocks
from tussock.statestore.hummock.range_reader import Range, RangeReader
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.sst_reader import Rows
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.nested import bits_of
from tussock.statestore.objectstore.base import ObjectStore

SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("b", pa.bool_()), ("d", pa.date32()), ("m", pa.decimal128(30, 2)), ("x", pa.float64()),
        ("i", pa.int8()), ("c", pa.bool_()),
    ]
)  # fmt: skip
TABLE = 3


def _key(vnode: int, number: int, width: int = 9) -> bytes:
    return TABLE.to_bytes(4, "big") + vnode.to_bytes(2, "big") + number.to_bytes(width, "big")


def _row(chance: random.Random, nulls: float) -> Row:
    values: dict[str, Callable[[], object]] = {
        "n": lambda: chance.choice([chance.randrange(99), -(2**63), 2**63 - 1]),
        "b": lambda: chance.random() < 0.5,
        "d": lambda: datetime.date(2000, 1, 1) + datetime.timedelta(chance.randrange(9999)),
        "m": lambda: decimal.Decimal(chance.randrange(-(10**25), 10**25)).scaleb(-2),
        "x": lambda: chance.choice([-0.0, 1.5, chance.random()]),
        "i": lambda: chance.randrange(-128, 128),
        "c": lambda: True,
    }
    return {name: None if chance.random() < nulls else value() for name, value in values.items()}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows that are always packed, and searched some at a time."""
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 13)
    monkeypatch.setattr(sst_writer, "BLOCKS_PER_PARTITION", 8)
    monkeypatch.setattr(block_source, "_DENSE_IF_SMALL", 0)  # reads no partition whole
    monkeypatch.setattr(block_source, "_WORTH_PACKING", 1)
    for module in (hummock, prefix_scan):
        monkeypatch.setattr(module, "PACKED_AT_ONCE", 3)


def _model(objects: ObjectStore, chance: random.Random, width: int = 9, rewritten: int | None = None) -> StoreModel:
    """Epochs of puts and deletes. Some ranges of keys have equal vnodes, so their blocks store other planes."""
    model, nulls = StoreModel(objects), chance.choice([0, 0.01, 0.3])
    for epoch in (10, 20, 30):
        changes: dict[bytes, Row | None] = {}
        for _ in range(chance.choice([5, 300, 900])):
            vnode = chance.choice([0, 0, 0, 1, 7, 300])
            key = _key(vnode, chance.randrange(min(256**width, chance.choice([60, 500, 2**60]))), width)
            changes[key] = None if chance.random() < 0.1 else _row(chance, nulls)
        model.commit(epoch, [sealed(TABLE, changes, SCHEMA)], chance.choice([3_000, 1 << 20]))
        if rewritten == epoch:  # blocks then hold several versions of a key
            model.rewrite(400, SCHEMA)
    return model


def _probes(model: StoreModel, chance: random.Random, count: int, width: int = 9) -> list[bytes]:
    there = list(model.rows)
    return [
        chance.choice(there) if chance.random() < 0.7 else _key(chance.choice([0, 1, 8]), chance.randrange(600), width)
        for _ in range(count)
    ]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of blocks of each search in packed blocks."""
    counts: list[int] = []

    class Counted(PackedBlocks):
        def __init__(self, blocks: Any) -> None:
            counts.append(len(blocks))
            super().__init__(blocks)

    for module in (hummock, prefix_scan):
        monkeypatch.setattr(module, "PackedBlocks", Counted)
    yield counts
    assert sum(counts) > 20


@pytest.mark.parametrize("seed", range(6))
def test_reads_of_packed_blocks_agree_with_a_dict(
    seed: int, objects: ObjectStore, searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    width = chance.choice([2, 8, 9, 10, 58])  # of a key: 8, 14, 15, 16 or 64 bytes
    many = chance.choice([2, 64])
    for module in (hummock, prefix_scan):
        monkeypatch.setattr(module, "MANY_PROBES", many)
    model = _model(objects, chance, width, (None, 20, 30)[seed % 3])
    cache = BlockCache(chance.choice([0, 1 << 30]))
    for epoch in (30, 10, 20):
        store = model.store(cache)
        for count in (1, 40, 400):
            keys = _probes(model, chance, count, width)
            found, rows = store.multi_get(TABLE, pa.array(keys, pa.binary()), epoch, schema=SCHEMA)
            expected = [model.get(key, epoch) for key in keys]
            assert found.to_pylist() == [row is not None for row in expected]
            assert rows.to_pylist() == [row or dict.fromkeys(SCHEMA.names) for row in expected]
            rows.validate(full=True)
        held = model.scan(epoch)
        for limit, reverse in ((None, False), (1, False), (3, True)):
            prefixes = [key[: chance.randrange(6, len(key) + 1)] for key in _probes(model, chance, 25, width)]
            index, keys_found, rows = store.scan_prefix(
                TABLE, pa.array(prefixes, pa.binary()), epoch, limit, reverse, schema=SCHEMA
            )
            under = [[(i, k, row) for k, row in held if k.startswith(prefix)] for i, prefix in enumerate(prefixes)]
            wanted = [row for rows in under for row in (rows[::-1] if reverse else rows)[:limit]]
            assert list(zip(index.to_pylist(), keys_found.to_pylist(), rows.to_pylist(), strict=True)) == wanted


def test_packed_blocks_decode_to_the_rows_of_the_same_blocks(objects: ObjectStore) -> None:
    for seed in range(4):
        model = _model(objects, random.Random(seed), rewritten=(None, 30)[seed % 2])
        source = BlockSource(objects, BlockCache())
        for sst in source.open_ssts([sst for level in model.version.levels for sst in level]):
            section = OpenSection(sst, sst.open_section(TABLE))
            request = BlockRequest(section, np.arange(len(section.reader)))
            ((units,), (again,)) = (source.read_units([request], 30), source.read_units([request], 5))
            assert all(isinstance(unit, PackedBlock) for unit in units)
            (decoded,) = BlockSource(objects, BlockCache()).read_blocks([request])
            for unit, one, other in zip(units, decoded, again, strict=True):
                assert isinstance(unit, PackedBlock)
                assert isinstance(other, Rows)  # it has rows of later epochs
                for found in (other, section.reader.unpack_block(unit)):
                    assert (found.first_block, found.end_block, found.keys.array) == (
                        one.first_block, one.end_block, one.keys.array,
                    )  # fmt: skip
                    assert bits_of(pa.array(found.columns.to_struct_array())).equals(
                        bits_of(pa.array(one.columns.to_struct_array()))
                    )
                    for heads in ((found.epochs, one.epochs), (found.puts, one.puts)):
                        assert np.array_equal(*heads) if heads[1] is not None else heads[0] is None


def test_rows_of_packed_blocks_have_columns_that_were_added_later(objects: ObjectStore) -> None:
    chance = random.Random(5)
    model = _model(objects, chance)
    shape = RowShape(pa.schema([*SCHEMA, ("new", pa.string())]), {"new": pa.array(["later"])}, "digest")
    store = model.store()
    store.read_as(TABLE, shape)
    keys = _probes(model, chance, 80)
    found, rows = store.multi_get(TABLE, pa.array(keys, pa.binary()), 30)
    _, _, scanned = store.scan_prefix(TABLE, pa.array(keys, pa.binary()), 30)
    for part, count in ((rows.filter(found), found.true_count), (scanned, found.true_count)):
        assert part["new"].to_pylist() == ["later"] * count
        assert part.schema.names == shape.names


def test_a_damaged_block_is_named(objects: ObjectStore) -> None:
    model = _model(objects, random.Random(1))
    info = max(model.version.levels[0], key=lambda sst: sst.rows)
    source = BlockSource(objects, BlockCache())
    (sst,) = source.open_ssts([info])
    reader = sst.open_section(TABLE)
    data = bytearray(objects.get(info.name))
    at = int(reader.offsets[1]) + int(reader.lengths[1]) // 2
    data[at] ^= 4
    objects.put(info.name, bytes(data))
    source = BlockSource(objects, BlockCache())
    (sst,) = source.open_ssts([info])
    request = BlockRequest(OpenSection(sst, sst.open_section(TABLE)), np.arange(len(reader)))
    with pytest.raises(DamagedSstError, match="block 1,"):
        source.read_units([request], 30)


def test_damaged_bytes_of_the_disk_cache_are_read_again(objects: ObjectStore) -> None:
    model = _model(objects, random.Random(1))
    info = max(model.version.levels[0], key=lambda sst: sst.rows)
    again = list[int]()

    class Damaged(RangeReader):
        """The host's disk cache has damaged bytes of a block."""

        def fetch_ranges(self, wanted: Any, keep: bool = True) -> Any:
            found = super().fetch_ranges(wanted, keep)
            for (_, ranges), parts in zip(wanted, found, strict=True):
                for number, (offset, _) in enumerate(ranges):
                    if offset == int(reader.offsets[2]):
                        parts[number] = bytes(len(parts[number]))
            return found

        def fetch_again(self, sst: SstInfo, part: Range) -> bytes:
            again.append(part[0])
            return objects.get_ranges(sst.name, [part])[0]

    (sst,) = BlockSource(objects, BlockCache()).open_ssts([info])
    reader = sst.open_section(TABLE)
    # Small objects are read with the footer.
    sst.held_bytes = lambda offset, length: None  # type: ignore[method-assign]
    request = BlockRequest(OpenSection(sst, reader), np.arange(0, len(reader), 2))
    (units,) = BlockSource(objects, BlockCache(), Damaged(objects, None)).read_units([request], 30)
    (expected,) = BlockSource(objects, BlockCache()).read_units([request], 30)
    assert units == expected
    assert again == [int(reader.offsets[2])]


def test_few_blocks_are_decoded_and_texts_always(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_source, "_WORTH_PACKING", 8)
    model = StoreModel(objects)
    for table, schema in ((3, SCHEMA), (4, pa.schema([("n", pa.int64()), ("s", pa.string())]))):
        keys = [table.to_bytes(4, "big") + bytes(2) + number.to_bytes(4, "big") for number in range(300)]
        row = dict.fromkeys(schema.names)
        model.commit(table, [sealed(table, dict.fromkeys(keys, row), schema)])
    source = shared_buffer.BufferedSource(BlockSource(objects, BlockCache()))
    for sst in source.stored.open_ssts(model.version.levels[0]):
        (table,) = sst.table_ids
        section = OpenSection(sst, sst.open_section(table))
        for blocks in (7, 8):
            chosen = np.arange(blocks) + 8 * (blocks == 8)
            (units,) = source.read_units([(section, chosen)], 9)
            packed = [isinstance(unit, PackedBlock) for unit in units]
            assert packed == ([blocks == 8] * blocks if table == 3 else [False])
