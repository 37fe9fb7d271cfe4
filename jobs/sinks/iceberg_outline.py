"""A relation as an Iceberg table: its schema, its partition spec, and the types that Iceberg lacks."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg import types as of
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import Transform, parse_transform

from tussock.jobs.iceberg.iceberg_types import type_text
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError
from tussock.statestore.errors import InputError
from tussock.statestore.types import VARIANT, arrow_type

_TERM = re.compile(
    r"\s*(?:(?P<transform>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<inner>\w+|`(?:[^`]|``)+`)\s*\)"
    r"|(?P<column>\w+|`(?:[^`]|``)+`))"
    r"(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*(?:,|$)",
    re.IGNORECASE,
)
_TIMES = ("year", "month", "day", "hour")
_TRANSFORMS = {
    "identity": "identity",
    **{f"{unit}{s}": unit for unit in _TIMES for s in ("", "s")},
    "bucket": "bucket",
    "truncate": "truncate",
}
PARTITION_BY, SORT_BY = "partition_by", "sort_by"
_FIRST_PARTITION_ID = 1000
_MOST = 2**31 - 1  # buckets, or characters
_SIMPLE: dict[pa.DataType, of.PrimitiveType] = {
    pa.bool_(): of.BooleanType(),
    pa.int8(): of.IntegerType(),
    pa.int16(): of.IntegerType(),
    pa.int32(): of.IntegerType(),
    pa.int64(): of.LongType(),
    pa.float32(): of.FloatType(),
    pa.float64(): of.DoubleType(),
    pa.string(): of.StringType(),
    pa.binary(): of.BinaryType(),
    pa.date32(): of.DateType(),
    pa.timestamp("us", "UTC"): of.TimestamptzType(),
    pa.timestamp("us"): of.TimestampType(),
}


class BadTableLayoutError(InputError, hides_row_values=True):
    """A column of `partition_by` or `sort_by` is not valid for the relation."""

    setting: str
    relation: str
    text: str
    reason: str

    def __str__(self) -> str:
        order = ", with DESC, NULLS FIRST or NULLS LAST after it" if self.setting == SORT_BY else ""
        return (
            f"{self.setting} of {self.relation!r} in [publish]: {self.text!r} {self.reason}. Write columns of the "
            "relation, separated by commas, each alone or in a transform: years(c), months(c), days(c), hours(c), "
            f"bucket(16, c) or truncate(4, c){order}. Names with other characters stand in backticks."
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """One field of a partition spec."""

    transform: str  # as in Iceberg's metadata: `bucket[16]`
    column: str


def published_schema(outline: Outline) -> Schema:
    """Return the columns of a relation, with ids from 1. Raises UnpublishableColumnError."""
    ids = count(1)
    comments = outline.comments or ("",) * len(outline.columns)
    fields = []
    for column, comment in zip(outline.columns, comments, strict=True):
        number = next(ids)
        try:
            kind = _iceberg_type(arrow_type(column.type), ids)
        except LookupError:
            reason = f"has the type {column.type}, which Iceberg tables of format 2 lack"
            raise UnpublishableColumnError(outline.name, column.name, reason) from None
        fields.append(of.NestedField(number, column.name, kind, required=False, doc=comment or None))
    _require_paths(outline, fields)
    return Schema(*fields)


def _require_paths(outline: Outline, fields: Sequence[of.NestedField]) -> None:
    """Require that no two fields have one path, such as a column "a.b". Raises UnpublishableColumnError."""
    if not _have_paths(fields):
        last = next(n for n in range(1, len(fields) + 1) if not _have_paths(fields[:n]))
        reason = "has a name with a dot, or a field with one, that is also the path of another nested field"
        raise UnpublishableColumnError(outline.name, fields[last - 1].name, reason)


def _have_paths(fields: Sequence[of.NestedField]) -> bool:
    try:
        index_by_name(Schema(*fields))
    except ValueError:
        return False
    return True


def written_schema(schema: Schema) -> pa.Schema:
    """Return a table's columns as Arrow fields with field ids. All are nullable, so that a cast checks no value."""
    return pa.schema([field.with_nullable(True) for field in schema_to_pyarrow(schema, include_field_ids=True)])


def parsed_partitions(outline: Outline, text: str) -> tuple[Partition, ...]:
    """Return the partitions of `partition_by`. Raises BadTableLayoutError."""
    terms = parsed_terms(PARTITION_BY, outline, text)
    if any(term.direction or term.nulls for term in terms):
        raise BadTableLayoutError(PARTITION_BY, outline.name, text, "contains an order, which belongs to `sort_by`")
    partitions = tuple(term.partition for term in terms)
    if len(set(partitions)) < len(partitions):
        raise BadTableLayoutError(PARTITION_BY, outline.name, text, "contains a term twice")
    return partitions


@dataclass(frozen=True, slots=True)
class Term:
    """One column of `partition_by` or `sort_by`. `direction`, `nulls`: in lower case; empty: not given."""

    partition: Partition
    direction: str
    nulls: str


def parsed_terms(setting: str, outline: Outline, text: str) -> list[Term]:
    """Return the columns in a list, each alone or in a transform. Raises BadTableLayoutError."""

    def wrong(part: str, reason: str) -> BadTableLayoutError:
        return BadTableLayoutError(setting, outline.name, part.strip(" ,"), reason)

    terms, at = list[Term](), 0
    while text[at:].strip():
        if (match := _TERM.match(text, at)) is None:
            raise BadTableLayoutError(
                setting, outline.name, text[at:].strip(), "is neither a column nor a transform of one"
            )
        name, number = match["transform"] or "identity", match["number"]
        column = match["inner"] or match["column"]
        if column.startswith("`"):
            column = column[1:-1].replace("``", "`")
        if (transform := _TRANSFORMS.get(name.lower())) is None:
            raise BadTableLayoutError(
                setting, outline.name, match[0].strip(" ,"), f"has the unknown transform {name!r}"
            )
        if number is not None and not 0 < int(number) <= _MOST:
            raise wrong(match[0], f"has the number {number}, which is not between 1 and {_MOST}")
        if (number is None) == (transform in ("bucket", "truncate")):
            raise BadTableLayoutError(
                setting, outline.name, match[0].strip(" ,"), "lacks a number, or has one too many"
            )
        own = next((c for c in outline.columns if c.name.lower() == column.lower()), None)
        if own is None:
            raise wrong(column, "is not a column of it")
        partition = Partition(f"{transform}[{number}]" if number else transform, own.name)
        terms.append(Term(partition, (match["direction"] or "").lower(), (match["nulls"] or "").lower()))
        at = match.end()
    return terms


def partition_spec(schema: Schema, partitions: tuple[Partition, ...]) -> PartitionSpec:
    """Return the spec of a new table.

    Raises ValueError for a transform that does not fit its column, and for two units of time of one column, which
    Iceberg adds to no table.
    """
    fields = []
    timed = [partition.column for partition in partitions if partition.transform in _TIMES]
    if twice := next((column for column in timed if timed.count(column) > 1), None):
        raise ValueError(f"the column {twice} has more than one of {', '.join(f'{unit}s' for unit in _TIMES)}")
    for number, partition in enumerate(partitions):
        source, transform = schema.find_field(partition.column), transform_of(partition)
        if not transform.can_transform(source.field_type):
            raise ValueError(f"the transform {partition.transform} does not fit the type {source.field_type}")
        name = _field_name(partition, schema)
        fields.append(PartitionField(source.field_id, _FIRST_PARTITION_ID + number, transform, name))
    return PartitionSpec(*fields)


def partitions_of(table: Table) -> tuple[Partition, ...]:
    """Return the present partitions of a table."""
    schema = table.schema()
    return tuple(
        Partition(str(field.transform), schema.find_column_name(field.source_id) or "") for field in table.spec().fields
    )


def evolve_table(transaction: Transaction, outline: Outline, partitions: tuple[Partition, ...]) -> None:
    """Give a table the columns and partitions of a relation. A column of the same name and type keeps its id.

    Requires: the transaction also replaces all rows. Raises UnpublishableColumnError.
    """
    wanted = published_schema(outline)
    before = {field.name: field for field in transaction.table_metadata.schema().fields}
    gone = [name for name, field in before.items() if not _remains(field, wanted)]
    ids = {name: field.field_id for name, field in before.items() if name not in gone}
    for part in (field for spec in transaction.table_metadata.partition_specs for field in spec.fields):
        is_own = str(part.transform) in ("identity", "void") and ids.get(part.name) == part.source_id
        if not is_own and part.name in wanted.column_names:
            reason = "has the name of a partition of the table's earlier files, which is that of another column or type"
            raise UnpublishableColumnError(outline.name, part.name, reason)
    spec = transaction.table_metadata.spec()
    now = tuple(
        Partition(str(f.transform), transaction.table_metadata.schema().find_column_name(f.source_id) or "")
        for f in spec.fields
    )
    if now != partitions or any(p.column in gone for p in now):
        with transaction.update_spec() as update_spec:
            for part in spec.fields:
                update_spec.remove_field(part.name)
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.set_identifier_fields()
        for name in gone:
            update.delete_column(name)
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for field in wanted.fields:
            there = None if field.name in gone else before.get(field.name)
            if there is None:
                update.add_column((field.name,), field.field_type, doc=field.doc)  # the name may contain a dot
            else:
                kind = field.field_type if str(there.field_type) != str(field.field_type) else None
                simple = kind if isinstance(kind, of.PrimitiveType) else None
                update.update_column(field.name, field_type=simple, required=False, doc=field.doc)
    with transaction.update_schema() as update:
        for before_it, field in zip([None, *wanted.fields], wanted.fields, strict=False):
            if before_it is None:
                update.move_first(field.name)
            else:
                update.move_after(field.name, before_it.name)
    if now != partitions or any(p.column in gone for p in now):
        with transaction.update_spec() as update_spec:
            for partition in partitions:
                name = _field_name(partition, wanted)
                update_spec.add_field(partition.column, transform_of(partition), name)


def set_identifiers(transaction: Transaction, key: tuple[str, ...]) -> None:
    """Make the key's columns the identifier fields; an empty key removes them. Requires: no key column has a NULL."""
    schema = transaction.table_metadata.schema()
    fields = [schema.find_field(name) for name in key]
    if any(
        isinstance(field.field_type, of.FloatType | of.DoubleType) or not field.field_type.is_primitive
        for field in fields
    ):
        fields = []
    if {field.field_id for field in fields} == set(schema.identifier_field_ids):
        return
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.set_identifier_fields()
        for field_id in schema.identifier_field_ids:
            update.update_column(schema.find_column_name(field_id) or "", required=False)
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        for field in fields:
            update.update_column(field.name, required=True)
        update.set_identifier_fields(*(field.name for field in fields))


def columns_fit(table: Table, outline: Outline) -> bool:
    """Return whether a table has the columns of a relation, in their order."""
    columns = [(f.name, type_text(f.field_type)) for f in table.schema().fields]
    return columns == [(f.name, type_text(f.field_type)) for f in published_schema(outline).fields]


def _field_name(partition: Partition, schema: Schema) -> str:
    """Return the name of a partition field. Only an identity may have the name of a column."""
    kind, _, number = partition.transform.rstrip("]").partition("[")
    if kind == "identity":
        return partition.column
    name, columns = f"{partition.column}_{kind}{f'_{number}' if number else ''}", schema.column_names
    while name in columns:
        name += "_"
    return name


def transform_of(partition: Partition) -> Transform[Any, Any]:
    return parse_transform(partition.transform)


def transformed_column(rows: pa.Table, schema: Schema, field_id: int, transform: Transform[Any, Any]) -> pa.Array:
    """Return a column of rows, or a transform of it."""
    field = schema.find_field(field_id)
    column = rows[field.name].combine_chunks()
    if str(transform) == "identity":
        return column
    if pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())  # pyiceberg's kernels lack some transforms of the larger type
    return transform.pyarrow_transform(field.field_type)(column)


def _remains(field: of.NestedField, wanted: Schema) -> bool:
    """Return whether a column has the same type in the wanted schema, or one that Iceberg can promote it to."""
    there = next((w for w in wanted.fields if w.name == field.name), None)
    if there is None:
        return False
    was, now = field.field_type, there.field_type
    if type_text(was) == type_text(now):
        return True
    if isinstance(was, of.DecimalType) and isinstance(now, of.DecimalType):
        return was.scale == now.scale and was.precision <= now.precision
    return (type_text(was), type_text(now)) in {("int", "bigint"), ("float", "double")}


def _iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> of.IcebergType:
    """Return the Iceberg type of a stored type. Raises LookupError."""
    if kind == VARIANT:
        raise LookupError(kind)
    if pa.types.is_decimal128(kind):
        return of.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return of.ListType(next(ids), _iceberg_type(kind.value_type, ids), element_required=False)
    if pa.types.is_map(kind):
        numbers = next(ids), next(ids)
        key, value = _iceberg_type(kind.key_type, ids), _iceberg_type(kind.item_type, ids)
        return of.MapType(numbers[0], key, numbers[1], value, value_required=False)
    if pa.types.is_struct(kind):
        fields = [(next(ids), field) for field in kind]
        return of.StructType(
            *(of.NestedField(number, f.name, _iceberg_type(f.type, ids), required=False) for number, f in fields)
        )
    return _SIMPLE[kind]
