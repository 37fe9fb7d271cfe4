"""The barrier that returns a store to an earlier epoch: its relations, and the tables whose rows go back.

Its epoch is an ordinary one, whose rows are the difference (jobs/driver/undo.py). Its catalog is that of the earlier
epoch, with these differences:

    relations that came since then     are dropped
    relations that ended since then,   begin again under another id, with their state tables. Readers of the epochs
    tables with other columns then     between see the others, and readers of changes must see that these are new
    holds of sources, rules of zones   stay as they are
"""

from collections.abc import Mapping

import msgspec

from tussock.jobs.catalog.definition import (
    Definition,
    FunctionDefinition,
    PlainViewDefinition,
    TableDefinition,
    definition_of,
    encode_definition,
    in_order,
    source_of,
)
from tussock.jobs.reading.reader import open_table
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier, BarrierPlan, Mutation, MutationKind, Undo
from tussock.statestore.meta.catalog import Catalog, Relation, TableSchema
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_FILE_COLUMN = "unread"  # of the tables of taken files (jobs/sources/taken.py)


class CannotUndoError(InputError):
    """The store cannot return to an epoch. `remedy`: what to do instead, as a sentence."""

    epoch: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"The store cannot go back to epoch {self.epoch}: {self.reason}. Nothing was changed. {self.remedy}"


class UndoInputError(InputError):
    """Sources have taken input since the epoch to return to, and nothing decides what becomes of it."""

    epoch: int
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Since epoch {self.epoch}, the sources {', '.join(self.sources)} have taken input. Nothing was changed. "
            "Add `--input again` to take it again with the next epoch, or `--input taken` to leave it out."
        )


def inject_undo(meta: MetaStore, to: int, *, keeps_input: bool | None, run: Mapping[str, str]) -> Barrier:
    """Put the barrier in force that returns the store to epoch `to`.

    Args:
        keeps_input: as in `Undo`; None: not decided.
        run: facts about the run.

    A repetition returns the open barrier of an earlier call.

    Raises: CannotUndoError, UndoInputError; EpochNotCommittedError, EpochExpiredError; LostRaceError.
    Cost: a binary search of the version log, and the changes of the tables of taken input.
    """
    version = meta.read_latest()
    _require_quiet(meta, version, to)
    if (open_barrier := meta.barrier_after(version.epoch)) is not None:
        if open_barrier.mutation.undo is not None and open_barrier.mutation.undo.to == to:
            return open_barrier
        remedy = "Finish it with `tussock epoch`. Then undo again."
        raise CannotUndoError(to, "an epoch has begun and is not committed", remedy)
    before = meta.version_when(to)
    if took := _sources_with_input(meta, version, before, to):
        if keeps_input is None:
            raise UndoInputError(to, tuple(relation.name for relation in took))
        if keeps_input:
            _require_keepable(meta, version, took, to)

    def plan_barrier(epoch: int) -> BarrierPlan:
        catalog = restored_catalog(version.catalog, before.catalog, to, epoch)
        return BarrierPlan(
            mapping=version.mapping,
            log_end=version.log_end,
            catalog=None if catalog == version.catalog else catalog,
            mutation=Mutation(MutationKind.UNDO, undo=Undo(to, bool(keeps_input))),
            run=dict(run),
            moment=before.moment,
            by_intervals=before.by_intervals,
        )

    return meta.inject_barrier(version.epoch, plan_barrier)


def restored_catalog(now: Catalog, before: Catalog, to: int, epoch: int) -> Catalog:
    """The catalog of `epoch`, whose relations are those of epoch `to`."""
    current = {r.id: r for r in now.live_relations()}
    columns = _columns_by_table(now)
    wanted = [_with_retired(r, columns) for r in before.live_relations() if r.created <= to]
    ended = [r.id for r in wanted if r.id not in current or r.state_tables != current[r.id].state_tables]
    ids = {old: now.next_relation_id + i for i, old in enumerate(ended)}
    restored = {}
    for relation in wanted:
        at = _with_ids(relation, ids)
        if relation.id in ids:
            restored[at.id] = msgspec.structs.replace(at, created=epoch)
        else:
            restored[at.id] = msgspec.structs.replace(at, holds=current[relation.id].holds)
    others = [
        msgspec.structs.replace(r, dropped=epoch) if r.dropped is None else r
        for r in now.relations
        if r.id not in restored
    ]
    # The rows go back, so the rules by which they were computed do. Other rules stay, for statements to come.
    zones = {zone.name: zone for zone in (*now.zones, *before.zones)}
    catalog = msgspec.structs.replace(
        now,
        relations=(*others, *restored.values()),
        builds=(),
        next_relation_id=now.next_relation_id + len(ended),
        zones=tuple(zones[name] for name in sorted(zones)),
        schemas=before.schemas,
    )
    return in_order(catalog)


def restored_relations(catalog: Catalog, undo_epoch: int) -> tuple[Relation, ...]:
    """The relations whose rows go back in an epoch with this catalog."""
    return tuple(r for r in catalog.relations_at(undo_epoch) if r.state_tables)


def taken_table_of(relation: Relation) -> TableSchema | None:
    """The table of a source's taken input; None for other relations."""
    return relation.state_tables[0] if source_of(relation) is not None else None


def records_files(table: TableSchema) -> bool:
    """Whether a table of taken input has a row per file."""
    return any(column.name == _FILE_COLUMN for column in table.columns)


def _columns_by_table(catalog: Catalog) -> dict[int, set[str]]:
    """The names of all columns that rows of a table contain, by its id."""
    names: dict[int, set[str]] = {}
    for relation in catalog.relations:
        for table in relation.state_tables:
            names.setdefault(table.table_id, set()).update((column.name for column in table.columns), table.retired)
    return names


def _with_retired(relation: Relation, columns: Mapping[int, set[str]]) -> Relation:
    """A relation of an earlier epoch whose tables know the columns that they lack and their rows contain."""

    def with_retired(table: TableSchema) -> TableSchema:
        lacking = columns.get(table.table_id, set()).difference(column.name for column in table.columns)
        return msgspec.structs.replace(table, retired=tuple(sorted(lacking.union(table.retired))))

    return msgspec.structs.replace(relation, state_tables=tuple(map(with_retired, relation.state_tables)))


def _with_ids(relation: Relation, ids: Mapping[int, int]) -> Relation:
    """A relation with other ids, in all places that name one."""
    if not ids:
        return relation
    return msgspec.structs.replace(
        relation,
        id=ids.get(relation.id, relation.id),
        depends_on=tuple(ids.get(i, i) for i in relation.depends_on),
        definition=encode_definition(_definition_with_ids(definition_of(relation), ids)),
    )


def _definition_with_ids(definition: Definition, ids: Mapping[int, int]) -> Definition:
    if isinstance(definition, PlainViewDefinition | FunctionDefinition):
        return definition
    fragments = tuple(
        msgspec.structs.replace(
            fragment,
            inputs=tuple(
                read
                if read.relation_id is None
                else msgspec.structs.replace(read, relation_id=ids.get(read.relation_id, read.relation_id))
                for read in fragment.inputs
            ),
        )
        for fragment in definition.fragments
    )
    if isinstance(definition, TableDefinition) and definition.rejects_of is not None:
        fed = ids.get(definition.rejects_of, definition.rejects_of)
        return msgspec.structs.replace(definition, fragments=fragments, rejects_of=fed)
    return msgspec.structs.replace(definition, fragments=fragments)


def _require_quiet(meta: MetaStore, version: HummockVersion, to: int) -> None:
    if meta.follows:
        remedy = "Undo on the parent, or create the branch again, with `--at EPOCH` of `tussock branch create`."
        raise CannotUndoError(to, "the branch takes the epochs of its parent", remedy)
    if to == version.epoch:
        raise CannotUndoError(to, "it is the newest epoch", "Name an older one: `tussock inspect epochs` lists them.")
    if (waiting := meta.log_end() - version.log_end) > 0:
        what = f"{waiting} statements wait for an epoch" if waiting > 1 else "a statement waits for an epoch"
        raise CannotUndoError(to, what, "Run `tussock epoch`. Then undo again, which takes their effect back too.")


def _sources_with_input(
    meta: MetaStore, version: HummockVersion, before: HummockVersion, to: int
) -> tuple[Relation, ...]:
    """The sources of epoch `to` that have taken input since."""
    sources = [r for r in before.catalog.live_relations() if r.created <= to and source_of(r) is not None]
    return tuple(r for r in sources if _has_changes(meta, version, r.state_tables[0], to))


def _has_changes(meta: MetaStore, version: HummockVersion, table: TableSchema, to: int) -> bool:
    return next(open_table(meta.objects, version, table).read_changes(to), None) is not None


def _require_keepable(meta: MetaStore, version: HummockVersion, sources: tuple[Relation, ...], to: int) -> None:
    """Raise CannotUndoError if the input of a source cannot count as taken without its rows."""
    again = "Add `--input again`, which takes the input again."
    for relation in sources:
        statement, table = source_of(relation), relation.state_tables[0]
        assert statement is not None
        if not records_files(table):
            if statement.format != "kafka":
                reason = f"changes of source {relation.name!r} ({statement.format}) build on the rows that it gave"
                raise CannotUndoError(to, reason, again)
            continue
        places = [column.name for column in table.columns].index("portions")
        for changed in open_table(meta.objects, version, table).read_changes(to, columns=(places,)):
            if any(changed.rows.column(0).to_pylist()):
                raise CannotUndoError(to, f"source {relation.name!r} has taken a part of a file", again)
