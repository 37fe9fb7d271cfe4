"""What the catalog stores of each relation, and how statements of the log change the catalog.

Pure functions of (catalog, statement, epoch): every driver that resumes a barrier, and every session that checks a statement before it
appends it, comes to the same catalog with the same ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from jobs.executors.table_replay import TableReplay
from jobs.plan.difference import Create, differences
from jobs.plan.fragments import ROW_ID, Fragment, Input, Operator, Output
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
from statestore.errors import InputError, did_you_mean
from statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind, TableSchema


class SourceDefinition(msgspec.Struct, frozen=True, tag=True):
    """A source, and the state table of the files taken from it."""

    statement: CreateSource
    taken_table_id: int


class TableDefinition(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A table and the one fragment that replays its changes."""

    statement: CreateTable  # what would create it as it is
    fragments: tuple[Fragment, ...]
    output: Output
    created: CreateTable | None = None  # what did, where it was altered since

    def altered(self, to: CreateTable) -> "TableDefinition":
        """The definition of the table that an ALTER makes of this one."""
        return msgspec.structs.replace(self, statement=to, created=self.created or self.statement)


class ViewDefinition(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A view: its SELECT as written, as bound, and as fragments; `columns` where its statement named them."""

    sql: str
    plan: Plan
    fragments: tuple[Fragment, ...]
    output: Output
    columns: tuple[str, ...] = ()


class PlainViewDefinition(msgspec.Struct, frozen=True, tag=True):
    """A plain view: a name for a query, of which nothing is stored."""

    statement: CreatePlainView


class FunctionDefinition(msgspec.Struct, frozen=True, tag=True):
    """A Python function of the user, with its code."""

    statement: CreateFunction


Definition = SourceDefinition | TableDefinition | ViewDefinition | PlainViewDefinition | FunctionDefinition
_WithoutRows = SourceDefinition | PlainViewDefinition | FunctionDefinition

#: What follows CREATE and DROP, by the kind of relation.
_KEYWORDS: Mapping[str, str] = {
    RelationKind.SOURCE: "SOURCE",
    RelationKind.TABLE: "TABLE",
    RelationKind.VIEW: "MATERIALIZED VIEW",
    RelationKind.PLAIN_VIEW: "VIEW",
    RelationKind.FUNCTION: "FUNCTION",
}

_decoder: msgspec.json.Decoder[Definition] = msgspec.json.Decoder(Definition)


class UnknownRelationError(InputError):
    """No relation of this name (and kind)."""

    def __init__(self, name: str, expected: str, existing: tuple[str, ...]) -> None:
        super().__init__(name, expected, existing)
        self.name, self.expected, self.existing = name, expected, existing

    def __str__(self) -> str:
        there = ", ".join(self.existing) or "none yet"
        near = did_you_mean(self.name, self.existing)
        return f"there is no {self.expected} {self.name!r}; those that exist: {there}{near and '.'}{near}"


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
                f"a {self.kind} {self.name!r} exists already, defined as here; write CREATE {_KEYWORDS[self.kind]} IF NOT EXISTS to leave "
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
        drop = f"DROP {_KEYWORDS[self.kind]} {self.name}"
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
            f"Drop what reads it first, or write DROP {_KEYWORDS[self.kind]} {self.name} CASCADE to drop all of it."
        )


class FunctionChangedError(InputError):
    """A view was bound to a function's code, and another session has replaced it since."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"function {self.name!r} has been replaced since this statement was checked. Nothing was changed; give it again."


class CannotAlterError(InputError):
    """A table whose names can't be changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"table {self.name!r} can't be altered so: {self.reason}. Nothing was changed."


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


def definition_of(relation: Relation) -> Definition:
    """The relation's decoded definition. Decoded once a process: every epoch asks for that of every relation, several times."""
    return _decoded(bytes(relation.definition))


@lru_cache(maxsize=4096)
def _decoded(definition: bytes) -> Definition:
    return _decoder.decode(definition)


def source_of(relation: Relation) -> CreateSource | None:
    """The statement of a source; None for tables and views."""
    definition = definition_of(relation) if relation.kind is RelationKind.SOURCE else None
    return definition.statement if isinstance(definition, SourceDefinition) else None


def output_of(relation: Relation) -> Output | None:
    """Where the relation's rows are stored; None for what stores none: a source, a plain view, a function."""
    definition = definition_of(relation)
    return None if isinstance(definition, _WithoutRows) else definition.output


def functions_of(catalog: Catalog) -> tuple[CreateFunction, ...]:
    """The live Python functions, with their code."""
    definitions = (definition_of(r) for r in catalog.live() if r.kind is RelationKind.FUNCTION)
    return tuple(d.statement for d in definitions if isinstance(d, FunctionDefinition))


def find(catalog: Catalog, name: str, *kinds: str) -> Relation:
    """The live relation of this name, of one of the kinds (any when none is named). Raises UnknownRelationError."""
    fitting = [r for r in catalog.live() if not kinds or r.kind in kinds]
    for relation in fitting:
        if relation.name == name.lower():
            return relation
    raise UnknownRelationError(name, " or ".join(kinds) or "relation", tuple(sorted(r.name for r in fitting)))


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
            return _alter(catalog, table, to)
        case AddColumns():
            return _add_columns(catalog, statement)
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
    return differences(_created_by(relation), wanted)


def _alter(catalog: Catalog, table: CreateTable, to: CreateTable) -> Catalog:
    """The catalog in which a table has other names or comments. Who reads it by its names must not be there."""
    relation, definition = _unaltered(catalog, table)
    if to.name != table.name and any(r.name == to.name for r in catalog.live()):
        raise CannotAlterError(table.name, f"{to.name!r} exists already; choose another name")
    readers = [r.name for r in catalog.live() if relation.id in r.depends_on]
    if readers and (to.name, to.fields) != (table.name, table.fields):
        raise CannotAlterError(table.name, f"{', '.join(readers)} reads it by the names that it has; drop what reads it first")
    altered = msgspec.structs.replace(
        relation,
        name=to.name,
        columns=tuple(ColumnSpec(f.name, f.type) for f in to.fields),
        definition=_encoded(definition.altered(to)),
    )
    return msgspec.structs.replace(catalog, relations=tuple(altered if r.id == relation.id else r for r in catalog.relations))


def _unaltered(catalog: Catalog, table: CreateTable) -> tuple[Relation, TableDefinition]:
    """The table that an ALTER was made for. Raises CannotAlterError where it is another by now."""
    relation = find(catalog, table.name, RelationKind.TABLE)
    definition = definition_of(relation)
    assert isinstance(definition, TableDefinition)
    if definition.statement != table:
        raise CannotAlterError(table.name, "it has been altered since this statement was checked; give it again")
    return relation, definition


def _add_columns(catalog: Catalog, statement: AddColumns) -> Catalog:
    """The catalog in which a table has more columns. Who reads it reads the columns that it had.

    The row id of a table without a key stays the last column. So the added ones are stored before it, under names that the state table
    had not yet: those of c0, c1, … that follow.
    """
    relation, definition = _unaltered(catalog, statement.table)
    own, all_columns = len(statement.table.fields), len(definition.output.types)
    added = statement.to.fields[own:]

    def shifted(column: int) -> int:
        return column if column < own else column + len(added)

    types = (*definition.output.types[:own], *(f.type for f in added), *definition.output.types[own:])
    (rows,) = relation.state_tables
    names = (f"c{all_columns + i}" for i in range(len(added)))
    new = (ColumnSpec(n, f.type, held) for n, f, held in zip(names, added, statement.held, strict=True))
    rows = msgspec.structs.replace(
        rows,
        columns=(*rows.columns[:own], *new, *rows.columns[own:]),
        key=tuple(msgspec.structs.replace(k, column=shifted(k.column)) for k in rows.key),
        distribution=tuple(shifted(c) for c in rows.distribution),
    )
    (fragment,) = definition.fragments
    (operator,) = fragment.operators
    key = tuple(shifted(c) for c in definition.output.key)
    replay = msgspec.structs.replace(operator.node, key=key, types=types)
    output = msgspec.structs.replace(definition.output, types=types, key=key, distribution=rows.distribution)
    fragment = msgspec.structs.replace(fragment, types=types, operators=(msgspec.structs.replace(operator, node=replay),))
    grown = msgspec.structs.replace(
        relation,
        columns=tuple(ColumnSpec(f.name, f.type) for f in statement.to.fields),
        state_tables=(rows,),
        definition=_encoded(msgspec.structs.replace(definition.altered(statement.to), fragments=(fragment,), output=output)),
    )

    def after(other: Relation) -> Relation:
        if other.id == relation.id:
            return grown
        return _reading(other, relation.id, shifted) if relation.id in other.depends_on and other.kind is RelationKind.VIEW else other

    return msgspec.structs.replace(catalog, relations=tuple(after(r) for r in catalog.relations))


def _reading(view: Relation, relation_id: int, place: Callable[[int], int]) -> Relation:
    """A view whose fragments find the columns of a relation that they read at other places."""
    definition = definition_of(view)
    assert isinstance(definition, ViewDefinition)

    def moved(given: Input) -> Input:
        columns = tuple(place(c) for c in given.columns) if given.relation_id == relation_id else given.columns
        return msgspec.structs.replace(given, columns=columns)

    fragments = tuple(msgspec.structs.replace(f, inputs=tuple(moved(i) for i in f.inputs)) for f in definition.fragments)
    if fragments == definition.fragments:
        return view
    return msgspec.structs.replace(view, definition=_encoded(msgspec.structs.replace(definition, fragments=fragments)))


def _encoded(definition: Definition) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(definition))


def fragments_of(relation: Relation) -> tuple[Fragment, ...]:
    """The fragments that keep a relation up to date."""
    definition = definition_of(relation)
    return () if isinstance(definition, _WithoutRows) else definition.fragments


def follows_moment(relation: Relation) -> bool:
    """Whether rows of a view come and go as epochs' moments pass, without any input."""
    return any(o.node.follows_moment for fragment in fragments_of(relation) for o in fragment.operators)


def _created_by(relation: Relation) -> Create:
    match definition_of(relation):
        case SourceDefinition(statement) | TableDefinition(statement) | PlainViewDefinition(statement) | FunctionDefinition(statement):
            return statement
        case ViewDefinition(sql, plan, columns=columns):
            return CreateView(relation.name, sql, plan, columns=columns)


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
    return Relation(relation_id, statement.name.lower(), kind, columns, _encoded(definition), tables, depends_on, created=epoch)


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


def with_readers(catalog: Catalog, relation: Relation) -> set[int]:
    """The ids of a relation and of all that reads it, directly or not."""
    found = {relation.id}
    for later in catalog.live():  # readers always come after what they read
        if found & set(later.depends_on):
            found.add(later.id)
    return found
