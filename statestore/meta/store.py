"""MetaStore: the one way into meta. Barriers, commits and log entries are explained where each is defined; here is what happens to them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count

import msgspec

from statestore.meta.barrier import Barrier, BarrierPlan, barrier_of
from statestore.meta.compaction import LEASE_MS as TASK_LEASE_MS
from statestore.meta.compaction import CompactionPlan, close_lapsed, close_task, commit_task, move_ssts, open_task, renew_tasks
from statestore.meta.delta import Change, EpochCommitted, FloorRaised, MappingChanged, Published, RelationsForgotten
from statestore.meta.document import encode_document, read_document, require_document
from statestore.meta.epoch import allot_epoch
from statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, LostRaceError, PinLapsedError, SettingError
from statestore.meta.manifest import SealedManifest
from statestore.meta.mapping import remap
from statestore.meta.names import barrier_name, data_prefix, manifest_name
from statestore.meta.pin import LEASE_MS, Pin, delete_pins, list_pins, pin_stands, write_pin
from statestore.meta.readable import check_readable, readable_epochs, retained_floor
from statestore.meta.settings import FORMAT, StoreSettings, create_store, initial_version, read_settings
from statestore.meta.statement_log import LogEntry, StatementLog, read_payload
from statestore.meta.version import CompactionTask, HummockVersion, SstInfo
from statestore.meta.version_log import VersionLog
from statestore.objectstore.base import ObjectStore

#: What a barrier takes in, where that depends on the epoch it is allotted (relations are created *at* an epoch).
PlanOfEpoch = Callable[[int], BarrierPlan]


class MetaStore:
    """Epochs, barriers, catalog, mapping, version log and statement log of one store. Not safe for threads: one for each.

    Every operation that writes may be cut off at any request and repeated, by this process or another: it then finds what is there,
    and completes it, or says by LostRaceError that somebody else's came first. None of them lists objects, unless it says so.
    """

    def __init__(self, objects: ObjectStore, writer: str, clock_ms: Callable[[], int]) -> None:
        """
        Args:
            objects: where the store is.
            writer: unique to this process, for good: drawn at its edge. It distinguishes the winner of a race from the losers.
            clock_ms: Unix milliseconds now. Only makes epochs readable as times; one that is wrong or goes back does no harm.
        """
        if not writer:
            raise SettingError("the writer", "empty", "a text that no other process has")
        self.objects = objects
        self.writer = writer
        self._clock_ms = clock_ms
        self._versions = VersionLog(objects, writer, lambda: initial_version(self.settings))
        self._log = StatementLog(objects, writer)
        self._pin_numbers = count()
        self._last_draft = 0

    @staticmethod
    def init(objects: ObjectStore, *, vnode_count: int = 256, units: int = 2, time_zone: str = "UTC") -> StoreSettings:
        """Create an empty store. `vnode_count` (a power of two up to 32768) and `time_zone` hold for its whole life.

        Raises:
            SettingError: nothing was written.
            AlreadyInitialisedError: a store is there; nothing was changed.
            ConditionalPutIgnoredError: the server would let two writers win.
        """
        return create_store(objects, StoreSettings(FORMAT, vnode_count, units, time_zone))

    def for_another_thread(self) -> "MetaStore":
        """The same writer's, for another thread of this process. Requires: the two never try for the same object at once."""
        other = MetaStore(self.objects, self.writer, self._clock_ms)
        other.__dict__["settings"] = self.settings
        other._versions = self._versions.for_another_thread()
        other._pin_numbers = self._pin_numbers
        return other

    @cached_property
    def settings(self) -> StoreSettings:
        """Raises NotInitialisedError."""
        return read_settings(self.objects)

    # --- versions

    def latest(self) -> HummockVersion:
        """The newest version, committed but perhaps not published. One GET when nothing is new."""
        return self._versions.latest()

    def version(self, version_id: int) -> HummockVersion:
        """The version of this id as it was. Raises NoSuchVersionError."""
        return self._versions.at(version_id)

    # --- barriers

    def open_barrier(self) -> Barrier | None:
        """The barrier in force that is not committed: to be finished before another is injected."""
        return self._in_force(self.latest().epoch)

    def barrier_after(self, prev_epoch: int) -> Barrier | None:
        """The barrier in force on this epoch, committed or not; None: none was injected."""
        return self._in_force(prev_epoch)

    def inject_barrier(self, prev_epoch: int, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """Pin what the epoch after `prev_epoch` takes in. If a barrier is in force there already, that one is returned: resume it.

        Raises LostRaceError when another epoch has been committed since `prev_epoch` was looked up.
        """
        version = self._base_of(prev_epoch, f"the barrier after epoch {prev_epoch}")
        if (found := self._in_force(prev_epoch)) is not None:
            return found
        return self._put_barrier(self._attempt(version, plan, above=prev_epoch, attempt=0))

    def draft_barrier(self, version: HummockVersion, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """The barrier that would follow `version`, not in force and written nowhere.

        In a train of epochs `version` counts some that are still in flight. The draft may be run at once; it is to be put in force once
        its prev epoch is committed, before it is sealed. If that epoch never is, the draft is nothing, and what it uploaded is vacuum's.
        """
        drafted = self._attempt(version, plan, above=max(version.epoch, self._last_draft), attempt=0)
        self._last_draft = drafted.epoch  # workers remember what they ran by its epoch: no two drafts of a process share one
        return drafted

    def put_in_force(self, barrier: Barrier) -> None:
        """Put a drafted barrier in force.

        Raises LostRaceError when its prev epoch is not the committed one, or another barrier stands there.
        """
        what = f"the drafted barrier {barrier.epoch}"
        self._base_of(barrier.prev_epoch, what)
        found = self._put_barrier(barrier)
        if found != barrier:
            raise LostRaceError(what, f"writer {found.writer!r} put barrier {found.epoch} in force after epoch {barrier.prev_epoch}")

    def supersede_barrier(self, barrier: Barrier, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """Put another attempt in the place of `barrier`, with an epoch of its own. Until one of them is committed, either still may be.

        Raises LostRaceError when the epoch is committed already, or another attempt has superseded `barrier` first.
        """
        what = f"superseding barrier {barrier.epoch} (attempt {barrier.attempt})"
        version = self._base_of(barrier.prev_epoch, what)
        attempt = barrier.attempt + 1
        following = self._attempt(version, plan, above=barrier.epoch, attempt=attempt)
        name = barrier_name(barrier.prev_epoch, attempt)
        if self.objects.put_if_absent(name, encode_document(following)):
            return following
        found = require_document(self.objects, name, Barrier)
        raise LostRaceError(what, f"writer {found.writer!r} put barrier {found.epoch} (attempt {attempt}) in its place")

    # --- commits

    def seal(self, manifest: SealedManifest) -> SealedManifest:
        """Write down what an epoch wants to commit; it is not visible yet. Returns the manifest that counts: the first one sealed.

        Requires: every SST it names is in the bucket. Two drivers that ran the same barrier may both seal: both get the first.
        Raises LostRaceError when another barrier holds this epoch, which only a clock set back to the very millisecond brings about;
        SettingError when an SST is not named after the epoch.
        """
        prefix = data_prefix(manifest.epoch)
        if stray := [sst.name for sst in manifest.ssts if not sst.name.startswith(prefix)]:
            raise SettingError(f"the name of an SST of epoch {manifest.epoch}", repr(stray[0]), f"one below {prefix}: vacuum goes by it")
        name = manifest_name(manifest.epoch)
        if self.objects.put_if_absent(name, encode_document(manifest)):
            return manifest
        found = require_document(self.objects, name, SealedManifest)
        if (found.prev_epoch, found.attempt) != (manifest.prev_epoch, manifest.attempt):
            other = f"writer {found.writer!r} sealed it for attempt {found.attempt} after epoch {found.prev_epoch}"
            raise LostRaceError(f"sealing epoch {manifest.epoch} (attempt {manifest.attempt} after epoch {manifest.prev_epoch})", other)
        return found

    def sealed(self, epoch: int) -> SealedManifest | None:
        """The sealed manifest of an epoch; None: its run has not come that far."""
        return read_document(self.objects, manifest_name(epoch), SealedManifest)

    def commit_epoch(self, manifest: SealedManifest) -> tuple[HummockVersion, bool]:
        """Make a sealed epoch durable and visible to those who ask for it. Returns a version that holds it, and whether this call did it.

        Without effect when it is committed already, by whomever. Rebases on everything that is not an epoch.
        Requires: `manifest` came from `seal` or `sealed`.
        Raises LostRaceError when another epoch was committed onto its prev epoch.
        """

        mine = False

        def decide(version: HummockVersion) -> Change | None:
            nonlocal mine
            if not (mine := not self._is_committed(version, manifest.epoch)):
                return None
            if version.epoch != manifest.prev_epoch:
                raise LostRaceError(f"epoch {manifest.epoch} (after {manifest.prev_epoch})", self._winner(version, manifest.prev_epoch))
            return EpochCommitted(manifest.prev_epoch, manifest.epoch, manifest.attempt, manifest.ssts, manifest.log_end, manifest.catalog)

        return self._versions.append(decide), mine

    def publish(self, epoch: int) -> HummockVersion:
        """Let every reader see a committed epoch. Never goes back: without effect when it or a later one is published.

        Raises EpochNotCommittedError.
        """

        def decide(version: HummockVersion) -> Change | None:
            if epoch <= version.published:
                return None
            if epoch not in version.epochs:
                raise EpochNotCommittedError(epoch, version.epoch)
            return Published(epoch)

        return self._versions.append(decide)

    def rescale(self, units: int) -> HummockVersion:
        """Spread the vnodes over `units` parallel units, moving as few as possible. Barriers injected from now on use it.

        Without effect when the mapping has so many units already. Raises SettingError.
        """

        def decide(version: HummockVersion) -> Change | None:
            if version.mapping.unit_count == units:
                return None
            return MappingChanged(remap(version.mapping, units))

        return self._versions.append(decide)

    # --- compaction

    def open_compaction(self, plan: CompactionPlan, lease_ms: int = TASK_LEASE_MS) -> CompactionTask:
        """Take SSTs for a task of compaction: nobody else compacts them, or into their keys, until it is committed or closed.

        Raises LostRaceError when another task has taken some of them, or they no longer are where `plan` says. See meta/compaction.py.
        """
        return open_task(self._versions, self.writer, plan, self._clock_ms() + lease_ms)

    def commit_compaction(self, task: CompactionTask, outputs: Sequence[SstInfo]) -> tuple[HummockVersion, bool]:
        """Put the outputs in the inputs' place. Returns a version that holds it, and whether this call did it.

        Without effect when the task is committed already, by whomever.
        Requires: every output is in the bucket, below `task_prefix(task.id)`, or is one of the inputs.
        Raises LostRaceError when the task was closed.
        """
        return commit_task(self._versions, task, tuple(outputs))

    def close_compaction(self, task_id: int, reason: str) -> HummockVersion:
        """End an open task without effect, ours or another's: its commit is refused from here on. Without effect when it is not open."""
        return close_task(self._versions, task_id, reason)

    def renew_compactions(self, tasks: Sequence[CompactionTask], lease_ms: int = TASK_LEASE_MS) -> tuple[CompactionTask, ...]:
        """Keep others from closing tasks that are being merged. Returns those that are still open, with their leases: what to renew next.

        To be called often: without a request until a third of the lease of one of them is over, and then it is one delta for all.
        """
        now = self._clock_ms()
        if all(now < task.expires_ms - lease_ms + lease_ms // 3 for task in tasks):
            return tuple(tasks)
        return renew_tasks(self._versions, {task.id for task in tasks}, now + lease_ms)

    def close_lapsed_compactions(self) -> tuple[int, ...]:
        """Close tasks whose lease is over by our clock, so that what a dead compactor took can be taken again. Returns their ids."""
        return close_lapsed(self._versions, self._clock_ms())

    def move_ssts(self, plan: CompactionPlan) -> HummockVersion:
        """Move SSTs down as they are. Raises LostRaceError where `open_compaction` would."""
        return move_ssts(self._versions, plan)

    # --- readers and the floor

    def readable_epochs(self) -> tuple[HummockVersion, tuple[int, ...]]:
        """The newest version, and the epochs somebody may read now or later, ascending: what compaction must keep. Lists pins."""
        version = self.latest()
        return version, readable_epochs(version, self.pinned_epochs())

    def pin(self, epoch: int, lease_ms: int = LEASE_MS, onward: bool = False) -> Pin:
        """Keep `epoch` readable, on `pinned_version`, until `unpin`, or until the lease is over and somebody raises the floor.

        Args:
            onward: keep what later epochs upload, too, also when compaction has taken it out of every version.

        Raises EpochNotCommittedError, EpochExpiredError. Cost: three requests, two more for each compaction that is committed meanwhile.
        """
        version = self.latest()
        check_readable(version, epoch)
        pin = Pin(epoch, f"{self.writer}/{next(self._pin_numbers)}", version.id, self._clock_ms() + lease_ms, onward=onward)
        while True:
            write_pin(self.objects, pin)
            newest = self.latest()
            try:
                check_readable(newest, epoch)  # the floor rose in between, and the one who raised it may not have seen us
            except (EpochExpiredError, EpochNotCommittedError):
                delete_pins(self.objects, pin)
                raise
            if _ssts(version) <= _ssts(newest):
                return pin
            # A compaction took out SSTs in between, and vacuum may not have seen us: pin the version that stands now, in the same object.
            version, pin = newest, msgspec.structs.replace(pin, version=newest.id)

    def pinned_version(self, pin: Pin) -> HummockVersion:
        """The version to read `pin.epoch` on: its SSTs stay as long as the pin."""
        return self._versions.at(pin.version)

    @contextmanager
    def reading(self, epoch: int, lease_ms: int = LEASE_MS) -> Iterator[HummockVersion]:
        """The version to read `epoch` on, whose SSTs stay while the block runs, however compaction and vacuum go on.

        Raises EpochNotCommittedError, EpochExpiredError. Cost: a pin, four requests in all.
        """
        pin = self.pin(epoch, lease_ms)
        try:
            yield self.pinned_version(pin)
        finally:
            self.unpin(pin)

    def renew(self, pin: Pin, lease_ms: int = LEASE_MS) -> Pin:
        """A pin on the same epoch and version with a new lease, in the place of `pin`.

        Raises PinLapsedError when somebody who raised the floor has found the lease over.
        """
        renewed = msgspec.structs.replace(pin, expires_ms=self._clock_ms() + lease_ms, renewal=pin.renewal + 1)
        write_pin(self.objects, renewed)
        if not pin_stands(self.objects, pin):
            delete_pins(self.objects, renewed)
            raise PinLapsedError(pin.epoch, pin.holder)
        if pin.renewal:  # `pin` itself stays until the next renewal: a listing under way may have passed the new one's place
            delete_pins(self.objects, msgspec.structs.replace(pin, renewal=pin.renewal - 1))
        return renewed

    def unpin(self, pin: Pin) -> None:
        """Let go; harmless when repeated."""
        before = (msgspec.structs.replace(pin, renewal=pin.renewal - 1),) if pin.renewal else ()
        delete_pins(self.objects, pin, *before)

    def pins(self) -> tuple[Pin, ...]:
        """All pins, by epoch; those whose lease is over count until somebody raises the floor. Lists them."""
        return list_pins(self.objects)

    def pinned_epochs(self) -> tuple[int, ...]:
        """Epochs that are pinned, ascending. Lists the pins."""
        return tuple(sorted({pin.epoch for pin in self.pins()}))

    def retain(self, keep_epochs: int = 1, keep_ms: int = 0) -> HummockVersion:
        """Raise the floor as far as both wishes allow: see `retained_floor`. Raises SettingError."""
        return self.raise_floor(retained_floor(self.latest(), keep_epochs, keep_ms, self._clock_ms()))

    def raise_floor(self, epoch: int) -> HummockVersion:
        """Let no reader start below `epoch` any more, at most the published one; then remove pins whose lease is over, and forget relations
        that nobody can see. Lists pins.

        What is older may be dropped by compaction once this has returned, except what `pinned_epochs` names then. Never goes back.
        Raises EpochNotCommittedError when `epoch` is above the published one.
        """

        def decide(version: HummockVersion) -> Change | None:
            if epoch <= version.min_readable_epoch:
                return None
            if epoch > version.published:
                raise EpochNotCommittedError(epoch, version.published)
            return FloorRaised(epoch)

        self._versions.append(decide)
        now = self._clock_ms()
        pins = self.pins()
        if lapsed := [pin for pin in pins if pin.expires_ms <= now]:
            delete_pins(self.objects, *lapsed)
        pinned = [pin.epoch for pin in pins if pin.expires_ms > now]

        def forget(version: HummockVersion) -> Change | None:
            oldest = min((version.min_readable_epoch, *pinned))
            gone = tuple(r.id for r in version.catalog.relations if r.dropped is not None and r.dropped <= oldest)
            return RelationsForgotten(gone) if gone else None

        return self._versions.append(forget)

    # --- the log of DML and DDL

    def append_log(self, client_id: str, statement: bytes) -> int:
        """Make a bound statement (one JSON value) durable and return its position; see StatementLog.append."""
        return self._log.append(client_id, statement, self._log_seen)

    def read_log(self, start: int, end: int) -> list[LogEntry]:
        """Entries at positions `start` to `end`-1, in order. Raises DamagedDocumentError."""
        return self._log.read(start, end)

    def log_end(self) -> int:
        """The number of entries so far: what a barrier injected now would pin."""
        return self._log.end(self._log_seen)

    def put_payload(self, data: bytes) -> str:
        """Store what is too large for a log entry, and return its object name."""
        return self._log.put_payload(data)

    def get_payload(self, name: str) -> bytes:
        """The bytes of a payload, checked against its name. Raises DamagedDocumentError."""
        return read_payload(self.objects, name)

    # --- inside

    @cached_property
    def _log_seen(self) -> int:
        """Entries that were committed when this process first looked: where probing starts. Later ends the log remembers itself."""
        return self.latest().log_end

    def _in_force(self, prev_epoch: int) -> Barrier | None:
        """The highest attempt after `prev_epoch`. Attempts are few, so they are read one by one."""
        found: Barrier | None = None
        while (following := read_document(self.objects, barrier_name(prev_epoch, found.attempt + 1 if found else 0), Barrier)) is not None:
            found = following
        return found

    def _put_barrier(self, barrier: Barrier) -> Barrier:
        """Write a first attempt; the barrier that stands in its place then."""
        name = barrier_name(barrier.prev_epoch, 0)
        if self.objects.put_if_absent(name, encode_document(barrier)):
            return barrier
        return require_document(self.objects, name, Barrier)

    def _base_of(self, prev_epoch: int, what: str) -> HummockVersion:
        version = self.latest()
        if version.epoch != prev_epoch:
            raise LostRaceError(what, self._winner(version, prev_epoch))
        return version

    def _attempt(self, version: HummockVersion, plan: BarrierPlan | PlanOfEpoch, above: int, attempt: int) -> Barrier:
        epoch = allot_epoch(above, self._clock_ms(), attempt)
        plan = plan(epoch) if callable(plan) else plan
        if plan.log_end < version.log_end:
            raise SettingError("the log end of a barrier", str(plan.log_end), f"at least {version.log_end}, up to which it is committed")
        return barrier_of(plan, prev_epoch=version.epoch, epoch=epoch, attempt=attempt, writer=self.writer, log_start=version.log_end)

    def _is_committed(self, version: HummockVersion, epoch: int) -> bool:
        if epoch in version.epochs:
            return True
        # Of those that readers may no longer name the version does not say; but a barrier stands only on a committed epoch.
        return epoch < version.epoch and self._in_force(epoch) is not None

    def _winner(self, version: HummockVersion, prev_epoch: int) -> str:
        """Who committed onto `prev_epoch`, for a message."""
        winner = min((e for e in version.epochs if e > prev_epoch), default=version.epoch)
        manifest = self.sealed(winner)
        by = f" (sealed by {manifest.writer!r}, attempt {manifest.attempt})" if manifest is not None else ""
        return f"epoch {winner}{by} is committed in its place, and the store is at epoch {version.epoch}"


def _ssts(version: HummockVersion) -> set[str]:
    return {sst.name for level in version.levels for sst in level}
