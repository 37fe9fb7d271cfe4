"""The offsets that a source has taken of Kafka topics: one row per partition, in a state table of the source.

    number bigint (key) | topic string | partition int | topic_id string | first bigint | next bigint | epoch bigint

`number` is the high part of the `_row_id`s of the partition's records. If a topic is dropped and created again, its
partitions get new numbers. Offsets from `first` up to `next`, exclusive, have been read or skipped. Only the driver
reads and writes the table.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from tussock.statestore.decoding import convert_value
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

_COLUMNS = (
    ("number", "bigint"),
    ("topic", "string"),
    ("partition", "int"),
    ("topic_id", "string"),
    ("first", "bigint"),
    ("next", "bigint"),
    ("epoch", "bigint"),
)


class Offsets(msgspec.Struct, frozen=True):
    """Offsets of a partition from `first` up to `next`, exclusive."""

    number: int
    topic: str
    partition: int
    topic_id: str
    first: int
    next: int

    @property
    def name(self) -> str:
        """The partition's name for users."""
        return f"{self.topic}-{self.partition}"


def taken_schema(source: str) -> TableSchema:
    """Return the schema of the state table. Its id is 0 until the catalog assigns one."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in _COLUMNS), (KeyColumn(0),), ())


def taken_offsets(taken: StorageTable | None) -> list[Offsets]:
    """Return the taken offsets, by number. If a partition was created again, the last entry counts."""
    if taken is None:
        return []
    rows = [r for part in taken.scan() for r in part.to_pylist()]
    return sorted(
        (convert_value({k: v for k, v in r.items() if k != "epoch"}, Offsets) for r in rows), key=lambda o: o.number
    )


def taken_rows(schema: TableSchema, offsets: Sequence[Offsets], epoch: int) -> SealedBatch:
    """Return the rows that record offsets, ready for ingest. A row replaces the one with its number.

    `schema` has the table's id.
    """
    ordered = sorted(offsets, key=lambda o: o.number)
    values = {name: [epoch if name == "epoch" else getattr(o, name) for o in ordered] for name, _ in _COLUMNS}
    columns = {name: pa.array(values[name], arrow_type(kind)) for name, kind in _COLUMNS}
    keys = encode_keys(schema.table_id, np.zeros(len(ordered), np.uint16), [columns["number"]], schema.key)
    return SealedBatch(
        schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(len(ordered), np.uint8)), **columns})
    )
