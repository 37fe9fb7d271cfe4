"""The versions that a source has taken of a Delta table: one row per epoch, in a state table of the source.

    version bigint (key) | place string (its folder) | table string (its id) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole version)

The table is a singleton: only the driver reads and writes it. The next epoch continues after the largest version, or
with the rest of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tussock.jobs.sources.snapshot_cuts import SnapshotCut, cut_of
from tussock.jobs.sources.taken_rows import TakenLog

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


def _decode(row: dict[str, Any]) -> DeltaTaken:
    return DeltaTaken(row["version"], row["place"], row["table"], row["size"], cut_of(row))


def _encode(taken: DeltaTaken, epoch: int) -> Sequence[object]:
    end = msgspec.structs.astuple(taken.end or SnapshotCut())
    return (taken.version, taken.place, taken.table, taken.nbytes, epoch, *end)


TAKEN_VERSIONS = TakenLog(_COLUMNS, _decode, _encode)
