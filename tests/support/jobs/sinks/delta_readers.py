"""Rows of Delta tables, read by two programs that know nothing of each other's code for deletion vectors."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def package_rows(table: DeltaTable) -> pa.Table:
    """The rows, read by the deltalake package with DataFusion."""
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    return plain_texts(rows)


def duckdb_rows(table: DeltaTable) -> pa.Table:
    """The rows of the files in a local table, read by DuckDB, without the positions of the deletion vectors."""
    masks = (
        {} if "deletionVectors" not in (table.protocol().reader_features or ()) else pa.table(table.deletion_vectors())
    )
    dead = (
        {
            _local_path(path): [place for place, live in enumerate(mask) if not live]
            for path, mask in zip(*(masks[n].to_pylist() for n in ("filepath", "selection_vector")), strict=True)
        }
        if masks
        else {}
    )
    columns = ", ".join(f'"{field.name}"' for field in table.schema().fields)
    schema = plain_texts(pa.schema(table.schema().to_arrow()).empty_table()).schema
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        parts = []
        for path in map(_local_path, table.file_uris()):
            gone = ",".join(map(str, dead.get(path, []))) or "-1"
            sql = f"SELECT {columns} FROM read_parquet(?, file_row_number = true) WHERE file_row_number NOT IN ({gone})"
            parts.append(connection.sql(sql, params=[path]).to_arrow_table().cast(schema))
    return pa.concat_tables([schema.empty_table(), *parts])


def plain_texts(rows: pa.Table) -> pa.Table:
    """The rows without the package's views of texts."""
    fields = [field.with_type(_plain_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def _local_path(address: str) -> str:
    return str(Path(unquote(urlsplit(address).path) if address.startswith("file:") else address))
