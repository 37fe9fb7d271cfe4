"""The table of a source's rejects: made and dropped with the source, filled by its leaf, emptied by DELETE and TRUNCATE."""

import msgspec

from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.plan.definition import TableDefinition, definition_of, encoded, source_of
from tussock.jobs.plan.fragments import Dispatch, Fragment, Input, Operator, Output, input_ref
from tussock.jobs.sources.rejects import FIELDS, KEY, TYPES, quarantines, rejects_name
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind


class RejectsTableError(InputError):
    """A statement on the table of a source's rejects that would make it something else."""

    def __init__(self, name: str, source: str, statement: str) -> None:
        super().__init__(name, source, statement)
        self.name, self.source, self.statement = name, source, statement

    def __str__(self) -> str:
        return (
            f"{self.statement} {self.name}: it holds the records of source {self.source!r} that could not be read, and the source alone "
            f"writes it. Nothing was changed. DELETE FROM {self.name} WHERE … and TRUNCATE TABLE {self.name} empty it; it goes with its "
            f"source (DROP SOURCE {self.source})."
        )


def rejects_table(catalog: Catalog, source: Relation, epoch: int) -> Relation | None:
    """The table of rejects of a source that is about to be created, under the catalog's next ids; None where it quarantines nothing."""
    statement = source_of(source)
    if statement is None or not quarantines(statement):
        return None
    relation_id, name = catalog.next_relation_id, rejects_name(source.name)
    node = TableReplay(relation_id, KEY, TYPES)
    (rows,) = (msgspec.structs.replace(s, table_id=catalog.next_table_id) for s in node.state_tables())
    arriving = Input(source.id, None, tuple(range(len(TYPES))), TYPES, Dispatch.HASH, KEY, rejects=True)
    fragment = Fragment((arriving,), (Operator(node, (input_ref(0),), (rows.table_id,)),), TYPES, False)
    table = CreateTable(name, FIELDS, KEY, comment=f"records of source {source.name} that could not be read")
    definition = TableDefinition(table, (fragment,), Output(TYPES, KEY, rows.distribution, False, rows.table_id), rejects_of=source.id)
    columns = tuple(ColumnSpec(f.name, f.type) for f in FIELDS)
    return Relation(relation_id, name, RelationKind.TABLE, columns, encoded(definition), (rows,), (source.id,), created=epoch)


def source_id_of(table: Relation) -> int | None:
    """The id of the source whose rejects a table holds; None of all others."""
    definition = definition_of(table) if table.kind is RelationKind.TABLE else None
    return definition.rejects_of if isinstance(definition, TableDefinition) else None


def rejects_by_source(catalog: Catalog) -> dict[str, Relation]:
    """The tables of rejects, by their source's name."""
    names = {r.id: r.name for r in catalog.live()}
    return {names[of]: r for r in catalog.live() if (of := source_id_of(r)) is not None and of in names}


def require_no_rejects(catalog: Catalog, table: Relation, statement: str) -> None:
    """Raises RejectsTableError for the table of a source's rejects."""
    if (of := source_id_of(table)) is not None:
        raise RejectsTableError(table.name, next(r.name for r in catalog.live() if r.id == of), statement)
