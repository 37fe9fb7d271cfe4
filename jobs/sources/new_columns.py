"""Columns of new files that their source does not declare, by the source's option `columns`.

    'ignore'  the default: the columns are not read
    'hold'    the source is held until a person adds the columns, or ignores them
    'evolve'  the run adds the columns to the source, in the epoch that takes the file. A wider type of a column that
              exists becomes its type

A run looks into its new files before it pins them. Types come from the file, or are inferred from a sample of a text
file, as `tussock preview` does. A sample cannot prove that a column became wider, so only the types of parquet, orc and
avro files widen a column. Views that read it are bound again, which needs Spark (jobs/barriers/columns.py). The reader
of the file refuses every other type.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.avro_schema import avro_fields
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.file_options import COLUMNS, NewColumns
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.listing import ListedFile, open_file
from tussock.jobs.sources.measures import open_file_bytes
from tussock.jobs.sources.orc import columns_of_orc
from tussock.jobs.sources.parquet_schema import column_objection, parquet_fields
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.preview import infer_text_fields
from tussock.jobs.sources.widening import is_wider
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import UnsupportedTypeError, type_name

_WITH_TYPES = ("avro", "orc", "parquet")


class NewColumnsError(InputError):
    """A new file has columns that its source does not declare, and the source waits for a person."""

    source: str
    path: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        added = ", ".join(self.columns)
        return (
            f"source {self.source!r}: file {self.path} has columns that the source does not declare: {added}. The "
            f"source waits, because it has the option {COLUMNS} '{NewColumns.HOLD}'. To read them from now on, run "
            f"ALTER SOURCE {self.source} ADD COLUMNS {added}. To ignore them, run ALTER SOURCE {self.source} SET "
            f"OPTIONS ({COLUMNS} '{NewColumns.IGNORE}')."
        )


def new_columns_mode(source: CreateSource) -> NewColumns:
    """Return how a source handles new columns of its files."""
    return NewColumns(source.options.get(COLUMNS, NewColumns.IGNORE))


def refuse_new_columns(source: CreateSource, waiting: Iterable[Item]) -> None:
    """Raise NewColumnsError for the first waiting file with columns that a source does not declare."""
    for path, fields in _new_columns_by_file(source, waiting):
        raise NewColumnsError(source.name, path, tuple(f"{quote_name(f.name)} {f.type}" for f in fields))


def evolved_fields(source: CreateSource, waiting: Iterable[Item]) -> tuple[Field, ...]:
    """Return the columns of a source, followed by the new ones of the waiting files.

    The first file decides the name and the type of a new column, unless a later file has a wider type.
    """
    fields = {field.name.lower(): field for field in source.fields}
    for _, new in _new_columns_by_file(source, waiting):
        for field in new:
            known = fields.setdefault(field.name.lower(), field)
            if is_wider(known.type, field.type):
                fields[field.name.lower()] = Field(known.name, field.type)
    return tuple(fields.values())


def widened_fields(source: CreateSource, waiting: Iterable[Item]) -> tuple[Field, ...]:
    """Return the columns of a source, with the wider types that they have in waiting files. Cost: as evolved_fields."""
    fields = list(source.fields)
    if source.format not in _WITH_TYPES:
        return tuple(fields)
    places = {field.name.lower(): place for place, field in enumerate(fields)}
    for _, there in _fields_by_file(source, waiting):
        for field in there:
            place = places.get(field.name.lower())
            if place is not None and column_objection(field) is None and is_wider(fields[place].type, field.type):
                fields[place] = Field(fields[place].name, field.type)
    return tuple(fields)


def _new_columns_by_file(source: CreateSource, waiting: Iterable[Item]) -> Iterator[tuple[str, list[Field]]]:
    """The waiting files with undeclared columns."""
    declared = {field.name.lower() for field in source.fields}
    for path, fields in _fields_by_file(source, waiting):
        if new := [f for f in fields if f.name.lower() not in declared and column_objection(f) is None]:
            yield path, new


def _fields_by_file(source: CreateSource, waiting: Iterable[Item]) -> Iterator[tuple[str, tuple[Field, ...]]]:
    """The columns of each waiting file. An unreadable file has none here, since its reader reports it.

    Cost: the footer or a sample of each new file, 16 at a time, once per process.
    """
    files = [ListedFile(item.name, item.nbytes, item.mark) for item in waiting if not item.goes and item.nbytes]
    options = tuple(sorted(source.options.items()))
    fields_of_files = map_in_threads(
        lambda file: _fields_of(source.format, options, file.path, file.size, file.etag), files
    )
    yield from zip((file.path for file in files), fields_of_files, strict=True)


@lru_cache(maxsize=4096)
def _fields_of(format: str, options: Sequence[tuple[str, str]], path: str, size: int, etag: str) -> tuple[Field, ...]:
    file, own_options = ListedFile(path, size, etag), dict(options)
    try:
        match format:
            case "parquet":
                store, name = open_file(path, own_options)
                with pa.PythonFile(RangeFile(store, name, size), mode="r") as opened:
                    # A later file has the type of a column that contains only NULLs here.
                    return parquet_fields(opened, path, untyped=False)
            case "avro":
                with open_file_bytes(PinnedFile(path, size, etag, 0), own_options) as stream:
                    return avro_fields(stream, path)
            case "orc":
                schema = columns_of_orc(PinnedFile(path, size, etag, 0), own_options)
                return tuple(Field(field.name, type_name(field.type)) for field in schema)
            case _:
                return infer_text_fields(format, file, own_options)
    except (InputError, RetryableError, OSError, pa.ArrowException, UnsupportedTypeError):
        return ()
