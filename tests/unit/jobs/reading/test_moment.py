"""Time travel by the clock: which epoch a moment means, without Spark."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.meta.make import Clock, open_meta, plan_on
from tussock.jobs.reading import stored_rows
from tussock.jobs.reading.moment import BadMomentError, epoch_at, moment_of
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.statestore.meta import delta
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, VnodeMapping

HOUR = 3_600_000
NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
NOW = NOON + 24 * HOUR
EPOCHS = tuple((NOON + hours * HOUR) << 16 for hours in (0, 1, 2))


def version(published: int = EPOCHS[-1], epochs: tuple[int, ...] = (0, *EPOCHS)) -> HummockVersion:
    return HummockVersion(9, EPOCHS[-1], published, epochs[0], 0, (), Catalog(), VnodeMapping(0, (0, 1)), epochs)


def at(text: str, time_zone: str = "UTC", of: HummockVersion | None = None) -> int:
    return epoch_at(of or version(), moment_of(text), time_zone, NOW)


def test_a_moment_means_the_newest_epoch_whose_barrier_it_had_seen() -> None:
    assert at("2026-01-01T11:59:59.999Z") == 0
    assert at("2026-01-01T12:00:00Z") == EPOCHS[0]
    assert at("2026-01-01T13:59:59Z") == EPOCHS[1]
    assert at("2026-01-02T00:00:00Z") == EPOCHS[2]


def test_a_moment_without_an_offset_is_local_time_of_the_store() -> None:
    assert at("2026-01-01 13:30") == EPOCHS[1]
    assert at("2026-01-01 13:30", "Europe/Berlin") == EPOCHS[0]
    assert at("2026-01-01 13:30+00:00", "Europe/Berlin") == EPOCHS[1]


def test_a_moment_never_shows_unpublished_epochs() -> None:
    assert at("2026-01-02", of=version(published=EPOCHS[1])) == EPOCHS[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "ISO 8601"),
        ("2026-01-03", "is in the future; now is 2026-01-02 12:00:00.000\\+00:00"),
        ("2026-01-01 12:30", "no epoch that old is kept; expected 2026-01-01 13:00:00.000\\+00:00 or later"),
    ],
)
def test_a_moment_at_which_nothing_can_be_read_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadMomentError, match=says):
        at(text, of=version(epochs=EPOCHS[1:]))


def test_a_moment_between_an_old_epoch_that_readers_see_and_the_next_kept_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A view that a check holds back keeps its epoch readable, while the version lists only the newest epochs."""
    monkeypatch.setattr(delta, "MAX_EPOCHS", 3)
    monkeypatch.setattr(stored_rows, "clock_ms", lambda: NOW)
    clock = Clock(NOON)
    objects = MemoryObjectStore()
    MetaStore.init(objects, vnode_count=8)
    meta = open_meta(objects, clock_ms=clock)
    view = Relation(1, "v", RelationKind.VIEW, (), msgspec.Raw(b"{}"))
    epochs = []
    for _ in range(8):
        version = meta.read_latest()
        plan = msgspec.structs.replace(plan_on(version), catalog=Catalog((view,), 2, 1))
        barrier = meta.inject_barrier(version.epoch, plan)
        epochs.append(meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, "a", ()))).version.epoch)
        meta.publish(epochs[-1], [1] if len(epochs) > 1 else [])
        clock.now_ms += HOUR
    assert meta.read_latest().epochs == (epochs[0], *epochs[-2:])
    stored = StoredRows(meta)
    kept = {0: epochs[0], 6: epochs[6], 7: epochs[7]}
    for hours in range(8):
        moment = datetime(2026, 1, 1, 12, 30, tzinfo=UTC) + hours * timedelta(hours=1)
        if hours in kept:
            assert stored.seen_at(moment).epoch == kept[hours]
            continue
        with pytest.raises(BadMomentError) as caught:
            stored.seen_at(moment)
        bounds = "a moment before 2026-01-01 13:00:00.000+00:00, or from 2026-01-01 18:00:00.000+00:00 on"
        assert str(caught.value).endswith(f"expected {bounds}")
