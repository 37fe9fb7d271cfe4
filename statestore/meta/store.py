"""MetaStore: the only entry point to meta. The modules that define barriers, commits and log entries explain them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from itertools import count

from tussock.statestore.forks import OwnName
from tussock.statestore.meta import branch as branches
from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.barrier_log import BarrierLog, PlanOfEpoch, winner_over
from tussock.statestore.meta.branch import KEEP_MS
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
from tussock.statestore.meta.delta import MappingChanged, Published, VersionChange, VersionDelta
from tussock.statestore.meta.document import encode_document, read_document, require_document
from tussock.statestore.meta.errors import (
    BranchedBranchError,
    BranchExistsError,
    BranchGoneError,
    EpochExpiredError,
    EpochNotCommittedError,
    LostRaceError,
    SettingError,
)
from tussock.statestore.meta.manifest import SealedManifest, change_of_manifest
from tussock.statestore.meta.mapping import remap_vnodes, validate_mapping
from tussock.statestore.meta.names import data_prefix, hash_of, manifest_name
from tussock.statestore.meta.pin import LEASE_MS, Pin, drop_pin, list_pins, renew_pin
from tussock.statestore.meta.readable import check_readable, readable_epochs, retained_floor
from tussock.statestore.meta.readers import Readers, raise_floor
from tussock.statestore.meta.settings import FORMAT, StoreSettings, create_store, read_settings
from tussock.statestore.meta.sight import held_back
from tussock.statestore.meta.statement_log import LogEntry, StatementLog
from tussock.statestore.meta.version import Branch, CompactionTask, HummockVersion, SstInfo, VnodeMapping
from tussock.statestore.meta.version_log import AppendResult, Glances, VersionLog
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.branch import BranchObjects


class MetaStore:
    """Epochs, barriers, catalog, mapping, version log and statement log of one store.

    Not thread-safe: use one per thread.

    Any writing operation may be interrupted at any request and repeated by this or another process. The repeated call
    completes the recorded work, or raises LostRaceError if another writer was first. Operations never list objects
    unless their docstrings mention it.
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
            objects: the store's objects.
            writer: globally unique name of this process, chosen at its start. Identifies the winner of a race.
            clock_ms: current Unix milliseconds. Lets epochs be read as times, and supplies now() in views if a run sets
                no moment. A wrong clock, or one that goes back, affects nothing else.
            settings, versions, pin_numbers: shared with another MetaStore of the process; see `for_another_thread`.
        """
        if not writer:
            raise SettingError("the writer", "empty", "a text that no other process uses")
        self.objects = objects
        self._writer = OwnName(writer)
        self._clock_ms = clock_ms
        self._settings = settings
        self._versions = versions or VersionLog(objects, writer, lambda: self._first_version)
        self._pin_numbers = pin_numbers or count()
        self._log = StatementLog(objects, writer)
        self._readers = Readers(objects, self._versions, writer, clock_ms, self._pin_numbers)
        self._barriers = BarrierLog(objects, self._versions, writer, clock_ms, lambda: self.follows)

    @staticmethod
    def init(objects: ObjectStore, *, vnode_count: int = 256, units: int = 2, time_zone: str = "UTC") -> StoreSettings:
        """Create an empty store. `vnode_count` (a power of two up to 32768) and `time_zone` can never change.

        Raises:
            SettingError: a setting is invalid; nothing was written.
            AlreadyInitialisedError: a store exists; nothing was changed.
            ConditionalPutIgnoredError: the server would let two writers win.
        """
        return create_store(objects, StoreSettings(FORMAT, vnode_count, units, time_zone))

    def for_another_thread(self) -> "MetaStore":
        """A MetaStore of the same writer for another thread.

        Requires: the two never write the same object concurrently.
        """
        return MetaStore(
            self.objects,
            self.writer,
            self._clock_ms,
            settings=self.settings,
            versions=self._versions.for_another_thread(),
            pin_numbers=self._pin_numbers,
        )

    @property
    def writer(self) -> str:
        """The globally unique name of this process. A forked child has another one."""
        return str(self._writer)

    @property
    def settings(self) -> StoreSettings:
        """The store's settings. Raises NotInitialisedError."""
        if self._settings is None:
            self._settings = read_settings(self.objects)
        return self._settings

    # --- versions

    def read_latest(self, *, proven: bool = False) -> HummockVersion:
        """The newest version; committed, but possibly not published. Two requests if it has not changed.

        `proven`: also within `glances`, where it is one request otherwise.
        """
        return self._versions.read_latest(proven=proven)

    @property
    def newest_seen(self) -> HummockVersion | None:
        """The newest version that this object has read or written, without a request; None before the first one."""
        return self._versions.newest_seen

    def glances(self) -> AbstractContextManager[Glances]:
        """Within the block, `read_latest` and `log_end` may be as old as the last commit or proven look here.

        So they are right unless the process slept for more than a thousand commits. A commit of an epoch proves that
        it did not. If the block commits none, `Glances.are_proven_by` must say so, or the block begins again.
        """
        return self._versions.glances()

    def read_version(self, version_id: int) -> HummockVersion:
        """The version with this id. Raises NoSuchVersionError."""
        return self._versions.read_version(version_id)

    # --- barriers

    def open_barrier(self) -> Barrier | None:
        """The barrier in force whose epoch is not committed, or None. Finish it before you inject another."""
        return self._barriers.in_force(self.read_latest().epoch)

    def barrier_after(self, prev_epoch: int) -> Barrier | None:
        """The barrier in force on this epoch, committed or not; None if none was injected."""
        return self._barriers.in_force(prev_epoch)

    def inject_barrier(self, prev_epoch: int, plan: BarrierPlan | PlanOfEpoch, epoch: int | None = None) -> Barrier:
        """Pin the inputs of the epoch after `prev_epoch`. If a barrier is already in force there, return it: resume it.

        `epoch`: its number, which a branch takes from its parent; None: a new one.

        Raises LostRaceError if another epoch was committed after `prev_epoch` was read; BranchGoneError.
        """
        self.require_open()
        return self._barriers.inject_barrier(prev_epoch, plan, epoch)

    def draft_barrier(self, version: HummockVersion, plan: BarrierPlan | PlanOfEpoch) -> Barrier:
        """Build the barrier that would follow `version`, without writing it.

        In a train of epochs, `version` may include epochs in flight. The draft may run at once. Put it in force
        after its prev epoch is committed and before it is sealed. If that epoch is never committed, the draft is void
        and vacuum removes its uploads.
        """
        return self._barriers.draft_barrier(version, plan)

    def put_in_force(self, barrier: Barrier) -> None:
        """Put a drafted barrier in force.

        Raises LostRaceError if its prev epoch is not the committed one, or another barrier is in force there;
        BranchGoneError.
        """
        self.require_open()
        self._barriers.put_in_force(barrier)

    def supersede_barrier(self, barrier: Barrier, plan: BarrierPlan | PlanOfEpoch, epoch: int | None = None) -> Barrier:
        """Replace `barrier` by another attempt. Until one is committed, either can be.

        `epoch`: its number; None: a new one. In a branch, a new one is below that of a followed epoch. Requires of a
        followed epoch that no process can seal it, because its rows or its files fail.

        Raises LostRaceError if the epoch is already committed, or another attempt has already superseded `barrier`.
        """
        return self._barriers.supersede_barrier(barrier, plan, epoch)

    def moment_now(self) -> int:
        """The current time as the moment of a barrier, in Unix microseconds."""
        return self._clock_ms() * 1000

    # --- commits

    def seal_epoch(self, manifest: SealedManifest) -> SealedManifest:
        """Write the manifest of an epoch.

        Nothing becomes visible. Returns the manifest that counts, the first one sealed.

        Two drivers of the same barrier may both seal; both get the first manifest.

        Requires: all SSTs of the manifest are in the bucket.
        Raises LostRaceError if another barrier has this epoch, which requires a clock set back to the very millisecond;
        SettingError if an SST's name does not contain the epoch.
        """
        prefix = data_prefix(manifest.epoch)
        if stray := [sst.name for sst in manifest.ssts if not sst.name.startswith(prefix)]:
            raise SettingError(
                f"the name of an SST of epoch {manifest.epoch}",
                repr(stray[0]),
                f"one below {prefix}, because vacuum relies on it",
            )
        name = manifest_name(manifest.epoch)
        if self.objects.put_if_absent(name, encode_document(manifest)):
            return manifest
        first_manifest = require_document(self.objects, name, SealedManifest)
        if (first_manifest.prev_epoch, first_manifest.attempt) != (manifest.prev_epoch, manifest.attempt):
            attempt = f"attempt {first_manifest.attempt} after epoch {first_manifest.prev_epoch}"
            other = f"writer {first_manifest.writer!r} sealed it for {attempt}"
            raise LostRaceError(
                f"sealing epoch {manifest.epoch} (attempt {manifest.attempt} after epoch {manifest.prev_epoch})", other
            )
        return first_manifest

    def read_manifest(self, epoch: int) -> SealedManifest | None:
        """The sealed manifest of an epoch, or None if it is not sealed yet."""
        return read_document(self.objects, manifest_name(epoch), SealedManifest)

    def epoch_digest(self, epoch: int) -> str | None:
        """A hash that distinguishes a committed epoch from epochs with the same number in other histories.

        It is the hash of the sealed manifest, which names the writer. None if readers cannot name the epoch here, or
        its manifest is lost. Two drivers that finish the same sealed epoch, one of them in a copy of the store, commit
        the same rows and get the same digest.

        Cost: two GETs.
        """
        if epoch not in self.read_latest().epochs:
            return None
        try:
            return hash_of(self.objects.get(manifest_name(epoch)))
        except ObjectNotFoundError:
            return None

    def has_epoch(self, epoch: int) -> bool:
        """Whether this store has committed an epoch, readable or not. A restored copy lacks the epochs after the copy.

        Cost: two requests, and another if readers cannot name the epoch; some more if its deltas are packed.
        """
        return self._is_committed(self.read_latest(), epoch)

    def commit_epoch(self, manifest: SealedManifest) -> AppendResult:
        """Make a sealed epoch durable, and readable by its number.

        Returns a version that contains it, and whether this call committed it. Does nothing if any process has
        committed it. Rebases on every change except another epoch.

        Requires: `manifest` came from `seal_epoch` or `read_manifest`.
        Raises LostRaceError if another epoch was committed onto its prev epoch.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if self._is_committed(version, manifest.epoch):
                return None
            if version.epoch != manifest.prev_epoch:
                winner = winner_over(self.objects, version, manifest.prev_epoch)
                raise LostRaceError(f"epoch {manifest.epoch} (after {manifest.prev_epoch})", winner)
            return change_of_manifest(manifest, version.catalog)

        return self._versions.append_change(decide)

    def publish(self, epoch: int, refused: Collection[int] | None = None) -> HummockVersion:
        """Show a committed epoch to readers by default. Does nothing if this or a later epoch is published.

        Args:
            refused: ids of relations whose rows in this epoch must stay hidden. They and the relations that read them
                are held back (statestore/meta/sight.py). Earlier holds that are not refused again end. None: no check
                ran, and current holds stay.

        Raises EpochNotCommittedError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if epoch < version.published:
                return None
            if epoch not in version.epochs:
                raise EpochNotCommittedError(epoch, version.epoch)
            held_relations = held_back(version, epoch, refused)
            return (
                None
                if (epoch, held_relations) == (version.published, version.held)
                else Published(epoch, held_relations)
            )

        return self._versions.append_change(decide).version

    def rescale(self, units: int) -> HummockVersion:
        """Spread the vnodes over `units` parallel units with as few moves as possible, for barriers from now on.

        Does nothing if the mapping already has this many units. Raises SettingError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if version.mapping.unit_count == units:
                return None
            return MappingChanged(remap_vnodes(version.mapping, units))

        return self._versions.append_change(decide).version

    def move_vnodes(self, planned: VnodeMapping, standing: VnodeMapping | None = None) -> HummockVersion:
        """Replace the mapping that `planned` was derived from, which has the id before it, for barriers from now on.

        Does nothing if `planned` is already in force.

        Args:
            standing: the mapping that must be in force; None: only its id is compared.

        Raises: LostRaceError if another mapping came between; SettingError.
        """

        def decide(version: HummockVersion) -> VersionChange | None:
            if version.mapping == planned:
                return None
            if version.mapping.id != planned.id - 1 or standing not in (None, version.mapping):
                raise LostRaceError(
                    f"the move of vnodes by mapping {planned.id}",
                    f"mapping {version.mapping.id}, of version {version.id} or earlier, is in force instead",
                )
            return MappingChanged(validate_mapping(planned, version.mapping.vnode_count))

        return self._versions.append_change(decide).version

    # --- compaction

    def open_compaction(self, plan: CompactionPlan, lease_ms: int = TASK_LEASE_MS) -> CompactionTask:
        """Reserve SSTs for a compaction task.

        No other task uses them or their key range until it is committed or closed.

        Raises LostRaceError if another task has reserved some, or they are not where `plan` expects. See
        meta/compaction.py.
        """
        return open_task(self._versions, self.writer, plan, self._clock_ms() + lease_ms)

    def commit_compaction(self, task: CompactionTask, outputs: Sequence[SstInfo]) -> AppendResult:
        """Replace the inputs by the outputs. Returns a version with the result, and whether this call committed it.

        Does nothing if any process has committed the task.

        Requires: every output is in the bucket below `task_prefix(task.id)`, or is one of the inputs.
        Raises LostRaceError if the task was closed.
        """
        return commit_task(self._versions, task, tuple(outputs))

    def close_compaction(self, task_id: int, reason: str) -> HummockVersion:
        """End an open task without effect, ours or another's.

        Its commit is refused from then on. Ignores closed tasks.
        """
        return close_task(self._versions, task_id, reason)

    def renew_compactions(
        self, tasks: Sequence[CompactionTask], lease_ms: int = TASK_LEASE_MS
    ) -> tuple[CompactionTask, ...]:
        """Renew the leases of running tasks.

        Returns the tasks that are still open, with their leases, for the next renewal.

        Call it often: it sends no request until a third of one lease is over, and then writes one delta for all tasks.
        """
        now = self._clock_ms()
        if all(now < task.expires_ms - lease_ms + lease_ms // 3 for task in tasks):
            return tuple(tasks)
        return renew_tasks(self._versions, {task.id for task in tasks}, now + lease_ms)

    def close_lapsed_compactions(self) -> tuple[int, ...]:
        """Close tasks whose leases have expired by our clock, so that their inputs can be compacted.

        Returns their ids.
        """
        return close_lapsed(self._versions, self._clock_ms())

    def move_ssts(self, plan: CompactionPlan) -> HummockVersion:
        """Move SSTs down unchanged. Raises LostRaceError under the conditions of `open_compaction`."""
        return move_ssts(self._versions, plan)

    # --- readers and the floor

    def readable_epochs(self) -> tuple[HummockVersion, tuple[int, ...]]:
        """The newest version, and the epochs that compaction must preserve for readers, ascending. Lists pins."""
        version = self.read_latest()
        return version, readable_epochs(version, self.pinned_epochs())

    def pin_epoch(self, epoch: int, lease_ms: int = LEASE_MS, onward: bool = False, reader: str = "") -> Pin:
        """Keep `epoch` readable on `pinned_version` until `unpin`, or until its lease expires and the floor is raised.

        Args:
            onward: also keep objects that later epochs upload, even if compaction has removed them from every version.
            reader: the beginning of the holder's name, for a reader that outlives its process.

        Raises EpochNotCommittedError, EpochExpiredError.
        Cost: three requests, and two more for each compaction that is committed meanwhile.
        """
        return self._readers.pin_epoch(epoch, lease_ms, onward, reader)

    def version_when(self, epoch: int) -> HummockVersion:
        """The newest version whose committed epoch was `epoch`: its catalog, moment and row counts.

        In a branch, the parent's log has the versions of epochs before the branch.

        Raises EpochNotCommittedError; EpochExpiredError if it is not readable. Cost: a binary search of the log.
        """
        origin, newest = self.settings.origin, self.read_latest()
        if origin is None or epoch >= origin.epoch:
            return branches.version_of_epoch(self._versions, newest, epoch)
        check_readable(newest, epoch)
        return branches.find_version(self.parent._versions, origin.version, epoch)

    def pinned_version(self, pin: Pin) -> HummockVersion:
        """The version for reading `pin.epoch`: its SSTs stay as long as the pin."""
        return self._versions.read_version(pin.version)

    def version_at(self, epoch: int) -> HummockVersion:
        """The version for reading an epoch: the newest one, or the version of a pin if the epoch is below the floor.

        The SSTs of a pinned version stay as long as the pin.

        Raises EpochNotCommittedError; EpochExpiredError if no pin protects the epoch.
        Cost: below the floor a LIST, and one GET per pin on the epoch.
        """
        return self._readers.version_at(epoch)

    def open_for_reading(self, epoch: int, lease_ms: int = LEASE_MS) -> AbstractContextManager[HummockVersion]:
        """A version for reading `epoch`, whose SSTs stay for the duration of the block despite compaction and vacuum.

        A process with read-only access, or of a full store, reads without a pin; see Readers.open_for_reading.

        Warns: UnpinnedReadWarning in that case.
        Raises EpochNotCommittedError, EpochExpiredError. Cost: one pin, four requests in all.
        """
        return self._readers.open_for_reading(epoch, lease_ms)

    @contextmanager
    def reading_published(self) -> Iterator[tuple[int, HummockVersion]]:
        """As `open_for_reading`, for the published epoch, which this yields with the version.

        If that epoch expires before it is pinned, a later one has been published and is read instead.
        """
        while True:
            epoch = self.read_latest().published
            with ExitStack() as stack:
                try:
                    version = stack.enter_context(self.open_for_reading(epoch))
                except EpochExpiredError:
                    if self.read_latest().published == epoch:
                        raise
                    continue
                yield epoch, version
                return

    def renew_lease(self, pin: Pin, lease_ms: int = LEASE_MS) -> Pin:
        """Replace `pin_epoch` by a pin on the same epoch and version with a new lease.

        Raises PinLapsedError if a process that raised the floor found the lease expired.
        """
        return renew_pin(self.objects, pin, self._clock_ms() + lease_ms)

    def unpin(self, pin: Pin) -> None:
        """Remove a pin. Idempotent."""
        drop_pin(self.objects, pin)

    def all_pins(self) -> tuple[Pin, ...]:
        """List all pins by epoch. Pins with expired leases count until the floor is raised."""
        return list_pins(self.objects)

    def pinned_epochs(self) -> tuple[int, ...]:
        """The pinned epochs, ascending. Lists the pins."""
        return tuple(sorted({pin.epoch for pin in self.all_pins()}))

    def apply_retention(self, keep_epochs: int = 1, keep_ms: int = 0) -> HummockVersion:
        """Raise the floor as far as both limits allow; see `retained_floor`. Raises SettingError."""
        return self.raise_floor(retained_floor(self.read_latest(), keep_epochs, keep_ms, self._clock_ms()))

    def raise_floor(self, epoch: int) -> HummockVersion:
        """Stop new readers below `epoch`, remove pins with expired leases, and forget relations that no reader can see.

        The floor never exceeds an epoch that readers see, and never goes back. After this call, compaction may drop
        older rows except the rows of `pinned_epochs`. Lists pins.

        Nor does it exceed the epoch to which an open barrier returns.

        Raises EpochNotCommittedError if `epoch` is above the published one.
        """
        barrier = self.open_barrier()
        if barrier is not None and barrier.mutation.undo is not None:
            epoch = min(epoch, barrier.mutation.undo.to)
        return raise_floor(self.objects, self._versions, epoch, self._clock_ms())

    # --- branches

    @property
    def follows(self) -> bool:
        """Whether this is a branch that takes its parent's epochs."""
        return self.settings.origin is not None and self.settings.origin.follows

    @property
    def parent(self) -> "MetaStore":
        """The parent of a branch, to read. Requires: this is a branch."""
        assert isinstance(self.objects, BranchObjects)
        return MetaStore(self.objects.parent, self.writer, self._clock_ms)

    def require_open(self) -> None:
        """Raise BranchGoneError if this is a branch that has ended, so that its objects go.

        Cost: the parent's newest version; none for a store that is no branch.
        """
        if (origin := self.settings.origin) is not None:
            branches.require_open(self.parent.read_latest(), origin)

    def read_deltas(self, first: int, last: int) -> Iterator[VersionDelta]:
        """The deltas of the versions `first` to `last`, which exists. Raises DamagedDocumentError."""
        return self._versions.read_deltas(first, last)

    def open_branch(
        self,
        name: str,
        keep_ms: int = KEEP_MS,
        epoch: int | None = None,
        id: str | None = None,
        *,
        follows: bool = True,
    ) -> "MetaStore":
        """Begin a branch at a readable epoch, the committed one by default, and open it.

        Copies nothing; see meta/branch.py.

        Args:
            id: the same in a repeated call, which then finds its branch.
            follows: it takes the epochs of this store, and no other input than statements on views.

        Raises: BranchExistsError, BranchedBranchError, EpochMergedError, SettingError; EpochNotCommittedError,
            EpochExpiredError.
        Cost: a delta, a PUT and a GET; for an older epoch also a search in the log.
        """
        if self.settings.origin is not None:
            raise BranchedBranchError(self.settings.origin.name)
        times = self._clock_ms(), keep_ms
        number = id or f"{self.writer}/{next(self._pin_numbers)}"
        return self._at_branch(branches.open_branch(self._versions, number, name, times, epoch, follows=follows))

    def branch_or_new(
        self, name: str, keep_ms: int = KEEP_MS, epoch: int | None = None, *, follows: bool = True
    ) -> "MetaStore":
        """Open a branch, which begins now unless it exists. Several processes may do so at once.

        Args and errors: as open_branch, except BranchExistsError.
        """
        try:
            return self.branch(name)
        except BranchGoneError:
            pass
        try:
            return self.open_branch(name, keep_ms, epoch, follows=follows)
        except BranchExistsError:  # another process was faster
            return self.branch(name)

    def branch(self, name: str) -> "MetaStore":
        """Open an existing branch. Raises BranchGoneError."""
        return self._at_branch(branches.find_branch(self.read_latest(), name))

    def end_branch(self, name: str, reason: str = "ended by its user") -> HummockVersion:
        """End a branch: vacuum may remove its objects. Raises BranchGoneError."""
        return branches.end_branch(self._versions, name, reason)

    def end_lapsed_branches(self) -> tuple[str, ...]:
        """End the branches whose age has come by our clock. Returns their names."""
        return branches.end_lapsed_branches(self._versions, self._clock_ms())

    def _at_branch(self, branch: Branch) -> "MetaStore":
        return MetaStore(branches.objects_of_branch(self.objects, branch), self.writer, self._clock_ms)

    @cached_property
    def _first_version(self) -> HummockVersion:
        return branches.first_version(self.objects, self.settings)

    # --- the log of DML and DDL

    def append_log(
        self,
        client_id: str,
        statement: bytes,
        expected: int | None = None,
        since: int | None = None,
        *,
        is_new: bool = False,
    ) -> int:
        """Append a bound statement (one JSON value) durably; return its position. See StatementLog.append_statement."""
        return self._log.append_statement(client_id, statement, self._log_seen, expected, since, is_new)

    def logged_position(self, client_id: str, since: int | None = None) -> int | None:
        """The position of the statement that was appended under a client id, or None. `since`: as of the append."""
        return self._log.position_of(client_id, since)

    def read_log(self, start: int, end: int) -> list[LogEntry]:
        """Read positions `start` to `end`-1, in order. Raises DamagedDocumentError."""
        return self._log.read_entries(start, end)

    def log_end(self) -> int:
        """The current number of entries: the log end that a barrier injected now would pin."""
        seen, glances = self._versions.newest_seen, self._versions.current_glances
        known = self._log_seen if seen is None else seen.log_end
        return self._log.find_end(known, looks=glances is None or seen is None or glances.first != seen.id)

    def put_payload(self, data: bytes) -> str:
        """Store data that is too large for a log entry, and return its object name."""
        return self._log.put_payload(data)

    # --- inside

    @cached_property
    def _log_seen(self) -> int:
        """Committed entries when this process first looked. Probing starts there; the log remembers later ends."""
        return self.read_latest().log_end

    def _is_committed(self, version: HummockVersion, epoch: int) -> bool:
        if epoch in version.epochs or epoch == 0:
            return True
        if epoch > version.epoch:
            return False
        # The version does not list epochs that readers can no longer name. But barriers exist only on committed epochs,
        # and vacuum removes barriers only on epochs whose deltas are packed.
        return self._barriers.in_force(epoch) is not None or self._versions.has_packed_epoch(epoch)
