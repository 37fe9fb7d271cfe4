"""Rows of megabytes: merges, encoding and reads hold a bounded number of bytes, and give the same bytes and rows."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.memory import BUDGET_BYTES, measure
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.catalogs import catalog_of
from tests.support.statestore.hummock.store_model import StoreModel, sealed, storage_key
from tests.unit.statestore.hummock.test_compaction import outputs_here, task_of
from tussock.statestore.hummock import compaction, merge, shared_buffer, sst_writer
from tussock.statestore.hummock.block_source import ReadMode, Unit
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction import plan_merge
from tussock.statestore.hummock.planes import Bounds, PlaneLayout
from tussock.statestore.hummock.shared_buffer import BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.hummock.sst_reader import Rows, SstReader
from tussock.statestore.hummock.sst_writer import build_sst, encode_blocks
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.version import VnodeMapping


def rows_of_all_types(count: int, seed: int = 3) -> pa.Table:
    """Rows of every form of a column, with NULLs that only some of them have."""
    rng = np.random.default_rng(seed)
    n = pa.array(rng.integers(-5, 1 << 40, count), mask=rng.random(count) < 0.02)
    late = pa.array([None if i > 0.9 * count else i for i in range(count)], pa.int32())
    texts = ["x" * int(size) for size in rng.integers(0, 900, count)]
    lists: list[list[int] | None] = [None if i % 31 == 30 else list(range(i % 4)) for i in range(count)]
    structs = [{"a": None if i % 5 == 4 else i, "b": [str(i)] * (i % 3)} for i in range(count)]
    maps = [[(str(i), float(i))] * (i % 2) for i in range(count)]
    columns: dict[str, pa.Array] = {
        "key": pa.array([storage_key(1, 0, b"%06d" % (i // 3)) for i in range(count)], pa.binary()),
        "epoch": pa.array([100 - i % 3 for i in range(count)], pa.uint64()),
        "op": pa.array([int(i % 7 != 6) for i in range(count)], pa.uint8()),
        "n": n,
        "late": late,
        "same": pa.array(np.full(count, 7, np.int64)),
        "flag": pa.array([None if i % 11 == 10 else i % 2 == 0 for i in range(count)]),
        "text": pa.array([None if i % 13 == 12 else text for i, text in enumerate(texts)], pa.string()),
        "list": pa.array(lists, pa.list_(pa.int16())),
        "struct": pa.array(structs, pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        "map": pa.array(maps, pa.map_(pa.string(), pa.float64())),
    }
    return pa.table(columns)


def runs_of_wide_rows(objects: MemoryObjectStore, seed: int) -> tuple[StoreModel, list[int]]:
    """Ten runs with texts of up to 3,000 letters, updates and deletes."""
    rng = random.Random(seed)
    model = StoreModel(objects)
    for epoch in range(1, 11):
        keys = [storage_key(1, rng.randrange(6), b"%03d" % rng.randrange(150)) for _ in range(60)]
        rows = {
            key: None if rng.random() < 0.2 else {"n": epoch, "s": rng.randbytes(rng.randrange(1_500)).hex()}
            for key in keys
        }
        model.commit(epoch, [sealed(1, rows)])
    return model, list(range(1, 11))


@pytest.fixture
def _tiny_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of one block, and steps of a few rows."""
    monkeypatch.setattr(merge, "STEP_BYTES", 2_000)
    monkeypatch.setattr(merge, "MERGE_BYTES", 1)
    monkeypatch.setattr(compaction, "WINDOW_BYTES", 1)
    monkeypatch.setattr(merge, "_LEAST_SHARE", 1)


def test_a_row_that_is_wider_than_a_block_is_alone_in_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch of blocks has few bytes, and all rows come back."""
    monkeypatch.setattr(sst_writer, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(sst_writer, "_BYTES_AT_ONCE", 2_000)
    batches = []
    encode = sst_writer.encode_planes

    def counted(layout: PlaneLayout, batch: pa.RecordBatch, bounds: Bounds) -> Iterator[bytes]:
        batches.append(len(bounds))
        return encode(layout, batch, bounds)

    monkeypatch.setattr(sst_writer, "encode_planes", counted)
    rows = rows_of_all_types(90)
    texts = pa.array(["x" * 400 for _ in range(90)])
    rows = rows.set_column(rows.schema.get_field_index("text"), "text", texts)
    sst = build_sst([encode_blocks(1, rows)], "data/wide")
    assert max(batches) <= 5
    section = SstReader(sst.info, sst.data[-sst.info.footer_size :]).open_section(1)
    assert section.rows.tolist() == [3] * 30, "all versions of a key stay in one block"
    found = section.decode_blocks(0, len(section), sst.data[int(section.offsets[0]) :][: int(section.lengths.sum())])
    assert found.columns.to_pylist() == rows.drop_columns(["key", "epoch", "op"]).to_pylist()


@pytest.mark.parametrize("readable", [[10], [3, 5, 10]])
def test_a_merge_of_wide_rows_makes_the_same_objects(
    readable: list[int], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second attempt at the same work writes nothing new."""
    monkeypatch.setattr(sst_writer, "_BLOCK_BYTES", 8_000)
    monkeypatch.setattr(compaction, "_CHUNK_BYTES", 30_000)
    request.getfixturevalue("_tiny_merges")
    names: list[list[str]] = []
    for _ in range(2):
        objects = MemoryObjectStore()
        model, _epochs = runs_of_wide_rows(objects, 5)
        mapping = VnodeMapping(0, (0, 0, 0, 1, 1, 1))
        version = msgspec.structs.replace(model.version, catalog=catalog_of([1]), mapping=mapping)
        ssts = [sst for level in version.levels for sst in level]
        task = task_of(version, ssts, 1)
        plan = plan_merge(objects, version, task, readable, 20_000)
        outputs = outputs_here(plan, objects)
        names.append([sst.name for sst in outputs])
    assert len(names[0]) > 3
    assert names[0] == names[1]


@pytest.mark.usefixtures("_tiny_merges")
def test_scans_and_look_ups_of_wide_rows_agree_with_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_buffer, "_PORTION_BYTES", 20_000)
    model, epochs = runs_of_wide_rows(MemoryObjectStore(), 6)
    rng = random.Random(1)
    for epoch in epochs[2::3]:
        store = model.store()
        rows = dict(model.scan(epoch))
        assert {
            row.pop("key"): row for part in store.iter_rows(1, None, None, epoch) for row in part.to_pylist()
        } == rows
        keys = [*rng.sample(sorted(rows), 40), storage_key(1, 1, b"zzz")]
        found, got = store.multi_get(1, pa.array(keys, pa.binary()), epoch)
        assert [row if held else None for held, row in zip(found.to_pylist(), got.to_pylist(), strict=True)] == [
            rows.get(key) for key in keys
        ]
        prefixes = [(1).to_bytes(4, "big") + bytes([0, vnode]) for vnode in range(6)]
        for limit in (None, 1, 7):
            index, held_keys, got = store.scan_prefix(1, pa.array(prefixes, pa.binary()), epoch, limit)
            expected = [
                (place, key, rows[key])
                for place, prefix in enumerate(prefixes)
                for key in [key for key in sorted(rows) if key.startswith(prefix)][:limit]
            ]
            assert list(zip(index.to_pylist(), held_keys.to_pylist(), got.to_pylist(), strict=True)) == expected


def test_a_look_up_holds_a_portion_of_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 200 keys is in another block of 50 KB. All blocks together would take 10 MB."""
    monkeypatch.setattr(shared_buffer, "_PORTION_BYTES", 1 << 20)
    model = StoreModel(MemoryObjectStore())
    text = [random.Random(i).randbytes(1_600).hex() for i in range(200)]
    keys = [storage_key(1, i % 4, b"%04d" % i) for i in range(3_200)]
    model.commit(1, [sealed(1, {key: {"n": i, "s": text[i % 200]} for i, key in enumerate(sorted(keys))})])
    most = 0
    blocks = BufferedSource.read_units

    def counted(
        source: BufferedSource, requests: Sequence[tuple[Section, Positions]], until: int, mode: ReadMode
    ) -> list[list[Unit]]:
        nonlocal most
        answer = blocks(source, requests, until, mode)
        most = max(most, sum(unit.nbytes for units in answer for unit in units))
        return answer

    monkeypatch.setattr(BufferedSource, "read_units", counted)
    wanted = sorted(keys)[::16]
    found, rows = HummockStore(model.objects, model.version, BlockCache(0)).multi_get(
        1, pa.array(wanted, pa.binary()), 1, columns=["s"]
    )
    assert all(found.to_pylist())
    assert rows.column("s").to_pylist() == [text[i % 200] for i in range(0, 3_200, 16)]
    assert 0 < most < 2 << 20


def narrow_runs(runs: int, keys: int, seed: int = 7) -> tuple[StoreModel, list[bytes]]:
    """Runs of numbers and short texts with keys of several lengths; `keys` of each, which others write as well."""
    rng = random.Random(seed)
    model = StoreModel(MemoryObjectStore())
    all_keys = sorted(
        storage_key(1, n % 4, b"%d" % (n * 7919) + b"k" * (n % 5 * 20)) for n in range(runs * keys * 3 // 4)
    )
    for epoch in range(1, runs + 1):
        rows = {
            key: None if rng.random() < 0.1 else {"n": epoch, "s": f"{epoch}"} for key in rng.sample(all_keys, keys)
        }
        model.commit(epoch, [sealed(1, rows)])
    return model, all_keys


@pytest.mark.parametrize("padded", [0, 64, 1_000])
def test_steps_of_many_runs_take_the_rows_up_to_a_key(padded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of one block of 16 rows. Keys are searched as they are, or padded to one length."""
    monkeypatch.setattr(merge, "_PADDED_KEY", padded)
    monkeypatch.setattr(merge, "WINDOW_BLOCKS", 1)
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 16)
    model, _ = narrow_runs(20, 100)
    for epoch in (20, 11):
        found = {
            row.pop("key"): row for part in model.store().iter_rows(1, None, None, epoch) for row in part.to_pylist()
        }
        assert found == dict(model.scan(epoch))


def test_a_large_step_of_windows_in_memory_ends_at_an_earlier_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of many runs end near the same key. All their rows together would be several steps."""
    monkeypatch.setattr(merge, "STEP_BYTES", 30_000)
    model, _ = narrow_runs(20, 200)
    parts = list(model.store().iter_rows(1, None, None, 20))
    assert len(parts) > 5
    assert {row.pop("key"): row for part in parts for row in part.to_pylist()} == dict(model.scan(20))


def test_a_window_of_numbers_takes_all_blocks_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns determine the bytes of such rows, so a scan needs no guess and no first read of a few blocks."""
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 16)
    keys = [storage_key(1, 0, b"%06d" % n) for n in range(40 * 16)]
    model = StoreModel(MemoryObjectStore())
    for epoch in range(1, 18):
        model.commit(epoch, [sealed(1, {key: {"n": epoch} for key in keys}, pa.schema([("n", pa.int64())]))])
    reads = 0
    scan = BufferedSource.scan_blocks

    def counted(source: BufferedSource, *given: Any) -> Rows:
        nonlocal reads
        reads += 1
        return scan(source, *given)

    monkeypatch.setattr(BufferedSource, "scan_blocks", counted)
    (part,) = HummockStore(model.objects, model.version, BlockCache(0)).iter_rows(1, None, None, 17)
    assert part.column("n").to_pylist() == [17] * len(keys)
    assert reads == 17


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tussock-wide-") as folder:
        yield Path(folder)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("row_bytes", "gigabytes", "nested"), [(1_000_000, 0.3, False), (8_000_000, 0.8, False), (8_000_000, 0.5, True)]
)
def test_compactions_and_scans_of_wide_rows_keep_the_budget(
    scratch: Path, row_bytes: int, gigabytes: float, nested: bool
) -> None:
    found = measure(scratch, gigabytes, payload=row_bytes, nested=nested)
    assert found.right
    assert found.compaction.peak < BUDGET_BYTES
    assert found.scan.peak < BUDGET_BYTES
