"""Encodes rows as record batch messages of an Arrow IPC stream, without the stream's schema message and end."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa


def record_messages(
    batch: pa.RecordBatch, bounds: Sequence[tuple[int, int]], schema_size: int, options: pa.ipc.IpcWriteOptions
) -> Iterator[memoryview]:
    """The record batch message of each part of a batch.

    Args:
        bounds: the first row of each part, and the one after its last.
        schema_size: bytes of the schema's message.
    """
    sink = pa.BufferOutputStream()
    ends_at = [schema_size]
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for start, end in bounds:
            writer.write_batch(batch.slice(start, end - start))
            ends_at.append(sink.tell())
    stream = memoryview(sink.getvalue())
    yield from (stream[a:b] for a, b in pairwise(ends_at))
