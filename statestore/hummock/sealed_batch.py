"""SealedBatch: one table's changes in one epoch, as a MemTable hands them to the store."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """The columns of `rows`, by position: `key`, `op`, then the row's columns.

    `key` is binary, strictly ascending and never NULL. `op` is uint8: 0 delete, 1 put. A deleted row has its key
    columns; its other columns are NULL.
    """

    table_id: int
    rows: pa.Table
