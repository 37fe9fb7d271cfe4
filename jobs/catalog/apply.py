"""Apply statements of the log to the catalog.

The functions are pure: every driver that resumes a barrier, and every session that checks a statement before it
appends it, computes the same catalog with the same ids from (catalog, statement, epoch).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tussock.jobs.catalog.alter_source import (
    add_source_columns,
    changes_shape,
    created_source,
    set_source_columns,
    set_source_options,
)
from tussock.jobs.catalog.alter_table import add_columns, alter_table
from tussock.jobs.catalog.builds import (
    BeingBuiltError,
    drop_disturbed_builds,
    drop_paused_builds,
    find_planned,
    given_up,
    is_being_built,
)
from tussock.jobs.catalog.create import create_relation
from tussock.jobs.catalog.definition import (
    KEYWORDS,
    SourceDefinition,
    TableDefinition,
    UnknownRelationError,
    created_by,
    definition_of,
    encode_definition,
    find_relation,
    source_of,
    with_readers,
)
from tussock.jobs.catalog.difference import Create, list_differences
from tussock.jobs.catalog.fed_tables import fed_relation, is_fed_by, require_not_fed
from tussock.jobs.catalog.move_source import move_source
from tussock.jobs.catalog.replace import EntryReplacements, add_relation
from tussock.jobs.catalog.schemas import create_schema, drop_schema, require_schema
from tussock.jobs.catalog.zones import recorded_zone
from tussock.jobs.executors.operator import Entry
from tussock.jobs.logical.relation_names import schema_of
from tussock.jobs.logical.statements import (
    AddColumns,
    AddSourceColumns,
    AlterTable,
    Change,
    CreateFunction,
    CreatePlainView,
    CreateSchema,
    CreateSource,
    CreateTableAs,
    CreateView,
    Delete,
    Drop,
    DropSchema,
    Insert,
    MoveSource,
    RecordZone,
    RowChange,
    SetSourceColumns,
    SetSourceOptions,
    Single,
    Statement,
    Transaction,
    Update,
    append_only_refusal,
)
from tussock.jobs.sources.ports import FedTable, fed_tables
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind


class RelationExistsError(InputError):
    """The name is taken, either by the relation that the statement defines (`differences` is empty) or by another one.

    `readers`: the relations that read it, directly or not, which a drop would include. `in_place`: CREATE OR REPLACE
    can change it.
    """

    def __init__(
        self, name: str, kind: str, differences: Sequence[str] = (), readers: Sequence[str] = (), in_place: bool = False
    ) -> None:
        super().__init__(name, kind, tuple(differences), tuple(readers), in_place)
        self.name, self.kind, self.differences, self.readers = name, kind, tuple(differences), tuple(readers)
        self.in_place = in_place

    def __str__(self) -> str:
        if not self.differences:
            return (
                f"a {self.kind} {self.name!r} with this definition exists already. Write CREATE "
                f"{KEYWORDS[self.kind]} IF NOT EXISTS "
                "to keep it, or choose another name."
            )
        lines = "".join(f"\n    {line}" for line in self.differences)
        if self.in_place:
            return (
                f"a {self.kind} {self.name!r} exists already, and this statement differs from it:{lines}\n"
                f"Nothing was changed. Use CREATE OR REPLACE {KEYWORDS[self.kind]} to replace it, or choose another "
                "name."
            )
        if self.kind == RelationKind.SOURCE and all(line.startswith("option ") for line in self.differences):
            return (
                f"a source {self.name!r} exists already, and this statement differs from it:{lines}\nNothing was "
                f"changed. Change its options by ALTER SOURCE {self.name} SET OPTIONS (…), or choose another name."
            )
        drop = f"DROP {KEYWORDS[self.kind]} {self.name}"
        also = f" CASCADE, which drops {', '.join(self.readers)} too, with all rows" if self.readers else ""
        return (
            f"a {self.kind} {self.name!r} exists already, and this statement differs from it:{lines}\n"
            f"Nothing was changed. Choose another name; or drop it first, with its rows ({drop}{also})."
        )


class RelationInUseError(InputError, hides_row_values=True):
    """Other relations read the relation to drop."""

    name: str
    kind: str
    dependents: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} cannot be dropped, because it is read by {', '.join(self.dependents)}. "
            f"Drop or change these readers first. DROP {KEYWORDS[self.kind]} {self.name} CASCADE drops them too, with "
            "their rows."
        )


class CannotPauseError(InputError):
    """A view has no rows yet, or is already paused."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"view {self.name!r} cannot be paused: {self.reason}"


class AppendOnlyTableError(InputError):
    """A statement would change or delete rows of an append-only table."""

    table: str
    statement: str

    def __str__(self) -> str:
        return f"{append_only_refusal(self.table, self.statement)}."


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replayed slice of the log."""

    catalog: Catalog
    changes: Mapping[
        int, Sequence[Entry]
    ]  # id of a live table -> its row changes in order; positions are indices in the slice
    rejected: tuple[
        tuple[int, str], ...
    ]  # (index, reason) of statements that no longer apply, because another session was first


def apply_log(catalog: Catalog, statements: Iterable[Statement], epoch: int) -> ReplayResult:
    """Replay a slice of the log.

    Args:
        statements: in log order. Each was valid when its session checked it. A statement that conflicts with an
            earlier one of another session is rejected.
        epoch: the epoch whose commit makes the changes visible.
    """
    changes: dict[int, list[Entry]] = {}
    rejected: list[tuple[int, str]] = []
    for index, statement in enumerate(statements):
        applying = EntryApplier(catalog, epoch)
        try:
            applying.apply_entry(statement)
        except InputError as err:
            rejected.append((index, str(err)))
            continue
        catalog = applying.catalog
        for table, rows in applying.rows.items():
            changes.setdefault(table, []).extend(Entry(index, row, before) for before, row in rows)
    live = {r.id for r in catalog.live_relations()}
    return ReplayResult(catalog, {r: rows for r, rows in changes.items() if r in live}, tuple(rejected))


def apply_statement(catalog: Catalog, statement: Statement, epoch: int) -> Catalog:
    """The catalog after one statement.

    A row change leaves it unchanged, but its table must exist. Raises InputError subclasses.
    """
    applying = EntryApplier(catalog, epoch)
    applying.apply_entry(statement)
    return applying.catalog


@dataclass(slots=True)
class EntryApplier:
    """Applies one entry of the log, statement by statement: the catalog so far, and the row changes.

    `rows`: by table id, (number of rows that the entry gave the table before, row change). `unsettled`: see
    Replacing.
    """

    catalog: Catalog
    epoch: int
    rows: dict[int, list[tuple[int, RowChange]]] = field(default_factory=dict)
    _given: dict[int, int] = field(
        default_factory=dict
    )  # by table id: the number of rows that the entry gave it so far
    _ran: dict[int, set[str]] = field(
        default_factory=dict
    )  # by id of table or source: the names of all statements that ran once
    _new: dict[int, list[str]] = field(
        default_factory=dict
    )  # the ones of this entry, in order, which the definition does not contain yet
    _replacing: EntryReplacements = field(init=False)

    def __post_init__(self) -> None:
        self._replacing = EntryReplacements(self.epoch)

    @property
    def unsettled_relations(self) -> tuple[Relation, ...]:
        """The live relations that must be bound again, because they read a replaced relation.

        Readers come after their input.
        """
        if not self._replacing.unsettled:
            return ()
        return tuple(r for r in self.catalog.live_relations() if r.id in self._replacing.unsettled)

    def apply_entry(self, statement: Statement) -> None:
        """Apply a whole entry. Raises InputError subclasses; the object must not be used after that."""
        if isinstance(statement, Transaction):
            once = dict(statement.once)
            for place, part in enumerate(statement.statements):
                self.apply_single(part, once.get(place))
            self._note_ran()
        else:
            self.apply_single(statement)
        self._replacing.require_settled(self.catalog)

    def apply_single(self, statement: Single, once: str | None = None) -> bool:
        """Apply one statement and return whether it had to be applied. Raises InputError subclasses.

        `once`: the statement's name, if it runs only once per table.
        """
        if once is not None and not self._first_time(statement, once):
            return False
        before = self.catalog
        after = self._catalog_after(statement)
        self.catalog = drop_disturbed_builds(before, after, cascade=isinstance(statement, Drop) and statement.cascade)
        match statement:
            case Insert() | Change() | Update() | Delete():
                self._record_change(statement)
            case CreateTableAs(table, rows, payload) if self.catalog is not before:
                self._record_change(Insert(table.name, rows, payload))
        return True

    def _record_change(self, change: RowChange) -> None:
        table = find_relation(self.catalog, change.table, RelationKind.TABLE).id
        rows_before = self._given.get(table, 0)
        self.rows.setdefault(table, []).append((rows_before, change))
        self._given[table] = rows_before + (change.rows if isinstance(change, Insert | Change) else 0)

    def _first_time(self, statement: Single, once: str) -> bool:
        name = changed_table(statement)
        assert name is not None, "only statements on tables and sources run once"
        table = find_relation(self.catalog, name, RelationKind.TABLE, RelationKind.SOURCE)
        if table.id not in self._ran:
            definition = definition_of(table)
            assert isinstance(definition, TableDefinition | SourceDefinition)
            self._ran[table.id] = set(definition.ran)
        if once in self._ran[table.id]:
            return False
        self._ran[table.id].add(once)
        self._new.setdefault(table.id, []).append(once)
        return True

    def _note_ran(self) -> None:
        """Write the names of statements that ran once into the definitions of their tables, all in one pass."""
        if not self._new:
            return
        relations = []
        for relation in self.catalog.relations:
            if (names := self._new.get(relation.id)) is not None:
                definition = definition_of(relation)
                assert isinstance(definition, TableDefinition | SourceDefinition)
                known = encode_definition(msgspec.structs.replace(definition, ran=(*definition.ran, *names)))
                relation = msgspec.structs.replace(relation, definition=known)
            relations.append(relation)
        self._new.clear()
        self.catalog = msgspec.structs.replace(self.catalog, relations=tuple(relations))

    def _catalog_after(self, statement: Single) -> Catalog:
        catalog = self.catalog
        match statement:
            case Insert() | Update():
                word = "INSERT INTO" if isinstance(statement, Insert) else "UPDATE"
                table = find_relation(catalog, statement.table, RelationKind.TABLE)
                require_not_fed(catalog, table, word)
                if isinstance(statement, Update):
                    _require_changeable(table, word)
                return catalog
            case Change():
                find_relation(catalog, statement.table, RelationKind.TABLE)
                return catalog
            case Delete():
                _require_changeable(find_relation(catalog, statement.table, RelationKind.TABLE), "DELETE")
                return catalog
            case Drop():
                return _drop_relation(catalog, statement, self.epoch)
            case CreateTableAs(table):
                return self._create_relation(table)
            case AlterTable(table, to):
                require_schema(catalog, schema_of(to.name))
                return alter_table(catalog, table, to)
            case AddColumns():
                return add_columns(catalog, statement)
            case AddSourceColumns():
                return add_source_columns(catalog, statement)
            case MoveSource():
                return move_source(catalog, statement)
            case SetSourceColumns():
                return self._set_columns(statement)
            case SetSourceOptions():
                return self._set_options(statement)
            case CreateSchema():
                return create_schema(catalog, statement)
            case DropSchema():
                return drop_schema(catalog, statement, lambda before, drop: _drop_relation(before, drop, self.epoch))
            case RecordZone():
                return recorded_zone(catalog, statement)
            case _:
                return self._create_relation(statement)

    def _set_columns(self, statement: SetSourceColumns) -> Catalog:
        """Change a source's columns. Views that read it must be bound again if names or types change."""
        if changes_shape(statement):
            self._replacing.disturb_readers(
                self.catalog, find_relation(self.catalog, statement.name, RelationKind.SOURCE)
            )
        return set_source_columns(self.catalog, statement)

    def _set_options(self, statement: SetSourceOptions) -> Catalog:
        """Change a source's options. A source that sets records aside from now on gets its table of rejects."""
        catalog = set_source_options(self.catalog, statement)
        source = find_relation(catalog, statement.name, RelationKind.SOURCE)
        statement_after = source_of(source)
        assert statement_after is not None
        if any(is_fed_by(r, source.id) for r in catalog.live_relations()):
            return catalog
        for fed in fed_tables(statement_after):
            catalog = self._with_fed(catalog, source, fed)
        return catalog

    def _with_fed(self, catalog: Catalog, source: Relation, fed: FedTable) -> Catalog:
        if taken := next((r for r in catalog.live_relations() if r.name == fed.name), None):
            raise RelationExistsError(fed.name, taken.kind, [f"it would hold the {fed.port} of source {source.name}"])
        return add_relation(catalog, fed_relation(catalog, source, fed, self.epoch))

    def _create_relation(self, statement: Create) -> Catalog:
        require_schema(self.catalog, schema_of(statement.name))
        if (building := find_planned(self.catalog, statement.name)) is not None:
            in_place = isinstance(statement, CreateView | CreatePlainView | CreateFunction) and statement.or_replace
            if not _differences(building, statement) and (in_place or statement.if_not_exists):
                return self.catalog
            if not in_place:
                raise BeingBuiltError((building.name,), f"{building.kind} {building.name!r} cannot be created")
            self.catalog = given_up(self.catalog, building.name)
        there = next((r for r in self.catalog.live_relations() if r.name == statement.name.lower()), None)
        if there is None:
            new = create_relation(self.catalog, statement, self.epoch)
            catalog = add_relation(self.catalog, new)
            for fed in fed_tables(statement) if isinstance(statement, CreateSource) else ():
                catalog = self._with_fed(catalog, new, fed)
            return catalog
        in_place = False
        if isinstance(statement, CreateView | CreatePlainView | CreateFunction) and type(created_by(there)) is type(
            statement
        ):
            if statement.or_replace:
                return self._replacing.replace_relation(self.catalog, there, statement)
            in_place = True
        differences = _differences(there, statement)
        if not differences and statement.if_not_exists:
            return self.catalog
        readers = with_readers(self.catalog, there) - {
            there.id,
            *(r.id for r in self.catalog.live_relations() if is_fed_by(r, there.id)),
        }
        raise RelationExistsError(
            there.name,
            there.kind,
            differences,
            [r.name for r in self.catalog.live_relations() if r.id in readers],
            in_place,
        )


def changed_table(statement: Statement) -> str | None:
    """The table or source that a statement changes, by name, in rows or columns. None for other statements."""
    match statement:
        case Insert(table) | Change(table) | Update(table) | Delete(table):
            return table.lower()
        case AlterTable(table) | AddColumns(table):
            return table.name.lower()
        case AddSourceColumns(name) | SetSourceColumns(name) | SetSourceOptions(name) | MoveSource(name):
            return name.lower()
        case _:
            return None


def _differences(relation: Relation, wanted: Create) -> tuple[str, ...]:
    """The differences between a CREATE and the relation with its name.

    An altered relation also equals its original CREATE.
    """
    definition = definition_of(relation)
    if (
        isinstance(definition, TableDefinition)
        and definition.created is not None
        and not list_differences(definition.created, wanted)
    ):
        return ()
    if isinstance(definition, SourceDefinition) and not list_differences(created_source(definition), wanted):
        return ()
    return list_differences(created_by(relation), wanted)


def _drop_relation(catalog: Catalog, statement: Drop, epoch: int) -> Catalog:
    try:
        relation = find_relation(catalog, statement.name, statement.kind)
    except UnknownRelationError:
        if is_being_built(catalog, statement.name):
            return given_up(catalog, statement.name)
        if statement.if_exists:
            return catalog
        raise
    require_not_fed(catalog, relation, "DROP TABLE")
    doomed = with_readers(catalog, relation)
    own = (
        r.id
        for r in catalog.live_relations()
        if is_fed_by(r, relation.id) or (r.is_internal and relation.id in r.depends_on)
    )
    whole = {relation.id, *own}
    if doomed > whole and not statement.cascade:
        dependents = tuple(r.name for r in catalog.live_relations() if whole & set(r.depends_on) and r.id not in whole)
        raise RelationInUseError(relation.name, relation.kind, dependents)
    relations = tuple(msgspec.structs.replace(r, dropped=epoch) if r.id in doomed else r for r in catalog.relations)
    return msgspec.structs.replace(catalog, relations=tuple(r for r in relations if r.dropped != r.created))


def pause_view(catalog: Catalog, name: str, epoch: int) -> Catalog:
    """The catalog in which a view, and every view that reads it, does not run from `epoch` on.

    Readers keep seeing the rows of the epoch before. The missed changes are not stored, so a paused view resumes only
    by a rebuild (CREATE OR REPLACE).

    Raises: UnknownRelationError; CannotPauseError if the view is already paused, or if `epoch` creates one of these
        views.
    """
    view = find_relation(catalog, name, RelationKind.VIEW)
    if view.paused is not None:
        raise CannotPauseError(view.name, f"it is paused since epoch {view.paused}")
    stopped = with_readers(catalog, view)
    for relation in catalog.live_relations():
        if relation.id in stopped and relation.created == epoch:
            new = "it" if relation.id == view.id else f"{relation.name!r}, which reads it,"
            raise CannotPauseError(
                view.name, f"{new} is new in this epoch and has no rows yet; drop it instead (--drop {relation.name})"
            )
    relations = tuple(
        msgspec.structs.replace(r, paused=epoch) if r.id in stopped and r.paused is None else r
        for r in catalog.relations
    )
    return drop_paused_builds(msgspec.structs.replace(catalog, relations=relations))


def pause_views(catalog: Catalog, reasons: Mapping[str, str], epoch: int) -> Catalog:
    """The catalog in which some views, and the views that read them, are paused from `epoch` on. Raises as
    `pause_view`.

    Args:
        reasons: by view, why a run pauses it; empty if a person does.
    """
    why: dict[int, str] = {}
    for name, reason in reasons.items():
        view = find_relation(catalog, name, RelationKind.VIEW)
        why[view.id] = reason
        if view.paused != epoch:  # otherwise pausing another of these views paused it too
            catalog = pause_view(catalog, name, epoch)
    relations = (msgspec.structs.replace(r, paused_for=why[r.id]) if why.get(r.id) else r for r in catalog.relations)
    return msgspec.structs.replace(catalog, relations=tuple(relations))


def _require_changeable(table: Relation, statement: str) -> None:
    """Raises AppendOnlyTableError for an append-only table. Another session may have created it after the bind."""
    definition = definition_of(table)
    if isinstance(definition, TableDefinition) and definition.statement.append_only:
        raise AppendOnlyTableError(table.name, statement)
