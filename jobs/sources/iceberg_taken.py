"""The snapshots that a source has taken of an Iceberg table: one row per epoch, in a state table of the source.

    number bigint (key) | snapshot bigint | place string (catalog and name) | table string (its uuid)
    columns string (BoundColumns as JSON) | size bigint (bytes read) | epoch bigint |
    files bigint | rows bigint | records bigint | nbytes bigint (a SnapshotCut; zeros: the whole snapshot)

The table is a singleton: only the driver reads and writes it. Snapshot ids have no order, hence the number. The next
epoch continues after the row with the largest one, or with the rest of its snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tussock.jobs.sources.snapshot_cuts import SnapshotCut, cut_of
from tussock.jobs.sources.taken_rows import TakenLog
from tussock.statestore.decoding import decoder_of

_COLUMNS = (
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


def _decode(row: dict[str, Any]) -> IcebergTaken:
    columns = _bound_columns(row["columns"])
    return IcebergTaken(row["number"], row["snapshot"], row["place"], row["table"], columns, row["size"], cut_of(row))


def _encode(taken: IcebergTaken, epoch: int) -> Sequence[object]:
    of_table = (taken.number, taken.snapshot, taken.place, taken.table)
    columns, end = msgspec.json.encode(taken.columns).decode(), taken.end or SnapshotCut()
    return (*of_table, columns, taken.nbytes, epoch, *msgspec.structs.astuple(end))


TAKEN_SNAPSHOTS = TakenLog(_COLUMNS, _decode, _encode)
