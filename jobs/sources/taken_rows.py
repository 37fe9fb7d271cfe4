"""The rows of a source's state table of taken input, for each kind of source. Only the driver reads and writes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

T = TypeVar("T")

#: (name, type) of each column; the first one is the key.
TakenColumns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TakenLog(Generic[T]):
    """The records of what each epoch has taken of a table or a store: one row per epoch. The key orders them.

    Args:
        decode: makes a record of a row, by the names of its columns.
        encode: makes the values of a row, in the order of the columns, of a record and an epoch.
    """

    columns: TakenColumns
    decode: Callable[[dict[str, Any]], T]
    encode: Callable[[T, int], Sequence[object]]

    def read_all(self, taken: StorageTable | None) -> list[T]:
        """Return all records in the order of their keys; none without a table."""
        return [self.decode(row) for row in sorted(read_taken(taken), key=lambda row: row[self.columns[0][0]])]

    def read_newest(self, taken: StorageTable | None) -> T | None:
        """Return the record with the largest key; None if the source has taken nothing."""
        records = self.read_all(taken)
        return records[-1] if records else None

    def seal_record(self, schema: TableSchema, record: T, epoch: int) -> SealedBatch:
        """Return the row of a record, ready for ingest. `schema` has the table's id."""
        return seal_taken(schema, self.columns, [self.encode(record, epoch)])


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
