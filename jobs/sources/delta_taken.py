"""The versions that a source has taken of a Delta table: one row per epoch, in a state table of the source.

    version bigint (key) | place string (its folder) | table string (its id) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole version)

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest version, or
with the rest of it.
"""

from tussock.jobs.sources.snapshot_cuts import PartTaken
from tussock.jobs.sources.taken_rows import TakenLog


class DeltaTaken(PartTaken, frozen=True):
    """The last version that an epoch took."""

    version: int
    place: str
    table: str
    size: int


TAKEN_VERSIONS = TakenLog(DeltaTaken, epoch_at=4)
