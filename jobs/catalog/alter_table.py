"""ALTER TABLE: change names and comments of a table, or add columns."""

from collections.abc import Callable

import msgspec

from tussock.jobs.catalog.definition import (
    TableDefinition,
    ViewDefinition,
    definition_of,
    encode_definition,
    find_relation,
)
from tussock.jobs.catalog.fed_tables import require_not_fed
from tussock.jobs.logical.statements import AddColumns, CreateTable
from tussock.jobs.plan.fragments import Input
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind


class CannotAlterError(InputError):
    """A table cannot be altered as requested."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"table {self.name!r} cannot be altered like this: {self.reason}. Nothing was changed."


def alter_table(catalog: Catalog, table: CreateTable, to: CreateTable) -> Catalog:
    """The catalog with a table's new names and comments. Requires: no relation reads the table by names that change."""
    relation, definition = _find_unaltered(catalog, table)
    if to.name != table.name and any(r.name == to.name for r in catalog.live_relations()):
        raise CannotAlterError(table.name, f"{to.name!r} exists already; choose another name")
    readers = [r.name for r in catalog.live_relations() if relation.id in r.depends_on]
    if readers and (to.name, to.fields) != (table.name, table.fields):
        raise CannotAlterError(
            table.name, f"it is read by its current names by {', '.join(readers)}; drop these readers first"
        )
    altered = msgspec.structs.replace(
        relation,
        name=to.name,
        columns=tuple(ColumnSpec(f.name, f.type) for f in to.fields),
        definition=encode_definition(definition.with_alteration(to)),
    )
    return msgspec.structs.replace(
        catalog, relations=tuple(altered if r.id == relation.id else r for r in catalog.relations)
    )


def _find_unaltered(catalog: Catalog, table: CreateTable) -> tuple[Relation, TableDefinition]:
    """The table that an ALTER was bound to. Raises CannotAlterError if it has changed since."""
    relation = find_relation(catalog, table.name, RelationKind.TABLE)
    definition = definition_of(relation)
    assert isinstance(definition, TableDefinition)
    require_not_fed(catalog, relation, "ALTER TABLE")
    if definition.statement != table:
        raise CannotAlterError(table.name, "it was altered after this statement was checked; run the statement again")
    return relation, definition


def add_columns(catalog: Catalog, statement: AddColumns) -> Catalog:
    """The catalog with more columns in a table. Its readers keep reading the same columns.

    The row id of a table without a key stays the last column, so the new columns are stored before it. The state table
    names them with its next unused names.
    """
    relation, definition = _find_unaltered(catalog, statement.table)
    own = len(statement.table.fields)
    added = statement.to.fields[own:]

    def shift_column(column: int) -> int:
        return column if column < own else column + len(added)

    types = (*definition.output.types[:own], *(f.type for f in added), *definition.output.types[own:])
    (rows,) = relation.state_tables
    names = rows.unused_names(len(added))
    new = (ColumnSpec(n, f.type, held) for n, f, held in zip(names, added, statement.held, strict=True))
    rows = msgspec.structs.replace(
        rows,
        columns=(*rows.columns[:own], *new, *rows.columns[own:]),
        key=tuple(msgspec.structs.replace(k, column=shift_column(k.column)) for k in rows.key),
        distribution=tuple(shift_column(c) for c in rows.distribution),
    )
    (fragment,) = definition.fragments
    (operator,) = fragment.operators
    key = tuple(shift_column(c) for c in definition.output.key)
    replay = msgspec.structs.replace(operator.node, key=key, types=types)
    output = msgspec.structs.replace(definition.output, types=types, key=key, distribution=rows.distribution)
    fragment = msgspec.structs.replace(
        fragment, types=types, operators=(msgspec.structs.replace(operator, node=replay),)
    )
    grown = msgspec.structs.replace(
        relation,
        columns=tuple(ColumnSpec(f.name, f.type) for f in statement.to.fields),
        state_tables=(rows,),
        definition=encode_definition(
            msgspec.structs.replace(definition.with_alteration(statement.to), fragments=(fragment,), output=output)
        ),
    )

    def relation_after(other: Relation) -> Relation:
        if other.id == relation.id:
            return grown
        return (
            move_columns(other, relation.id, shift_column)
            if relation.id in other.depends_on and other.kind is RelationKind.VIEW
            else other
        )

    return msgspec.structs.replace(catalog, relations=tuple(relation_after(r) for r in catalog.relations))


def move_columns(view: Relation, relation_id: int, place: Callable[[int], int]) -> Relation:
    """A view whose fragments read a relation's columns at new positions."""
    definition = definition_of(view)
    assert isinstance(definition, ViewDefinition)

    def move_input(input: Input) -> Input:
        columns = tuple(place(c) for c in input.columns) if input.relation_id == relation_id else input.columns
        return msgspec.structs.replace(input, columns=columns)

    fragments = tuple(
        msgspec.structs.replace(f, inputs=tuple(move_input(i) for i in f.inputs)) for f in definition.fragments
    )
    if fragments == definition.fragments:
        return view
    return msgspec.structs.replace(
        view, definition=encode_definition(msgspec.structs.replace(definition, fragments=fragments))
    )
