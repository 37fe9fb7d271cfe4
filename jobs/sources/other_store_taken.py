"""The epochs that a source has taken of another store: one row per epoch, in a state table of the source.

    last bigint (key, the other store's epoch) | home string (that store's identity) | relation bigint (its id there)
    place string | size bigint (bytes read) | epoch bigint

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest `last`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

_COLUMNS = (
    ("last", "bigint"),
    ("home", "string"),
    ("relation", "bigint"),
    ("place", "string"),
    ("size", "bigint"),
    ("epoch", "bigint"),
)


@dataclass(frozen=True, slots=True)
class EpochTaken:
    """The last epoch of another store that an epoch took.

    Args:
        home: the identity of the store; empty if it records none.
        relation: the relation's id.
        place: relation and store, for display.
    """

    last: int
    home: str
    relation: int
    place: str
    nbytes: int


def taken_schema(source: str) -> TableSchema:
    """Return the schema of the state table. Its id is 0 until the catalog assigns one."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in _COLUMNS), (KeyColumn(0),), ())


def taken_epochs(taken: StorageTable) -> list[EpochTaken]:
    """Return the last epoch that each of our epochs took, in order."""
    rows = [r for part in taken.scan() for r in part.to_pylist()]
    made = (EpochTaken(r["last"], r["home"], r["relation"], r["place"], r["size"]) for r in rows)
    return sorted(made, key=lambda t: t.last)


def newest_taken(taken: StorageTable | None) -> EpochTaken | None:
    """Return the last taken epoch; None if the source has taken nothing."""
    epochs = [] if taken is None else taken_epochs(taken)
    return epochs[-1] if epochs else None


def taken_row(schema: TableSchema, taken: EpochTaken, epoch: int) -> SealedBatch:
    """Return the row that records a taken epoch, ready for ingest. `schema` has the table's id."""
    values = (taken.last, taken.home, taken.relation, taken.place, taken.nbytes, epoch)
    columns = {name: pa.array([value], arrow_type(kind)) for (name, kind), value in zip(_COLUMNS, values, strict=True)}
    keys = encode_keys(schema.table_id, np.zeros(1, np.uint16), [columns["last"]], schema.key)
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(1, np.uint8)), **columns}))
