"""Blocks with texts: they are cached as they are stored, and read together, for any columns, versions and blocks."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import Row, StoreModel, sealed, storage_key
from tussock.statestore.hummock import block_source, shared_buffer, sst_writer
from tussock.statestore.hummock.block_source import BlockRequest, BlockSource, OpenSection, ReadMode
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.errors import DamagedSstError
from tussock.statestore.hummock.range_reader import Range, RangeReader
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.sst_reader import Rows, SectionReader, StoredBlock, decode_stored
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("a", pa.list_(pa.string())), ("b", pa.bool_())])
TABLE = 3


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows, each read alone."""
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 11)
    monkeypatch.setattr(sst_writer, "BLOCKS_PER_PARTITION", 8)
    monkeypatch.setattr(block_source, "BLOCKS_PER_PARTITION", 4)
    monkeypatch.setattr(block_source, "_DENSE_IF_SMALL", 0)  # reads no partition whole


def _row(chance: random.Random) -> Row:
    texts = [None, "", "a", "ä" * 9, "b" * 300]
    return {
        "n": chance.choice([None, chance.randrange(99)]),
        "s": chance.choice(texts),
        "a": chance.choice([None, [], chance.choices(texts, k=3)]),
        "b": chance.choice([None, True, False]),
    }


def _model(objects: ObjectStore, chance: random.Random, rewritten: bool = False, width: int = 0) -> StoreModel:
    """Epochs of puts and deletes. `width`: of the keys; 0: any."""
    model = StoreModel(objects)
    for epoch in (10, 20, 30):
        changes: dict[bytes, Row | None] = {}
        for _ in range(chance.choice([5, 300, 900])):
            key = storage_key(TABLE, chance.randrange(3), b"%0*d" % (width, chance.randrange(600)))
            changes[key] = None if chance.random() < 0.1 else _row(chance)
        model.commit(epoch, [sealed(TABLE, changes, SCHEMA)], chance.choice([9_000, 1 << 20]))
    if rewritten:  # blocks then hold several versions of a key
        model.rewrite(400, SCHEMA)
    return model


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The sections and the blocks of each call that decodes stored blocks."""
    counts, decode = list[tuple[int, int]](), decode_stored

    def decode_counted(stored: Sequence[tuple[SectionReader, Sequence[StoredBlock]]]) -> list[Rows]:
        counts.append((len(stored), sum(len(blocks) for _, blocks in stored)))
        return decode(stored)

    monkeypatch.setattr(block_source, "decode_stored", decode_counted)
    return counts


@pytest.mark.parametrize("seed", range(8))
def test_reads_of_texts_agree_with_a_dict(
    seed: int, objects: ObjectStore, decoded: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(shared_buffer, "_MOST_DECODED", chance.choice([0, 1_024]))
    monkeypatch.setattr(shared_buffer, "_MOST_CACHED", chance.choice([0, 4_096]))
    model = _model(objects, chance, seed % 2 == 0, chance.choice([0, 9]))
    cache = BlockCache(chance.choice([0, 1 << 30]))
    for epoch in (30, 10, 20):
        store = model.store(cache)
        for count in (1, 40, 400):
            keys = [storage_key(TABLE, chance.randrange(3), b"%d" % chance.randrange(700)) for _ in range(count)]
            keys += chance.choices(list(model.rows), k=count)
            found, rows = store.multi_get(TABLE, pa.array(keys, pa.binary()), epoch, schema=SCHEMA)
            expected = [model.get(key, epoch) for key in keys]
            assert found.to_pylist() == [row is not None for row in expected]
            assert rows.to_pylist() == [row or dict.fromkeys(SCHEMA.names) for row in expected]
        there = model.scan(epoch)
        for limit, reverse in ((None, False), (1, False), (3, True)):
            prefixes = [key[: chance.randrange(6, len(key) + 1)] for key in chance.choices(list(model.rows), k=30)]
            index, keys_found, rows = store.scan_prefix(
                TABLE, pa.array(prefixes, pa.binary()), epoch, limit, reverse, schema=SCHEMA
            )
            under = [[(i, k, row) for k, row in there if k.startswith(prefix)] for i, prefix in enumerate(prefixes)]
            wanted = [row for rows in under for row in (rows[::-1] if reverse else rows)[:limit]]
            assert list(zip(index.to_pylist(), keys_found.to_pylist(), rows.to_pylist(), strict=True)) == wanted
    assert max(blocks for _, blocks in decoded) > 1, "several blocks are decoded by one call"
    assert max(blocks for _, blocks in decoded) <= 4, "a call decodes no more than a partition"


def test_rows_of_stored_blocks_have_columns_that_were_added_later(objects: ObjectStore) -> None:
    model = _model(objects, random.Random(5))
    store = model.store()
    store.read_as(TABLE, RowShape(pa.schema([*SCHEMA, ("new", pa.string())]), {"new": pa.array(["later"])}, "digest"))
    keys = [key for key in model.rows if model.get(key, 30) is not None]
    found, rows = store.multi_get(TABLE, pa.array(keys, pa.binary()), 30)
    assert found.true_count == len(keys)
    assert rows["new"].to_pylist() == ["later"] * len(keys)


def _largest(objects: ObjectStore) -> tuple[SstInfo, OpenSection]:
    model = _model(objects, random.Random(1))
    info = max(model.version.levels[0], key=lambda sst: sst.rows)
    (sst,) = BlockSource(objects, BlockCache()).open_ssts([info])
    # Small objects are read with the footer.
    sst.held_bytes = lambda offset, length: None  # type: ignore[method-assign]
    return info, OpenSection(sst, sst.open_section(TABLE))


def test_a_second_read_takes_blocks_from_the_cache(objects: ObjectStore) -> None:
    fetched = list[int]()

    class Counted(RangeReader):
        def fetch_ranges(self, wanted: Any, keep: bool = True) -> Any:
            fetched.append(sum(len(ranges) for _, ranges in wanted))
            return super().fetch_ranges(wanted, keep)

    _, section = _largest(objects)
    source = BlockSource(objects, BlockCache(), Counted(objects, None))
    (first,) = source.read_units([BlockRequest(section, np.array([1, 3]))], 30)
    (second,) = source.read_units([BlockRequest(section, np.array([1, 3, 6]))], 30)
    assert [len(unit) for unit in (*first, *second)] == [22, 33]
    assert fetched == [2, 1]


def test_a_damaged_block_with_texts_is_named(objects: ObjectStore) -> None:
    info, section = _largest(objects)
    data = bytearray(objects.get(info.name))
    data[int(section.reader.offsets[1]) + int(section.reader.lengths[1]) // 2] ^= 4
    objects.put(info.name, bytes(data))
    request = BlockRequest(section, np.arange(len(section.reader)))
    with pytest.raises(DamagedSstError, match="block 1,"):
        BlockSource(objects, BlockCache()).read_units([request], 30)


def test_blocks_of_several_sections_are_decoded_together(objects: ObjectStore, decoded: list[tuple[int, int]]) -> None:
    sections = _two_sections(objects)
    requests = [
        BlockRequest(section, np.array(blocks)) for section, blocks in zip(sections, ([0], [1, 2]), strict=True)
    ]
    (first,), (second,) = BlockSource(objects, BlockCache()).read_units(requests, 0, ReadMode.SINGLE)
    assert decoded == [(2, 3)]
    for rows, section, (start, end) in ((first, sections[0], (0, 1)), (second, sections[1], (1, 3))):
        assert isinstance(rows, Rows)
        alone = BlockSource(objects, BlockCache()).scan_blocks(section, start, end, None)
        assert rows.keys.array == alone.keys.array
        assert rows.columns == alone.columns
        for some, expected in ((rows.epochs, alone.epochs), (rows.puts, alone.puts)):
            assert (some is None) == (expected is None)
            assert some is None or some.tolist() == expected.tolist()  # type: ignore[union-attr]


def test_a_stored_block_that_does_not_decode_is_named_among_those_of_other_sections(objects: ObjectStore) -> None:
    stored = []
    for section in _two_sections(objects):
        place = int(section.reader.offsets[0]), int(section.reader.lengths[0])
        stored.append((section.reader, StoredBlock(0, objects.get_ranges(section.sst.name, [place])[0])))
    (one, good), (other, whole) = stored
    with pytest.raises(DamagedSstError, match=other.name):
        decode_stored([(one, [good]), (other, [StoredBlock(0, whole.data[:-9])])])


def _two_sections(objects: ObjectStore) -> list[OpenSection]:
    """Sections of two SSTs with the same columns."""
    sections = []
    for chance in (random.Random(1), random.Random(2)):
        model = _model(objects, chance, width=9)
        (sst,) = BlockSource(objects, BlockCache()).open_ssts([max(model.version.levels[0], key=lambda sst: sst.rows)])
        sections.append(OpenSection(sst, sst.open_section(TABLE)))
    return sections


def test_damaged_texts_of_the_disk_cache_are_read_again(objects: ObjectStore) -> None:
    again = list[int]()

    class Damaged(RangeReader):
        """The host's disk cache has damaged bytes of a block."""

        def fetch_ranges(self, wanted: Any, keep: bool = True) -> Any:
            parts_of_each = super().fetch_ranges(wanted, keep)
            for (_, ranges), parts in zip(wanted, parts_of_each, strict=True):
                for number, (offset, length) in enumerate(ranges):
                    if offset == int(section.reader.offsets[2]):
                        parts[number] = bytes(length)
            return parts_of_each

        def fetch_again(self, sst: SstInfo, part: Range) -> bytes:
            again.append(part[0])
            return objects.get_ranges(sst.name, [part])[0]

    _, section = _largest(objects)
    request = BlockRequest(section, np.arange(0, len(section.reader), 2))
    (units,) = BlockSource(objects, BlockCache(), Damaged(objects, None)).read_units([request], 30)
    (expected,) = BlockSource(objects, BlockCache()).read_units([request], 30)
    assert [unit.columns for unit in units] == [unit.columns for unit in expected]
    assert again == [int(section.reader.offsets[2])]
