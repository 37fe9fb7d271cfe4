"""The values of hidden columns, from the record of a file.

Every value is a function of the record (`PinnedFile`) and of the row's position. So a row has the same values whenever
its file is read again: by a new view, by a restatement that takes the row back, or by Spark in `tussock verify`. The
file's present name or time, or the copy from which it is read, has no effect.
"""

import re
from collections.abc import Sequence
from unicodedata import category

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn, metadata_fields
from tussock.jobs.sources.pins import PinnedFile, listed_etag
from tussock.jobs.sources.row_ids import position_of
from tussock.statestore.decoding import decoder_of
from tussock.statestore.objectstore.open import REMOTE
from tussock.statestore.types import arrow_type

#: ASCII characters of a path that Java's URI class leaves as they are.
_LITERAL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-!.~'()*,;:$&+=@/")
_EARLIER_ETAG = re.compile(r"^\d+-(\d+)")  # size and modification time; all releases begin the ETag of a file so


class _FilePart(msgspec.Struct):
    """The common content of the parts of all file formats."""

    file: PinnedFile


_part = decoder_of(_FilePart)


def file_of_part(part: msgspec.Raw) -> PinnedFile:
    """Return the file to which a part for an actor belongs."""
    return _part.decode(part).file


def spark_uri(path: str) -> str:
    """Return the URI of a file as Spark's `_metadata.file_path` spells it.

    Args:
        path: a PinnedFile's.
    """
    scheme, literal = "file:", path
    if path.startswith(REMOTE):
        scheme, _, literal = path.partition("//")
        scheme = f"{scheme.replace('s3', 's3a')}//"
    return scheme + "".join(c if c in _LITERAL or _is_other(c) else _percent_encode(c) for c in literal)


def _is_other(character: str) -> bool:
    """Return whether a character is in the category "other" of Java's URI: neither ASCII, control nor separator."""
    return ord(character) > 0x7F and category(character) not in ("Cc", "Zs", "Zl", "Zp")


def _percent_encode(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def modified_ms(file: PinnedFile) -> int | None:
    """Return the modification time of a file when it was pinned, Unix ms; None if its record lacks it.

    The ETag of a local file contains its time in nanoseconds; Spark's times of files have milliseconds.
    """
    if file.path.startswith("/"):
        match = _EARLIER_ETAG.match(listed_etag(file.etag))
        return None if match is None else int(match[1]) // 1_000_000
    return file.modified or None


def fact_of_file(file: PinnedFile, column: HiddenColumn) -> str | int | None:
    """Return the value of a hidden column in all rows of a file; times in Unix microseconds.

    Requires: `column` is not ROW_INDEX.
    """
    match column:
        case HiddenColumn.FILE_PATH:
            return spark_uri(file.name_in_rows)
        case HiddenColumn.FILE_NAME:
            return spark_uri(file.name_in_rows).rpartition("/")[2]
        case HiddenColumn.FILE_SIZE:
            return file.size
        case HiddenColumn.FILE_MODIFICATION_TIME:
            return None if (ms := modified_ms(file)) is None else ms * 1000
        case HiddenColumn.INGESTED_AT:
            return file.ingested or None
        case HiddenColumn.ROW_INDEX:
            raise ValueError("the index of a row is no fact of its file")


def hidden_values(
    file: PinnedFile, columns: Sequence[HiddenColumn], row_ids: pa.Array | pa.ChunkedArray
) -> list[pa.Array]:
    """Return the values of hidden columns for rows of one file, (rows,) each.

    Args:
        file: with `ingested` set.
        row_ids: `_row_id` of the rows.
    """
    values = []
    for column in columns:
        if column is HiddenColumn.ROW_INDEX:
            values.append(pa.array(position_of(np.asarray(row_ids))))
            continue
        values.append(pa.repeat(pa.scalar(fact_of_file(file, column), arrow_type(column.type)), len(row_ids)))
    return values


def with_hidden(chunk: pa.Table, file: PinnedFile, columns: Sequence[HiddenColumn]) -> pa.Table:
    """Insert hidden columns before the last two columns of a chunk of one file: `_row_id` and the weight."""
    if not columns:
        return chunk
    *own, row_ids, weights = chunk.columns
    return make_chunk([*own, *hidden_values(file, columns, row_ids), row_ids], weights)


def metadata_of(file: PinnedFile) -> dict[str, str | int | None]:
    """Return `_metadata` of a file without `row_index`; times in Unix microseconds."""
    return {name: 0 if column is None else fact_of_file(file, column) for name, column in metadata_fields(OF_FILES)}
