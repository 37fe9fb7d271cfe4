"""ORC files, read by Spark, whose reader returns NULL for a value that does not fit the declared type.

The types of each file are therefore compared with the declared types before its rows are read. A type reads as the
declared one if each of its values is a value of the declared type with the same meaning, and Spark's reader converts
it: a narrower integer, float as double, a decimal with room for all digits. Struct fields match by name; Spark fills
missing ones with NULL.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import SchemaMismatchError, UnreadableFileError
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import measure_orc
from tussock.jobs.sources.pairing import reads_as
from tussock.jobs.sources.parquet import fields_by_name
from tussock.jobs.sources.pins import PinnedFile, open_readable
from tussock.jobs.sources.spark_files import SparkTypedFiles
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import VARIANT, arrow_type, is_span


class OrcFiles(SparkTypedFiles):
    """ORC files, read by Spark."""

    format: ClassVar[str] = "orc"
    options_class: ClassVar[str] = "execution.datasources.orc.OrcOptions"

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        return measure_orc(file, source.options)

    def require_types(self, file: PinnedFile, fields: Sequence[Field], options: Mapping[str, str]) -> None:
        schema = columns_of_orc(file, options)
        # Hive's names, which Spark matches by position.
        by_place = all(name.startswith("_col") for name in schema.names)
        columns, by_name = list(schema), fields_by_name(schema)
        for place, field in enumerate(fields):
            same = columns[place : place + 1] if by_place else by_name.get(field.name.lower(), [])
            if len(same) == 1 and not orc_reads_as(same[0].type, arrow_type(field.type)):
                raise SchemaMismatchError(file.path, field.name, str(same[0].type), field.type)


def columns_of_orc(file: PinnedFile, options: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a file. Cost: its footer."""
    from pyarrow import orc

    store, name = open_readable(file, options)
    try:
        opened = (
            pa.OSFile(local)
            if (local := file.local_path)
            else pa.PythonFile(RangeFile(store, name, file.size), mode="r")
        )
        return orc.ORCFile(opened).schema
    except (pa.ArrowException, OSError) as err:
        raise UnreadableFileError(file.path, "orc", str(err).split("\n")[0]) from err


def orc_reads_as(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether Spark's reader converts every value of a file's type to the same value of the declared type."""
    kinds = pa.types
    if is_span(declared) or kinds.is_time(declared) or (kinds.is_timestamp(declared) and declared.tz is None):
        return bool(kinds.is_signed_integer(file_type))  # Spark writes these as numbers, and reads any number as one
    if declared == VARIANT:  # only Spark writes variants, as structs
        return True
    if kinds.is_struct(file_type) and kinds.is_struct(declared):
        there = {f.name.lower(): f.type for f in file_type}
        return all(orc_reads_as(there[f.name.lower()], f.type) for f in declared if f.name.lower() in there)
    if kinds.is_map(file_type) and kinds.is_map(declared):
        return orc_reads_as(file_type.key_type, declared.key_type) and orc_reads_as(
            file_type.item_type, declared.item_type
        )
    if kinds.is_list(file_type) and kinds.is_list(declared):
        return orc_reads_as(file_type.value_type, declared.value_type)
    if kinds.is_timestamp(file_type):  # Arrow has nanoseconds; Spark reads both instants and local times as instants
        return bool(kinds.is_timestamp(declared))
    if kinds.is_binary(file_type):  # as a string it would become hexadecimal digits
        return bool(kinds.is_binary(declared))
    return file_type == declared or (not kinds.is_date(file_type) and reads_as(file_type, declared))
