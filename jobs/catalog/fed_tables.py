"""Tables that a source feeds through a port of its leaf.

They are created and dropped with the source; DELETE and TRUNCATE empty them.
"""

from dataclasses import dataclass

import msgspec

from tussock.jobs.catalog.definition import TableDefinition, definition_of, encode_definition, source_of
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.plan.fragments import Dispatch, Fragment, Input, Operator, Output, input_ref
from tussock.jobs.sources.ports import FIELDS, FedTable, Port, fed_tables
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind


class FedTableError(InputError, hides_row_values=True):
    """A statement would write or change a table that a source feeds. `holds`: the rows of the table."""

    name: str
    source: str
    holds: str
    statement: str

    def __str__(self) -> str:
        return (
            f"{self.statement} {self.name}: the table contains {self.holds}, and only the source writes it. Nothing "
            f"was changed. DELETE FROM {self.name} WHERE … and TRUNCATE TABLE {self.name} empty it. DROP SOURCE "
            f"{self.source} drops it too."
        )


@dataclass(frozen=True, slots=True)
class FedBy:
    """The source that feeds a table, by its relation id, and the port."""

    source: int
    port: Port


def fed_relation(catalog: Catalog, source: Relation, fed: FedTable, epoch: int) -> Relation:
    """The table for a port of a new source, with the catalog's next ids."""
    fields, relation_id = FIELDS[fed.port], catalog.next_relation_id
    types = tuple(f.type for f in fields)
    node = TableReplay(relation_id, fed.key, types)
    (rows,) = (msgspec.structs.replace(s, table_id=catalog.next_table_id) for s in node.state_tables())
    arriving = Input(source.id, None, tuple(range(len(types))), types, Dispatch.HASH, fed.key, port=fed.port)
    fragment = Fragment((arriving,), (Operator(node, (input_ref(0),), (rows.table_id,)),), types, False)
    table = CreateTable(fed.name, fields, fed.key, comment=fed.holds)
    output = Output(types, fed.key, rows.distribution, False, rows.table_id)
    definition = TableDefinition(table, (fragment,), output, rejects_of=source.id)
    columns = tuple(ColumnSpec(f.name, f.type) for f in fields)
    return Relation(
        relation_id,
        fed.name,
        RelationKind.TABLE,
        columns,
        encode_definition(definition),
        (rows,),
        (source.id,),
        created=epoch,
    )


def fed_by(table: Relation) -> FedBy | None:
    """The source that feeds a table. None if statements write it."""
    definition = definition_of(table) if table.kind is RelationKind.TABLE else None
    if not isinstance(definition, TableDefinition) or definition.rejects_of is None:
        return None
    return FedBy(definition.rejects_of, definition.fragments[0].inputs[0].port)


def is_fed_by(table: Relation, source: int) -> bool:
    """Whether the source with this relation id feeds a table."""
    return (feed := fed_by(table)) is not None and feed.source == source


def fed_by_source(catalog: Catalog, port: Port) -> dict[str, Relation]:
    """The tables that sources feed through a port, by source name."""
    names = {r.id: r.name for r in catalog.live_relations()}
    fed_relations = ((fed, r) for r in catalog.live_relations() if (fed := fed_by(r)) is not None and fed.port is port)
    return {names[fed.source]: r for fed, r in fed_relations if fed.source in names}


def require_not_fed(catalog: Catalog, table: Relation, statement: str) -> None:
    """Raises FedTableError if a source feeds the table."""
    if (feed := fed_by(table)) is not None:
        source = next(r for r in catalog.live_relations() if r.id == feed.source)
        declaration = source_of(source)
        assert declaration is not None
        holds = next(
            (fed.holds for fed in fed_tables(declaration) if fed.port is feed.port), f"{feed.port} of {source.name}"
        )
        raise FedTableError(table.name, source.name, holds, statement)
