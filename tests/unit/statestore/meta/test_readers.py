"""Readers with a pin that they renew while they read, and readers without one on a read-only store."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from tests.support.statestore.meta.make import Clock, new_meta, open_meta, run_epoch
from tests.support.waiting import eventually
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.meta.readers import UnpinnedReadWarning
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import AccessDeniedError, ObjectStore, ObjectStoreFullError


@dataclass
class ReadOnlyStore:
    """A store whose policy denies PutObject and DeleteObject, or only DeleteObject. File modes do not stop root."""

    inner: ObjectStore
    may_put: bool = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def put(self, name: str, data: bytes) -> None:
        if not self.may_put:
            raise AccessDeniedError(self.inner.uri, f"put {name!r}", "AccessDenied")
        self.inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        raise AccessDeniedError(self.inner.uri, f"put_if_absent {name!r}", "AccessDenied")

    def delete(self, names: Iterable[str]) -> None:
        raise AccessDeniedError(self.inner.uri, f"delete {next(iter(names))!r}", "AccessDenied")


def test_a_read_only_store_is_read_without_a_pin_and_with_a_warning(objects: ObjectStore) -> None:
    version = run_epoch(new_meta(objects))
    before = [found.name for found in objects.list("")]
    reader = open_meta(ReadOnlyStore(objects), "reader")  # type: ignore[arg-type]
    said = "without a pin.*AccessDenied.*MissingSstError"
    with pytest.warns(UnpinnedReadWarning, match=said) as raised, reader.open_for_reading(version.epoch) as read:
        assert read == version
    assert len(raised) == 1
    assert [found.name for found in objects.list("")] == before


def test_a_full_store_is_read_without_a_pin_and_with_a_warning(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = run_epoch(new_meta(objects))

    def full(name: str, data: bytes) -> bool:
        raise ObjectStoreFullError(objects.uri, f"put {name!r}", len(data))

    reader = open_meta(objects, "reader")
    for put in ("put", "put_if_absent"):
        monkeypatch.setattr(objects, put, full)
    with (
        pytest.warns(UnpinnedReadWarning, match="no space left.*free space"),
        reader.open_for_reading(version.epoch) as read,
    ):
        assert read == version


def test_an_epoch_that_is_gone_is_refused_with_or_without_a_pin(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    first = run_epoch(meta).epoch
    second = run_epoch(meta).epoch
    meta.publish(second)
    meta.apply_retention(keep_epochs=1)
    reader = open_meta(ReadOnlyStore(objects), "reader")  # type: ignore[arg-type]
    with pytest.raises(EpochExpiredError), reader.open_for_reading(first):
        raise AssertionError("not reached")


def test_a_pin_that_may_not_be_removed_remains_and_the_rows_are_right(objects: ObjectStore) -> None:
    version = run_epoch(new_meta(objects))
    reader = open_meta(ReadOnlyStore(objects, may_put=True), "reader")  # type: ignore[arg-type]
    with pytest.warns(UnpinnedReadWarning, match="delete|AccessDenied"), reader.open_for_reading(version.epoch) as read:
        assert read == version
    assert [pin.epoch for pin in reader.all_pins()] == [version.epoch]


def test_a_read_that_outlasts_its_lease_keeps_its_pin(objects: ObjectStore) -> None:
    """Each look at the clock advances it by a lease. Without renewals, the reader's pin lapses when the floor rises."""
    run_epoch(new_meta(objects))
    clock = Clock()
    reader, keeper = MetaStore(objects, "reader", clock), MetaStore(objects, "keeper", clock)
    epoch = keeper.read_latest().epoch
    with reader.open_for_reading(epoch, lease_ms=90):
        for _ in range(3):
            expires = max(pin.expires_ms for pin in keeper.all_pins())
            clock.now_ms += 80
            eventually(
                "the pin is renewed",
                lambda expires=expires: max(pin.expires_ms for pin in keeper.all_pins()) > expires,
                20,
            )
        keeper.raise_floor(keeper.read_latest().min_readable_epoch)
        assert keeper.pinned_epochs() == (epoch,)
    assert keeper.all_pins() == ()


def test_a_read_with_a_pin_warns_of_nothing(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    version = run_epoch(meta)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with meta.open_for_reading(version.epoch) as read:
            assert [pin.epoch for pin in meta.all_pins()] == [version.epoch]
            assert read == version
    assert meta.all_pins() == ()
