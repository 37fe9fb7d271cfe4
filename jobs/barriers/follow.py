"""The epochs that a branch takes from its parent.

A following branch has two kinds of epochs. One takes the branch's statements on views, and no other input; its number
lies between two epochs of the parent. The other takes an epoch of the parent, with its number:

    barrier   names the parent's version that committed the epoch (`follows`), and the parent's input of sources
    SSTs      the parent's SSTs of the epoch, by their names, and those of the branch's own relations
    schedule  the branch's own relations only; the relations of the parent that they read are replayed from the SSTs

So both stand at equal input, and a relation that the branch has not changed is stored once. The parent's catalog may
change in the epoch. Its changes are taken, unless the branch has changed or reads the same relation.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from tussock.jobs.barriers.barrier import take_in, take_log_instead
from tussock.jobs.barriers.epoch_plan import Base, EpochPlan
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.catalog.alter_table import move_columns
from tussock.jobs.catalog.definition import fragments_of, source_of
from tussock.jobs.catalog.schemas import schemas_of
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.logical.relation_names import schema_of
from tussock.jobs.schedule.schedule import make_followed_schedule
from tussock.jobs.sources.file_documents import takes_back
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.delta import EpochCommitted
from tussock.statestore.meta.manifest import RowCounts
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class BranchConflictError(InputError):
    """A branch cannot take an epoch of its parent."""

    branch: str
    epoch: int
    reason: str

    def __str__(self) -> str:
        return (
            f"branch {self.branch!r} cannot follow its parent to epoch {self.epoch}: {self.reason}. The branch keeps "
            f"its rows. End it with `tussock branch end {self.branch}`, create it again and apply its files."
        )


def next_of_branch(meta: MetaStore) -> Barrier | None:
    """The next barrier of a following branch: an open one, its waiting statements, or the parent's next epoch.

    Raises: BranchGoneError if the branch has ended, so that its objects go; BranchConflictError.
    Cost: opens the parent, and reads its deltas since the last followed epoch.
    """
    version = meta.read_latest()
    meta.require_open()
    if (standing := meta.barrier_after(version.epoch)) is not None:
        return standing
    if meta.log_end() > version.log_end:
        taken = take_in(meta, InputRequest(moment=version.moment))  # pins no source
        return None if taken is None else taken.barrier
    for number, change in epochs_of_parent(meta, version):
        return _follow_epoch(meta, version, number, change)
    return None


def lost_input_error(meta: MetaStore, barrier: Barrier, err: SourceFileError) -> BranchConflictError:
    """The error for input that the parent has read, and that cannot be read again."""
    finding = str(err).partition("\n")[0].rstrip(".")
    return BranchConflictError(_name_of(meta), barrier.epoch, f"its input cannot be read again: {finding}")


def take_correction(meta: MetaStore, failed: Barrier) -> bool:
    """Let the statements that wait go before an epoch that failed on a row, as they may correct the view.

    They get an epoch before the parent's, which is tried again after it. Returns whether there are such statements.
    """
    if meta.log_end() <= failed.log_end:
        return False
    version = meta.read_latest()
    barrier = meta.barrier_after(version.epoch)
    if barrier == failed:
        take_log_instead(meta, barrier, InputRequest(moment=version.moment))
    return True


def epochs_of_parent(meta: MetaStore, version: HummockVersion) -> Iterator[tuple[int, EpochCommitted]]:
    """The epochs that the parent has committed after the last followed one, with the parent's versions."""
    parent = meta.parent
    for delta in parent.read_deltas(version.followed + 1, parent.read_latest().id):
        if isinstance(delta.change, EpochCommitted):
            yield delta.id, delta.change


def _follow_epoch(meta: MetaStore, version: HummockVersion, number: int, change: EpochCommitted) -> Barrier:
    """Put the barrier in force that takes an epoch of the parent, which version `number` has committed."""
    if change.undoes:
        raise BranchConflictError(_name_of(meta), change.epoch, "in it, the parent went back to an earlier epoch")
    catalog = version.catalog
    if change.catalog is not None:
        before = meta.parent.read_version(number - 1).catalog
        catalog = _Merging(_name_of(meta), change.epoch, before, change.catalog, catalog).merge_catalogs()
    sources = _sources_read(catalog)
    input_of_parent = _input_of(meta, change) if sources else None
    for source in sources:
        document = None if input_of_parent is None else input_of_parent.splits.get(source.id)
        if document is not None and takes_back(document):
            reason = f"it replaces rows of source {source.name!r}, which views of the branch read"
            raise BranchConflictError(_name_of(meta), change.epoch, reason)
    ids = {source.id for source in sources}

    def of_sources(documents: Mapping[int, msgspec.Raw]) -> dict[int, msgspec.Raw]:
        return {id: document for id, document in documents.items() if id in ids}

    plan = BarrierPlan(
        mapping=version.mapping,
        log_end=version.log_end,
        splits={} if input_of_parent is None else of_sources(input_of_parent.splits),
        unread={} if input_of_parent is None else of_sources(input_of_parent.unread),
        by_spark={} if input_of_parent is None else {i: f for i, f in input_of_parent.by_spark.items() if i in ids},
        catalog=None if catalog == version.catalog else catalog,
        moment=change.moment,
        by_intervals=change.by_intervals,
        follows=number,
    )
    return meta.inject_barrier(version.epoch, plan, change.epoch)


def plan_followed(meta: MetaStore, base: Base, barrier: Barrier) -> EpochPlan:
    """Plan the epoch of a barrier that takes an epoch of the parent."""
    ((_, change),) = [
        (delta.id, delta.change)
        for delta in meta.parent.read_deltas(barrier.follows, barrier.follows)
        if isinstance(delta.change, EpochCommitted)
    ]
    catalog = base.version.catalog if barrier.catalog is None else barrier.catalog
    levels = base.version.levels
    version = msgspec.structs.replace(base.version, levels=((*change.ssts, *levels[0]), *levels[1:]))
    followed = Base(version, base.buffer, base.committed)
    counts = _counts_of(change, catalog)
    return EpochPlan(
        barrier, followed, catalog, make_followed_schedule(catalog, barrier.epoch), {}, change.ssts, counts
    )


def _counts_of(change: EpochCommitted, catalog: Catalog) -> Mapping[str, RowCounts] | None:
    """The rows that the parent's relations gained in the epoch; None if they were not counted."""
    if change.net is None:
        return None
    names = {r.id: r.name for r in catalog.stored_relations()}
    return {names[id]: RowCounts(0, 0, net) for id, net in change.net.items() if id in names}


def _sources_read(catalog: Catalog) -> list[Relation]:
    """The sources of the parent without rows of their own that relations of the branch read."""
    own = own_ids(catalog)
    read = {id for r in catalog.live_relations() if r.id in own for id in r.depends_on}
    others = (r for r in catalog.live_relations() if r.id in read and r.id not in own)
    return [r for r in others if source_of(r) is not None]


def _input_of(meta: MetaStore, change: EpochCommitted) -> Barrier:
    """The parent's barrier of an epoch. Raises BranchConflictError if vacuum has removed it."""
    barrier = meta.parent.barrier_after(change.prev_epoch)
    if barrier is None or barrier.epoch != change.epoch:
        raise BranchConflictError(_name_of(meta), change.epoch, "the parent no longer keeps the input of this epoch")
    return barrier


def _name_of(meta: MetaStore) -> str:
    assert meta.settings.origin is not None
    return meta.settings.origin.name


def _move_row_id(width: int, more: int, column: int) -> int:
    return column if column < width else column + more


def _columns_read(view: Relation, relation_id: int) -> set[int]:
    inputs = (input for fragment in fragments_of(view) for input in fragment.inputs)
    return {column for input in inputs if input.relation_id == relation_id for column in input.columns}


class _Merging:
    """The catalog of a branch after an epoch in which its parent's catalog changed."""

    def __init__(self, branch: str, epoch: int, before: Catalog, after: Catalog, mine: Catalog) -> None:
        self._branch, self._epoch = branch, epoch
        self._before, self._after, self._mine = before, after, mine

    def merge_catalogs(self) -> Catalog:
        """Each relation that only one of both has changed is as that one has it. Raises BranchConflictError."""
        old = {r.id: r for r in self._before.relations}
        mine = {r.id: r for r in self._mine.relations}
        theirs = [self._merge_relation(r, old.get(r.id), mine.get(r.id)) for r in self._after.relations]
        known = {r.id for r in self._after.relations}
        own = (self._adapt_reader(r) for r in self._mine.relations if r.id not in known)
        relations = [*(r for r in theirs if r is not None), *own]
        self._require_drops_untouched()
        self._require_builds_kept()
        catalog = msgspec.structs.replace(
            self._mine,
            relations=tuple(relations),
            builds=self._after.builds,  # only the parent's epochs advance builds
            zones=self._merge_zones(),
            schemas=self._merge_schemas(),
        )
        self._require_whole(catalog)
        return catalog

    def _merge_relation(self, theirs: Relation, old: Relation | None, mine: Relation | None) -> Relation | None:
        if mine is None:  # new in the parent, or dropped and forgotten here
            return theirs if old is None else None
        return theirs if mine == old else mine

    def _adapt_reader(self, view: Relation) -> Relation:
        """A relation of the branch, which reads the parent's relations as they are after the epoch."""
        before, after = ({r.id: r for r in c.relations} for c in (self._before, self._after))
        for read in view.depends_on if view.dropped is None and view.kind is RelationKind.VIEW else ():
            was, now = before.get(read), after.get(read)
            if was is None or now is None or was.columns == now.columns:
                continue
            width, more = len(was.columns), len(now.columns) - len(was.columns)
            for place in _columns_read(view, read):
                if 0 <= place < width and was.columns[place].type != now.columns[place].type:
                    column = now.columns[place].name
                    raise self._refusal(f"it changes the type of {now.name}.{column}, which {view.name!r} reads")
            if now.kind is RelationKind.TABLE:  # the row id of a table without a key comes after its columns
                view = move_columns(view, read, partial(_move_row_id, width, more))
        return view

    def _merge_zones(self) -> tuple[object, ...]:
        if self._after.zones == self._before.zones:
            return self._mine.zones
        if self._mine.zones not in (self._before.zones, self._after.zones):
            raise self._refusal("the parent and the branch have recorded other rules of time zones")
        return self._after.zones

    def _merge_schemas(self) -> tuple[str, ...]:
        before, after = set(self._before.schemas), set(self._after.schemas)
        return tuple(sorted((set(self._mine.schemas) - (before - after)) | (after - before)))

    def _require_drops_untouched(self) -> None:
        """Raise BranchConflictError if the parent changed a relation that the branch dropped."""
        mine, after = ({r.id: r for r in c.live_relations()} for c in (self._mine, self._after))
        names, known = {r.name for r in mine.values()}, {r.id for r in self._before.relations}
        new = {r.name for r in after.values() if r.id not in known}
        for old in self._before.live_relations():
            if old.id in mine or old.name in names:
                continue
            theirs = after.get(old.id)
            altered = theirs is not None and (theirs.name, theirs.columns) != (old.name, old.columns)
            if altered or old.name in new:
                raise self._refusal(f"the parent changed {old.name!r}, which the branch dropped")

    def _require_builds_kept(self) -> None:
        """Raise BranchConflictError if the branch has given up a build of the parent.

        Compaction of the branch may then have removed rows of the views under construction.
        """
        mine = {r.id for build in self._mine.builds for r in build.relations}
        for view in (r for build in self._before.builds for r in build.relations):
            if view.id not in mine:
                raise self._refusal(f"the branch changed {view.name!r} or its inputs while the parent was building it")

    def _require_whole(self, catalog: Catalog) -> None:
        live = catalog.live_relations()
        names = [r.name for r in live]
        for relation in live:
            if names.count(relation.name) > 1:
                raise self._refusal(f"the parent and the branch have both changed or created {relation.name!r}")
            schema = schema_of(relation.name)
            if schema not in schemas_of(catalog):
                who = "branch" if schema in self._after.schemas else "parent"
                raise self._refusal(f"the {who} dropped the schema {schema!r}, which has {relation.name!r}")
        ids, own = {r.id for r in live}, own_ids(self._mine)
        was = {r.id: r for c in (self._before, self._after) for r in c.relations}
        for relation in live:
            for read in relation.depends_on:
                if read not in ids:
                    who = "parent" if relation.id in own else "branch"
                    gone = was[read].name if read in was else str(read)
                    raise self._refusal(f"the {who} dropped or replaced {gone!r}, which {relation.name!r} reads")

    def _refusal(self, reason: str) -> BranchConflictError:
        return BranchConflictError(self._branch, self._epoch, reason)
