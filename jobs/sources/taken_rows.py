"""The rows of a source's state table of taken input, for each kind of source. Only the driver reads and writes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

#: (name, type) of each column; the first one is the key.
TakenColumns = tuple[tuple[str, str], ...]


def make_taken_schema(source: str, columns: TakenColumns) -> TableSchema:
    """Return the schema of the state table. Its id is 0 until the catalog assigns one."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in columns), (KeyColumn(0),), ())


def read_taken(taken: StorageTable | None) -> list[dict[str, Any]]:
    """Return all rows by the names of their columns, in no order; none without a table."""
    return [] if taken is None else [row for part in taken.scan() for row in part.to_pylist()]


def seal_taken(schema: TableSchema, columns: TakenColumns, rows: Sequence[Sequence[object]]) -> SealedBatch:
    """Return rows ready for ingest. A row replaces the one with its key.

    Args:
        schema: with the table's id.
        rows: in the order of their keys.
    """
    values = zip(*rows, strict=True)
    arrays = {name: pa.array(column, arrow_type(kind)) for (name, kind), column in zip(columns, values, strict=True)}
    keys = encode_keys(schema.table_id, np.zeros(len(rows), np.uint16), [arrays[columns[0][0]]], schema.key)
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(len(rows), np.uint8)), **arrays}))
