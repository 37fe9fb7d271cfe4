"""The position up to which a source has taken the log of a Postgres database: one row, in a state table of the source.

    table string (key) | relation bigint | lsn bigint | epoch bigint | number bigint | publication string
    | partitions string | columns string

`relation` is the identity of the table in Postgres. Transactions whose commit ends at `lsn` or before are taken.
`number` is the highest number of a file of changes so far, the high part of its `_row_id`s. `publication` is a mark of
the publication, `partitions` lists the table's partitions, and `columns` the declared columns: the log does not show
their changes. Only the driver reads and writes the table.
"""

import msgspec

from tussock.jobs.sources.taken_rows import read_taken, seal_taken
from tussock.statestore.decoding import convert_value
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable

TAKEN_COLUMNS = (
    ("table", "string"),
    ("relation", "bigint"),
    ("lsn", "bigint"),
    ("epoch", "bigint"),
    ("number", "bigint"),
    ("publication", "string"),
    ("partitions", "string"),
    ("columns", "string"),
)


class Position(msgspec.Struct, frozen=True):
    """A position in the log of a table. See the module.

    `partitions`: `identity:file` of each, separated by blanks. `columns`: the number of the table's file, then
    `number:change` of each declared column; `-` for a column that the table lacks.
    """

    table: str
    relation: int
    lsn: int
    number: int
    publication: str
    partitions: str
    columns: str


def taken_position(taken: StorageTable | None) -> Position | None:
    """Return the position of a source; None if it has taken nothing yet."""
    rows = read_taken(taken)
    return convert_value({k: v for k, v in rows[0].items() if k != "epoch"}, Position) if rows else None


def taken_rows(schema: TableSchema, position: Position, epoch: int) -> SealedBatch:
    """Return the row that records a position, ready for ingest. `schema` has the table's id."""
    values = {**msgspec.structs.asdict(position), "epoch": epoch}
    return seal_taken(schema, TAKEN_COLUMNS, [[values[name] for name, _ in TAKEN_COLUMNS]])
