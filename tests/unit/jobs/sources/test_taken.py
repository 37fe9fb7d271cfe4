"""The files that an epoch takes, over a real store of taken files."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tussock.jobs.sources.file_portions import fitting_files
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.listing import ListedFile
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.taken import compare_listing, taken_files, taken_rows, taken_schema
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog, TableSchema
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.storage_table import StorageTable

SCHEMA = msgspec.structs.replace(taken_schema("bids"), table_id=7)


@pytest.fixture
def taken(tmp_path: Path) -> Callable[..., StorageTable]:
    """The table over a real store, with these batches, one per epoch."""

    def build(*batches: SealedBatch) -> StorageTable:
        objects = LocalObjectStore(tmp_path / "store")
        infos = [
            i
            for epoch, batch in enumerate(batches, start=1)
            for i in batch_ingest(objects, [batch], epoch, f"data/{epoch:016x}")
        ]
        epoch = len(batches)
        version = HummockVersion(
            epoch, epoch, epoch, 0, 0, (tuple(reversed(infos)),), Catalog(), VnodeMapping(0, (0,) * 8)
        )
        return StorageTable(SCHEMA, HummockStore(objects, version, BlockCache()), epoch, 8)

    return build


def files(*names: str, size: int = 100) -> list[ListedFile]:
    return [ListedFile(f"/data/{n}", size, f"etag of {n}") for n in names]


def pin_files(listed: Sequence[ListedFile], before: StorageTable | None, most: int | None) -> tuple[PinnedFile, ...]:
    found = compare_listing(listed, before, 0)
    assert not found.changed
    return tuple(fitting_files(found.new, most))


def test_new_files_are_pinned_in_path_order_and_numbered_on(taken: Callable[..., StorageTable]) -> None:
    first = pin_files(files("b", "c"), None, 1 << 30)
    assert first == (PinnedFile("/data/b", 100, "etag of b", 0), PinnedFile("/data/c", 100, "etag of c", 1))
    before = taken(taken_rows(SCHEMA, first, 1 << 62))
    second = pin_files(files("a", "b", "c", "d"), before, 1 << 30)
    assert second == (PinnedFile("/data/a", 100, "etag of a", 2), PinnedFile("/data/d", 100, "etag of d", 3))
    assert pin_files(files("b"), before, 1 << 30) == ()
    assert pin_files([], before, 1 << 30) == ()
    before = taken(taken_rows(SCHEMA, first, 1 << 62), taken_rows(SCHEMA, second, (1 << 62) + 1))
    assert [f.number for f in pin_files(files("a", "b", "c", "d", "x"), before, 1 << 30)] == [4]


def test_an_empty_file_is_taken_once_it_is_filled_and_one_that_was_emptied_has_changed(
    taken: Callable[..., StorageTable],
) -> None:
    now = [*files("a"), *files("b", size=0)]
    first = pin_files(now, None, 1 << 30)
    assert [f.path for f in first] == ["/data/a"]
    before = taken(taken_rows(SCHEMA, first, 1))
    assert pin_files(now, before, 1 << 30) == ()
    assert [(f.path, f.number) for f in pin_files(files("a", "b"), before, 1 << 30)] == [("/data/b", 1)]
    (emptied,) = compare_listing(files("a", size=0), before, 0).changed
    assert (emptied.was.size, emptied.now.size, emptied.now.number) == (100, 0, emptied.was.number)


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (10_000, 5), (None, 5)])
def test_an_epoch_takes_at_most_its_bytes_but_at_least_one_file(limit: int | None, count: int) -> None:
    assert len(pin_files(files("a", "b", "c", "d", "e"), None, limit)) == count


@pytest.mark.parametrize("now", [ListedFile("/data/b", 101, "etag of b"), ListedFile("/data/b", 100, "another")])
def test_a_changed_taken_file_is_returned_with_its_old_and_new_state(
    now: ListedFile, taken: Callable[..., StorageTable]
) -> None:
    before = taken(taken_rows(SCHEMA, pin_files(files("a", "b"), None, 1 << 30), 1))
    found = compare_listing([*files("a"), now, *files("c")], before, 0)
    (change,) = found.changed
    assert change.was == PinnedFile("/data/b", 100, "etag of b", 1)
    assert change.now == PinnedFile("/data/b", now.size, now.etag, 1)
    assert (found.new, found.next_number) == ((PinnedFile("/data/c", 100, "etag of c", 2),), 3)


def test_further_fields_of_a_taken_file_are_read_back(taken: Callable[..., StorageTable]) -> None:
    pinned = (
        PinnedFile("/data/a", 1, "x", 0, kept="sources/1/2/a"),
        PinnedFile("/data/b", 2, "y", 1, rows=False),
        PinnedFile("/data/c", 3, "z", 2, accepted="4 w", modified=5, ingested=6),
    )
    before = taken(taken_rows(SCHEMA, pinned, 1))
    assert taken_files(before) == pinned
    assert compare_listing([ListedFile("/data/c", 4, "w")], before, 0).changed == ()


def test_a_removed_file_is_forgotten_or_recorded_as_unread(
    taken: Callable[..., StorageTable],
) -> None:
    first = tuple(PinnedFile(f"/data/{n}", 1, "x", i) for i, n in enumerate("abc"))
    goes = (
        msgspec.structs.replace(first[0], weight=-1),
        msgspec.structs.replace(first[1], weight=-1, accepted="9 now"),
        msgspec.structs.replace(first[2], weight=-1),
        PinnedFile("/data/c", 5, "new", 3),
    )
    after = taken(taken_rows(SCHEMA, first, 1), taken_rows(SCHEMA, goes, 2))
    assert taken_files(after) == (
        msgspec.structs.replace(first[1], rows=False, accepted="9 now"),
        PinnedFile("/data/c", 5, "new", 3),
    )


def test_a_source_of_the_first_releases_records_the_columns_that_it_has(taken: Callable[..., StorageTable]) -> None:
    old = msgspec.structs.replace(SCHEMA, columns=SCHEMA.columns[:5])
    rows = taken_rows(old, [PinnedFile("/data/a", 1, "x", 0, accepted="7 now")], 5).rows
    assert rows.drop_columns(["key", "op"]).to_pylist() == [
        {"path": "/data/a", "size": 7, "etag": "now", "epoch": 5, "number": 0}
    ]


@pytest.mark.parametrize("columns", [5, 8])
def test_a_file_that_is_only_accepted_keeps_its_time_without_a_column_for_it(columns: int) -> None:
    old = msgspec.structs.replace(SCHEMA, columns=SCHEMA.columns[:columns])
    first, later = 1_700_000_000_000 << 16 | 3, 1_800_000_000_000 << 16 | 5
    taken_now = taken_rows(old, [PinnedFile("/data/a", 1, "x", 0)], first).rows
    assert taken_now["epoch"].to_pylist() == [first]
    was = PinnedFile("/data/a", 1, "x", 0, accepted="1 y", ingested=1_700_000_000_000_000)
    (again,) = taken_rows(old, [was], later).rows["epoch"].to_pylist()
    assert again >> 16 == 1_700_000_000_000
    read_again = taken_rows(old, [PinnedFile("/data/a", 1, "z", 1)], later).rows
    assert read_again["epoch"].to_pylist() == [later]


def test_taken_rows_are_sorted_puts_of_the_whole_row() -> None:
    pinned = [PinnedFile("/data/é", 1, "x", 1), PinnedFile("/data/z", 2, "y", 0)]
    epoch = 7 << 16
    rows = taken_rows(SCHEMA, pinned, epoch).rows
    keys = rows["key"].to_pylist()
    assert keys == sorted(keys)
    assert rows["op"].to_pylist() == [1, 1]
    assert rows.drop_columns(["key", "op"]).to_pylist() == [
        {
            "path": "/data/z",
            "size": 2,
            "etag": "y",
            "epoch": epoch,
            "number": 0,
            "kept": "",
            "unread": False,
            "accepted": "",
            "modified": 0,
            "ingested": 7_000,
            "cost": 0,
            "portions": "",
            "by_spark": "",
            "ids": "",
        },
        {
            "path": "/data/é",
            "size": 1,
            "etag": "x",
            "epoch": epoch,
            "number": 1,
            "kept": "",
            "unread": False,
            "accepted": "",
            "modified": 0,
            "ingested": 7_000,
            "cost": 0,
            "portions": "",
            "by_spark": "",
            "ids": "",
        },
    ]


def test_the_schema_is_a_singleton_keyed_by_path() -> None:
    assert isinstance(SCHEMA, TableSchema)
    assert (SCHEMA.name, SCHEMA.distribution, [SCHEMA.columns[k.column].name for k in SCHEMA.key]) == (
        "bids.taken",
        (),
        ["path"],
    )


def test_a_single_request_starts_no_thread() -> None:
    here = threading.current_thread()
    assert map_in_threads(lambda _: threading.current_thread(), ["a"]) == (here,)
    assert here not in map_in_threads(lambda _: threading.current_thread(), ["a", "b"])
