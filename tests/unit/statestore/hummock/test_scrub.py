"""Scrub names exactly the damaged and the missing objects, and the rows that they held."""

from collections.abc import Callable

import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.living_store import TABLE, LivingStore
from tests.support.statestore.hummock.store_model import sealed, storage_key
from tussock.statestore.errors import DamagedError
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.scrub import check_sst, scrub_store
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.delta import Published, VersionDelta
from tussock.statestore.meta.document import encode_document
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix, log_name, snapshot_name, version_name
from tussock.statestore.meta.version import HummockVersion


def lived_in() -> tuple[LivingStore, MemoryObjectStore]:
    """A store with every kind of object: epochs, snapshots, a compaction, a pin, statements, a payload, a barrier."""
    store = LivingStore()
    for i in range(12):
        store.run({i % 5: i, 100 + i: i})
    store.meta.pin_epoch(store.meta.read_latest().epoch)
    store.compact()
    for i in range(4):
        store.run({i: 50 + i})
    payload = store.meta.put_payload(b"rows of a statement")
    store.meta.append_log("a client", b'{"insert": "%s"}' % payload.encode())
    store.meta.append_log("another", b'{"delete": 1}')
    store.inject()
    assert isinstance(store.objects, MemoryObjectStore)
    return store, store.objects


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_a_whole_store_is_found_whole_and_read_entirely() -> None:
    store, objects = lived_in()
    lines: list[str] = []
    report = scrub_store(objects, lines.append)
    assert report.is_whole
    assert report.version == store.meta.read_latest()
    assert report.objects == len([n for n in objects.held if n != "meta/probe.json"]) - 1, (
        "all but the probe and the settings"
    )
    assert any("MB of SSTs read" in line for line in lines)


@pytest.mark.deep
def test_every_object_is_missed_when_it_is_missing_and_named_when_a_bit_is_flipped() -> None:
    """Except for the objects that no reader needs: a snapshot, the hint, claims, pins, barriers and manifests."""
    _, objects = lived_in()
    names = [n for n in objects.held if n != "meta/probe.json"]
    newest = max(n for n in names if n.startswith("meta/version/"))
    free = ("meta/snapshot/", "meta/head", "meta/pin/", "meta/client/", "meta/barrier/", "meta/manifest/")
    assert {n.split("/")[1] for n in names if n.startswith("meta/")} >= {"version", "snapshot", "log", "payload", "pin"}
    for name in names:
        data = objects.held[name]
        for at in {0, len(data) // 2, len(data) - 1}:
            objects.held[name] = flipped(data, at)
            report = scrub_store(objects)
            found = {d.name for d in report.meta} | {s.name for s in report.ssts}
            assert name in found, f"byte {at} of {name}"
            assert found <= {name, newest} or name == "meta/store.json", found
        del objects.held[name]
        report = scrub_store(objects)
        missing = {d.name for d in report.meta if d.missing} | {s.name for s in report.ssts if s.missing}
        if name == "meta/store.json":
            assert not report.is_whole
        elif name == newest or name.startswith(free) or (name.startswith("meta/log/") and name == log_name(1)):
            assert missing == set(), "a log without its last entry is only shorter"
        else:
            assert missing == {name}
        objects.held[name] = data
    assert scrub_store(objects).is_whole


def damaged_sst() -> tuple[MemoryObjectStore, HummockVersion]:
    """A store whose one SST has two tables of many blocks."""
    store = LivingStore()
    barrier = store.inject()
    batches = []
    for table in (TABLE, TABLE + 1):
        changes = {storage_key(table, i % 4, b"%05d" % i): {"n": i, "s": "x"} for i in range(5000)}
        batches.append(sealed(table, dict(sorted(changes.items()))))
    ssts = batch_ingest(store.objects, batches, barrier.epoch, data_prefix(barrier.epoch))
    version, _ = store.meta.commit_epoch(store.meta.seal_epoch(manifest_of(barrier, "w", tuple(ssts))))
    assert isinstance(store.objects, MemoryObjectStore)
    return store.objects, version


def test_a_damaged_block_loses_only_its_keys() -> None:
    objects, version = damaged_sst()
    (info,) = version.levels[0]
    assert check_sst(objects, info) == ()
    data = objects.held[info.name]
    objects.held[info.name] = flipped(data, info.sections[0].bytes // 2)
    report = scrub_store(objects)
    ((table_id, (lost,)),) = report.hurt_tables().items()
    assert table_id == TABLE
    assert 0 < lost.rows <= 1024
    assert "block" in lost.detail
    assert "crc32c" in lost.detail

    reader = HummockStore(objects, version, BlockCache(1 << 20))
    before = sum(t.num_rows for t in reader.iter_rows(TABLE, None, lost.first_key, version.epoch))
    after = sum(t.num_rows for t in reader.iter_rows(TABLE, lost.last_key + b"\0", None, version.epoch))
    assert before + lost.rows + after == 5000, "rows that the report does not name are readable"
    assert sum(t.num_rows for t in reader.iter_rows(TABLE + 1, None, None, version.epoch)) == 5000
    with pytest.raises(DamagedError, match="is damaged at"):
        list(reader.iter_rows(TABLE, lost.first_key, lost.last_key, version.epoch))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda data: data[:-1], "bytes, expected"),
        (lambda data: data + b"\0", "bytes, expected"),
        (lambda data: b"", "0 bytes, expected"),
        (lambda data: flipped(data, len(data) - 10), "tail"),
        (lambda data: flipped(data, len(data) - 200), "index"),
        (lambda data: flipped(data, 30), "hash in its name"),
    ],
    ids=["cut", "grown", "empty", "tail", "index", "schema message"],
)
def test_an_sst_cut_or_changed_outside_its_blocks_is_reported_with_all_its_tables(
    harm: Callable[[bytes], bytes], told: str
) -> None:
    objects, version = damaged_sst()
    (info,) = version.levels[0]
    objects.held[info.name] = harm(objects.held[info.name])
    lost = check_sst(objects, info)
    assert {x.table_id for x in lost} == {TABLE, TABLE + 1}
    assert all(told in x.detail for x in lost), lost[0].detail


def test_every_flipped_bit_of_a_small_sst_is_found() -> None:
    store = LivingStore()
    store.run({1: 1, 2: 2})
    (info,) = store.meta.read_latest().levels[0]
    assert isinstance(store.objects, MemoryObjectStore)
    data = store.objects.held[info.name]
    for at in range(len(data)):
        store.objects.held[info.name] = flipped(data, at)
        assert check_sst(store.objects, info), f"byte {at}"


def test_a_lost_delta_costs_the_versions_up_to_the_next_snapshot() -> None:
    store, objects = lived_in()
    objects.held[version_name(5)] = flipped(objects.held[version_name(5)], 40)
    report = scrub_store(objects)
    assert [d.name for d in report.meta] == [version_name(5)]
    assert report.version == store.meta.read_latest(), "a snapshot comes after it"

    last = version_name(store.meta.read_latest().id)
    objects.held[last] = flipped(objects.held[last], 40)
    report = scrub_store(objects)
    assert {d.name for d in report.meta} == {version_name(5), last}
    assert report.version is not None
    assert report.version.id == store.meta.read_latest().id - 1, "what can be read still is read and checked"
    with pytest.raises(DamagedDocumentError):
        store.open("b").read_latest()


def test_a_snapshot_that_is_whole_but_wrong_is_detected() -> None:
    _, objects = lived_in()
    objects.held[snapshot_name(16)] = objects.held[snapshot_name(32)]
    report = scrub_store(objects)
    (found,) = report.meta
    assert found.name == snapshot_name(16)
    assert "differs from the version that the log produces" in found.detail


def test_a_delta_written_past_the_protocol_is_named() -> None:
    store, objects = lived_in()
    newest = store.meta.read_latest()
    objects.held[version_name(newest.id + 1)] = encode_document(
        VersionDelta(newest.id + 1, "w", Published(newest.epoch + 1))
    )
    report = scrub_store(objects)
    assert {d.name for d in report.meta} == {version_name(newest.id + 1)}
    assert report.version == newest
