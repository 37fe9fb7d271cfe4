"""The rows of a Delta table as Spark reads them, for comparison with views.

Delta's own reader needs its jars in the session. Without them, the deltalake package reads flat tables, and Spark's
Parquet reader reads the files of tables with nested columns. The package rejects some nested columns, such as a list
inside a map that gained a field. Delta's reader is not used for a table in S3 without Hadoop's module for S3 either.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tussock.jobs.delta.delta_columns import Mapped
from tussock.jobs.delta.delta_log import DeltaPlace, DeltaSnapshot, Piece, partition_column, translating_errors
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_identifier, quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.char_padding import pad_column, widths_of
from tussock.jobs.sources.errors import NeedsHadoopAwsError
from tussock.jobs.sources.listing import open_file
from tussock.jobs.sources.snapshot_cuts import SnapshotCut, pieces_between_cuts
from tussock.statestore.nested import is_nested, relabel_column
from tussock.statestore.types import arrow_type, is_stored_type, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def rows_by_spark(
    session: "SparkSession", source: CreateSource, snapshot: DeltaSnapshot, end: SnapshotCut | None
) -> "DataFrame":
    """Return the declared columns of all rows of a version, or of those before `end`.

    Raises: LookupError if the version is gone. Cost: lazy; if the session lacks Delta's jars, the rows of a flat table
    pass through this process.
    """
    if end is not None:  # no other reader takes a part of a version
        return _of_files(session, source, snapshot, end)
    if (frame := _by_deltas_reader(session, snapshot)) is None:
        if any(is_nested(arrow_type(field.type)) for field in source.fields):
            return _of_files(session, source, snapshot, None)
        frame = _by_the_package(session, snapshot.place, snapshot.version)
    field_by_name = {field.name.lower(): field for field in frame.schema}
    columns = []
    for declared in source.fields:
        field = field_by_name.get(declared.name.lower())  # no frame contains columns of type void
        text = "NULL" if field is None else _by_name(quote_name(field.name), field.dataType, arrow_type(declared.type))
        columns.append(f"CAST({text} AS {declared.type}) AS {quote_name(declared.name)}")
    return frame.selectExpr(*columns)


def _by_deltas_reader(session: "SparkSession", snapshot: DeltaSnapshot) -> "DataFrame | None":
    """Read all columns; None if the session lacks Delta's jars, or Hadoop's module for a table in S3."""
    from tussock.jobs.sources.spark_files import spark_errors
    from tussock.jobs.sources.spark_paths import literal_path

    if snapshot.place.bucket:
        from tussock.jobs.sources.object_gateway import gateway_of

        try:
            if gateway_of(session, snapshot.place.bucket.partition("://")[0]) is not None:
                return None
        except NeedsHadoopAwsError:
            return None
    try:
        return (
            session.read.format("delta").option("versionAsOf", snapshot.version).load(literal_path(snapshot.place.root))
        )
    except spark_errors() as err:
        if "DATA_SOURCE_NOT_FOUND" not in str(err):
            raise
        return None


def _by_the_package(session: "SparkSession", place: DeltaPlace, version: int) -> "DataFrame":
    """Read the flat columns of a table that can be stored, with the deltalake package."""
    from deltalake import QueryBuilder

    from tussock.jobs.spark.collected import frame_of

    if (snapshot := place.open_snapshot(version, rows=True)) is None:
        raise LookupError(f"version {version} of the table {place.root} is gone")
    flat = [c for c in snapshot.columns if is_stored_type(c.type) and not is_nested(arrow_type(c.type))]
    names = ", ".join(quote_identifier(column.name) for column in flat)
    with translating_errors(place.root, "read the table"):
        rows = pa.table(QueryBuilder().register("t", snapshot.table).execute(f"SELECT {names} FROM t").read_all())
    # The package returns string views.
    typed = [relabel_column(rows.column(i), arrow_type(column.type)) for i, column in enumerate(flat)]
    columns = [
        pad_column(values, column.char_note) if column.char_note else values
        for values, column in zip(typed, flat, strict=True)
    ]
    return frame_of(session, pa.table(columns, [column.name for column in flat]))


def _of_files(
    session: "SparkSession", source: CreateSource, snapshot: DeltaSnapshot, end: SnapshotCut | None
) -> "DataFrame":
    """Read the declared columns with Spark's Parquet reader.

    It matches fields by name, and fills missing ones with NULL.
    """
    stored = {column.name.lower(): column for column in snapshot.columns}
    fields = [(field, stored[field.name.lower()]) for field in source.fields]
    alike: dict[tuple[str, ...], list[Piece]] = {}
    for piece in pieces_between_cuts(snapshot.list_pieces(), None, end):
        is_alone = piece.weights[0][1] is not None or piece.rows is not None
        alike.setdefault((repr(piece.partition), piece.path if is_alone else ""), []).append(piece)
    frames = [_of_pieces(session, snapshot, fields, pieces) for pieces in alike.values()]
    declared = ", ".join(f"{quote_name(field.name)} {field.type}" for field in source.fields)
    return (
        reduce(lambda before, more: before.unionAll(more), frames) if frames else session.createDataFrame([], declared)
    )


def _of_pieces(
    session: "SparkSession", snapshot: DeltaSnapshot, fields: Sequence[tuple[Field, Mapped]], pieces: Sequence[Piece]
) -> "DataFrame":
    """Read files of one partition, or one file with a deletion vector or of which only the first rows are read."""
    from tussock.jobs.sources.spark_paths import spark_path
    from tussock.jobs.spark.collected import frame_of

    place = snapshot.place
    paths = [place.file_path(piece.path) for piece in pieces]
    declared = ", ".join(f"{quote_name(c.stored)} {c.stored_as(f.type)}" for f, c in fields if not c.is_partition)
    frame = session.read.schema(declared or "_no_column int").parquet(
        *(spark_path(session, path, *open_file(path, place.options)) for path in paths)
    )
    if pieces[0].rows is not None:
        frame = frame.where(f"_metadata.row_index < {pieces[0].rows[1]}")
    if (mask := snapshot.mask_of(pieces[0].path)) is not None:
        gone = frame_of(session, pa.table({"_gone": pa.array(np.flatnonzero(~mask), pa.int64())}))
        frame = frame.selectExpr("*", "_metadata.row_index AS _gone").join(gone, "_gone", "left_anti")
    columns = []
    for field, column in fields:
        kind = arrow_type(field.type)
        if not column.is_partition:
            widths = widths_of(kind, column.char_note, arrow_type(column.type)) if column.char_note else []
            text = f"CAST({quote_name(column.stored)} AS {field.type})"
            columns.append(f"{_pad_text(text, field.type, widths)} AS {quote_name(field.name)}")
            continue
        partition = pieces[0].partition or {}
        logged = partition.get(column.stored, partition.get(column.name))
        value = partition_column(logged, arrow_type(column.type), kind, 1)
        if column.char_note:
            value = pad_column(value, column.char_note)
        shown = frame_of(session, pa.table({"v": value})).selectExpr("CAST(v AS string)").collect()[0][0]
        text = "NULL" if shown is None else "'" + shown.replace("\\", "\\\\").replace("'", "\\'") + "'"
        columns.append(f"CAST({text} AS {field.type}) AS {quote_name(field.name)}")
    return frame.selectExpr(*columns)


def _pad_text(text: str, kind: str, widths: Sequence[int]) -> str:
    """Pad the text of a char(n) column with spaces. Raises LookupError for nested columns that contain chars."""
    if not any(widths):
        return text
    if kind != "string":
        raise LookupError(
            "Spark alone does not read char(n) inside nested columns of a Delta table: start the session with Delta's "
            "jars"
        )
    return f"CASE WHEN char_length({text}) < {widths[0]} THEN rpad({text}, {widths[0]}, ' ') ELSE {text} END"


def _by_name(text: str, spark_type: "DataType", declared: pa.DataType, depth: int = 0) -> str:
    """Return a SQL expression for a value with the fields of the declared structs, in their order.

    Args:
        text: the expression of the value, of type `spark_type`.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    x = f"x{depth}"
    match spark_type:
        case StructType() if pa.types.is_struct(declared):
            there = {field.name.lower(): field for field in spark_type}
            parts = []
            for wanted in declared:
                field = there.get(wanted.name.lower())
                inner = (
                    "NULL"
                    if field is None
                    else _by_name(f"{text}.{quote_name(field.name)}", field.dataType, wanted.type, depth)
                )
                parts.append(f"CAST({inner} AS {type_name(wanted.type)}) AS {quote_name(wanted.name)}")
            return f"CASE WHEN {text} IS NOT NULL THEN struct({', '.join(parts)}) END"
        case ArrayType():
            return f"transform({text}, {x} -> {_by_name(x, spark_type.elementType, declared.value_type, depth + 1)})"
        case MapType():
            values = _by_name(f"v{depth}", spark_type.valueType, declared.item_type, depth + 1)
            keys = _by_name(x, spark_type.keyType, declared.key_type, depth + 1)
            return f"transform_keys(transform_values({text}, ({x}, v{depth}) -> {values}), ({x}, v{depth}) -> {keys})"
    return text
