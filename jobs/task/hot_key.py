"""Find the most frequent key of a fragment's input on one unit, at a cost that does not depend on the number of rows.

The code counts keys in a sample of up to SAMPLE_ROWS evenly spaced rows, and skips inputs with fewer than FEWEST_ROWS
rows. The share is therefore an estimate, with an error of about 1 / sqrt(SAMPLE_ROWS). It depends on the rows alone,
and is the same in every attempt.

Rows are counted on arrival, after senders have pre-aggregated them. A frequent key in a source is not hot if it arrives
as one row per sender.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.wire.epoch_task import HotKeyFound
from tussock.statestore.vnode import xxhash64

SAMPLE_ROWS = 16_384
FEWEST_ROWS = 1_000
LONGEST_VALUE = 60  # characters kept of a value


def hot_key(input: int, rows: pa.Table, keys: Sequence[int], vnode_count: int) -> HotKeyFound | None:
    """The most frequent key in a sample. None if the input has few rows or no key.

    Args:
        input: index of the input in the fragment.
        rows: the input's chunk.
        keys: the columns that decided the unit of its rows.

    Cost: hashes and sorts at most SAMPLE_ROWS rows, about 5 ms.
    """
    if not keys or rows.num_rows < FEWEST_ROWS:
        return None
    step = -(-rows.num_rows // SAMPLE_ROWS)
    sample = rows.select(list(keys)).take(pa.array(np.arange(0, rows.num_rows, step)))
    hashes = xxhash64(sample.columns)
    distinct_hashes, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    most = int(np.argmax(counts))
    values = tuple(_value_text(column[int(first[most])]) for column in sample.columns)
    vnode = int(distinct_hashes[most] & np.uint64(vnode_count - 1))
    return HotKeyFound(input, tuple(keys), values, vnode, float(counts[most]) / len(hashes), rows.num_rows)


def _value_text(value: pa.Scalar) -> str:
    text = "NULL" if not value.is_valid else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
