"""Barriers in the bucket: inject, draft, put in force, supersede.

barrier.py defines a barrier; docs/design/commit-protocol.md explains why this is safe.
"""

from collections.abc import Callable

from tussock.statestore.forks import OwnName
from tussock.statestore.meta.barrier import Barrier, BarrierPlan, barrier_of
from tussock.statestore.meta.document import encode_document, read_document, require_document
from tussock.statestore.meta.epoch import allot_between, allot_epoch
from tussock.statestore.meta.errors import LostRaceError, SettingError
from tussock.statestore.meta.manifest import SealedManifest
from tussock.statestore.meta.names import barrier_name, manifest_name
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import VersionLog
from tussock.statestore.objectstore.base import ObjectStore

#: Computes a plan that depends on the assigned epoch, e.g. because relations record the epoch that creates them.
PlanOfEpoch = Callable[[int], BarrierPlan]


class BarrierLog:
    """One process's view of the barriers, for the methods of the same names in MetaStore. Not thread-safe."""

    def __init__(
        self,
        objects: ObjectStore,
        versions: VersionLog,
        writer: str,
        clock_ms: Callable[[], int],
        follows: Callable[[], bool],
    ) -> None:
        """`follows`: whether the store is a branch that takes its parent's epochs."""
        self._objects, self._versions, self._clock_ms, self._follows = objects, versions, clock_ms, follows
        self._writer = OwnName(writer)
        self._last_draft = 0

    def in_force(self, prev_epoch: int) -> Barrier | None:
        """The highest attempt after `prev_epoch`, or None. Attempts are few, so they are read one by one."""
        barrier: Barrier | None = None
        while (
            following := read_document(
                self._objects, barrier_name(prev_epoch, barrier.attempt + 1 if barrier else 0), Barrier
            )
        ) is not None:
            barrier = following
        return barrier

    def inject_barrier(self, prev_epoch: int, plan: BarrierPlan | PlanOfEpoch, epoch: int | None = None) -> Barrier:
        """See MetaStore.inject_barrier."""
        version = self._base_of(prev_epoch, f"the barrier after epoch {prev_epoch}")
        if (barrier := self.in_force(prev_epoch)) is not None:
            return barrier
        return self._put_first_attempt(self._make_barrier(version, plan, above=prev_epoch, attempt=0, epoch=epoch))

    def draft_barrier(self, version: HummockVersion, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """See MetaStore.draft_barrier."""
        drafted = self._make_barrier(version, plan, above=max(version.epoch, self._last_draft), attempt=0)
        self._last_draft = drafted.epoch  # Workers cache results by epoch, so drafts of a process must not share one.
        return drafted

    def put_in_force(self, barrier: Barrier) -> None:
        """See MetaStore.put_in_force."""
        what = f"the drafted barrier {barrier.epoch}"
        self._base_of(barrier.prev_epoch, what)
        barrier_in_force = self._put_first_attempt(barrier)
        if barrier_in_force != barrier:
            raise LostRaceError(
                what,
                f"writer {barrier_in_force.writer!r} put barrier {barrier_in_force.epoch} in force after epoch "
                f"{barrier.prev_epoch}",
            )

    def supersede_barrier(self, barrier: Barrier, plan: BarrierPlan | PlanOfEpoch, epoch: int | None = None) -> Barrier:
        """See MetaStore.supersede_barrier."""
        what = f"superseding barrier {barrier.epoch} (attempt {barrier.attempt})"
        version = self._base_of(barrier.prev_epoch, what)
        attempt = barrier.attempt + 1
        above = barrier.prev_epoch if barrier.follows else barrier.epoch  # the parent's epoch comes after it
        following = self._make_barrier(version, plan, above, attempt, epoch)
        name = barrier_name(barrier.prev_epoch, attempt)
        if self._objects.put_if_absent(name, encode_document(following)):
            return following
        barrier_in_place = require_document(self._objects, name, Barrier)
        raise LostRaceError(
            what,
            f"writer {barrier_in_place.writer!r} put barrier {barrier_in_place.epoch} (attempt {attempt}) in its place",
        )

    def _put_first_attempt(self, barrier: Barrier) -> Barrier:
        """Write a first attempt. Returns the barrier that is stored afterwards, ours or another writer's."""
        name = barrier_name(barrier.prev_epoch, 0)
        if self._objects.put_if_absent(name, encode_document(barrier)):
            return barrier
        return require_document(self._objects, name, Barrier)

    def _base_of(self, prev_epoch: int, what: str) -> HummockVersion:
        version = self._versions.read_latest()
        if version.epoch != prev_epoch:
            raise LostRaceError(what, winner_over(self._objects, version, prev_epoch))
        return version

    def _make_barrier(
        self,
        version: HummockVersion,
        plan: BarrierPlan | PlanOfEpoch,
        above: int,
        attempt: int,
        epoch: int | None = None,
    ) -> Barrier:
        if epoch is None:
            clock_ms = None if self._follows() else self._clock_ms()
            epoch = allot_between(above, attempt) if clock_ms is None else allot_epoch(above, clock_ms, attempt)
        plan = plan(epoch) if callable(plan) else plan
        if plan.log_end < version.log_end:
            raise SettingError(
                "the log end of a barrier",
                str(plan.log_end),
                f"at least {version.log_end}, the end of the committed entries",
            )
        return barrier_of(plan, version, epoch=epoch, attempt=attempt, writer=str(self._writer))


def winner_over(objects: ObjectStore, version: HummockVersion, prev_epoch: int) -> str:
    """Describe the commit onto `prev_epoch` for an error message."""
    winner = min((e for e in version.epochs if e > prev_epoch), default=version.epoch)
    manifest = read_document(objects, manifest_name(winner), SealedManifest)
    by = f" (sealed by {manifest.writer!r}, attempt {manifest.attempt})" if manifest is not None else ""
    return f"epoch {winner}{by} was committed instead, and the store is at epoch {version.epoch}"
