"""The epochs that a source has taken of another store: one row per epoch, in a state table of the source.

    last bigint (key, the other store's epoch) | home string (that store's identity) | relation bigint (its id there)
    place string | size bigint (bytes read) | epoch bigint

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest `last`.
"""

from dataclasses import dataclass

from tussock.jobs.sources.taken_rows import read_taken, seal_taken
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable

TAKEN_COLUMNS = (
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


def taken_epochs(taken: StorageTable) -> list[EpochTaken]:
    """Return the last epoch that each of our epochs took, in order."""
    rows = read_taken(taken)
    epochs = (EpochTaken(r["last"], r["home"], r["relation"], r["place"], r["size"]) for r in rows)
    return sorted(epochs, key=lambda t: t.last)


def newest_taken(taken: StorageTable | None) -> EpochTaken | None:
    """Return the last taken epoch; None if the source has taken nothing."""
    epochs = [] if taken is None else taken_epochs(taken)
    return epochs[-1] if epochs else None


def taken_row(schema: TableSchema, taken: EpochTaken, epoch: int) -> SealedBatch:
    """Return the row that records a taken epoch, ready for ingest. `schema` has the table's id."""
    return seal_taken(
        schema, TAKEN_COLUMNS, [(taken.last, taken.home, taken.relation, taken.place, taken.nbytes, epoch)]
    )
