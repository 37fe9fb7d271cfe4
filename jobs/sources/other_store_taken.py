"""The epochs that a source has taken of another store: one row per epoch, in a state table of the source.

    last bigint (key, the other store's epoch) | home string (that store's identity) | relation bigint (its id there)
    place string | size bigint (bytes read) | epoch bigint

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest `last`.
"""

import msgspec

from tussock.jobs.sources.taken_rows import TakenLog


class EpochTaken(msgspec.Struct, frozen=True):
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
    size: int


TAKEN_EPOCHS = TakenLog(EpochTaken, epoch_at=5)
