"""Catalogs of tables whose rows are (n, s). Compaction drops the rows of tables that a catalog lacks."""

from collections.abc import Iterable

import msgspec

from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind, TableSchema

COLUMNS = (ColumnSpec("n", "bigint"), ColumnSpec("s", "string"))


def catalog_of(tables: Iterable[int]) -> Catalog:
    """A relation of one state table for each; none is dropped."""
    relations = tuple(
        Relation(
            i, f"t{i}", RelationKind.TABLE, COLUMNS, msgspec.Raw(b"{}"), (TableSchema(i, f"t{i}", COLUMNS, (), ()),)
        )
        for i in tables
    )
    return Catalog(relations, 100, 100)
