"""The epochs that a source has taken of another store: one row per epoch, in a state table of the source.

    last bigint (key, the other store's epoch) | home string (that store's identity) | relation bigint (its id there)
    place string | size bigint (bytes read) | epoch bigint

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest `last`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tussock.jobs.sources.taken_rows import TakenLog

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


def _decode(row: dict[str, Any]) -> EpochTaken:
    return EpochTaken(row["last"], row["home"], row["relation"], row["place"], row["size"])


def _encode(taken: EpochTaken, epoch: int) -> Sequence[object]:
    return (taken.last, taken.home, taken.relation, taken.place, taken.nbytes, epoch)


TAKEN_EPOCHS = TakenLog(_COLUMNS, _decode, _encode)
