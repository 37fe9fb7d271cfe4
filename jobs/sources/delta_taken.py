"""The versions that a source has taken of a Delta table: one row per epoch, in a state table of the source.

    version bigint (key) | place string (its folder) | table string (its id) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole version)

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest version, or
with the rest of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.jobs.sources.snapshot_cuts import START, SnapshotCut
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

_COLUMNS = (
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


def taken_schema(source: str) -> TableSchema:
    """Return the schema of the state table. Its id is 0 until the catalog assigns one."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in _COLUMNS), (KeyColumn(0),), ())


def taken_versions(taken: StorageTable) -> list[DeltaTaken]:
    """Return the last version that each epoch took, in order."""
    rows = [r for part in taken.scan() for r in part.to_pylist()]
    versions = (DeltaTaken(r["version"], r["place"], r["table"], r["size"], _cut_of(r)) for r in rows)
    return sorted(versions, key=lambda t: t.version)


def _cut_of(row: Mapping[str, Any]) -> SnapshotCut | None:
    return SnapshotCut(row["files"], row["rows"], row["records"], row["nbytes"]) or None


def newest_taken(taken: StorageTable | None) -> DeltaTaken | None:
    """Return the largest taken version; None if the source has taken nothing."""
    versions = [] if taken is None else taken_versions(taken)
    return versions[-1] if versions else None


def taken_row(schema: TableSchema, taken: DeltaTaken, epoch: int) -> SealedBatch:
    """Return the row that records a taken version, ready for ingest. `schema` has the table's id."""
    end = taken.end or START
    values = (
        taken.version,
        taken.place,
        taken.table,
        taken.nbytes,
        epoch,
        end.files,
        end.rows,
        end.records,
        end.nbytes,
    )
    columns = {name: pa.array([value], arrow_type(kind)) for (name, kind), value in zip(_COLUMNS, values, strict=True)}
    keys = encode_keys(schema.table_id, np.zeros(1, np.uint16), [columns["version"]], schema.key)
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(1, np.uint8)), **columns}))
