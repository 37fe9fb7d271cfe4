"""Hidden columns of a source of files: the file of each row, and when it was taken.

    _metadata      struct, as in Spark: file_path, file_name, file_size, file_block_start, file_block_length,
                   file_modification_time, and row_index for Parquet
    _ingested_at   timestamp: when an epoch took the file, by the clock

`SELECT *` omits them, as in Spark, and a column that the source declares under the same name wins. A scan reads each
field of `_metadata` as a column of its own, so a view stores only the fields that it names. The binder makes the struct
(tussock.jobs.sql.hidden_columns), and the leaf of the source makes the values (tussock.jobs.sources.file_facts).
"""

import re
from collections.abc import Collection, Sequence
from enum import IntEnum

METADATA = "_metadata"
INGESTED_AT = "_ingested_at"
NAMES = (METADATA, INGESTED_AT)
_MENTIONED = re.compile(rf"\b({METADATA}|{INGESTED_AT})\b", re.IGNORECASE)


class HiddenColumn(IntEnum):
    """A hidden column, by its index in the columns of a scan. The values are stored in plans."""

    FILE_PATH = -11  # the URI of the file, as Spark spells it
    FILE_NAME = -12  # the last part of the path, spelled in the same way
    FILE_SIZE = -13  # bytes
    FILE_MODIFICATION_TIME = -14  # NULL if the record of the file lacks it
    ROW_INDEX = -15  # position of the row in its file, from 0
    INGESTED_AT = -16

    @property
    def column(self) -> str:
        """The name in texts: `_metadata.file_path`."""
        return INGESTED_AT if self is HiddenColumn.INGESTED_AT else f"{METADATA}.{self.name.lower()}"

    @property
    def type(self) -> str:
        """The type."""
        return _TYPES[self]


_TYPES = {
    HiddenColumn.FILE_PATH: "string",
    HiddenColumn.FILE_NAME: "string",
    HiddenColumn.FILE_SIZE: "bigint",
    HiddenColumn.FILE_MODIFICATION_TIME: "timestamp",
    HiddenColumn.ROW_INDEX: "bigint",
    HiddenColumn.INGESTED_AT: "timestamp",
}

#: The hidden columns of a format whose rows have no index in Spark.
OF_FILES = tuple(c for c in HiddenColumn if c is not HiddenColumn.ROW_INDEX)

#: The fields of `_metadata` in Spark's order, each with its column. Files are read whole, so the block of a row is its
#: file: it starts at byte 0 and has the file's length.
_FIELDS: tuple[tuple[str, HiddenColumn | None], ...] = (
    ("file_path", HiddenColumn.FILE_PATH),
    ("file_name", HiddenColumn.FILE_NAME),
    ("file_size", HiddenColumn.FILE_SIZE),
    ("file_block_start", None),
    ("file_block_length", HiddenColumn.FILE_SIZE),
    ("file_modification_time", HiddenColumn.FILE_MODIFICATION_TIME),
    ("row_index", HiddenColumn.ROW_INDEX),
)


def metadata_fields(hidden: Collection[HiddenColumn]) -> tuple[tuple[str, HiddenColumn | None], ...]:
    """Return the fields of `_metadata` of a source with these hidden columns. None: the constant 0, a bigint."""
    return tuple((name, column) for name, column in _FIELDS if column is None or column in hidden)


def metadata_type(hidden: Collection[HiddenColumn]) -> str:
    """Return the type of `_metadata` of a source with these hidden columns."""
    fields = (f"{name}:{'bigint' if column is None else column.type}" for name, column in metadata_fields(hidden))
    return f"struct<{','.join(fields)}>"


def is_hidden(column: int) -> bool:
    """Return whether an index of a scan's column belongs to a hidden column."""
    return column in _BY_INDEX


def hidden_names(hidden: Collection[HiddenColumn], declared: Collection[str]) -> tuple[str, ...]:
    """Return the names by which SQL reaches the hidden columns of a source. Declared names win, in any case."""
    known = {name.lower() for name in declared}
    return tuple(name for name in NAMES if name not in known) if hidden else ()


def hidden_types(hidden: Collection[HiddenColumn], declared: Collection[str]) -> dict[str, str]:
    """Return the types of `hidden_names`, by name."""
    types = {METADATA: metadata_type(hidden), INGESTED_AT: HiddenColumn.INGESTED_AT.type}
    return {name: types[name] for name in hidden_names(hidden, declared)}


def mentions_hidden(text: str) -> bool:
    """Return whether a text may name a hidden column."""
    return _MENTIONED.search(text) is not None


def parted_columns(columns: Sequence[int]) -> tuple[tuple[int, ...], tuple[HiddenColumn, ...]]:
    """Separate the declared from the hidden columns of a scan."""
    return tuple(c for c in columns if c >= 0), tuple(HiddenColumn(c) for c in columns if is_hidden(c))


_BY_INDEX = frozenset(HiddenColumn)
