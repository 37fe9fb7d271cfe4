"""The hottest key of what came to a fragment on one unit, at a cost that does not grow with the rows.

Looked at is a sample of up to SAMPLE_ROWS rows, evenly spaced; of inputs with fewer than FEWEST_ROWS nothing is said. So a share is an
estimate, off by about 1 / sqrt(SAMPLE_ROWS); it depends on the rows alone, and is the same in every attempt.

What is counted are rows as they arrive, after senders have aggregated what can be: a key that is frequent in a source, and comes as one row
from each sender, is not hot.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.wire.epoch_task import HotKeyFound
from tussock.statestore.vnode import xxhash64

SAMPLE_ROWS = 16_384
FEWEST_ROWS = 1_000
LONGEST_VALUE = 60  # characters of a value that are kept


def hot_key(input: int, rows: pa.Table, keys: Sequence[int], vnode_count: int) -> HotKeyFound | None:
    """The key with most rows in a sample; None where there are few rows, or no key.

    Args:
        input: the input's place among the fragment's.
        rows: its chunk. keys: the columns by which its rows found this unit.

    Cost: hashes and sorts SAMPLE_ROWS rows at most, some 5 ms.
    """
    if not keys or rows.num_rows < FEWEST_ROWS:
        return None
    step = -(-rows.num_rows // SAMPLE_ROWS)
    sample = rows.select(list(keys)).take(pa.array(np.arange(0, rows.num_rows, step)))
    hashes = xxhash64(sample.columns)
    found, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    most = int(np.argmax(counts))
    values = tuple(_text(column[int(first[most])]) for column in sample.columns)
    vnode = int(found[most] & np.uint64(vnode_count - 1))
    return HotKeyFound(input, tuple(keys), values, vnode, float(counts[most]) / len(hashes), rows.num_rows)


def _text(value: pa.Scalar) -> str:
    text = "NULL" if not value.is_valid else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
