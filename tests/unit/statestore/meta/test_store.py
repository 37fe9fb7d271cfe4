"""A store's beginning, its readers and its floor."""

import msgspec
import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.statestore.meta.make import manifest_for, new_meta, open_meta, plan_on, run_epoch
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.errors import (
    AlreadyInitialisedError,
    ConditionalPutIgnoredError,
    DamagedDocumentError,
    EpochExpiredError,
    EpochNotCommittedError,
    NotInitialisedError,
    SettingError,
)
from tussock.statestore.meta.readable import check_readable, readable_epochs
from tussock.statestore.meta.settings import StoreSettings
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore


def test_a_new_store_is_empty_at_epoch_0_with_its_settings(any_store: ObjectStore) -> None:
    settings = MetaStore.init(any_store, vnode_count=64, units=3, time_zone="Europe/Berlin")
    meta = open_meta(any_store)
    assert meta.settings == settings == StoreSettings(1, 64, 3, "Europe/Berlin")
    version = meta.read_latest()
    assert (version.id, version.epoch, version.published, version.log_end, version.levels) == (0, 0, 0, 0, ((),))
    assert version.mapping.vnode_count == 64
    assert set(version.mapping.unit_of_vnode) == {0, 1, 2}
    assert meta.log_end() == 0


def test_an_initialised_store_is_not_initialised_again(objects: ObjectStore) -> None:
    MetaStore.init(objects, vnode_count=64)
    for vnode_count in (64, 128):
        with pytest.raises(AlreadyInitialisedError, match="64 vnodes"):
            MetaStore.init(objects, vnode_count=vnode_count)
    assert open_meta(objects).settings.vnode_count == 64


def test_one_of_two_concurrent_inits_with_different_settings_is_refused(objects: ObjectStore) -> None:
    store = FaultyObjectStore(objects)
    store.before(3, lambda: assert_settings(MetaStore.init(objects, vnode_count=16)))
    with pytest.raises(AlreadyInitialisedError, match="16 vnodes"):
        MetaStore.init(store, vnode_count=32)


def assert_settings(settings: StoreSettings) -> None:
    assert settings.vnode_count == 16


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"vnode_count": 100}, "power of two"),
        ({"vnode_count": 65536}, "32768"),
        ({"units": 0}, "parallel units"),
        ({"vnode_count": 4, "units": 5}, "parallel units"),
        ({"time_zone": "Mars/Base"}, "time zone"),
        ({"time_zone": "../etc/passwd"}, "time zone"),
        ({"time_zone": ""}, "time zone"),
    ],
)
def test_an_invalid_setting_is_refused_and_nothing_is_written(
    objects: ObjectStore, settings: dict[str, object], named: str
) -> None:
    with pytest.raises(SettingError, match=named):
        MetaStore.init(objects, **settings)  # type: ignore[arg-type]
    assert list(objects.list("")) == []


def test_a_place_without_a_store_is_named_with_the_command_to_create_one(objects: ObjectStore) -> None:
    with pytest.raises(NotInitialisedError, match="tussock init"):
        open_meta(objects).read_latest()


def test_a_server_that_overwrites_instead_of_creating_is_detected(objects: ObjectStore) -> None:
    class Careless(LocalObjectStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            self.put(name, data)
            return True

    assert isinstance(objects, LocalObjectStore)
    careless = Careless(objects._root)
    with pytest.raises(ConditionalPutIgnoredError, match="If-None-Match"):
        MetaStore.init(careless)
    with pytest.raises(NotInitialisedError):
        open_meta(objects).read_latest()


def test_a_store_of_another_format_is_refused(objects: ObjectStore) -> None:
    from tussock.statestore.meta.document import encode_document

    objects.put("meta/store.json", encode_document(StoreSettings(2, 8, 2, "UTC")))
    with pytest.raises(SettingError, match=r"format .* is 2, expected 1"):
        open_meta(objects).read_latest()


def test_a_damaged_identity_is_named(objects: ObjectStore) -> None:
    MetaStore.init(objects)
    objects.put("meta/store.json", objects.get("meta/store.json")[:-3])
    with pytest.raises(DamagedDocumentError, match=r"meta/store\.json"):
        open_meta(objects).read_latest()


def test_a_document_of_the_right_checksum_and_the_wrong_kind_is_refused(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    run_epoch(meta)
    objects.put("meta/version/00000000000000000002.json", objects.get("meta/store.json"))
    with pytest.raises(DamagedDocumentError, match="not a VersionDelta of this release"):
        meta.read_latest()


def test_readers_may_name_committed_epochs_from_the_floor_on(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    epochs = [run_epoch(meta).epoch for _ in range(4)]
    meta.publish(epochs[2])
    version = meta.raise_floor(epochs[1])
    assert readable_epochs(version, ()) == tuple(epochs[1:])
    assert readable_epochs(version, [epochs[0]]) == tuple(epochs)
    for epoch in epochs[1:]:
        check_readable(version, epoch)
    with pytest.raises(EpochExpiredError, match="oldest readable"):
        check_readable(version, epochs[0])
    for epoch in (epochs[3] + 1, epochs[2] + 1):
        with pytest.raises(EpochNotCommittedError):
            check_readable(version, epoch)


def test_the_floor_never_falls_nor_passes_the_published_epoch(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    epochs = [run_epoch(meta).epoch for _ in range(3)]
    meta.publish(epochs[1])
    with pytest.raises(EpochNotCommittedError):
        meta.raise_floor(epochs[2])
    assert meta.raise_floor(epochs[1]).min_readable_epoch == epochs[1]
    assert meta.raise_floor(epochs[0]).min_readable_epoch == epochs[1]


def test_a_pin_is_listed_until_it_is_removed(any_store: ObjectStore) -> None:
    meta = new_meta(any_store)
    epoch = run_epoch(meta).epoch
    first, second = meta.pin_epoch(epoch), meta.pin_epoch(epoch)
    assert first != second
    assert open_meta(any_store, "b").pinned_epochs() == (epoch,)
    meta.unpin(first)
    assert meta.pinned_epochs() == (epoch,)
    for _ in range(2):
        meta.unpin(second)
    assert meta.pinned_epochs() == ()
    with pytest.raises(EpochNotCommittedError):
        meta.pin_epoch(epoch + 1)


@pytest.mark.parametrize("nth", range(4))
def test_a_pin_taken_while_the_floor_rises_is_refused_or_seen_by_the_process_that_raised_it(
    objects: ObjectStore, nth: int
) -> None:
    meta = new_meta(objects)
    epochs = [run_epoch(meta).epoch for _ in range(2)]
    meta.publish(epochs[1])
    store = FaultyObjectStore(objects)
    reader = open_meta(store, "reader")
    reader.read_latest()
    seen: list[tuple[int, ...]] = []

    def vacuum() -> None:
        version = meta.raise_floor(epochs[1])
        seen.append(readable_epochs(version, meta.pinned_epochs()))

    store.before(nth, vacuum)
    try:
        reader.pin_epoch(epochs[0])
    except EpochExpiredError:
        assert meta.pinned_epochs() == ()
    else:
        assert not seen or epochs[0] in seen[0]


def test_a_dropped_relation_stays_in_the_catalog_until_no_reader_can_see_it(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    relation = Relation(
        1, "v", RelationKind.VIEW, (ColumnSpec("a", "bigint"),), msgspec.Raw(b'{"plan": [1, 2]}'), created=0
    )

    def commit(relations: tuple[Relation, ...]) -> int:
        version = meta.read_latest()
        catalog = Catalog(relations, next_relation_id=2)
        plan = msgspec.structs.replace(plan_on(version), catalog=catalog)
        return meta.commit_epoch(meta.seal_epoch(manifest_for(meta.inject_barrier(version.epoch, plan))))[0].epoch

    first = commit((relation,))
    assert open_meta(objects, "b").read_latest().catalog.relations == (relation,)
    dropped = commit((msgspec.structs.replace(relation, dropped=first + 1),))
    meta.publish(dropped)
    pin = meta.pin_epoch(first)
    assert [r.name for r in meta.raise_floor(dropped).catalog.relations_at(first)] == ["v"], (
        "the pinned reader may look again"
    )
    meta.unpin(pin)
    assert meta.raise_floor(dropped).catalog == Catalog((), next_relation_id=2), "ids are not given out again"
