"""SSTs of format version 2, which no release writes any more, made from docs/design/storage-format.md alone."""

import dataclasses

import pyarrow as pa

from tussock.statestore.hummock.sst_format import Packing
from tussock.statestore.hummock.sst_writer import EncodedBlocks, encode_blocks


def version_2_blocks(table_id: int, rows: pa.Table, rows_per_block: int | None = None) -> EncodedBlocks:
    """Sorted rows as blocks of version 2: a length, and a record batch message as a zstd frame."""
    blocks = encode_blocks(table_id, rows, rows_per_block, packing=Packing.LZ4)
    schema = pa.ipc.read_schema(pa.py_buffer(blocks.schema))
    payloads, start = [], 0
    for count in blocks.rows.tolist():
        (batch,) = rows.slice(start, count).combine_chunks().to_batches()
        alone = pa.record_batch([pa.concat_arrays([column]) for column in batch.columns], schema=schema)
        message = alone.serialize().to_pybytes()
        frame = pa.Codec("zstd", compression_level=1).compress(message, asbytes=True)
        payloads.append(memoryview(len(message).to_bytes(4, "little") + frame))
        start += count
    return dataclasses.replace(blocks, packing=Packing.ZSTD, payloads=tuple(payloads))
