"""The offsets that a source has taken of Kafka topics: one row per partition, in a state table of the source.

    number bigint (key) | topic string | partition int | topic_id string | first bigint | next bigint | epoch bigint

`number` is the high part of the `_row_id`s of the partition's records. If a topic is dropped and created again, its
partitions get new numbers. Offsets from `first` up to `next`, exclusive, have been read or skipped. Only the driver
reads and writes the table.
"""

import msgspec

from tussock.jobs.sources.taken_rows import TakenLog


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


TAKEN_OFFSETS = TakenLog(Offsets, epoch_at=6, narrow=("partition",))
"""If a partition was created again, its last record counts."""
