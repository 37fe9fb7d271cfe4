"""MetaStore: the one way into meta. Barriers, commits and log entries are explained where each is defined; here is what happens to them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import count

from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.barrier_log import BarrierLog, PlanOfEpoch, winner_over
from tussock.statestore.meta.compaction import LEASE_MS as TASK_LEASE_MS
from tussock.statestore.meta.compaction import (
    CompactionPlan,
    close_lapsed,
    close_task,
    commit_task,
    move_ssts,
    open_task,
    renew_tasks,
)
from tussock.statestore.meta.delta import EpochCommitted, MappingChanged, Published, VersionChange
from tussock.statestore.meta.document import encode_document, read_document, require_document
from tussock.statestore.meta.errors import EpochNotCommittedError, LostRaceError, SettingError
from tussock.statestore.meta.manifest import SealedManifest, net_by_relation
from tussock.statestore.meta.mapping import checked, remap
from tussock.statestore.meta.names import data_prefix, hash_of, manifest_name
from tussock.statestore.meta.pin import LEASE_MS, Pin, drop_pin, list_pins, renew_pin
from tussock.statestore.meta.readable import readable_epochs, retained_floor
from tussock.statestore.meta.readers import Readers, raise_floor
from tussock.statestore.meta.settings import FORMAT, StoreSettings, create_store, initial_version, read_settings
from tussock.statestore.meta.sight import held_back
from tussock.statestore.meta.statement_log import LogEntry, StatementLog
from tussock.statestore.meta.version import CompactionTask, HummockVersion, SstInfo, VnodeMapping
from tussock.statestore.meta.version_log import Appended, VersionLog
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore


class MetaStore:
    """Epochs, barriers, catalog, mapping, version log and statement log of one store. Not safe for threads: one for each.

    Every operation that writes may be cut off at any request and repeated, by this process or another: it then finds what is there,
    and completes it, or says by LostRaceError that somebody else's came first. None of them lists objects, unless it says so.
    """

    def __init__(
        self,
        objects: ObjectStore,
        writer: str,
        clock_ms: Callable[[], int],
        *,
        settings: StoreSettings | None = None,
        versions: VersionLog | None = None,
        pin_numbers: Iterator[int] | None = None,
    ) -> None:
        """
        Args:
            objects: where the store is.
            writer: unique to this process, for good: drawn at its edge. It distinguishes the winner of a race from the losers.
            clock_ms: Unix milliseconds now. Makes epochs readable as times, and is what now() means in views where a run names no moment;
                one that is wrong or goes back does no harm to anything else.
            settings, versions, pin_numbers: another MetaStore of the process shares its own, see `for_another_thread`.
        """
        if not writer:
            raise SettingError("the writer", "empty", "a text that no other process has")
        self.objects = objects
        self.writer = writer
        self._clock_ms = clock_ms
        self._settings = settings
        self._versions = versions or VersionLog(objects, writer, lambda: initial_version(self.settings))
        self._pin_numbers = pin_numbers or count()
        self._log = StatementLog(objects, writer)
        self._readers = Readers(objects, self._versions, writer, clock_ms, self._pin_numbers)
        self._barriers = BarrierLog(objects, self._versions, writer, clock_ms)

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
        return MetaStore(
            self.objects,
            self.writer,
            self._clock_ms,
            settings=self.settings,
            versions=self._versions.for_another_thread(),
            pin_numbers=self._pin_numbers,
        )

    @property
    def settings(self) -> StoreSettings:
        """Raises NotInitialisedError."""
        if self._settings is None:
            self._settings = read_settings(self.objects)
        return self._settings

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
        return self._barriers.in_force(self.latest().epoch)

    def barrier_after(self, prev_epoch: int) -> Barrier | None:
        """The barrier in force on this epoch, committed or not; None: none was injected."""
        return self._barriers.in_force(prev_epoch)

    def inject_barrier(self, prev_epoch: int, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """Pin what the epoch after `prev_epoch` takes in. If a barrier is in force there already, that one is returned: resume it.

        Raises LostRaceError when another epoch has been committed since `prev_epoch` was looked up.
        """
        return self._barriers.inject(prev_epoch, plan)

    def draft_barrier(self, version: HummockVersion, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """The barrier that would follow `version`, not in force and written nowhere.

        In a train of epochs `version` counts some that are still in flight. The draft may be run at once; it is to be put in force once
        its prev epoch is committed, before it is sealed. If that epoch never is, the draft is nothing, and what it uploaded is vacuum's.
        """
        return self._barriers.draft(version, plan)

    def put_in_force(self, barrier: Barrier) -> None:
        """Put a drafted barrier in force.

        Raises LostRaceError when its prev epoch is not the committed one, or another barrier stands there.
        """
        self._barriers.put_in_force(barrier)

    def supersede_barrier(self, barrier: Barrier, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """Put another attempt in the place of `barrier`, with an epoch of its own. Until one of them is committed, either still may be.

        Raises LostRaceError when the epoch is committed already, or another attempt has superseded `barrier` first.
        """
        return self._barriers.supersede(barrier, plan)

    def moment_now(self) -> int:
        """The clock, as the moment of a barrier: Unix microseconds."""
        return self._clock_ms() * 1000

    # --- commits

    def seal(self, manifest: SealedManifest) -> SealedManifest:
        """Write down what an epoch wants to commit; it is not visible yet. Returns the manifest that counts: the first one sealed.

        Requires: every SST it names is in the bucket. Two drivers that ran the same barrier may both seal: both get the first.
        Raises LostRaceError when another barrier holds this epoch, which only a clock set back to the very millisecond brings about;
        SettingError when an SST is not named after the epoch.
        """
        prefix = data_prefix(manifest.epoch)
        if stray := [sst.name for sst in manifest.ssts if not sst.name.startswith(prefix)]:
            raise SettingError(
                f"the name of an SST of epoch {manifest.epoch}",
                repr(stray[0]),
                f"one below {prefix}: vacuum goes by it",
            )
        name = manifest_name(manifest.epoch)
        if self.objects.put_if_absent(name, encode_document(manifest)):
            return manifest
        found = require_document(self.objects, name, SealedManifest)
        if (found.prev_epoch, found.attempt) != (manifest.prev_epoch, manifest.attempt):
            other = f"writer {found.writer!r} sealed it for attempt {found.attempt} after epoch {found.prev_epoch}"
            raise LostRaceError(
                f"sealing epoch {manifest.epoch} (attempt {manifest.attempt} after epoch {manifest.prev_epoch})", other
            )
        return found

    def sealed(self, epoch: int) -> SealedManifest | None:
        """The sealed manifest of an epoch; None: its run has not come that far."""
        return read_document(self.objects, manifest_name(epoch), SealedManifest)

    def epoch_digest(self, epoch: int) -> str | None:
        """What distinguishes a committed epoch from those of the same number in other histories: a hash of its sealed manifest, which names
        the writer. None: readers cannot name the epoch here, or its manifest is lost.

        Two drivers that finish the same sealed epoch, one of them in a copy of the store, commit the same rows and give the same digest.
        Cost: two GETs.
        """
        if epoch not in self.latest().epochs:
            return None
        try:
            return hash_of(self.objects.get(manifest_name(epoch)))
        except ObjectNotFoundError:
            return None

    def has_epoch(self, epoch: int) -> bool:
        """Whether this store has committed an epoch, readable or not. A store that was restored from a copy lacks those after the copy.

        Cost: a GET; for an epoch that readers cannot name another one.
        """
        return self._is_committed(self.latest(), epoch)

    def commit_epoch(self, manifest: SealedManifest) -> Appended:
        """Make a sealed epoch durable and visible to those who ask for it. Returns a version that holds it, and whether this call did it.

        Without effect when it is committed already, by whomever. Rebases on everything that is not an epoch.
        Requires: `manifest` came from `seal` or `sealed`.
        Raises LostRaceError when another epoch was committed onto its prev epoch.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if self._is_committed(version, manifest.epoch):
                return None
            if version.epoch != manifest.prev_epoch:
                winner = winner_over(self.objects, version, manifest.prev_epoch)
                raise LostRaceError(f"epoch {manifest.epoch} (after {manifest.prev_epoch})", winner)
            ids = manifest.prev_epoch, manifest.epoch, manifest.attempt
            net = net_by_relation(manifest, version.catalog if manifest.catalog is None else manifest.catalog)
            return EpochCommitted(*ids, manifest.ssts, manifest.log_end, manifest.catalog, manifest.moment, net)

        return self._versions.append(decide)

    def publish(self, epoch: int, refused: Collection[int] | None = None) -> HummockVersion:
        """Let every reader see a committed epoch. Never goes back: without effect when a later one is published, or this one, so.

        Args:
            refused: ids of relations whose rows of that epoch readers are not to see, nor those of what reads them: they are held back
                (statestore/meta/sight.py). What was held back and is not refused any more, is seen. None: nobody was asked, and what is
                held back stays so.

        Raises EpochNotCommittedError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if epoch < version.published:
                return None
            if epoch not in version.epochs:
                raise EpochNotCommittedError(epoch, version.epoch)
            held = held_back(version, epoch, refused)
            return None if (epoch, held) == (version.published, version.held) else Published(epoch, held)

        return self._versions.append(decide).version

    def rescale(self, units: int) -> HummockVersion:
        """Spread the vnodes over `units` parallel units, moving as few as possible. Barriers injected from now on use it.

        Without effect when the mapping has so many units already. Raises SettingError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if version.mapping.unit_count == units:
                return None
            return MappingChanged(remap(version.mapping, units))

        return self._versions.append(decide).version

    def move_vnodes(self, planned: VnodeMapping, standing: VnodeMapping | None = None) -> HummockVersion:
        """Put `planned` in the place of the mapping that it was made of, the one with the id before its own. Barriers injected from now on
        use it. `standing`: that mapping; None: only its id is compared.

        Without effect when it is in force already, by whomever. Raises LostRaceError where another mapping came between; SettingError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if version.mapping == planned:
                return None
            if version.mapping.id != planned.id - 1 or standing not in (None, version.mapping):
                raise LostRaceError(
                    f"the move of vnodes by mapping {planned.id}",
                    f"mapping {version.mapping.id}, of version {version.id} or before, is another",
                )
            return MappingChanged(checked(planned, len(version.mapping.units)))

        return self._versions.append(decide).version

    # --- compaction

    def open_compaction(self, plan: CompactionPlan, lease_ms: int = TASK_LEASE_MS) -> CompactionTask:
        """Take SSTs for a task of compaction: nobody else compacts them, or into their keys, until it is committed or closed.

        Raises LostRaceError when another task has taken some of them, or they no longer are where `plan` says. See meta/compaction.py.
        """
        return open_task(self._versions, self.writer, plan, self._clock_ms() + lease_ms)

    def commit_compaction(self, task: CompactionTask, outputs: Sequence[SstInfo]) -> Appended:
        """Put the outputs in the inputs' place. Returns a version that holds it, and whether this call did it.

        Without effect when the task is committed already, by whomever.
        Requires: every output is in the bucket, below `task_prefix(task.id)`, or is one of the inputs.
        Raises LostRaceError when the task was closed.
        """
        return commit_task(self._versions, task, tuple(outputs))

    def close_compaction(self, task_id: int, reason: str) -> HummockVersion:
        """End an open task without effect, ours or another's: its commit is refused from here on. Without effect when it is not open."""
        return close_task(self._versions, task_id, reason)

    def renew_compactions(
        self, tasks: Sequence[CompactionTask], lease_ms: int = TASK_LEASE_MS
    ) -> tuple[CompactionTask, ...]:
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
        return self._readers.pin(epoch, lease_ms, onward)

    def pinned_version(self, pin: Pin) -> HummockVersion:
        """The version to read `pin.epoch` on: its SSTs stay as long as the pin."""
        return self._versions.at(pin.version)

    def version_at(self, epoch: int) -> HummockVersion:
        """The version to read an epoch on: the newest one; if the floor has risen above the epoch, the version of a pin on it, whose SSTs
        stay as long as that pin.

        Raises EpochNotCommittedError; EpochExpiredError if nothing pins the epoch. Cost: below the floor, a LIST and a GET per pin on it.
        """
        return self._readers.version_at(epoch)

    def reading(self, epoch: int, lease_ms: int = LEASE_MS) -> AbstractContextManager[HummockVersion]:
        """The version to read `epoch` on, whose SSTs stay while the block runs, however long, and however compaction and vacuum go on.

        Where the store may only be read, there is no pin: see Readers.reading.

        Warns: UnpinnedReadWarning there.
        Raises EpochNotCommittedError, EpochExpiredError. Cost: a pin, four requests in all.
        """
        return self._readers.reading(epoch, lease_ms)

    def renew(self, pin: Pin, lease_ms: int = LEASE_MS) -> Pin:
        """A pin on the same epoch and version with a new lease, in the place of `pin`.

        Raises PinLapsedError when somebody who raised the floor has found the lease over.
        """
        return renew_pin(self.objects, pin, self._clock_ms() + lease_ms)

    def unpin(self, pin: Pin) -> None:
        """Let go; harmless when repeated."""
        drop_pin(self.objects, pin)

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
        """Let no reader start below `epoch` any more, at most what readers see; then remove pins whose lease is over, and forget relations
        that nobody can see. Lists pins.

        What is older may be dropped by compaction once this has returned, except what `pinned_epochs` names then. Never goes back.
        Raises EpochNotCommittedError when `epoch` is above the published one.
        """
        return raise_floor(self.objects, self._versions, epoch, self._clock_ms())

    # --- the log of DML and DDL

    def append_log(self, client_id: str, statement: bytes, expected: int | None = None) -> int:
        """Make a bound statement (one JSON value) durable and return its position; see StatementLog.append."""
        return self._log.append(client_id, statement, self._log_seen, expected)

    def logged_position(self, client_id: str) -> int | None:
        """Where the statement that was appended under a client id stands; None: none was."""
        return self._log.position_of(client_id)

    def read_log(self, start: int, end: int) -> list[LogEntry]:
        """Entries at positions `start` to `end`-1, in order. Raises DamagedDocumentError."""
        return self._log.read(start, end)

    def log_end(self) -> int:
        """The number of entries so far: what a barrier injected now would pin."""
        return self._log.end(self._log_seen)

    def put_payload(self, data: bytes) -> str:
        """Store what is too large for a log entry, and return its object name."""
        return self._log.put_payload(data)

    # --- inside

    @cached_property
    def _log_seen(self) -> int:
        """Entries that were committed when this process first looked: where probing starts. Later ends the log remembers itself."""
        return self.latest().log_end

    def _is_committed(self, version: HummockVersion, epoch: int) -> bool:
        if epoch in version.epochs:
            return True
        # Of those that readers may no longer name the version does not say; but a barrier stands only on a committed epoch.
        return epoch < version.epoch and self._barriers.in_force(epoch) is not None
