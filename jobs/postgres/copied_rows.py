"""Rows of `COPY … TO STDOUT (FORMAT csv)`, as batches of columns."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyarrow import csv

_BATCH_BYTES = 16 << 20
_PARSE = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
_Piece = bytes | bytearray | memoryview


def read_copied(pieces: Iterable[_Piece], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a COPY without a header, in order; nothing if it has none.

    Args:
        pieces: of the COPY. The server sends each row as one piece.
        types: the columns, in order; each has the form that Arrow reads as this type.

    Raises: pa.ArrowInvalid for another form.
    Cost: psycopg hands over one object per row; that is about an eighth of the time of the COPY.
    """
    convert = csv.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )

    def parse(rows: list[_Piece], nbytes: int) -> list[pa.RecordBatch]:
        whole = csv.ReadOptions(column_names=list(types), block_size=nbytes)  # a row may be longer than any fixed size
        source = pa.BufferReader(pa.py_buffer(b"".join(rows)))
        table = csv.read_csv(source, read_options=whole, parse_options=_PARSE, convert_options=convert)
        batches: list[pa.RecordBatch] = table.to_batches()
        return batches

    rows, nbytes = list[_Piece](), 0
    for piece in pieces:
        rows.append(piece)
        nbytes += len(piece)
        if nbytes >= _BATCH_BYTES:
            yield from parse(rows, nbytes)
            rows, nbytes = [], 0
    if rows:
        yield from parse(rows, nbytes)
