"""The bytes of all columns of a few rows, without an object of Python per column.

Arrow writes a record batch as one message: a table of its buffers, then their bytes. NumPy reads both at once. For ten
rows of 2,000 columns this takes 0.5 ms. An array object per column takes 2.5 ms, before a byte is read.

    +--------------+  0xFFFFFFFF, and the size of the metadata, u32 each
    | metadata     |  flatbuffers: Message { header: RecordBatch { nodes, buffers } }
    +--------------+
    | body         |  the buffers, each at a multiple of 8 bytes
    +--------------+

    nodes    per column: rows i64, NULLs i64
    buffers  per column, its bitmap of NULLs, then its values (a text: offsets, then bytes): offset i64, bytes i64

Source: `format/Message.fbs` of Apache Arrow. Its messages are the same since version 0.8.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_HEADER = 2  # number of a message's field
_NODES, _BUFFERS = 1, 2  # numbers of a record batch's fields


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """The buffers of a record batch's columns."""

    null_counts: Ints  # (columns,) if no column is nested
    offsets: Ints  # (buffers,) in the body
    lengths: Ints  # (buffers,)
    body: Bytes

    @staticmethod
    def from_batch(batch: pa.RecordBatch) -> "BatchMessage":
        """Copies the batch. Meant for few rows."""
        data = np.frombuffer(batch.serialize(), np.uint8)
        size = int(data[4:8].view(np.uint32)[0])
        metadata = data[8 : 8 + size]
        header = _follow(metadata, _field_at(metadata, _follow(metadata, 0), _HEADER))
        nodes = _pairs_at(metadata, _follow(metadata, _field_at(metadata, header, _NODES)))
        buffers = _pairs_at(metadata, _follow(metadata, _field_at(metadata, header, _BUFFERS)))
        return BatchMessage(nodes[:, 1], buffers[:, 0], buffers[:, 1], data[8 + size :])

    def read_values(self, buffers: Ints, size: int) -> Bytes:
        """(buffers, size): the first bytes of some buffers, each of which has at least `size`."""
        starts = self.offsets[buffers]
        if len(starts) and len(steps := np.unique(np.diff(starts))) <= 1:  # the usual case: neighbours of one width
            step = int(steps[0]) if len(steps) else size
            part = self.body[int(starts[0]) : int(starts[-1]) + size]
            return np.lib.stride_tricks.as_strided(part, (len(starts), size), (step, 1), writeable=False)
        values: Bytes = self.body[starts[:, None] + np.arange(size)]
        return values


def _u32_at(data: Bytes, place: int) -> int:
    return int(data[place : place + 4].view(np.uint32)[0])


def _follow(data: Bytes, place: int) -> int:
    """Where the reference at `place` points to."""
    return place + _u32_at(data, place)


def _field_at(data: Bytes, table: int, field: int) -> int:
    """The place of a field of a table."""
    entries = table - int(data[table : table + 4].view(np.int32)[0])
    entry = entries + 4 + 2 * field
    return table + int(data[entry : entry + 2].view(np.uint16)[0])


def _pairs_at(data: Bytes, vector: int) -> Ints:
    """(n, 2): the pairs of numbers of a vector."""
    count = _u32_at(data, vector)
    pairs: Ints = data[vector + 4 : vector + 4 + 16 * count].view(np.int64).reshape(count, 2)
    return pairs
