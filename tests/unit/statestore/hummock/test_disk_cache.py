"""The disk cache: warm for the next process, bounded, and never the cause of an error or a wrong row."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.s3_servers import BUCKET
from tests.support.statestore.hummock import disk_cache as shared
from tests.support.statestore.hummock.disk_cache import ALL, ROWS, cache_path
from tests.support.statestore.hummock.remote_store import (
    TABLE,
    RemoteStore,
    flipped,
    key_of,
    make_store,
    reader,
    wrong_rows,
)
from tussock.statestore.hummock import disk_cache as disk_cache_module
from tussock.statestore.hummock import range_reader
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.cache_file import MIN_BYTES, PIECE_BYTES, WAYS, open_cache_file
from tussock.statestore.hummock.disk_cache import CachedObject, DiskCache, DiskCacheSettings, disk_cache_for
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.open import open_object_store

_no_warning_unless_expected = shared._no_warning_unless_expected
stored = shared.stored
remote = shared.remote
version = shared.version


# --- purpose -------------------------------------------------------------------------------------------------------


def test_bytes_that_one_process_read_cost_the_next_one_no_request(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path
) -> None:
    numbers = random.Random(1).sample(ALL, 500)
    assert wrong_rows(reader(remote, version, DiskCache(tmp_path, 64 << 20)), numbers) == []
    assert remote.taken() > 0
    disk = DiskCache(tmp_path, 64 << 20)
    assert wrong_rows(reader(remote, version, disk), numbers) == []
    assert remote.taken() == 0
    assert (disk.counts.misses, disk.counts.writes) == (0, 0)


def test_a_miss_brings_its_neighbours_and_a_scan_brings_nothing(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path
) -> None:
    disk = DiskCache(tmp_path, 64 << 20)
    assert (
        reader(remote, version, disk).get(TABLE, key_of(16), 1) is not None
    )  # vnode 0: the first block of the first SST
    held = disk.counts.writes
    assert 4 <= held <= 8, "256 KiB around the block, and around the footer"
    assert reader(remote, version, disk).get(TABLE, key_of(1600 + 16), 1) is not None
    assert disk.counts.writes == held
    remote.taken()
    rows = pa.concat_tables(reader(remote, version, disk).iter_rows(TABLE, None, None, 1))
    assert rows.num_rows == sum(number % 10 != 0 for number in ALL)
    first = version.levels[0][0]
    here = disk.read_pieces(
        CachedObject.of_object(remote.uri, first.name, first.size),
        np.arange(first.size // PIECE_BYTES),
        *spans(first.size),
    )
    assert [data is not None for data in here].count(True) <= held, "but for footers, a scan leaves the cache as it was"
    assert remote.taken() > 0


def spans(size: int) -> tuple[Positions, Positions]:
    whole = size // PIECE_BYTES
    return np.zeros(whole, np.int64), np.full(whole, PIECE_BYTES)


def test_scans_read_cached_bytes_from_disk(remote: RemoteStore, version: HummockVersion, tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, 64 << 20)
    assert wrong_rows(reader(remote, version, disk), ALL) == []
    remote.taken()
    rows = pa.concat_tables(reader(remote, version, disk).iter_rows(TABLE, None, None, 1))
    assert (rows.num_rows, remote.taken()) == (sum(number % 10 != 0 for number in ALL), 0)


def test_the_least_recently_used_piece_of_a_set_goes_first(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, MIN_BYTES)
    objects = [CachedObject.of_object("s3://b", f"data/{number}.sst", 100) for number in range(WAYS + 3)]
    data = [bytes([number]) * 100 for number in range(len(objects))]
    for of, bits in zip(objects[:WAYS], data, strict=False):
        disk.write_pieces(of, 0, bits)
    assert one(disk, objects[0]) == data[0]  # now the last used one
    for number in range(WAYS, WAYS + 3):
        disk.write_pieces(objects[number], 0, data[number])
    here = [number for number, of in enumerate(objects) if one(disk, of) is not None]
    assert here == [0, *range(4, WAYS + 3)]
    assert all(one(disk, objects[number]) == data[number] for number in here)
    assert cache_path(tmp_path).stat().st_size <= MIN_BYTES


def one(disk: DiskCache, of: CachedObject, piece: int = 0) -> bytes | None:
    return disk.read_pieces(of, np.array([piece]), np.array([0]), np.array([of.piece_length(piece)]))[0]


def test_stores_objects_and_sizes_are_told_apart(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, 8 << 20)
    disk.write_pieces(CachedObject.of_object("s3://b", "x", 10), 0, b"0123456789")
    assert one(disk, CachedObject.of_object("s3://b", "x", 10)) == b"0123456789"
    for other in (("s3://c", "x", 10), ("s3://b", "y", 10), ("s3://b", "x", 11)):
        assert one(disk, CachedObject.of_object(*other)) is None


def test_any_part_of_any_piece_is_read_back(tmp_path: Path) -> None:
    rng = random.Random(3)
    disk = DiskCache(tmp_path, 32 << 20)
    data = rng.randbytes(5 * PIECE_BYTES + 777)
    of = CachedObject.of_object("s3://b", "x", len(data))
    disk.write_pieces(of, 0, data)
    for _ in range(50):
        pieces = np.array(sorted(rng.sample(range(of.piece_count), 3)))
        lows = np.array([rng.randrange(of.piece_length(piece)) for piece in pieces.tolist()])
        highs = np.array(
            [
                rng.randint(low, of.piece_length(piece))
                for low, piece in zip(lows.tolist(), pieces.tolist(), strict=True)
            ]
        )
        found = disk.read_pieces(of, pieces, lows, highs)
        starts = (pieces * PIECE_BYTES).tolist()
        assert found == [
            data[s + low : s + high] for s, low, high in zip(starts, lows.tolist(), highs.tolist(), strict=True)
        ]


def test_a_scan_does_not_count_as_a_use_of_cached_pieces(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, MIN_BYTES)
    objects = [CachedObject.of_object("s3://b", str(number), 100) for number in range(WAYS + 1)]
    for of in objects[:WAYS]:
        disk.write_pieces(of, 0, bytes(100))
    assert disk.read_pieces(objects[0], np.array([0]), np.array([0]), np.array([100]), use=False) == [bytes(100)]
    disk.write_pieces(objects[WAYS], 0, bytes(100))
    assert one(disk, objects[0]) is None


def test_a_store_in_s3_is_read_and_written_through_the_hosts_cache(
    moto_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the public interfaces, with a process's settings: an epoch's SSTs are cached before the first read."""
    monkeypatch.setattr(disk_cache_module, "process_settings", lambda: DiskCacheSettings("auto", 64 << 20, tmp_path))
    disk_cache_module.process_disk_cache.cache_clear()
    try:
        objects = open_object_store(f"s3://{BUCKET}/disk-cache?endpoint={moto_endpoint}&path_style=true")
        version = make_store(objects, 3000)
        assert [wrong_rows(HummockStore(objects, version, BlockCache()), range(3000)) for _ in range(2)] == [[], []]
        counts = disk_cache_module.process_disk_cache().counts
        assert (counts.misses, counts.damaged) == (0, 0)
        cache_path(tmp_path).unlink()
        assert wrong_rows(HummockStore(objects, version, BlockCache()), range(3000)) == []
        assert counts.misses > 0
    finally:
        disk_cache_module.process_disk_cache.cache_clear()


def test_only_the_footer_of_a_large_upload_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = DiskCache(tmp_path, 64 << 20)
    monkeypatch.setattr(range_reader, "disk_cache_for", lambda objects: disk)
    monkeypatch.setattr(range_reader, "WHOLE_BYTES", 1 << 20)
    remote = RemoteStore(MemoryObjectStore())
    version = make_store(remote, ROWS, target_bytes=64 << 20)
    (sst,) = version.levels[0]
    assert sst.size > 1 << 20
    assert disk.counts.writes <= sst.footer_size // PIECE_BYTES + 2
    store = reader(remote, version, disk)
    store.source.stored.open_ssts(version.levels[0])
    assert remote.taken() == 0
    assert wrong_rows(store, ALL[:1000]) == []
    assert remote.taken() > 0


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.deep), 7])
def test_every_byte_of_the_file_flipped_in_turn_gives_right_rows_and_is_healed(step: int, tmp_path: Path) -> None:
    """Flip each byte of the header, an entry and its piece. Look the entry up each time: healing may move it."""
    remote = RemoteStore(MemoryObjectStore())
    version = make_store(remote, 20)
    (sst,) = version.levels[0]
    of = CachedObject.of_object(remote.uri, sst.name, sst.size)
    assert wrong_rows(reader(remote, version, DiskCache(tmp_path, MIN_BYTES)), range(20)) == []
    for part, size in (("header", 40), ("entry", 32), ("piece", sst.size)):
        remote.taken()
        places = range(0, size, step if part == "piece" else 1)
        for place in places:
            file = open_cache_file(tmp_path, None)
            (slot,) = np.flatnonzero((file.index[0, :, 0] == of.high) & (file.index[0, :, 1] == of.low)).tolist()
            at = {"header": 0, "entry": file.entry_offset(slot), "piece": file.piece_offset(slot)}[part] + place
            os.pwrite(file.handle, flipped(os.pread(file.handle, 1, at), 0), at)
            assert wrong_rows(reader(remote, version, DiskCache(tmp_path, MIN_BYTES)), range(20)) == [], (part, place)
            if part != "piece" or place % 50 == 0:
                gets = remote.gets
                assert wrong_rows(reader(remote, version, DiskCache(tmp_path, MIN_BYTES)), range(20)) == [], (
                    part,
                    place,
                )
                assert remote.gets == gets, f"byte {place} of the {part} was not healed"
        assert remote.taken() == len(places) - 8 * (part == "entry"), "one request each; a stamp only orders"


@pytest.mark.parametrize(
    "harm", ["cut to nothing", "cut in the index", "cut in the slots", "longer", "removed", "folder removed", "zeros"]
)
@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_is_cut_or_gone_is_made_again(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path, harm: str, running: bool
) -> None:
    disk = DiskCache(tmp_path, 16 << 20)
    assert wrong_rows(reader(remote, version, disk), ALL[:500]) == []
    path = cache_path(tmp_path)
    size = path.stat().st_size
    match harm:
        case "removed":
            path.unlink()
        case "folder removed":
            path.unlink()
            path.parent.rmdir()
        case "zeros":
            path.write_bytes(bytes(size))
        case _:
            os.truncate(
                path,
                {"cut to nothing": 0, "cut in the index": 5000, "cut in the slots": size // 2, "longer": size + 1}[
                    harm
                ],
            )
    for _ in range(2):
        remote.taken()
        disk = disk if running else DiskCache(tmp_path, 16 << 20)
        assert wrong_rows(reader(remote, version, disk), ALL[:500]) == []
    assert remote.taken() == 0
    assert path.stat().st_size == size


def test_damaged_bytes_from_the_bucket_are_fetched_again(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path
) -> None:
    """Damage the answer of each request in turn: footers, filters and blocks."""
    requests = 0
    for number in range(100):
        disk = DiskCache(tmp_path / str(number), 64 << 20)
        store = reader(remote, version, disk)
        hurt = RemoteStore(remote.inner)
        calls = iter(range(10_000))
        original = hurt.get_ranges

        def get_ranges(name: str, ranges: list[tuple[int, int]], number: int = number) -> list[bytes]:
            hurt.flip_next = next(calls) == number  # noqa: B023
            return original(name, ranges)  # noqa: B023

        hurt.get_ranges = get_ranges  # type: ignore[method-assign,assignment]
        store = reader(hurt, version, disk)
        assert wrong_rows(store, ALL[:3000]) == []
        assert wrong_rows(reader(hurt, version, disk), ALL[:3000]) == []
        if next(calls) <= number:
            break
        requests += 1
    assert requests >= 4


def test_damage_in_the_bucket_is_reported_until_it_is_repaired(tmp_path: Path) -> None:
    remote = RemoteStore(MemoryObjectStore())
    version = make_store(remote, 5000)
    (sst,) = version.levels[0]
    data = remote.get(sst.name)
    remote.put(sst.name, flipped(data, 20_000))
    disk = DiskCache(tmp_path, 64 << 20)
    for _ in range(2):
        with pytest.raises(DamagedSstError, match=sst.name):
            wrong_rows(reader(remote, version, disk), range(5000))
    remote.put(sst.name, data)
    assert wrong_rows(reader(remote, version, disk), range(5000)) == []
    remote.put(sst.name, data[: len(data) // 2])
    with pytest.raises(DamagedSstError, match=sst.name):
        wrong_rows(reader(remote, version, DiskCache(tmp_path / "other", 64 << 20)), range(5000))
    remote.delete([sst.name])
    with pytest.raises(MissingSstError, match=sst.name):
        wrong_rows(reader(remote, version, DiskCache(tmp_path / "other", 64 << 20)), range(5000))


# --- deaths and neighbours -----------------------------------------------------------------------------------------


class _KilledError(BaseException):
    """Stands for a process that ends here."""


@pytest.mark.parametrize("half", [False, True], ids=["before the write", "half of it written"])
@pytest.mark.sampled(2)
def test_a_death_at_any_write_leaves_a_cache_that_gives_right_rows(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    real = os.pwrite
    for step in range(120):
        writes = iter(range(10_000))

        def pwrite(handle: int, data: bytes, offset: int, step: int = step, writes: Iterator[int] = writes) -> int:
            if next(writes) == step:
                if half:
                    real(handle, data[: len(data) // 2], offset)
                raise _KilledError
            return real(handle, data, offset)

        numbers = random.Random(step).sample(ALL, 40)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", pwrite)
            with suppress(_KilledError):
                assert wrong_rows(reader(remote, version, DiskCache(tmp_path, MIN_BYTES)), numbers) == []
        assert wrong_rows(reader(remote, version, DiskCache(tmp_path, MIN_BYTES)), numbers[:10]) == []


# --- a disk that refuses -------------------------------------------------------------------------------------------


def test_a_full_disk_ends_writing_with_one_warning_and_reads_go_on(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskCache(tmp_path, 64 << 20)
    assert wrong_rows(reader(remote, version, disk), [1]) == []

    def refuse(handle: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.warns(RuntimeWarning, match="No space left") as told:
        assert [wrong_rows(reader(remote, version, disk), ALL) for _ in range(3)] == [[]] * 3
    assert len(told) == 1
    remote.taken()
    assert wrong_rows(reader(remote, version, disk), [1]) == []
    assert remote.taken() == 0, "cached pieces are still served"


def test_the_reserve_of_the_file_system_is_not_used(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path
) -> None:
    roomy = DiskCache(tmp_path, MIN_BYTES)
    for number in range(3):
        roomy.write_pieces(CachedObject.of_object("s3://b", str(number), 4), 0, b"good")
    before = cache_path(tmp_path).stat().st_blocks
    disk = DiskCache(tmp_path, MIN_BYTES, spare=1 << 60)
    for number in range(3, 20):
        disk.write_pieces(CachedObject.of_object("s3://b", str(number), 4), 0, b"good")
    here = [number for number in range(20) if one(disk, CachedObject.of_object("s3://b", str(number), 4)) is not None]
    assert here == [17, 18, 19], "slots that have their room are used on"
    assert cache_path(tmp_path).stat().st_blocks == before
    assert wrong_rows(reader(remote, version, disk), ALL[:50]) == []


@pytest.mark.parametrize(
    "trouble", ["a file in its way", "open to others", "a link", "too small a bound", "another user's"]
)
def test_a_folder_that_cannot_be_used_means_no_cache_and_one_warning(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path, trouble: str
) -> None:
    folder = cache_path(tmp_path).parent
    capacity = 16 << 20
    match trouble:
        case "a file in its way":
            folder.write_bytes(b"")
        case "open to others":
            folder.mkdir()
            folder.chmod(0o770)
        case "a link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        case "too small a bound":
            capacity = 1000
        case "another user's":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            folder.mkdir(mode=0o700)
            os.chown(folder, 12345, 12345)
    disk = DiskCache(tmp_path, capacity)
    with pytest.warns(RuntimeWarning, match="no disk cache is available below") as told:
        assert [wrong_rows(reader(remote, version, disk), ALL[:500]) for _ in range(3)] == [[]] * 3
    assert len(told) == 1
    assert not [path for path in tmp_path.rglob("sst-pieces*") if path.stat().st_size]


PLANTED = ["link", "dangling link", "hard link", "fifo", "foreign", "readable by others", "of a newer version"]


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_file_is_not_followed_nor_believed(
    remote: RemoteStore, version: HummockVersion, tmp_path: Path, planted: str
) -> None:
    path = cache_path(tmp_path)
    path.parent.mkdir(mode=0o700)
    DiskCache(tmp_path / "template", 16 << 20).write_pieces(CachedObject.of_object("s3://b", "x", 10), 0, b"0123456789")
    precious = tmp_path / "precious"
    cache_path(tmp_path / "template").rename(precious)
    before = precious.read_bytes()
    match planted:
        case "link":
            path.symlink_to(precious)
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
        case "hard link":
            path.hardlink_to(precious)
        case "fifo":
            os.mkfifo(path)
        case "foreign":
            path.write_bytes(b"not ours" * 10_000)
        case "readable by others":
            path.write_bytes(before)
            path.chmod(0o644)
        case "of a newer version":
            path.write_bytes(before[:8] + b"\x09" + before[9:])
            path.chmod(0o600)
    disk = DiskCache(tmp_path, 16 << 20)
    for _ in range(2):
        remote.taken()
        assert wrong_rows(reader(remote, version, disk), ALL[:500]) == []
    assert remote.taken() == 0
    assert precious.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()
    assert path.is_file()
    assert path.stat().st_mode & 0o777 == 0o600


# --- bounds and settings -------------------------------------------------------------------------------------------


def test_another_bound_starts_anew_and_processes_with_two_bounds_settle_on_one_file(tmp_path: Path) -> None:
    of = CachedObject.of_object("s3://b", "x", 4)
    old = DiskCache(tmp_path, 16 << 20)
    old.write_pieces(of, 0, b"data")
    new = DiskCache(tmp_path, 32 << 20)
    assert one(new, of) is None
    assert 20 << 20 < cache_path(tmp_path).stat().st_size <= 32 << 20
    new.write_pieces(of, 0, b"data")
    assert one(old, of) == b"data", "the older process moves over, and does not bring its own bound back"
    assert one(new, of) == b"data"
    assert one(DiskCache(tmp_path), of) == b"data", "a process without a bound uses the file as it is"


def test_settings_choose_the_folder_the_size_and_the_stores() -> None:
    of = DiskCacheSettings.from_environment
    assert of({}).stores == "auto"
    assert of({}).capacity is None
    chosen = of({"TUSSOCK_DISK_CACHE_BYTES": "20GiB", "TUSSOCK_DISK_CACHE_DIR": "/mnt/fast"})
    assert chosen == DiskCacheSettings("auto", 20 << 30, Path("/mnt/fast"))
    assert of({"TUSSOCK_DISK_CACHE_BYTES": "123456789"}).capacity == 123456789
    assert of({"TUSSOCK_DISK_CACHE_BYTES": "0"}).stores == "off"
    assert of({"TUSSOCK_DISK_CACHE": "on"}).stores == "on"
    for name, value in (("", "perhaps"), ("_BYTES", "much"), ("_BYTES", "-1"), ("_DIR", "relative/path")):
        with pytest.warns(RuntimeWarning, match=f"TUSSOCK_DISK_CACHE{name}='{value}'"):
            assert of({f"TUSSOCK_DISK_CACHE{name}": value}).stores == "off"


@pytest.mark.parametrize(
    ("stores", "cached"),
    [
        ("auto", ["s3://b/p", "latency+s3://b/p"]),
        ("on", ["s3://b/p", "latency+s3://b/p", "file:///s3/p", "memory:0"]),
        ("off", []),
    ],
)
def test_by_default_only_stores_in_s3_are_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stores: str, cached: list[str]
) -> None:
    monkeypatch.setattr(disk_cache_module, "process_settings", lambda: DiskCacheSettings(stores, 16 << 20, tmp_path))
    disk_cache_module.process_disk_cache.cache_clear()
    try:
        uris = ["s3://b/p", "latency+s3://b/p", "file:///s3/p", "memory:0"]
        assert [uri for uri in uris if disk_cache_for(RemoteStore(MemoryObjectStore(), uri)) is not None] == cached
        if cached:
            assert (
                disk_cache_for(RemoteStore(MemoryObjectStore(), "s3://b/p")) is disk_cache_module.process_disk_cache()
            )
    finally:
        disk_cache_module.process_disk_cache.cache_clear()
