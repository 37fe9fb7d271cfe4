"""The position up to which a source has taken the log of a Postgres database: one row, in a state table of the source.

    table string (key) | relation bigint | lsn bigint | epoch bigint | number bigint | publication string
    | partitions string | columns string

`relation` is the identity of the table in Postgres. Transactions whose commit ends at `lsn` or before are taken.
`number` is the highest number of a file of changes so far, the high part of its `_row_id`s. `publication` is a mark of
the publication, `partitions` lists the table's partitions, and `columns` the declared columns: the log does not show
their changes. Only the driver reads and writes the table.
"""

import msgspec

from tussock.jobs.sources.taken_rows import TakenLog


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


TAKEN_POSITION = TakenLog(Position, epoch_at=3)
