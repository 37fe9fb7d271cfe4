"""Merges a following branch into its parent: the parent adopts the relations that the branch has built.

The merge is an epoch of the parent without input. Its barrier adds the branch's relations, with the ids and tables that
they have, and ends the relations that they replace. Its SSTs have the rows of the branch's state tables as of the epoch
at which both stand. No view is computed.

    before the barrier    nothing has happened
    after it              the merge repeats and adopts, or any other run computes the same relations from their inputs,
                          because the barrier looks like any change of views
    after the commit      the parent has the relations; the branch is of no more use, and ends
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tussock.jobs.barriers.barrier import mutation_of
from tussock.jobs.barriers.follow import epochs_of_parent
from tussock.jobs.catalog.definition import in_order
from tussock.jobs.settings.deployed import FileChange
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.ingest import DEFAULT_TARGET_BYTES, batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import Catalog, Relation
from tussock.statestore.meta.manifest import RowCounts, manifest_of
from tussock.statestore.meta.names import data_prefix, hash_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo
from tussock.statestore.progress import Progress, no_progress
from tussock.statestore.stacked import count_bytes
from tussock.statestore.table.storage_table import StorageTable

log = logging.getLogger(__name__)


class CannotMergeError(InputError):
    """A branch cannot be merged now. Nothing was changed."""

    branch: str
    reason: str

    def __str__(self) -> str:
        return f"branch {self.branch!r} cannot be merged: {self.reason}. Nothing was changed."


@dataclass(frozen=True, slots=True)
class Merge:
    """The effect of a merge.

    Args:
        adopted: the relations that the parent gets, each after its inputs.
        ended: the relations of the parent that they replace, or that the branch dropped.
        schemas: the schemas that the parent gets, and those that it loses.
        rows: stored rows of the adopted relations, by name; omits relations that were not counted.
        digest: of the branch, its relations and their definitions, and of the pipeline's files, for an approval. It
            stays the same while the branch follows its parent, so an approval may take its time.
        files: the suites and sinks that differ from those of the parent's last deployment.
    """

    branch: str
    epoch: int
    adopted: tuple[Relation, ...]
    ended: tuple[Relation, ...]
    schemas: tuple[tuple[str, ...], tuple[str, ...]]
    rows: dict[str, int]
    digest: str
    files: tuple[FileChange, ...] = ()

    @property
    def changes_parent(self) -> bool:
        """Whether the merge has an effect."""
        return bool(self.adopted or self.ended or any(self.schemas))


def plan_merge(branch: MetaStore) -> Merge:
    """Return the effect of merging a branch into its parent. Changes nothing.

    Raises CannotMergeError unless the branch follows the parent and both stand at one epoch, without waiting statements
    and without an open barrier of the branch.
    """
    origin, parent = branch.settings.origin, branch.parent
    assert origin is not None
    mine, theirs = branch.read_latest(), parent.read_latest()
    ids = own_ids(mine.catalog)
    adopted = tuple(r for r in mine.catalog.live_relations() if r.id in ids)
    ended: tuple[Relation, ...] = ()
    if not _has_adopted(theirs, adopted):
        _require_mergeable(branch, mine, parent, theirs)
        # At one epoch, the branch lacks only relations that it has ended. Its catalog may have forgotten them since.
        live_ids = {r.id for r in mine.catalog.live_relations()}
        ended = tuple(r for r in theirs.catalog.live_relations() if r.id not in live_ids)
    schemas = _names_only_in(mine.catalog, theirs.catalog), _names_only_in(theirs.catalog, mine.catalog)
    rows = {r.name: mine.rows[r.id] for r in adopted if r.id in mine.rows}
    live = [r.id for r in mine.catalog.live_relations()]
    facts = origin.number, live, [bytes(r.definition) for r in adopted], mine.catalog.schemas
    digest = hash_of(msgspec.msgpack.encode(facts))[:16]
    return Merge(origin.name, mine.epoch, adopted, ended, schemas, rows, digest)


def _names_only_in(one: Catalog, other: Catalog) -> tuple[str, ...]:
    """The schemas that only the first catalog has."""
    return tuple(name for name in one.schemas if name not in other.schemas)


def was_adopted(branch: MetaStore) -> bool:
    """Return whether the parent has the relations of the branch: a merge was killed before it ended the branch."""
    mine = branch.read_latest().catalog
    ids = own_ids(mine)
    return _has_adopted(branch.parent.read_latest(), [r for r in mine.live_relations() if r.id in ids])


def _require_mergeable(branch: MetaStore, mine: HummockVersion, parent: MetaStore, theirs: HummockVersion) -> None:
    """Raise CannotMergeError unless both stand at one epoch, and nothing waits."""
    origin = branch.settings.origin
    assert origin is not None
    if not origin.follows:
        raise CannotMergeError(
            origin.name,
            "it takes its own input, so its rows are not the parent's. Apply the branch's files to the parent instead",
        )
    if (
        branch.log_end() > mine.log_end
        or branch.barrier_after(mine.epoch) is not None
        or next(epochs_of_parent(branch, mine), None) is not None
    ):
        reason = f"it is behind its parent. Run `tussock epoch --branch {origin.name}` first"
        raise CannotMergeError(origin.name, reason)
    if parent.log_end() > theirs.log_end:
        raise CannotMergeError(origin.name, "statements wait in the parent's log. Run `tussock epoch` first")
    if mine.catalog.builds or theirs.catalog.builds:
        raise CannotMergeError(origin.name, "a view is being built over several epochs. Run epochs until it is built")


def merge_branch(branch: MetaStore, merge: Merge, progress: Progress = no_progress) -> HummockVersion:
    """Let the parent adopt the branch's relations, as one epoch, and return its version. Publishes nothing.

    A repeated call continues an interrupted one.

    Raises: CannotMergeError if the parent has an open barrier of another run, or if one of both has another epoch since
        `merge`; LostRaceError; errors of the object store.
    Cost: reads and writes the state of the adopted relations. Memory: a few SSTs.
    """
    parent = branch.parent
    mine, version = branch.read_latest(), parent.read_latest()
    if _has_adopted(version, merge.adopted) or not merge.changes_parent:
        return version
    _require_mergeable(branch, mine, parent, version)  # again: an epoch may have been committed since it was planned
    if mine.epoch != merge.epoch:
        raise CannotMergeError(
            merge.branch, f"it has taken epochs since the merge was planned at {merge.epoch}. Merge it again"
        )

    def plan_barrier(epoch: int) -> BarrierPlan:
        catalog = _catalog_after(version.catalog, mine.catalog, merge, epoch)
        return BarrierPlan(
            mapping=version.mapping,
            log_end=version.log_end,
            catalog=catalog,
            mutation=mutation_of(version.catalog, catalog, rescaled=False),
            run={"merge": merge.digest},
            moment=version.moment,
            by_intervals=version.by_intervals,
        )

    barrier = parent.inject_barrier(version.epoch, plan_barrier)
    if barrier.run.get("merge") != merge.digest:
        raise CannotMergeError(merge.branch, "another run of the parent is under way. Run `tussock epoch` first")
    sealed = parent.read_manifest(barrier.epoch)
    if sealed is None:
        progress(f"epoch {barrier.epoch}: adopting {len(merge.adopted)} relations of branch {merge.branch}")
        ssts = tuple(_copy_rows(branch, mine, parent, merge.adopted, barrier.epoch))
        counted = len(merge.rows) == sum(bool(r.state_tables) for r in merge.adopted)
        counts = {name: RowCounts(0, 0, rows) for name, rows in merge.rows.items()} if counted else None
        sealed = parent.seal_epoch(manifest_of(barrier, parent.writer, ssts, counts, ran="adopted from a branch"))
    committed = parent.commit_epoch(sealed).version
    log.info("branch %s was merged as epoch %d, version %d", merge.branch, barrier.epoch, committed.id)
    return committed


def _has_adopted(version: HummockVersion, relations: Sequence[Relation]) -> bool:
    """Whether the parent has these relations of the branch: an earlier call, or a run of its barrier, added them."""
    live = {r.id for r in version.catalog.live_relations()}
    return bool(relations) and all(r.id in live for r in relations)


def _catalog_after(theirs: Catalog, mine: Catalog, merge: Merge, epoch: int) -> Catalog:
    ended = {r.id for r in merge.ended}
    relations = [msgspec.structs.replace(r, dropped=epoch) if r.id in ended else r for r in theirs.relations]
    adopted = [msgspec.structs.replace(r, created=epoch) for r in merge.adopted]
    return in_order(
        msgspec.structs.replace(theirs, relations=(*relations, *adopted), zones=mine.zones, schemas=mine.schemas)
    )


def _copy_rows(
    branch: MetaStore, mine: HummockVersion, parent: MetaStore, relations: Sequence[Relation], epoch: int
) -> Iterator[SstInfo]:
    """Write the rows of all state tables of relations as SSTs of an epoch of the parent, about one SST at a time."""
    batches: list[SealedBatch] = []
    size = 0
    for batch in _rows_of(branch, mine, relations):
        batches.append(batch)
        size += count_bytes(batch.rows)
        if size >= DEFAULT_TARGET_BYTES:
            yield from batch_ingest(parent.objects, batches, epoch, data_prefix(epoch))
            batches, size = [], 0
    if batches:
        yield from batch_ingest(parent.objects, batches, epoch, data_prefix(epoch))


def _rows_of(branch: MetaStore, mine: HummockVersion, relations: Sequence[Relation]) -> Iterator[SealedBatch]:
    """The rows of state tables at the branch's epoch. Tables ascend, and so do the keys of a table."""
    store = HummockStore(branch.objects, mine, process_cache())
    vnodes = mine.mapping.vnode_count
    for schema in sorted((t for r in relations for t in r.state_tables), key=lambda table: table.table_id):
        table = StorageTable(schema, store, mine.epoch, vnodes)
        for keyed in table.read_range(*table.layout.range_of(0, vnodes)):
            puts = pa.repeat(pa.scalar(1, pa.uint8()), keyed.num_rows)
            columns = keyed.columns[0].cast(pa.binary()), puts, *keyed.columns[1:]
            names = ["key", "op", *keyed.column_names[1:]]
            yield SealedBatch(schema.table_id, pa.table(list(columns), names=names))
