"""How statements of the log change the catalog.

Pure functions of (catalog, statement, epoch): every driver that resumes a barrier, and every session that checks a statement before it
appends it, comes to the same catalog with the same ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from jobs.executors.table_replay import TableReplay
from jobs.plan.alter_table import add_columns, alter
from jobs.plan.definition import (
    KEYWORDS,
    Definition,
    FunctionDefinition,
    PlainViewDefinition,
    SourceDefinition,
    TableDefinition,
    UnknownRelationError,
    ViewDefinition,
    created_by,
    definition_of,
    encoded,
    find,
    with_readers,
)
from jobs.plan.difference import Create, differences
from jobs.plan.fragments import ROW_ID, Fragment, Operator, Output
from jobs.plan.stream import plan_view
from jobs.plan.streams.builder import Upstream
from jobs.sources.registry import reader_of
from jobs.sql.expression_tree import python_calls
from jobs.sql.logical import Plan
from jobs.sql.statements import (
    ROW_ID_TYPE,
    AddColumns,
    AlterTable,
    Change,
    CreateFunction,
    CreatePlainView,
    CreateSource,
    CreateTable,
    CreateTableAs,
    CreateView,
    Delete,
    Drop,
    Insert,
    RowChange,
    Statement,
    Update,
)
from statestore.errors import InputError
from statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind, TableSchema


class RelationExistsError(InputError):
    """The name is taken: by the very relation that the statement defines (`differences` is empty), or by another one.

    `readers` are the relations that read it, directly or not; a drop takes them along.
    """

    def __init__(self, name: str, kind: str, differences: Sequence[str] = (), readers: Sequence[str] = ()) -> None:
        super().__init__(name, kind, tuple(differences), tuple(readers))
        self.name, self.kind, self.differences, self.readers = name, kind, tuple(differences), tuple(readers)

    def __str__(self) -> str:
        if not self.differences:
            return (
                f"a {self.kind} {self.name!r} exists already, defined as here; write CREATE {KEYWORDS[self.kind]} IF NOT EXISTS to leave "
                "it as it is, or choose another name."
            )
        lines = "".join(f"\n    {line}" for line in self.differences)
        in_place = ""
        if self.kind == RelationKind.VIEW:
            in_place = "A view's query can't be changed in place yet. "
        elif self.kind == RelationKind.FUNCTION and self.readers:
            in_place = "A view keeps the code that it was made with. "
        elif self.kind == RelationKind.FUNCTION:
            in_place = "Functions and relations share their names; CREATE OR REPLACE FUNCTION takes the place of one that no view reads. "
        drop = f"DROP {KEYWORDS[self.kind]} {self.name}"
        also = f" CASCADE, which drops {', '.join(self.readers)} too" if self.readers else ""
        return (
            f"a {self.kind} {self.name!r} exists already, and this statement defines another:{lines}\n"
            f"Nothing was changed. {in_place}Drop it first ({drop}{also}), or choose another name."
        )


class RelationInUseError(InputError):
    """Something depends on the relation that is to be dropped."""

    def __init__(self, name: str, kind: str, dependents: tuple[str, ...]) -> None:
        super().__init__(name, kind, dependents)
        self.name, self.kind, self.dependents = name, kind, dependents

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} can't be dropped: {', '.join(self.dependents)} reads it. "
            f"Drop what reads it first, or write DROP {KEYWORDS[self.kind]} {self.name} CASCADE to drop all of it."
        )


class FunctionChangedError(InputError):
    """A view was bound to a function's code, and another session has replaced it since."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"function {self.name!r} has been replaced since this statement was checked. Nothing was changed; give it again."


class PausedViewError(InputError):
    """A view over a view that is paused: its first epoch would take in rows that no later one keeps up to date."""

    def __init__(self, name: str, paused: str, epoch: int) -> None:
        super().__init__(name, paused, epoch)
        self.name, self.paused, self.epoch = name, paused, epoch

    def __str__(self) -> str:
        return (
            f"view {self.name!r} can't be created: {self.paused!r}, which it reads, is paused since epoch {self.epoch}. "
            f"A paused view does not go on: drop {self.paused!r} and create it again first (DROP MATERIALIZED VIEW {self.paused}; with "
            "CASCADE where views read it)."
        )


class CannotPauseError(InputError):
    """A view that has no rows to stay at, or stays at some already."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"view {self.name!r} can't be paused: {self.reason}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A slice of the log, replayed."""

    catalog: Catalog
    changes: Mapping[int, Sequence[tuple[int, RowChange]]]  # live table's id -> its row changes (index in the slice, statement), in order
    rejected: tuple[tuple[int, str], ...]  # (index, reason) of statements that no longer apply: another session was first


def apply_log(catalog: Catalog, statements: Iterable[Statement], epoch: int) -> Replayed:
    """Replay a slice of the log.

    Args:
        statements: in log order. Each applied when its session checked it; one that two sessions brought into conflict is
            rejected.
        epoch: the epoch whose commit makes the changes visible.
    """
    changes: dict[int, list[tuple[int, RowChange]]] = {}
    rejected: list[tuple[int, str]] = []
    for index, statement in enumerate(statements):
        before = catalog
        try:
            catalog = apply_statement(catalog, statement, epoch)
        except InputError as err:
            rejected.append((index, str(err)))
            continue
        if (change := _rows_of(statement, catalog is not before)) is not None:
            changes.setdefault(find(catalog, change.table, RelationKind.TABLE).id, []).append((index, change))
    live = {r.id for r in catalog.live()}
    return Replayed(catalog, {r: rows for r, rows in changes.items() if r in live}, tuple(rejected))


def _rows_of(statement: Statement, took_effect: bool) -> RowChange | None:
    """The row change that a statement is or, where it made a table, brings along."""
    match statement:
        case Insert() | Change() | Update() | Delete():
            return statement
        case CreateTableAs(table, rows, payload) if took_effect:
            return Insert(table.name, rows, payload)
        case _:
            return None


def apply_statement(catalog: Catalog, statement: Statement, epoch: int) -> Catalog:
    """The catalog after one statement; a row change leaves it as it is, its table must exist. Raises InputError branches."""
    match statement:
        case Insert() | Change() | Update() | Delete():
            find(catalog, statement.table, RelationKind.TABLE)
            return catalog
        case Drop():
            return _drop(catalog, statement, epoch)
        case CreateTableAs(table):
            return apply_statement(catalog, table, epoch)
        case AlterTable(table, to):
            return alter(catalog, table, to)
        case AddColumns():
            return add_columns(catalog, statement)
        case _:
            for relation in catalog.live():
                if relation.name == statement.name.lower():
                    found = _differences(relation, statement)
                    if not found and (statement.if_not_exists or _replaces(statement)):
                        return catalog
                    readers = with_readers(catalog, relation) - {relation.id}
                    if relation.kind is RelationKind.FUNCTION and _replaces(statement) and not readers:
                        catalog = _drop(catalog, Drop(RelationKind.FUNCTION, relation.name), epoch)
                        break
                    raise RelationExistsError(relation.name, relation.kind, found, [r.name for r in catalog.live() if r.id in readers])
            relation = _create(catalog, statement, epoch)
            return msgspec.structs.replace(
                catalog,
                relations=(*catalog.relations, relation),
                next_relation_id=catalog.next_relation_id + 1,
                next_table_id=catalog.next_table_id + len(relation.state_tables),
            )


def _differences(relation: Relation, wanted: Create) -> tuple[str, ...]:
    """What a CREATE says that is not so of the relation of its name. A table that was altered is still what its own CREATE says."""
    definition = definition_of(relation)
    if isinstance(definition, TableDefinition) and definition.created is not None and not differences(definition.created, wanted):
        return ()
    return differences(created_by(relation), wanted)


def _create(catalog: Catalog, statement: Create, epoch: int) -> Relation:
    relation_id, table_id = catalog.next_relation_id, catalog.next_table_id
    depends_on: tuple[int, ...] = ()
    tables: tuple[TableSchema, ...]
    definition: Definition
    match statement:
        case CreateSource():
            fields = statement.fields
            tables = (msgspec.structs.replace(reader_of(statement).taken_schema(statement.name.lower()), table_id=table_id),)
            kind, definition = RelationKind.SOURCE, SourceDefinition(statement, table_id)
        case CreateTable():
            fields = statement.fields
            types = tuple(f.type for f in fields)
            key = statement.key
            if not key:
                types, key = (*types, ROW_ID_TYPE), (len(types),)
            node = TableReplay(relation_id, key, types, not statement.key)
            tables = tuple(msgspec.structs.replace(s, table_id=table_id + i) for i, s in enumerate(node.state_tables()))
            fragment = Fragment((), (Operator(node, (), tuple(s.table_id for s in tables)),), types, False)
            output = Output(types, key, tables[0].distribution, False, table_id)
            kind, definition = RelationKind.TABLE, TableDefinition(statement, (fragment,), output)
        case CreateView():
            fields = statement.plan.fields
            planned = plan_view(statement.plan, relation_id, _upstream(catalog), table_id)
            tables = planned.tables
            kind, definition = (
                RelationKind.VIEW,
                ViewDefinition(statement.sql, statement.plan, planned.fragments, planned.output, statement.columns),
            )
            inputs = (i.relation_id for f in planned.fragments for i in f.inputs)
            named = {find(catalog, name).id for name in statement.uses} | _functions_called(catalog, statement.plan)
            depends_on = tuple(sorted({r for r in inputs if r is not None} | named))
            for read in catalog.live():
                if read.id in depends_on and read.paused is not None:
                    raise PausedViewError(statement.name.lower(), read.name, read.paused)
        case CreatePlainView():
            fields, tables = statement.fields, ()
            kind, definition = RelationKind.PLAIN_VIEW, PlainViewDefinition(statement)
            depends_on = tuple(sorted(find(catalog, name).id for name in statement.uses))
        case CreateFunction():
            fields, tables = statement.fields, ()
            kind, definition = RelationKind.FUNCTION, FunctionDefinition(msgspec.structs.replace(statement, or_replace=False))
    columns = tuple(ColumnSpec(f.name, f.type) for f in fields)
    return Relation(relation_id, statement.name.lower(), kind, columns, encoded(definition), tables, depends_on, created=epoch)


def _replaces(statement: Create) -> bool:
    return isinstance(statement, CreateFunction) and statement.or_replace


def _functions_called(catalog: Catalog, plan: Plan) -> set[int]:
    """The ids of the Python functions in a plan. Raises UnknownRelationError, FunctionChangedError where they are not as they were."""
    found: set[int] = set()
    for below in plan.inputs:
        found |= _functions_called(catalog, below)
    for call in (c for e in plan.expressions for c in python_calls(e)):
        relation = find(catalog, dict(call.params)["name"], RelationKind.FUNCTION)
        definition = definition_of(relation)
        assert isinstance(definition, FunctionDefinition)
        if dict(call.params)["digest"] != definition.statement.digest:
            raise FunctionChangedError(relation.name)
        found.add(relation.id)
    return found


def _upstream(catalog: Catalog) -> Callable[[str], Upstream]:
    def known(name: str) -> Upstream:
        relation = find(catalog, name)
        definition = definition_of(relation)
        if isinstance(definition, SourceDefinition):
            statement, reader = definition.statement, reader_of(definition.statement)
            own = reader.key(statement)
            key = ((ROW_ID, "bigint"),) if own is None else tuple((c, statement.fields[c].type) for c in own)
            return Upstream(relation.id, relation.kind, None, key, reader.append_only)
        assert not isinstance(definition, PlainViewDefinition | FunctionDefinition), "Spark has expanded it when the query was bound"
        return Upstream(relation.id, relation.kind, definition.output)

    return known


def _drop(catalog: Catalog, statement: Drop, epoch: int) -> Catalog:
    try:
        relation = find(catalog, statement.name, statement.kind)
    except UnknownRelationError:
        if statement.if_exists:
            return catalog
        raise
    doomed = with_readers(catalog, relation)
    if len(doomed) > 1 and not statement.cascade:
        dependents = tuple(r.name for r in catalog.live() if relation.id in r.depends_on)
        raise RelationInUseError(relation.name, relation.kind, dependents)
    relations = tuple(msgspec.structs.replace(r, dropped=epoch) if r.id in doomed else r for r in catalog.relations)
    return msgspec.structs.replace(catalog, relations=tuple(r for r in relations if r.dropped != r.created))


def pause_view(catalog: Catalog, name: str, epoch: int) -> Catalog:
    """The catalog in which a view, and every view that reads it, takes no part from `epoch` on: readers go on seeing the rows of the
    epoch before. There is no way back but to drop and create it: what was missed is not kept anywhere.

    Raises: UnknownRelationError; CannotPauseError for a view that is paused, or where one that `epoch` creates is among them.
    """
    view = find(catalog, name, RelationKind.VIEW)
    if view.paused is not None:
        raise CannotPauseError(view.name, f"it is paused since epoch {view.paused}")
    stopped = with_readers(catalog, view)
    for relation in catalog.live():
        if relation.id in stopped and relation.created == epoch:
            new = "it" if relation.id == view.id else f"{relation.name!r}, which reads it,"
            raise CannotPauseError(view.name, f"{new} is new in this epoch and has no rows yet; drop it instead (--drop {relation.name})")
    relations = tuple(msgspec.structs.replace(r, paused=epoch) if r.id in stopped and r.paused is None else r for r in catalog.relations)
    return msgspec.structs.replace(catalog, relations=relations)
