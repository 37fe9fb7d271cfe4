"""Every operation of meta, broken at each of its requests in turn: refused, answer lost, process dead.

After each break, another process repeats the whole step. The result equals an unbroken run, or an error that names
the winner. The version log holds every epoch once.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

import pytest

from tests.support.faulty_store import Fault, FaultyObjectStore, Killed
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.meta.make import manifest_for, open_meta, plan_on, run_epoch, sst_of
from tussock.statestore.errors import MustStopError, RetryableError
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.delta import VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document
from tussock.statestore.meta.errors import AlreadyInitialisedError, DamagedDocumentError
from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.settings import initial_version, read_settings
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY
from tussock.statestore.meta.statement_log import read_payload
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import LevelInput, SstInfo
from tussock.statestore.objectstore.base import ObjectStore


@dataclass(frozen=True)
class Step:
    """One operation: its precondition, its action, and the check after it was repeated until it ended."""

    name: str
    prepare: Callable[[ObjectStore], None]
    act: Callable[[MetaStore], object]
    check: Callable[[MetaStore], bool]


def _init(objects: ObjectStore) -> None:
    MetaStore.init(objects, vnode_count=8)


def _up_to_a_snapshot(objects: ObjectStore) -> None:
    _init(objects)
    for _ in range(SNAPSHOT_EVERY - 1):
        run_epoch(open_meta(objects))


def _inject(objects: ObjectStore) -> None:
    _init(objects)
    meta = open_meta(objects)
    meta.inject_barrier(0, plan_on(meta.read_latest()))


def _seal(objects: ObjectStore) -> None:
    _inject(objects)
    meta = open_meta(objects)
    barrier = meta.open_barrier()
    assert barrier is not None
    meta.seal_epoch(manifest_for(barrier))


def _commit(objects: ObjectStore) -> None:
    _seal(objects)
    _act_commit(open_meta(objects))


def _act_init(meta: MetaStore) -> None:
    try:
        MetaStore.init(meta.objects, vnode_count=8)
    except AlreadyInitialisedError:
        return  # our own call whose answer was lost; the error reports it and changes nothing


def _act_supersede(meta: MetaStore) -> None:
    barrier = meta.open_barrier()
    assert barrier is not None
    if barrier.attempt == 0:
        meta.supersede_barrier(barrier, plan_on(meta.read_latest()))


def _act_seal(meta: MetaStore) -> None:
    barrier = meta.open_barrier()
    assert barrier is not None
    meta.seal_epoch(manifest_for(barrier, meta.writer))


def _act_commit(meta: MetaStore) -> None:
    version = meta.read_latest()
    barrier = meta.open_barrier()
    sealed = meta.read_manifest(version.epoch if barrier is None else barrier.epoch)
    assert sealed is not None
    meta.commit_epoch(sealed)


def _published(meta: MetaStore) -> bool:
    version = meta.read_latest()
    return version.published == version.epoch > 0


def _compactable(objects: ObjectStore) -> None:
    _init(objects)
    for _ in range(3):
        run_epoch(open_meta(objects))


def _opened(objects: ObjectStore) -> None:
    _compactable(objects)
    _act_open(open_meta(objects, "compactor"))


def _all_of_l0(meta: MetaStore) -> CompactionPlan:
    return CompactionPlan((LevelInput(0, tuple(sst.name for sst in meta.read_version(3).levels[0])),), 1)


def _act_open(meta: MetaStore) -> None:
    if not meta.read_latest().tasks:  # by the one that was cut off: its task is as good as ours
        meta.open_compaction(_all_of_l0(meta))


def _act_compaction(meta: MetaStore) -> None:
    """The task as its compactor has held it all along, and the same output from every attempt."""
    (task,) = meta.read_version(4).tasks
    meta.commit_compaction(task, (_merged(),))


def _merged() -> SstInfo:
    section = sst_of(0).sections[0]
    return SstInfo(f"{task_prefix(1)}merged.sst", 100, 20, 3, 1, 2, (section,))


def _compacted(meta: MetaStore) -> bool:
    version = meta.read_latest()
    return version.levels == ((), (_merged(),)) and not version.tasks and len(version.retired) == 3


def _movable(objects: ObjectStore) -> None:
    _opened(objects)
    _act_compaction(open_meta(objects, "compactor"))


def _act_move(meta: MetaStore) -> None:
    meta.move_ssts(CompactionPlan((LevelInput(1, (_merged().name,)),), 2))


def _pinned(objects: ObjectStore) -> None:
    """Two pins on an epoch that retention would release, one long lapsed; the newest epoch is published."""
    _compactable(objects)
    meta = open_meta(objects)
    meta.publish(meta.read_latest().epoch)
    meta.pin_epoch(meta.read_latest().epochs[1], lease_ms=-1)
    meta.pin_epoch(meta.read_latest().epochs[2])


def _retained(meta: MetaStore) -> bool:
    version = meta.read_latest()
    return version.epochs == (version.epoch,) and [pin.epoch for pin in meta.all_pins()] == [
        meta.read_version(3).epochs[2]
    ]


def _act_renew(meta: MetaStore) -> None:
    pin = max(meta.all_pins(), key=lambda pin: (pin.expires_ms > 0, pin.epoch, pin.renewal))
    if pin.renewal == 0:
        meta.renew_lease(pin)


STEPS = (
    Step("open a compaction", _compactable, _act_open, lambda meta: len(meta.read_latest().tasks) == 1),
    Step("commit a compaction", _opened, _act_compaction, _compacted),
    Step(
        "close a compaction",
        _opened,
        lambda meta: meta.close_compaction(1, "test"),
        lambda meta: not meta.read_latest().tasks,
    ),
    Step("move an SST", _movable, _act_move, lambda meta: meta.read_latest().levels == ((), (), (_merged(),))),
    Step("raise the floor", _pinned, lambda meta: meta.apply_retention(), _retained),
    Step("renew a pin", _pinned, _act_renew, lambda meta: max(pin.renewal for pin in meta.all_pins()) == 1),
    Step("init", lambda objects: None, _act_init, lambda meta: meta.read_latest().id == 0),
    Step(
        "inject",
        _init,
        lambda meta: meta.inject_barrier(0, plan_on(meta.read_latest())),
        lambda meta: meta.open_barrier() is not None,
    ),
    Step(
        "supersede",
        _inject,
        _act_supersede,
        lambda meta: (barrier := meta.open_barrier()) is not None and barrier.attempt == 1,
    ),
    Step(
        "seal",
        _inject,
        _act_seal,
        lambda meta: (b := meta.open_barrier()) is not None and meta.read_manifest(b.epoch) is not None,
    ),
    Step("commit", _seal, _act_commit, lambda meta: meta.read_latest().id == 1),
    Step("commit with a snapshot", _up_to_a_snapshot, run_epoch, lambda meta: meta.read_latest().id >= SNAPSHOT_EVERY),
    Step("publish", _commit, lambda meta: meta.publish(meta.read_latest().epoch), _published),
    Step("append", _commit, lambda meta: meta.append_log("client", b'{"insert": 1}'), lambda meta: meta.log_end() == 1),
    Step(
        "payload",
        _init,
        lambda meta: meta.put_payload(b"rows"),
        lambda meta: read_payload(meta.objects, meta.put_payload(b"rows")) == b"rows",
    ),
    Step(
        "pin",
        _commit,
        lambda meta: meta.unpin(meta.pin_epoch(meta.read_latest().epoch)),
        lambda meta: meta.read_latest().id == 1,
    ),
    Step(
        "rescale",
        _commit,
        lambda meta: meta.rescale(4),
        lambda meta: len(set(meta.read_latest().mapping.unit_of_vnode)) == 4,
    ),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("fault", [*Fault, None], ids=lambda fault: "KILLED" if fault is None else fault.name)
def test_a_step_broken_at_any_request_is_whole_after_it_is_repeated(step: Step, fault: Fault | None) -> None:
    undisturbed = _fresh(step)
    step.act(open_meta(undisturbed, "once"))
    requests = len(undisturbed.calls)
    assert requests > 0
    assert step.check(open_meta(undisturbed.inner, "judge"))

    for nth in range(requests):
        store = _fresh(step)
        expected: tuple[type[BaseException], ...] = (RetryableError, MustStopError)
        if fault is None:
            store.kill(nth)
            expected = (Killed,)
        else:
            store.fail(nth, fault)
            if fault in (Fault.SHORT_BODY, Fault.FLIPPED_BIT):
                expected = (DamagedDocumentError,)
        with suppress(*expected):  # any other error fails the test
            step.act(open_meta(store, "first"))
        step.act(open_meta(store, "second"))
        assert step.check(open_meta(store.inner, "judge")), f"broken at request {nth}"
        _check_chain(store.inner)


def _fresh(step: Step) -> FaultyObjectStore:
    objects = MemoryObjectStore()
    step.prepare(objects)
    return FaultyObjectStore(objects)


def _check_chain(objects: ObjectStore) -> None:
    """The newest version equals a replay from the first delta, however it was found, and holds each epoch once."""
    version = open_meta(objects, "judge").read_latest()
    deltas = [decode_document(o.name, objects.get(o.name), VersionDelta) for o in objects.list("meta/version/")]
    assert reduce(apply_delta, deltas, initial_version(read_settings(objects))) == version
    names = [sst.name for sst in version.levels[0]]
    assert len(set(names)) == len(names)
