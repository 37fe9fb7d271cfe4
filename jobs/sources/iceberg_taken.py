"""The snapshots that a source has taken of an Iceberg table: one row per epoch, in a state table of the source.

    number bigint (key) | snapshot bigint | place string (catalog and name) | table string (its uuid)
    columns string (BoundColumns as JSON) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole snapshot)

The table is a singleton: only the driver reads and writes it. Snapshot ids have no order, hence the number. The next
epoch continues after the row with the largest one, or with the rest of its snapshot.
"""

from dataclasses import dataclass

import msgspec

from tussock.jobs.sources.snapshot_cuts import SnapshotCut, cut_of
from tussock.jobs.sources.taken_rows import read_taken, seal_taken
from tussock.statestore.decoding import decoder_of
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable

TAKEN_COLUMNS = (
    ("number", "bigint"),
    ("snapshot", "bigint"),
    ("place", "string"),
    ("table", "string"),
    ("columns", "string"),
    ("size", "bigint"),
    ("epoch", "bigint"),
    ("files", "bigint"),
    ("rows", "bigint"),
    ("records", "bigint"),
    ("nbytes", "bigint"),
)


class BoundColumns(msgspec.Struct, frozen=True):
    """The table's fields that the declared columns mean.

    Args:
        ids: field ids by declared name in lower case.
        fields: names of struct fields inside of them, by field id.
    """

    ids: dict[str, int]
    fields: dict[int, str] = {}


@dataclass(frozen=True, slots=True)
class IcebergTaken:
    """The last snapshot that an epoch took. `end`: of the rows taken so far, if later epochs take more of them."""

    number: int
    snapshot: int
    place: str
    table: str
    columns: BoundColumns
    nbytes: int
    end: SnapshotCut | None = None


_bound_columns = decoder_of(BoundColumns).decode


def taken_snapshots(taken: StorageTable) -> list[IcebergTaken]:
    """Return the last snapshot that each epoch took, in order."""
    snapshots = (
        IcebergTaken(
            r["number"],
            r["snapshot"],
            r["place"],
            r["table"],
            _bound_columns(r["columns"]),
            r["size"],
            cut_of(r),
        )
        for r in read_taken(taken)
    )
    return sorted(snapshots, key=lambda t: t.number)


def newest_taken(taken: StorageTable | None) -> IcebergTaken | None:
    """Return the last taken snapshot; None if the source has taken nothing."""
    snapshots = [] if taken is None else taken_snapshots(taken)
    return snapshots[-1] if snapshots else None


def taken_row(schema: TableSchema, taken: IcebergTaken, epoch: int) -> SealedBatch:
    """Return the row that records a taken snapshot, ready for ingest. `schema` has the table's id."""
    of_table = (taken.number, taken.snapshot, taken.place, taken.table)
    columns, end = msgspec.json.encode(taken.columns).decode(), taken.end or SnapshotCut()
    return seal_taken(schema, TAKEN_COLUMNS, [(*of_table, columns, taken.nbytes, epoch, *msgspec.structs.astuple(end))])
