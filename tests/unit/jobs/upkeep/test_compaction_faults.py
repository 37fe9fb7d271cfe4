"""A compaction that breaks at each of its requests in turn: it fails clearly or succeeds.

No row changes, and the next compaction completes it.
"""

from collections.abc import Sequence

import pytest

from tests.support.faulty_store import Fault, FaultyObjectStore, Killed
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.living_store import LivingStore, living_store, named_by
from tests.unit.jobs.upkeep.test_compaction import SMALL
from tussock.jobs.upkeep.compaction import Beat, Merged, compact_round, compact_store, run_here
from tussock.statestore.errors import DamagedError, RetryableError
from tussock.statestore.hummock.compaction import MergePiece
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.compaction import LEASE_MS
from tussock.statestore.meta.delta import CompactionsRenewed
from tussock.statestore.meta.settings import initial_version
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version_log import VersionLog

HOURS_MS = 3 * 60 * 60 * 1000


def a_store() -> LivingStore:
    store = living_store(MemoryObjectStore(), epochs=3, rows=100)
    store.meta.apply_retention(1)
    return store


def compact_all(store: LivingStore, objects: FaultyObjectStore, options: CompactionOptions = SMALL) -> None:
    """Compact everything in one slow task of a separate process, which renews its lease all the time."""
    meta = MetaStore(objects, "compactor", store.clock)

    def run(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        def slow() -> None:
            store.clock.now_ms += LEASE_MS // 2
            beat()

        return run_here(objects)(pieces, slow)

    for done in compact_round(meta, options, run, full=True):
        if done.error is not None:
            raise done.error


def count_calls() -> int:
    objects = FaultyObjectStore((store := a_store()).objects)
    compact_all(store, objects)
    log = VersionLog(store.objects, "reader", lambda: initial_version(store.meta.settings))
    assert any(isinstance(delta.change, CompactionsRenewed) for delta in log.read_deltas(1, log.read_latest().id))
    return len(objects.calls)


@pytest.mark.parametrize("fault", [*Fault, None], ids=lambda fault: "killed" if fault is None else fault.name.lower())
def test_a_compaction_broken_at_any_request_changes_no_row_and_can_be_done_again(fault: Fault | None) -> None:
    calls = count_calls()
    assert calls > 10
    broken = 0
    for nth in range(calls):
        store = a_store()
        before = store.meta.read_latest()
        objects = FaultyObjectStore(store.objects)
        if fault is None:
            objects.kill(nth)
        else:
            objects.fail(nth, fault)
        try:
            compact_all(store, objects)
        except (RetryableError, DamagedError, Killed):
            broken += 1
        objects.heal()
        after = store.open("reader").read_latest()
        assert named_by(after) == named_by(before) or len(named_by(after)) == 1, "the old version or the new one, whole"
        store.check(after, after.epoch)
        store.clock.now_ms += HOURS_MS  # an abandoned task delays others until its lease ends
        compact_store(store.open("next"), SMALL, full=True)
        newest = store.open("reader").read_latest()
        assert (len(named_by(newest)), newest.tasks) == (1, ())
        store.check(newest, newest.epoch)
        store.run({0: 0})
        vacuum_store(store.meta)
        assert store.data() == named_by(store.meta.read_latest()), "an object is left over, or missing"
    assert broken > 2, "the faults did not reach it"
