"""The versions that a source has taken of a Delta table: one row per epoch, in a state table of the source.

    version bigint (key) | place string (its folder) | table string (its id) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole version)

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest version, or
with the rest of it.
"""

from dataclasses import dataclass

import msgspec

from tussock.jobs.sources.snapshot_cuts import SnapshotCut, cut_of
from tussock.jobs.sources.taken_rows import read_taken, seal_taken
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable

TAKEN_COLUMNS = (
    ("version", "bigint"),
    ("place", "string"),
    ("table", "string"),
    ("size", "bigint"),
    ("epoch", "bigint"),
    ("files", "bigint"),
    ("rows", "bigint"),
    ("records", "bigint"),
    ("nbytes", "bigint"),
)


@dataclass(frozen=True, slots=True)
class DeltaTaken:
    """The last version that an epoch took. `end`: of the rows taken so far, if later epochs take more of them."""

    version: int
    place: str
    table: str
    nbytes: int
    end: SnapshotCut | None = None


def taken_versions(taken: StorageTable) -> list[DeltaTaken]:
    """Return the last version that each epoch took, in order."""
    versions = (DeltaTaken(r["version"], r["place"], r["table"], r["size"], cut_of(r)) for r in read_taken(taken))
    return sorted(versions, key=lambda t: t.version)


def newest_taken(taken: StorageTable | None) -> DeltaTaken | None:
    """Return the largest taken version; None if the source has taken nothing."""
    versions = [] if taken is None else taken_versions(taken)
    return versions[-1] if versions else None


def taken_row(schema: TableSchema, taken: DeltaTaken, epoch: int) -> SealedBatch:
    """Return the row that records a taken version, ready for ingest. `schema` has the table's id."""
    end = taken.end or SnapshotCut()
    values = (taken.version, taken.place, taken.table, taken.nbytes, epoch, *msgspec.structs.astuple(end))
    return seal_taken(schema, TAKEN_COLUMNS, [values])
