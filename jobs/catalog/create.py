"""Turn a CREATE statement into a relation of the catalog, with columns, state tables and fragments."""

from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec
import pyarrow as pa

from tussock.jobs.catalog.definition import (
    Definition,
    FunctionDefinition,
    PlainViewDefinition,
    SourceDefinition,
    TableDefinition,
    ViewDefinition,
    definition_of,
    encode_definition,
    find_relation,
    output_of,
    source_of,
)
from tussock.jobs.catalog.difference import Create
from tussock.jobs.executors.keyed_changes import KeyedChanges
from tussock.jobs.executors.keyed_deliveries import KeyedDeliveries
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.logical.expression_tree import python_calls
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field, Plan, walk_plan
from tussock.jobs.logical.statements import (
    ROW_ID_TYPE,
    CreateFunction,
    CreatePlainView,
    CreateSource,
    CreateTable,
    CreateView,
)
from tussock.jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input, Operator, Output, input_ref
from tussock.jobs.plan.stream import ViewPlan, plan_view
from tussock.jobs.plan.streams.builder import Upstream
from tussock.jobs.sources.base import ByColumns, ByPosition, ByValue, Identity
from tussock.jobs.sources.keyed import is_keyed
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import plan_of_source, reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.row_shape import value_bytes
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind, TableSchema
from tussock.statestore.types import arrow_type


class FunctionChangedError(InputError):
    """Another session has replaced a function after a view was bound to its code."""

    name: str

    def __str__(self) -> str:
        return (
            f"function {self.name!r} was replaced after this statement was checked. Nothing was changed. Run the "
            "statement again."
        )


class PausedViewError(InputError):
    """A new view reads a paused view, so its first epoch would read rows that no later epoch updates."""

    name: str
    paused: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"view {self.name!r} cannot be created, because it reads {self.paused!r}, which is paused since epoch "
            f"{self.epoch}. Resume that view first: `tussock apply PIPELINE --resume {self.paused}`, or CREATE OR "
            f"REPLACE MATERIALIZED VIEW {self.paused} with the same SELECT, which rebuilds it."
        )


def create_relation(catalog: Catalog, statement: Create, epoch: int) -> Relation:
    """The relation that a CREATE defines, with the catalog's next ids.

    Raises: errors of the planner; UnknownRelationError, FunctionChangedError, PausedViewError if an input has changed.
    """
    relation_id, table_id = catalog.next_relation_id, catalog.next_table_id
    name = statement.name.lower()
    match statement:
        case CreateSource():
            taken = msgspec.structs.replace(reader_of(statement).taken_schema(name), table_id=table_id)
            source, tables = _source_of_records(relation_id, statement, table_id)
            return _make_relation(
                relation_id, name, RelationKind.SOURCE, statement.fields, source, epoch, (taken, *tables)
            )
        case CreateTable():
            types, key = tuple(f.type for f in statement.fields), statement.key
            if not key:
                types, key = (*types, ROW_ID_TYPE), (len(types),)
            node = TableReplay(relation_id, key, types, not statement.key, statement.append_only)
            tables = tuple(msgspec.structs.replace(s, table_id=table_id + i) for i, s in enumerate(node.state_tables()))
            fragment = Fragment((), (Operator(node, (), tuple(s.table_id for s in tables)),), types, False)
            output = Output(types, key, tables[0].distribution, statement.append_only, table_id)
            table = TableDefinition(statement, (fragment,), output)
            return _make_relation(relation_id, name, RelationKind.TABLE, statement.fields, table, epoch, tables)
        case CreateView():
            planned = plan_view(statement.plan, relation_id, upstream_lookup(catalog), table_id)
            depends_on = read_by(catalog, statement, planned)
            for read in catalog.live_relations():
                if read.id in depends_on and read.paused is not None:
                    raise PausedViewError(name, read.name, read.paused)
            view = ViewDefinition(
                statement.sql, statement.plan, planned.fragments, planned.output, statement.columns, statement.written
            )
            return _make_relation(
                relation_id, name, RelationKind.VIEW, statement.plan.fields, view, epoch, planned.tables, depends_on
            )
        case CreatePlainView():
            definition = PlainViewDefinition(msgspec.structs.replace(statement, or_replace=False))
            return _make_relation(
                relation_id,
                name,
                RelationKind.PLAIN_VIEW,
                statement.fields,
                definition,
                epoch,
                (),
                used_by(catalog, statement),
            )
        case CreateFunction():
            function = FunctionDefinition(msgspec.structs.replace(statement, or_replace=False))
            return _make_relation(relation_id, name, RelationKind.FUNCTION, statement.fields, function, epoch)


def _source_of_records(
    relation_id: int, statement: CreateSource, taken_table_id: int
) -> tuple[SourceDefinition, tuple[TableSchema, ...]]:
    """The definition of a source and, if it is keyed, the state tables of its rows."""
    if statement.keyed is None:
        return SourceDefinition(statement, taken_table_id), ()
    plan = plan_of_source(statement)
    types = tuple(f.type for f in statement.fields)
    node = (
        KeyedChanges(plan.key, types, plan.tombstones_us, plan.keeps_history, plan.truncates, plan.omits, plan.by_value)
        if plan.deliveries is None
        else KeyedDeliveries(plan.key, types, plan.scope)
    )
    tables = tuple(
        msgspec.structs.replace(s, table_id=taken_table_id + i) for i, s in enumerate(node.state_tables(), start=1)
    )
    change = (*types, *plan.change_types)
    arriving = Input(relation_id, None, tuple(range(len(change))), change, Dispatch.HASH, plan.key, port=Port.CHANGES)
    inputs: tuple[Input, ...] = (arriving,)
    if plan.truncates or plan.deliveries is not None:
        begun = (*(types[c] for c in plan.scope), *plan.truncation_types)
        places = tuple(range(len(begun)))
        inputs += (Input(relation_id, None, places, begun, Dispatch.BROADCAST, port=Port.TRUNCATIONS),)
    operator = Operator(node, tuple(map(input_ref, range(len(inputs)))), tuple(s.table_id for s in tables))
    output = Output(types, plan.key, tables[0].distribution, False, tables[0].table_id)
    return SourceDefinition(
        statement, taken_table_id, fragments=(Fragment(inputs, (operator,), types, False),), output=output
    ), tables


def with_stored_columns(
    relation: Relation, definition: SourceDefinition, to: CreateSource
) -> tuple[Relation, SourceDefinition]:
    """Add the further columns of `to` to the tables of a keyed source. Stored rows have NULL in them."""
    grown, tables = _source_of_records(relation.id, to, definition.taken_table_id)
    taken, rows, *others = relation.state_tables
    assert definition.output is not None
    hidden = len(rows.columns) - len(definition.output.types)
    stored = [_with_columns_of(rows, tables[0], hidden)]
    stored += (_with_columns_of(was, now) for was, now in zip(others, tables[1:], strict=True))
    relation = msgspec.structs.replace(relation, state_tables=(taken, *stored))
    return relation, msgspec.structs.replace(definition, fragments=grown.fragments, output=grown.output)


def _with_columns_of(was: TableSchema, now: TableSchema, hidden: int = 0) -> TableSchema:
    """A table with the further columns of `now`, NULL in the rows that it has. Its last `hidden` columns stay last."""
    end = len(was.columns) - hidden
    new = now.columns[end : len(now.columns) - hidden]
    added = (
        ColumnSpec(name, c.type, value_bytes(pa.nulls(1, arrow_type(c.type))))
        for name, c in zip(was.unused_names(len(new)), new, strict=True)
    )
    columns = (*was.columns[:end], *added, *was.columns[end:])
    return msgspec.structs.replace(now, columns=columns, retired=was.retired)


def _make_relation(
    relation_id: int,
    name: str,
    kind: RelationKind,
    fields: Sequence[Field],
    definition: Definition,
    epoch: int,
    tables: tuple[TableSchema, ...] = (),
    depends_on: tuple[int, ...] = (),
) -> Relation:
    return Relation(
        relation_id, name, kind, columns_of(fields), encode_definition(definition), tables, depends_on, created=epoch
    )


def columns_of(fields: Sequence[Field]) -> tuple[ColumnSpec, ...]:
    """A relation's columns as its catalog entry stores them."""
    return tuple(ColumnSpec(f.name, f.type) for f in fields)


def read_by(catalog: Catalog, statement: CreateView, planned: ViewPlan) -> tuple[int, ...]:
    """The ids of a view's dependencies: relations that its plan reads, and the plain views and functions it uses."""
    inputs = {i.relation_id for f in planned.fragments for i in f.inputs if i.relation_id is not None}
    named = {find_relation(catalog, name).id for name in statement.uses}
    return tuple(sorted(inputs | named | _functions_called(catalog, statement.plan)))


def used_by(catalog: Catalog, statement: CreatePlainView) -> tuple[int, ...]:
    """The ids of a plain view's dependencies."""
    return tuple(sorted(find_relation(catalog, name).id for name in statement.uses))


def _functions_called(catalog: Catalog, plan: Plan) -> set[int]:
    """The ids of the Python functions in a plan.

    Raises UnknownRelationError, FunctionChangedError if one has changed.
    """
    ids: set[int] = set()
    for call in (c for node in walk_plan(plan) for e in node.expressions for c in python_calls(e)):
        relation = find_relation(catalog, dict(call.params)["name"], RelationKind.FUNCTION)
        definition = definition_of(relation)
        assert isinstance(definition, FunctionDefinition)
        if dict(call.params)["digest"] != definition.statement.digest:
            raise FunctionChangedError(relation.name)
        ids.add(relation.id)
    return ids


def _key_of(source: CreateSource, identity: Identity) -> tuple[tuple[int, str], ...]:
    """The columns that identify a row of a source, with their types. Empty if only the whole row identifies it."""
    match identity:
        case ByPosition():
            return ((ROW_ID, "bigint"),)
        case ByColumns(columns):
            return tuple((c, source.fields[c].type) for c in columns)
        case ByValue():
            return ()
        case _:
            assert_never(identity)


def hidden_of(relation: Relation) -> tuple[HiddenColumn, ...]:
    """The hidden columns of a relation; only sources of files without a key have any."""
    source = source_of(relation)
    return () if source is None or is_keyed(source) else reader_of(source).hidden(source)


def upstream_lookup(catalog: Catalog) -> Callable[[str], Upstream]:
    """The planner's information about a relation, by name."""

    def find_upstream(name: str) -> Upstream:
        relation = find_relation(catalog, name)
        definition = definition_of(relation)
        if isinstance(definition, SourceDefinition) and definition.output is None:
            statement, reader = definition.statement, reader_of(definition.statement)
            return Upstream(
                relation.id,
                relation.kind,
                None,
                _key_of(statement, reader.identity(statement)),
                reader.append_only(statement),
            )
        output = output_of(relation)
        assert output is not None, "Spark expanded it when the query was bound"
        return Upstream(relation.id, relation.kind, output)

    return find_upstream
