"""What a source has taken of a Delta table: a row per epoch that took versions, in a state table of the source.

    version bigint (key) | place string (its folder) | table string (its id) | size bigint (bytes that were read) | epoch bigint

The table is a singleton: the driver alone reads and writes it. The row with the largest version is where the source stands.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

_COLUMNS = (("version", "bigint"), ("place", "string"), ("table", "string"), ("size", "bigint"), ("epoch", "bigint"))


@dataclass(frozen=True, slots=True)
class DeltaTaken:
    """The last version that an epoch took."""

    version: int
    place: str
    table: str
    nbytes: int


def taken_schema(source: str) -> TableSchema:
    """The state table; its id is 0 until the catalog numbers it."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in _COLUMNS), (KeyColumn(0),), ())


def taken_versions(taken: StorageTable) -> list[DeltaTaken]:
    """What each epoch took, in order."""
    rows = [r for part in taken.scan() for r in part.to_pylist()]
    return sorted((DeltaTaken(r["version"], r["place"], r["table"], r["size"]) for r in rows), key=lambda t: t.version)


def newest_taken(taken: StorageTable | None) -> DeltaTaken | None:
    """Where the source stands; None where it has taken nothing."""
    found = [] if taken is None else taken_versions(taken)
    return found[-1] if found else None


def taken_row(schema: TableSchema, taken: DeltaTaken, epoch: int) -> SealedBatch:
    """The row that records it, ready for ingest. `schema` carries the table's id."""
    values = (taken.version, taken.place, taken.table, taken.nbytes, epoch)
    columns = {name: pa.array([value], arrow_type(kind)) for (name, kind), value in zip(_COLUMNS, values, strict=True)}
    keys = encode_keys(schema.table_id, np.zeros(1, np.uint16), [columns["version"]], schema.key)
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(1, np.uint8)), **columns}))
