"""The SST format: golden bytes, determinism, cuts, and damage that is always named."""

import random
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash

from tests.support.statestore.hummock.store_model import (
    ROW_SCHEMA,
    Row,
    StoreModel,
    empty_version,
    sealed,
    storage_key,
    with_l0,
)
from tests.unit.statestore.hummock.test_planes import values_by_hand
from tussock.statestore.checksum import crc32c
from tussock.statestore.hummock import ingest
from tussock.statestore.hummock.block_source import BlockRequest, BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError, UnorderedRowsError, WrongRowsError
from tussock.statestore.hummock.ingest import PartIngest, batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sst_format import TAIL_SIZE
from tussock.statestore.hummock.sst_writer import EncodedBlocks, EncodedSst, build_sst, encode_blocks
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore, ObjectStoreUnavailableError
from tussock.statestore.objectstore.local import LocalObjectStore

GOLDEN = Path(__file__).parent / "golden"


def _golden_batches() -> list[SealedBatch]:
    """Two tables with puts, deletes, nulls, and keys of one length and of several."""
    one_length: dict[bytes, Row | None] = {
        storage_key(2, i // 4, b"k%03d" % i): {"n": i, "s": f"row {i}"} for i in range(40)
    }
    several: dict[bytes, Row | None] = {
        storage_key(7, 1, b"x" * i): None if i % 3 == 0 else {"n": None, "s": "ß" * i} for i in range(9)
    }
    return [sealed(7, several), sealed(2, one_length)]


def _write(
    objects: ObjectStore,
    batches: list[SealedBatch],
    epoch: int = 3,
    target: int = 64 << 20,
) -> list[SstInfo]:
    return batch_ingest(objects, batches, epoch, f"data/{epoch:016x}", target)


def test_the_bytes_of_an_sst_are_those_on_file(objects: ObjectStore, request: pytest.FixtureRequest) -> None:
    (info,) = _write(objects, _golden_batches())
    data = objects.get(info.name)
    path = GOLDEN / "two_tables.sst"
    if request.config.getoption("--update-cases"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert data == path.read_bytes(), (
        "the format moved: raise its version and keep reading the old one, or undo the change"
    )
    assert info.name == f"data/{3:016x}/{xxhash.xxh3_128_hexdigest(data)}.sst"
    assert (info.size, info.rows, info.min_epoch, info.max_epoch) == (len(data), 49, 3, 3)


class _Watched(LocalObjectStore):
    """A store whose upload ends when the next SST is built, if there is one."""

    def __init__(self, root: Path, fails: bool = False) -> None:
        super().__init__(root)
        self.built, self.uploaded, self.fails, self.next = 0, 0, fails, threading.Semaphore(0)

    def build(self, parts: Sequence[EncodedBlocks], prefix: str) -> EncodedSst:
        assert self.built - self.uploaded <= 1, "no more than two SSTs are in memory"
        self.built += 1
        if self.built > 1:
            self.next.release()
        return build_sst(parts, prefix)

    def put(self, name: str, data: bytes) -> None:
        if self.built < 4:
            assert self.next.acquire(timeout=10), "nothing is built meanwhile"
        if self.fails:
            raise ObjectStoreUnavailableError(self.uri, "put", "full")
        super().put(name, data)
        self.uploaded += 1


@pytest.mark.parametrize("fails", [False, True])
def test_each_sst_is_uploaded_while_the_next_is_built(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _Watched(tmp_path, fails)
    rows: dict[bytes, Row | None] = {
        storage_key(1, i // 500, b"%06d" % i): {"n": i, "s": "x" * (i % 7)} for i in range(8_000)
    }
    whole = _write(LocalObjectStore(tmp_path / "other"), [sealed(1, rows)])
    size = sum(section.bytes for info in whole for section in info.sections)
    monkeypatch.setattr(ingest, "build_sst", store.build)
    if fails:
        with pytest.raises(ObjectStoreUnavailableError):
            _write(store, [sealed(1, rows)], target=size // 4 + 1)
        return
    infos = _write(store, [sealed(1, rows)], target=size // 4 + 1)
    assert (store.built, store.uploaded, sum(info.rows for info in infos)) == (4, 4, 8_000)
    assert all(a.sections[-1].last_key < b.sections[0].first_key for a, b in pairwise(infos))


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_tables_share_ssts_with_the_rows_of_all(seed: int, objects: ObjectStore) -> None:
    chance = random.Random(seed)
    ascending = seed % 2 == 0
    expected: dict[int, dict[bytes, Row]] = {1: {}, 2: {}}
    parts, target = PartIngest(objects, 3, f"data/{3:016x}", 20_000), 20_000
    for number in range(30):
        batches = []
        for table in chance.sample([1, 2], chance.choice([1, 2])):
            form = b"%d/%02d" if chance.random() < 0.1 else b"%03d/%02d"  # keys of several lengths, or of one
            rows: dict[bytes, Row] = {
                storage_key(table, number if ascending else chance.randrange(90), form % (i, number)): {
                    "n": i,
                    "s": chance.choice([None, "a", "b" * 90]),
                }
                for i in range(chance.choice([1, 80]))
            }
            batches.append(sealed(table, dict(rows)))
            expected[table] |= rows
        parts.add_part(batches)
    infos = parts.close()
    assert sum(info.rows for info in infos) == sum(map(len, expected.values()))
    assert all(sum(section.bytes for section in info.sections) <= target for info in infos)
    if ascending:
        assert len(infos) < 20, "the 45 parts share SSTs"
    store = HummockStore(objects, with_l0(empty_version(), 3, infos), BlockCache())
    for table, rows in expected.items():
        exists, answer = store.multi_get(table, pa.array(list(rows), pa.binary()), 3)
        assert exists.true_count == len(rows)
        assert answer.to_pylist() == list(rows.values())


def test_an_sst_can_be_read_by_its_specification_alone() -> None:
    """Written from the header of sst_format.py with Arrow and struct, without any code of the store."""
    data = (GOLDEN / "two_tables.sst").read_bytes()
    tail = data[-64:]
    assert tail[:8] == b"TUSSOCKS"
    assert crc32c(tail[:60]) == int.from_bytes(tail[60:], "little")
    lengths = [int.from_bytes(tail[12 + 4 * i : 16 + 4 * i], "little") for i in range(3)]
    start = len(data) - 64 - sum(lengths)
    assert crc32c(data[start:-64]) == int.from_bytes(tail[24:28], "little")
    tables = []
    for length in lengths:
        tables.append(pa.ipc.open_stream(data[start : start + length]).read_all())
        start += length
    sections, blocks, filters = (table.to_pylist() for table in tables)
    assert [section["table_id"] for section in sections] == [2, 7]
    schemas = [pa.ipc.read_schema(pa.py_buffer(section["schema"])) for section in sections]
    rows = {
        section["table_id"]: values_by_hand(
            schema, data[block["offset"] : block["offset"] + block["length"]], block["rows"]
        )
        for section, schema, block in zip(sections, schemas, blocks, strict=True)
    }
    assert rows[2]["s"] == [f"row {i}" for i in range(40)]
    assert schemas[0].field("key").type == pa.binary(11)
    assert rows[7]["op"] == [0, 1, 1, 0, 1, 1, 0, 1, 1]
    assert {*rows[7]["epoch"]} == {3}
    for block in blocks:
        assert crc32c(data[block["offset"] : block["offset"] + block["length"]]) == block["crc"]
    for part in filters:
        assert crc32c(data[part["offset"] : part["offset"] + part["length"]]) == part["crc"]
    assert [block["last_key"] for block in blocks] == [
        rows[2]["key"][-1],
        rows[7]["key"][-1],
    ]


def test_an_sst_of_a_newer_format_is_refused(objects: ObjectStore) -> None:
    (info,) = _write(objects, _golden_batches())
    data = objects.get(info.name)
    tail = data[-TAIL_SIZE:]
    newer = tail[:8] + (2).to_bytes(2, "little") + tail[10:60]
    objects.put(info.name, data[:-TAIL_SIZE] + newer + crc32c(newer).to_bytes(4, "little"))
    with pytest.raises(DamagedSstError, match="format version 2, expected 1: a newer release wrote it"):
        BlockSource(objects, BlockCache()).open_ssts([info])


def test_equal_rows_make_equal_objects_however_actors_and_buffers_were_cut(objects: ObjectStore) -> None:
    rng = random.Random(5)
    changes: dict[bytes, Row | None] = {
        storage_key(4, rng.randrange(64), b"%d" % i): {"n": rng.choice([None, i]), "s": rng.choice([None, str(i)])}
        for i in range(5000)
    }
    keys = sorted(changes)
    whole = _write(objects, [sealed(4, changes)], target=20_000)
    for parts in (2, 7):
        owners = {key: key[5] % parts for key in keys}
        batches = [sealed(4, {key: changes[key] for key in keys if owners[key] == part}) for part in range(parts)]
        rng.shuffle(batches)
        assert _write(objects, batches, target=20_000) == whole
    # other bytes under the nulls, other chunks, a slice of a larger table
    table = sealed(4, changes).rows
    numbers = table.column("n").combine_chunks()
    dirty = np.where(numbers.is_null().to_numpy(zero_copy_only=False), 77, numbers.fill_null(0).to_numpy())
    validity = pa.array(numbers.is_valid()).buffers()[1]
    same = pa.Array.from_buffers(pa.int64(), len(numbers), [validity, pa.py_buffer(dirty.tobytes())])
    assert same.equals(numbers)
    chunked = pa.concat_tables([table.set_column(2, "n", same).slice(0, 1234), table.slice(1234)])
    padded = pa.concat_tables([table.slice(0, 100), chunked]).slice(100)
    assert _write(objects, [SealedBatch(4, padded)], target=20_000) == whole


@pytest.mark.parametrize("target", [1, 3_000, 20_000, 1 << 20])
def test_an_epoch_becomes_as_many_ssts_as_its_bytes_need(objects: ObjectStore, target: int) -> None:
    batches = [
        sealed(table_id, {storage_key(table_id, i % 256, b"%d" % i): {"n": i, "s": str(i * i)} for i in range(rows)})
        for table_id, rows in ((1, 3), (2, 9000), (3, 5), (4, 2000), (6, 1))
    ]
    ssts = _write(objects, batches, target=target)
    sections = [section for sst in ssts for section in sst.sections]
    opened = BlockSource(objects, BlockCache()).open_ssts(ssts)
    blocks = sum(len(sst.open_section(table_id)) for sst in opened for table_id in sst.table_ids)
    encoded = sum(section.bytes for section in sections)
    assert len(ssts) <= min(blocks, -(-encoded // target))
    assert sum(sst.rows for sst in ssts) == 11009
    ends = [(section.first_key, section.last_key) for section in sections]
    assert all(first <= last for first, last in ends)
    assert all(a[1] < b[0] for a, b in pairwise(ends))


def test_nothing_is_written_for_empty_batches(objects: ObjectStore) -> None:
    assert _write(objects, []) == []
    assert _write(objects, [sealed(1, {})]) == []
    assert list(objects.list("")) == []


def test_unsorted_repeated_and_wrong_rows_are_refused(objects: ObjectStore) -> None:
    a, b = storage_key(1, 0, b"a"), storage_key(1, 0, b"b")
    good = sealed(1, {a: {"n": 1, "s": ""}, b: {"n": 2, "s": ""}})
    with pytest.raises(UnorderedRowsError, match="row 1"):
        _write(objects, [SealedBatch(1, good.rows.take([1, 0]))])
    with pytest.raises(UnorderedRowsError):
        _write(objects, [good, sealed(1, {a: None})])
    wide = storage_key(1, 0, b"w" * 100)
    with pytest.raises(UnorderedRowsError):
        _write(objects, [sealed(1, {wide: None}), sealed(1, {wide: None})])
    with pytest.raises(WrongRowsError):
        _write(objects, [SealedBatch(1, good.rows.drop_columns(["op"]))])
    with pytest.raises(WrongRowsError):
        _write(objects, [good, sealed(1, {storage_key(1, 1, b""): {"n": 1}}, pa.schema([pa.field("n", pa.int64())]))])
    assert list(objects.list("")) == []


def _read_everything(objects: ObjectStore, info: SstInfo) -> list[object]:
    """Every row by scan and by key, so that index, filters and blocks are all used."""
    store = HummockStore(objects, with_l0(empty_version(), 3, [info]), BlockCache())
    answer: list[object] = []
    for section in info.sections:
        rows = [row for table in store.iter_rows(section.table_id, None, None, 3) for row in table.to_pylist()]
        keys = pa.array([row["key"] for row in rows], pa.binary())
        answer += [rows, store.multi_get(section.table_id, keys, 3)[1].to_pylist()]
    return answer


@pytest.mark.parametrize("whole", [True, False], ids=["read whole", "read in ranges"])
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.deep), 7])
@pytest.mark.sampled(2)
def test_every_flipped_byte_is_detected_or_harmless_and_never_a_wrong_row(
    objects: ObjectStore, step: int, whole: bool
) -> None:
    (info,) = _write(objects, _golden_batches())
    data = objects.get(info.name)
    if not whole:
        tail = data[-TAIL_SIZE:]
        index = sum(int.from_bytes(tail[12 + 4 * i : 16 + 4 * i], "little") for i in range(3))
        info = msgspec.structs.replace(info, footer_size=index + TAIL_SIZE)
    expected = _read_everything(objects, info)
    harmless = []
    rng = random.Random(3)
    for position in range(0, len(data), step):
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        objects.put(info.name, bytes(damaged))
        try:
            assert _read_everything(objects, info) == expected
            harmless.append(position)
        except DamagedSstError as error:
            assert error.name == info.name  # noqa: PT017
    # No read uses schema messages and end markers, because the index holds a copy. A scrub checks them by the hash.
    sections = [section.bytes for section in info.sections]
    assert len(harmless) <= sum(sections) - sum(block for block in _block_lengths(objects, info, data))


def _block_lengths(objects: ObjectStore, info: SstInfo, data: bytes) -> list[int]:
    objects.put(info.name, data)
    (sst,) = BlockSource(objects, BlockCache()).open_ssts([info])
    return [int(length) for table_id in sst.table_ids for length in sst.open_section(table_id).lengths]


def test_damage_names_object_table_block_and_keys(objects: ObjectStore) -> None:
    model = StoreModel(objects)
    changes: dict[bytes, Row | None] = {
        storage_key(2, 1, b"%06d" % i): {"n": i, "s": str(hash((i, i)))} for i in range(20_000)
    }
    (info,) = model.commit(3, [sealed(2, changes)])
    data = bytearray(objects.get(info.name))
    source = BlockSource(objects, BlockCache())
    (sst,) = source.open_ssts([info])
    reader = sst.open_section(2)
    data[int(reader.offsets[5]) + 20] ^= 1
    objects.put(info.name, bytes(data))
    keys, first = sorted(changes), int(reader.rows[:5].sum())
    store = HummockStore(objects, model.version, BlockCache())
    found, _ = store.multi_get(2, pa.array([keys[0], keys[-1]], pa.binary()), 3)
    assert found.to_pylist() == [True, True], "other blocks can still be read"
    with pytest.raises(DamagedSstError) as caught:
        store.get(2, keys[first + 3], 3)
    message = str(caught.value)
    for part in (info.name, "table 2", "block 5", f"2|1|{keys[first][6:].hex()}", "crc32c"):
        assert part in message
    with pytest.raises(DamagedSstError, match="block 5"):
        list(store.iter_rows(2, None, None, 3))


def test_a_truncated_object_an_object_of_another_kind_and_a_missing_one_are_named(objects: ObjectStore) -> None:
    (info,) = _write(objects, _golden_batches())
    data = objects.get(info.name)
    for cut in (0, 1, 63, 64, len(data) // 2, len(data) - 1):
        objects.put(info.name, data[:cut])
        with pytest.raises(DamagedSstError, match=info.name):
            _read_everything(objects, info)
    objects.put(info.name, bytes(len(data)))
    with pytest.raises(DamagedSstError, match="not an SST"):
        _read_everything(objects, info)
    objects.delete([info.name])
    with pytest.raises(MissingSstError, match=info.name):
        _read_everything(objects, info)


def test_a_read_of_many_waves_answers_as_one_wave_does_and_names_damage(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = StoreModel(objects)
    changes: dict[bytes, Row | None] = {
        storage_key(2, i // 9000, b"%06d" % i): {"n": i, "s": str(i % 7)} for i in range(200_000)
    }
    (info,) = model.commit(3, [sealed(2, changes)], 64 << 20)
    keys = pa.array(random.Random(2).sample(sorted(changes), 20_000), pa.binary())
    expected = [changes[key] for key in keys.to_pylist()]
    assert HummockStore(objects, model.version, BlockCache()).multi_get(2, keys, 3)[1].to_pylist() == expected
    for run_bytes, wave_bytes in ((1, 1), (1 << 20, 1), (300_000, 500_000)):
        monkeypatch.setattr("tussock.statestore.hummock.block_source._RUN_BYTES", run_bytes)
        monkeypatch.setattr("tussock.statestore.hummock.block_source._WAVE_BYTES", wave_bytes)
        found, rows = HummockStore(objects, model.version, BlockCache()).multi_get(2, keys, 3)
        assert found.true_count == len(keys)
        assert rows.to_pylist() == expected
    data = bytearray(objects.get(info.name))
    (sst,) = BlockSource(objects, BlockCache()).open_ssts([info])
    data[int(sst.open_section(2).offsets[150]) + 20] ^= 4
    objects.put(info.name, bytes(data))
    with pytest.raises(DamagedSstError, match="block 150"):
        HummockStore(objects, model.version, BlockCache()).multi_get(2, keys, 3)


def test_the_versions_of_a_key_stay_in_one_block(objects: ObjectStore) -> None:
    keys = [storage_key(1, 0, b"%04d" % (i // 7)) for i in range(7 * 500)]
    epochs = [100 - i % 7 for i in range(7 * 500)]
    rows = pa.table(
        [
            pa.array(keys, pa.binary()),
            pa.array(epochs, pa.uint64()),
            pa.array([1] * len(keys), pa.uint8()),
            pa.array(epochs),
        ],
        names=["key", "epoch", "op", "n"],
    )
    blocks = encode_blocks(1, rows, rows_per_block=100)
    assert set(blocks.rows.tolist()) <= set(range(7, 106))
    assert (blocks.rows % 7 == 0).all()
    firsts, lasts = blocks.first_keys.to_pylist(), blocks.last_keys.to_pylist()
    assert all(last < first for last, first in zip(lasts[:-1], firsts[1:], strict=True))


@pytest.mark.parametrize(
    "kind", ["int64", "int8", "float64", "fixed", "date32", "bool", "decimal128(25, 2)", "string", "list"]
)
def test_equal_rows_of_different_buffers_make_equal_blocks(kind: str) -> None:
    rng = np.random.default_rng(8)
    types = {"fixed": pa.binary(5), "list": pa.list_(pa.int16()), "decimal128(25, 2)": pa.decimal128(25, 2)}
    numbers = pa.array(rng.integers(0, 100, 4000), pa.int64())
    made = {
        "bool": lambda: pc.greater(numbers, 50),
        "fixed": lambda: pc.cast(pc.utf8_lpad(numbers.cast(pa.string()), 5), pa.binary()).cast(pa.binary(5)),
        "list": lambda: pa.array([[n] * (n % 3) for n in numbers.to_pylist()], types["list"]),
        "date32": lambda: numbers.cast(pa.int32()).cast(pa.date32()),
    }
    column = made[kind]() if kind in made else numbers.cast(types.get(kind) or pa.type_for_alias(kind))
    nulls = pa.array(rng.random(4000) < 0.1)
    for values in (column, pc.if_else(nulls, None, column)):
        keys = pa.array([storage_key(1, 0, b"%06d" % i) for i in range(4000)], pa.binary())
        heads = [pa.array(np.full(4000, 3, np.uint64)), pa.array(np.ones(4000, np.uint8))]
        for key in (keys, keys.cast(pa.binary(13))):
            rows = pa.table([key, *heads, values], ["key", "epoch", "op", "v"])
            for start, count in ((0, 1), (0, 1021), (3, 13), (1000, 2999), (1024, 1024), (2990, 1010)):
                part = rows.slice(start, count)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, part.schema) as writer:
                    writer.write_table(part.take(pa.array(np.arange(count))))
                alone = pa.ipc.open_stream(sink.getvalue()).read_all()
                found, expected = (encode_blocks(1, given).payloads for given in (part, alone))
                assert found == expected, (start, count)


@pytest.mark.parametrize("width", [1, 50, 1_000])
def test_reading_a_row_decodes_at_most_32_kb(width: int) -> None:
    changes: dict[bytes, Row | None] = {
        storage_key(2, 1, b"%06d" % i): {"n": i, "s": str(i) * width} for i in range(2_000)
    }
    rows = sealed(2, changes).rows
    epochs = pa.array(np.full(rows.num_rows, 3, np.uint64))
    rows = rows.add_column(1, pa.field("epoch", pa.uint64(), nullable=False), epochs)
    blocks = encode_blocks(2, rows)
    assert int(blocks.rows.sum()) == 2_000
    assert int(blocks.rows.max()) * rows.nbytes / 2_000 <= 32 << 10  # with Arrow's offsets


def test_a_sparse_read_fetches_single_blocks_and_a_dense_one_whole_partitions(objects: ObjectStore) -> None:
    model = StoreModel(objects)
    (info,) = model.commit(
        3, [sealed(2, {storage_key(2, 1, b"%06d" % i): {"n": i, "s": None} for i in range(70_000)})], 64 << 20
    )
    source = BlockSource(objects, BlockCache())
    (sst,) = source.open_ssts([info])
    section = OpenSection(sst, sst.open_section(2))
    ((one,),) = source.read_blocks([BlockRequest(section, np.array([3]))])
    assert (one.first_block, one.end_block, len(one)) == (3, 4, section.reader.rows[3])
    count = len(section.reader)
    (units,) = source.read_blocks([BlockRequest(section, np.arange(0, count, 2))])
    assert [(unit.first_block, unit.end_block) for unit in units] == [(0, 64), (64, count)]


def test_schema_of_a_section_is_that_of_its_rows(objects: ObjectStore) -> None:
    (info,) = _write(objects, _golden_batches())
    (sst,) = BlockSource(objects, BlockCache()).open_ssts([info])
    assert sst.table_ids == [2, 7]
    assert sst.open_section(7).row_schema == ROW_SCHEMA
