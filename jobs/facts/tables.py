"""SSTs and state tables of a version, and the rows of one table."""

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from tussock.jobs.reading.reader import open_table
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation, RelationKind, TableSchema
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo


class NoSuchTableError(InputError):
    """No state table has this number, and no relation this name."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"no state table {self.name!r}; use a number or a relation's name: "
            f"{', '.join(self.known) or 'the store has none yet'}"
        )


class SstFacts(msgspec.Struct, frozen=True):
    """One SST of a version."""

    level: int
    name: str
    bytes: int
    rows: int
    min_epoch: int
    max_epoch: int
    tables: tuple[str, ...]  # `relation.role#number` of the state tables with rows in the SST


class TableFacts(msgspec.Struct, frozen=True):
    """One state table of a live relation."""

    table_id: int
    relation: str
    kind: str  # of the relation: source, table or view
    role: str  # its purpose in the relation
    columns: tuple[str, ...]  # `name type` of the relation's own rows; the type alone if it has no name for people
    rows: int  # in all SSTs, including old versions and deletes until compaction drops them
    bytes: int  # encoded; as for `rows`


def list_ssts(version: HummockVersion) -> tuple[SstFacts, ...]:
    """Return the SSTs of a version, level by level, newest first on level 0."""
    names = {
        t.table_id: f"{r.name}.{role_of(r, t.name)}#{t.table_id}"
        for r in version.catalog.stored_relations()
        for t in r.state_tables
    }
    return tuple(
        SstFacts(
            level,
            s.name,
            s.size,
            s.rows,
            s.min_epoch,
            s.max_epoch,
            tuple(names.get(x.table_id, f"?#{x.table_id}") for x in s.sections),
        )
        for level, ssts in enumerate(version.levels)
        for s in ssts
    )


def list_tables(version: HummockVersion) -> tuple[TableFacts, ...]:
    """Return the state tables of live relations, by number."""
    rows: dict[int, int] = {}
    size: dict[int, int] = {}
    for section in (x for s in all_ssts(version) for x in s.sections):
        rows[section.table_id] = rows.get(section.table_id, 0) + section.rows
        size[section.table_id] = size.get(section.table_id, 0) + section.bytes
    tables = (
        TableFacts(
            t.table_id,
            name,
            r.kind,
            role_of(r, t.name),
            _column_names(r, t),
            rows.get(t.table_id, 0),
            size.get(t.table_id, 0),
        )
        for name, r in version.catalog.relations_by_name().items()
        for t in r.state_tables
    )
    return tuple(sorted(tables, key=lambda table: table.table_id))


def tables_by_relation(version: HummockVersion) -> dict[str, list[TableFacts]]:
    """Return the state tables of each live relation that has one, by the relation's name."""
    tables: dict[str, list[TableFacts]] = {}
    for table in list_tables(version):
        tables.setdefault(table.relation, []).append(table)
    return tables


def stored_bytes(tables: Iterable[TableFacts]) -> int:
    """Return the encoded bytes of state tables, including old versions."""
    return sum(table.bytes for table in tables)


def _column_names(relation: Relation, table: TableSchema) -> tuple[str, ...]:
    """Return the columns of a state table as people know them. Those of operators have numbers instead of names."""
    own = relation.columns if role_of(relation, table.name) == "rows" else ()
    names = [f"{c.name} " for c in own] + [""] * (len(table.columns) - len(own))
    return tuple(f"{name}{c.type}" for name, c in zip(names, table.columns, strict=True))


def table_rows(meta: MetaStore, table: str, limit: int, epoch: int | None = None) -> pa.Table:
    """Return the first rows of a state table, in key order.

    Args:
        table: its number, or a relation's name for the table of the relation's own rows, with the relation's column
            names.
        epoch: None: the committed one.

    Raises: NoSuchTableError; EpochNotCommittedError, EpochExpiredError.
    """
    version = meta.read_latest()
    known = {t.table_id: (r, t) for r in version.catalog.live_relations() for t in r.state_tables}
    wanted = [(r, t) for number, (r, t) in known.items() if table in (str(number), r.name)]
    if not wanted:
        raise NoSuchTableError(table, (*map(str, known), *(r.name for r in version.catalog.live_relations())))
    relation, schema = wanted[-1]
    names = [
        c.name
        for c in (relation.columns if table == relation.name and relation.kind is not RelationKind.SOURCE else ())
    ]
    epoch = version.epoch if epoch is None else epoch
    parts: list[pa.Table] = []
    left = limit
    with meta.open_for_reading(epoch) as pinned:
        for part in open_table(meta.objects, pinned, schema, epoch).scan():
            parts.append(part.slice(0, left).rename_columns([*names, *part.column_names[len(names) :]]))
            left -= parts[-1].num_rows
            if left <= 0:
                break
    return pa.concat_tables(parts) if parts else pa.table({})


def all_ssts(version: HummockVersion) -> list[SstInfo]:
    """Return the SSTs of all levels."""
    return [s for level in version.levels for s in level]


def role_of(relation: Relation, table: str) -> str:
    """Return a state table's name without its relation's name as prefix."""
    return table.removeprefix(f"{relation.name}.")
