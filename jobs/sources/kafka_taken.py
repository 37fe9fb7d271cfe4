"""The offsets that a source has taken of Kafka topics: one row per partition, in a state table of the source.

    number bigint (key) | topic string | partition int | topic_id string | first bigint | next bigint | epoch bigint

`number` is the high part of the `_row_id`s of the partition's records. If a topic is dropped and created again, its
partitions get new numbers. Offsets from `first` up to `next`, exclusive, have been read or skipped. Only the driver
reads and writes the table.
"""

from collections.abc import Sequence

import msgspec

from tussock.jobs.sources.taken_rows import read_taken, seal_taken
from tussock.statestore.decoding import convert_value
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable

TAKEN_COLUMNS = (
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


def taken_offsets(taken: StorageTable | None) -> list[Offsets]:
    """Return the taken offsets, by number. If a partition was created again, the last entry counts."""
    rows = ({k: v for k, v in row.items() if k != "epoch"} for row in read_taken(taken))
    return sorted((convert_value(row, Offsets) for row in rows), key=lambda o: o.number)


def taken_rows(schema: TableSchema, offsets: Sequence[Offsets], epoch: int) -> SealedBatch:
    """Return the rows that record offsets, ready for ingest. A row replaces the one with its number.

    `schema` has the table's id.
    """
    ordered = sorted(offsets, key=lambda o: o.number)
    return seal_taken(schema, TAKEN_COLUMNS, [(*msgspec.structs.astuple(offsets), epoch) for offsets in ordered])
