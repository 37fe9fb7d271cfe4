"""Every operation of meta, broken at each of its requests in turn: refused, answer lost, process dead.

After each break another process repeats the whole step. It ends as if nothing had happened, or in an error that says who was first;
the log of versions holds every epoch once.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest

from statestore.errors import MustStopError, RetryableError
from statestore.meta.delta import VersionDelta, apply
from statestore.meta.document import decode_document
from statestore.meta.errors import AlreadyInitialisedError, DamagedDocumentError
from statestore.meta.settings import initial_version, read_settings
from statestore.meta.store import MetaStore
from statestore.meta.version_log import SNAPSHOT_EVERY
from statestore.objectstore.base import ObjectStore
from statestore.objectstore.local import LocalObjectStore
from tests.faults import Fault, FaultyObjectStore, Killed
from tests.statestore.meta.make import manifest_for, open_meta, plan_on, run_epoch


@dataclass(frozen=True)
class Step:
    """One operation: what must stand before it, what it does, and what must hold once it has been repeated until it ended."""

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
    meta.inject_barrier(0, plan_on(meta.latest()))


def _seal(objects: ObjectStore) -> None:
    _inject(objects)
    meta = open_meta(objects)
    barrier = meta.open_barrier()
    assert barrier is not None
    meta.seal(manifest_for(barrier))


def _commit(objects: ObjectStore) -> None:
    _seal(objects)
    _act_commit(open_meta(objects))


def _act_init(meta: MetaStore) -> None:
    try:
        MetaStore.init(meta.objects, vnode_count=8)
    except AlreadyInitialisedError:
        return  # from our own call whose answer was lost: says so, changes nothing


def _act_supersede(meta: MetaStore) -> None:
    barrier = meta.open_barrier()
    assert barrier is not None
    if barrier.attempt == 0:
        meta.supersede_barrier(barrier, plan_on(meta.latest()))


def _act_seal(meta: MetaStore) -> None:
    barrier = meta.open_barrier()
    assert barrier is not None
    meta.seal(manifest_for(barrier, meta.writer))


def _act_commit(meta: MetaStore) -> None:
    version = meta.latest()
    barrier = meta.open_barrier()
    sealed = meta.sealed(version.epoch if barrier is None else barrier.epoch)
    assert sealed is not None
    meta.commit_epoch(sealed)


def _published(meta: MetaStore) -> bool:
    version = meta.latest()
    return version.published == version.epoch > 0


STEPS = (
    Step("init", lambda objects: None, _act_init, lambda meta: meta.latest().id == 0),
    Step("inject", _init, lambda meta: meta.inject_barrier(0, plan_on(meta.latest())), lambda meta: meta.open_barrier() is not None),
    Step("supersede", _inject, _act_supersede, lambda meta: (barrier := meta.open_barrier()) is not None and barrier.attempt == 1),
    Step("seal", _inject, _act_seal, lambda meta: (b := meta.open_barrier()) is not None and meta.sealed(b.epoch) is not None),
    Step("commit", _seal, _act_commit, lambda meta: meta.latest().id == 1),
    Step("commit with a snapshot", _up_to_a_snapshot, run_epoch, lambda meta: meta.latest().id >= SNAPSHOT_EVERY),
    Step("publish", _commit, lambda meta: meta.publish(meta.latest().epoch), _published),
    Step("append", _commit, lambda meta: meta.append_log("client", b'{"insert": 1}'), lambda meta: meta.log_end() == 1),
    Step("payload", _init, lambda meta: meta.put_payload(b"rows"), lambda meta: meta.get_payload(meta.put_payload(b"rows")) == b"rows"),
    Step("pin", _commit, lambda meta: meta.unpin(meta.pin(meta.latest().epoch)), lambda meta: meta.latest().id == 1),
    Step("rescale", _commit, lambda meta: meta.rescale(4), lambda meta: len(set(meta.latest().mapping.units)) == 4),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("fault", [*Fault, None], ids=lambda fault: "KILLED" if fault is None else fault.name)
def test_a_step_broken_at_any_request_is_whole_after_it_is_repeated(step: Step, fault: Fault | None, tmp_path: Path) -> None:
    undisturbed = _fresh(tmp_path / "undisturbed", step)
    step.act(open_meta(undisturbed, "once"))
    requests = len(undisturbed.calls)
    assert requests > 0
    assert step.check(open_meta(undisturbed.inner, "judge"))

    for nth in range(requests):
        store = _fresh(tmp_path / f"broken-{nth}", step)
        expected: tuple[type[BaseException], ...] = (RetryableError, MustStopError)
        if fault is None:
            store.kill(nth)
            expected = (Killed,)
        else:
            store.fail(nth, fault)
            if fault in (Fault.SHORT_BODY, Fault.FLIPPED_BIT):
                expected = (DamagedDocumentError,)
        with suppress(*expected):  # anything else that comes out fails the test
            step.act(open_meta(store, "first"))
        step.act(open_meta(store, "second"))
        assert step.check(open_meta(store.inner, "judge")), f"broken at request {nth}"
        _check_chain(store.inner)


def _fresh(root: Path, step: Step) -> FaultyObjectStore:
    objects = LocalObjectStore(root)
    step.prepare(objects)
    return FaultyObjectStore(objects)


def _check_chain(objects: ObjectStore) -> None:
    """The newest version, however it was found, is what replay from the very first delta gives, and holds each epoch once."""
    version = open_meta(objects, "judge").latest()
    deltas = [decode_document(o.name, objects.get(o.name), VersionDelta) for o in objects.list("meta/version/")]
    assert reduce(apply, deltas, initial_version(read_settings(objects))) == version
    names = [sst.name for sst in version.levels[0]]
    assert len(set(names)) == len(names)
