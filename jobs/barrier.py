"""Barriers: what the next epoch takes in, and the ways out when an input can't be taken. Needs no Spark."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from jobs.plan.definition import Replayed, SourceDefinition, apply_log, apply_statement, definition_of, find
from jobs.reader import open_table
from jobs.sources.errors import MissingPathError
from jobs.sources.listing import Interval, ListedFile, has_interval, list_files
from jobs.sources.taken import pin_files
from jobs.sql.statements import Drop, Statement
from statestore.errors import InputError
from statestore.meta.barrier import Barrier, BarrierPlan, Mutation, PinnedFile
from statestore.meta.catalog import Catalog, Relation
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion

MAX_EPOCH_BYTES = 8 << 30

_statement = msgspec.json.Decoder(Statement)


class NothingToAbandonError(InputError):
    """There is no open barrier, or nothing was said that changes it."""

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(epoch, reason)
        self.epoch, self.reason = epoch, reason

    def __str__(self) -> str:
        return f"nothing to abandon after epoch {self.epoch}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a superseding barrier does differently.

    Args:
        skip_files: paths not to read; they count as taken.
        repin_files: paths to take as they are now.
        skip_entries: positions of log entries not to replay.
        drop: relations to drop, with everything that reads them.
    """

    skip_files: tuple[str, ...] = ()
    repin_files: tuple[str, ...] = ()
    skip_entries: tuple[int, ...] = ()
    drop: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.skip_files or self.repin_files or self.skip_entries or self.drop)


def inject(
    meta: MetaStore, interval: Interval | None = None, max_epoch_bytes: int = MAX_EPOCH_BYTES, run: Mapping[str, str] | None = None
) -> Barrier | None:
    """Pin the log's end and the new files of every source, and put the barrier in force; an open barrier is answered as it is.

    None where nothing waits: no new file, no statement. An idle pipeline costs its listings and no commit.

    Args:
        interval: of the run; sources whose path is a template take that interval's files only.
        max_epoch_bytes: of source files in one epoch; the rest is left to later epochs.
        run: what the barrier is for, kept with it (e.g. the data interval).

    Raises: MissingPathError, ChangedFileError, and errors of the object store. Nothing is in force then.
    Cost: one listing per source, one scan of what each has taken. No LIST in the store itself.
    """
    if (held := meta.open_barrier()) is not None:
        return held
    version = meta.latest()
    pinning = _Pinning(meta, version, Change(), interval, max_epoch_bytes, dict(run or {}))
    if not pinning.waiting():
        return None
    return meta.inject_barrier(version.epoch, pinning.plan)


def abandon(meta: MetaStore, change: Change) -> Barrier:
    """Supersede the open barrier by one that goes around what can't be taken; where none is open (a changed file stops the listing
    already), inject one that does. Nothing committed is touched, and what is not named is taken as before.

    Raises: NothingToAbandonError; InputError where a name is unknown.
    """
    version = meta.latest()
    held = meta.open_barrier()
    if not change:
        raise NothingToAbandonError(version.epoch, "say what to go around: a file to skip or re-pin, a log entry to skip, a view to drop")
    if held is None:
        return meta.inject_barrier(version.epoch, _Pinning(meta, version, change, None, MAX_EPOCH_BYTES, {}).plan)
    _require_known(change, held)

    def plan(epoch: int) -> BarrierPlan:
        entries = tuple(sorted({*held.skipped_entries, *change.skip_entries}))
        catalog = _dropped(replay(meta, version, held.log_start, held.log_end, entries, epoch).catalog, change.drop, epoch)
        live = {r.id for r in catalog.live()}
        files = {r: tuple(_repinned(f, change) for f in pinned if f.path not in change.skip_files) for r, pinned in held.splits.items()}
        skipped = {r: tuple(f for f in pinned if f.path in change.skip_files) for r, pinned in held.splits.items()}
        for relation, earlier in held.skipped_files.items():
            skipped[relation] = (*earlier, *skipped.get(relation, ()))
        return BarrierPlan(
            mapping=held.mapping,
            log_end=held.log_end,
            splits={r: f for r, f in files.items() if r in live and f},
            catalog=None if catalog == version.catalog else catalog,
            mutation=_mutation(version.catalog, catalog),
            run=held.run,
            skipped=(*held.skipped, *_told(change)),
            skipped_files={r: f for r, f in skipped.items() if r in live and f},
            skipped_entries=entries,
        )

    return meta.supersede_barrier(held, plan)


def replay(meta: MetaStore, version: HummockVersion, start: int, end: int, skipped: Collection[int], epoch: int) -> Replayed:
    """The log's entries from `start` to before `end` applied to the version's catalog, but for the skipped positions."""
    kept = [e for e in meta.read_log(start, end) if e.position not in skipped]
    replayed = apply_log(version.catalog, [_statement.decode(e.statement) for e in kept], epoch)
    changes = {r: [(kept[i].position, s) for i, s in rows] for r, rows in replayed.changes.items()}
    return Replayed(replayed.catalog, changes, tuple((kept[i].position, why) for i, why in replayed.rejected))


def pending_catalog(meta: MetaStore, version: HummockVersion) -> Catalog:
    """The catalog as it will be once all that is in the log has been taken; statements are bound and checked against it."""
    return replay(meta, version, version.log_end, meta.log_end(), (), version.epoch + 1).catalog


@dataclass(frozen=True, slots=True)
class _Pinning:
    """Decides what a new barrier takes in."""

    meta: MetaStore
    version: HummockVersion
    change: Change
    interval: Interval | None
    max_epoch_bytes: int
    run: dict[str, str]

    def waiting(self) -> bool:
        """Whether there is anything to take in."""
        return self.meta.log_end() > self.version.log_end or bool(self.plan(self.version.epoch + 1).splits)

    def plan(self, epoch: int) -> BarrierPlan:
        version, change = self.version, self.change
        log_end = self.meta.log_end()
        replayed = replay(self.meta, version, version.log_end, log_end, change.skip_entries, epoch)
        catalog = _dropped(replayed.catalog, change.drop, epoch)
        splits: dict[int, tuple[PinnedFile, ...]] = {}
        skipped: dict[int, tuple[PinnedFile, ...]] = {}
        left = self.max_epoch_bytes
        for relation in catalog.live():
            if relation.kind == "source" and (files := self._pin(relation, left)):
                splits[relation.id] = tuple(f for f in files if f.path not in change.skip_files)
                skipped[relation.id] = tuple(f for f in files if f.path in change.skip_files)
                left = max(0, left - sum(f.size for f in splits[relation.id]))
        rejected = tuple(f"log entry {position}: {why}" for position, why in replayed.rejected)
        return BarrierPlan(
            mapping=version.mapping,
            log_end=log_end,
            splits={r: f for r, f in splits.items() if f},
            catalog=None if catalog == version.catalog else catalog,
            mutation=_mutation(version.catalog, catalog),
            run=self.run,
            skipped=(*_told(change), *rejected),
            skipped_files={r: f for r, f in skipped.items() if f},
            skipped_entries=change.skip_entries,
        )

    def _pin(self, relation: Relation, max_bytes: int) -> tuple[PinnedFile, ...]:
        definition = definition_of(relation)
        assert isinstance(definition, SourceDefinition)
        options = definition.statement.options
        path = options["path"]
        listed: Sequence[ListedFile]
        try:
            listed = list_files(path, options, self.interval)
        except MissingPathError:
            if self.interval is None or not has_interval(path):
                raise
            return ()  # the interval has no files (yet); late ones come with a later run of it
        new = relation.created > self.version.epoch
        taken = None if new else open_table(self.meta.objects, self.version, relation.state_tables[0])
        return pin_files(listed, taken, max_bytes, accept_changed=self.change.skip_files)


def _dropped(catalog: Catalog, names: Sequence[str], epoch: int) -> Catalog:
    for name in names:
        catalog = apply_statement(catalog, Drop(find(catalog, name).kind, name, cascade=True), epoch)
    return catalog


def _mutation(before: Catalog, after: Catalog) -> Mutation:
    live_before, live_after = {r.id for r in before.live()}, {r.id for r in after.live()}
    if added := live_after - live_before:
        return Mutation("add", tuple(sorted(added)))
    if gone := live_before - live_after:
        return Mutation("stop", tuple(sorted(gone)))
    return Mutation()


def _told(change: Change) -> tuple[str, ...]:
    parts = {"skipped file": change.skip_files, "re-pinned file": change.repin_files, "dropped": change.drop}
    told = tuple(f"{what} {name}" for what, names in parts.items() for name in names)
    return (*told, *(f"skipped log entry {position}" for position in change.skip_entries))


def _repinned(file: PinnedFile, change: Change) -> PinnedFile:
    if file.path not in change.repin_files:
        return file
    (now,) = list_files(file.path, {})
    return msgspec.structs.replace(file, size=now.size, etag=now.etag)


def _require_known(change: Change, held: Barrier) -> None:
    pinned = sorted(f.path for files in held.splits.values() for f in files)
    for path in (*change.skip_files, *change.repin_files):
        if path not in pinned:
            raise NothingToAbandonError(held.prev_epoch, f"the open barrier pins no file {path!r}; it pins {', '.join(pinned) or 'none'}")
    for position in change.skip_entries:
        if not held.log_start <= position < held.log_end:
            raise NothingToAbandonError(
                held.prev_epoch, f"the open barrier takes log entries {held.log_start} to {held.log_end - 1}, not {position}"
            )
