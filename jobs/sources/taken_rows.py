"""The rows of a source's state table of taken input, for each kind of source. Only the driver reads and writes them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from tussock.statestore.decoding import convert_value
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

T = TypeVar("T", bound=msgspec.Struct)

#: (name, type) of each column; the first one is the key.
TakenColumns = tuple[tuple[str, str], ...]


class TakenLog(Generic[T]):
    """The records of what epochs have taken of a source: a row per record, with a column per field and the epoch.

    The first field is the key: a record replaces the one with its key.
    """

    def __init__(self, record: type[T], *, epoch_at: int, narrow: Collection[str] = ()) -> None:
        """
        Args:
            record: the class of the records. A field of str is a string column, one of int a bigint column.
            epoch_at: the position of the column `epoch`.
            narrow: fields of int that are int columns.
        """
        columns = [
            (field.name, "string" if field.type is str else "int" if field.name in narrow else "bigint")
            for field in msgspec.structs.fields(record)
        ]
        self.columns: TakenColumns = (*columns[:epoch_at], ("epoch", "bigint"), *columns[epoch_at:])
        self._record = record

    def read_all(self, taken: StorageTable | None) -> list[T]:
        """Return all records in the order of their keys; none without a table."""
        rows = sorted(_rows_of(taken), key=lambda row: row[self.columns[0][0]])
        return list(map(self._decode_row, rows))

    def read_newest(self, taken: StorageTable | None) -> T | None:
        """Return the record of the newest epoch, of several the one with the largest key.

        None if the source has taken nothing.
        """
        row = max(_rows_of(taken), key=lambda row: (row["epoch"], row[self.columns[0][0]]), default=None)
        return None if row is None else self._decode_row(row)

    def _decode_row(self, row: Mapping[str, Any]) -> T:
        return convert_value({k: v for k, v in row.items() if k != "epoch"}, self._record)

    def seal_records(self, schema: TableSchema, records: Sequence[T], epoch: int) -> SealedBatch:
        """Return the rows of records, which are in the order of their keys, ready for ingest.

        `schema` has the table's id.
        """
        rows = [{**msgspec.structs.asdict(record), "epoch": epoch} for record in records]
        arrays = {name: pa.array([row[name] for row in rows], arrow_type(kind)) for name, kind in self.columns}
        keys = encode_keys(schema.table_id, np.zeros(len(rows), np.uint16), [arrays[self.columns[0][0]]], schema.key)
        inserts = pa.array(np.ones(len(rows), np.uint8))
        return SealedBatch(schema.table_id, pa.table({"key": keys, "op": inserts, **arrays}))


def _rows_of(taken: StorageTable | None) -> Iterator[Mapping[str, Any]]:
    if taken is not None:
        for part in taken.scan():
            yield from part.to_pylist()


def make_taken_schema(source: str, columns: TakenColumns) -> TableSchema:
    """Return the schema of the state table. Its id is 0 until the catalog assigns one."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in columns), (KeyColumn(0),), ())
