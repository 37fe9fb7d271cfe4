"""SealedBatch: one table's changes of one epoch, as they leave a MemTable and enter the store."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Columns of `rows`, by position: `key` (binary, strictly ascending, no NULL), `op` (uint8, 0 delete or 1 put), then the row's columns.

    A deleted row has its key columns; its others are NULL.
    """

    table_id: int
    rows: pa.Table
