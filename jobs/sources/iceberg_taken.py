"""The snapshots that a source has taken of an Iceberg table: one row per epoch, in a state table of the source.

    number bigint (key) | snapshot bigint | place string (catalog and name) | table string (its uuid)
    columns string (BoundColumns as JSON) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole snapshot)

The table is a singleton: only the driver reads and writes it. Snapshot ids have no order, hence the number. The next
epoch continues after the row with the largest one, or with the rest of its snapshot.
"""

import msgspec

from tussock.jobs.sources.snapshot_cuts import PartTaken
from tussock.jobs.sources.taken_rows import TakenLog
from tussock.statestore.decoding import decoder_of


class BoundColumns(msgspec.Struct, frozen=True):
    """The table's fields that the declared columns mean.

    Args:
        ids: field ids by declared name in lower case.
        fields: names of struct fields inside of them, by field id.
    """

    ids: dict[str, int]
    fields: dict[int, str] = {}


_bound_columns = decoder_of(BoundColumns).decode


class IcebergTaken(PartTaken, frozen=True):
    """The last snapshot that an epoch took."""

    number: int
    snapshot: int
    place: str
    table: str
    columns: str
    size: int

    @property
    def bound_columns(self) -> BoundColumns:
        """The fields that the declared columns mean."""
        return _bound_columns(self.columns)


TAKEN_SNAPSHOTS = TakenLog(IcebergTaken, epoch_at=6)
