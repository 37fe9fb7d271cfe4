"""Turn the records of a keyed source into changes of its rows: one function over whole columns.

A change is (the columns of the row, whether it deletes the key, its position, weight). Comparing the bytes of two
positions compares the changes of a key:

    the values of `sequence_by` | the file's name below the source's folder | `_row_id`

So without `sequence_by`, files count in the natural order of their names, whenever they arrive, and records in their
order. The order is a function of the input alone: a file that is corrected keeps its place, and a store that reads all
files at once has the rows of a store that read them one by one. In Kafka, `_row_id` is the partition and the offset.
Rows of a table have no place: their digest follows the values of `sequence_by`.

If files form deliveries of the whole source, a change has the number of its file instead. The second output has a row
per file and values of its scope, with the order of the file's delivery.

A record with NULL in a column of the key or of `sequence_by` is no change: it is a reject, or an error of its file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.chunks.digests import digests_of
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn, metadata_fields
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.deliveries import Deliveries, name_in_source, natural_order
from tussock.jobs.sources.envelopes import OPERATION, read_envelopes
from tussock.jobs.sources.errors import ways_on
from tussock.jobs.sources.keyed import LOG_FIELDS, PLACE_FIELDS, KeyedPlan
from tussock.jobs.sources.rejects import FIELDS as REJECT_FIELDS
from tussock.jobs.sources.rejects import RAW_CHARACTERS
from tussock.jobs.sources.row_ids import POSITION_BITS, file_of, position_of
from tussock.jobs.sources.spark_paths import place_of
from tussock.jobs.sources.text import with_shown_bytes
from tussock.statestore.hummock.key import encode_values
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

OF_TABLE = -1  # in place of a record's number


class BadChangeError(SourceFileError):
    """A record of a keyed source is no change of a row.

    Args:
        path: of its file, or its partition of a topic; empty for a table.
        record: its number within the file, from 1, or its offset in the partition; OF_TABLE: a row of a table.
        of_topic: it is a message of a topic.
    """

    path: str
    record: int
    reason: str
    of_topic: bool = False

    def __str__(self) -> str:
        if self.record == OF_TABLE:
            return (
                f"a row of the table: {self.reason}. Correct or delete the row in the table, and the next run reads "
                "the table without it."
            )
        aside = "With the option on_error 'quarantine', such records go to the source's table of rejects"
        if self.of_topic:
            return (
                f"the record at offset {self.record} of partition {self.path}: {self.reason}. A topic's records never "
                f"change. {aside}: drop the source with its readers, and create them again with the option."
            )
        return (
            f"file {self.path}, record {self.record}: {self.reason}. Repair the record, and the next run reads the "
            f"file. {aside}. {ways_on(self.path)}."
        )


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of some records.

    Args:
        changes: a chunk: the columns of the row, the plan's `change_types`, and the weights.
        truncations: a chunk: the columns of the scope, the plan's `truncation_types`, and the weights.
        rejects: a chunk with the columns FIELDS of rejects.py.
    """

    changes: pa.Table
    truncations: pa.Table
    rejects: pa.Table


def row_changes(
    plan: KeyedPlan, fields: Sequence[Field], records: pa.Table, kernel: Kernel, *, quarantine: bool
) -> RowChanges:
    """Turn records into changes.

    Args:
        fields: of the row.
        records: a chunk: the columns of a record (`records_of`), the plan's hidden columns, `_row_id`, and the weights.
            A record that is taken back has the weight -1.
        quarantine: return records that are no changes as rejects.

    Raises: BadChangeError.
    """
    rejects, width = empty_chunk([f.type for f in REJECT_FIELDS]), len(fields)
    read = _read_records(plan, fields, records)
    fields, records = read.fields, read.records
    if records.num_rows and (reasons := _reasons_to_reject(plan, read)) is not None:
        bad = reasons.is_valid()
        if not quarantine:
            raise _error_of(plan, fields, records.filter(bad), reasons.filter(bad)[0].as_py())
        rejects = _rejects_of(plan, read, bad, reasons.filter(bad))
        records = records.filter(pc.invert(bad))
    if plan.deliveries is not None:
        return RowChanges(*_delivered_rows(plan, plan.deliveries, fields, records), rejects)
    positions, operations = _positions(plan, fields, records), _operation_texts(plan, records)
    omitted = [records.column(width + 1)] if plan.omits else []
    columns = [*records.columns[:width], *omitted, _deletions(plan, records, operations, kernel), positions]
    changes, truncations = make_chunk(columns, records[WEIGHT]), make_chunk([positions], records[WEIGHT])
    truncates = _is_one_of(operations, () if plan.operations is None else plan.operations.truncates)
    return RowChanges(changes.filter(pc.invert(truncates)), truncations.filter(truncates), rejects)


@dataclass(frozen=True, slots=True)
class _ReadRecords:
    """Records with the columns of the row, and maybe further ones.

    Args:
        fields: of a record.
        records: a chunk: the fields, hidden columns, `_row_id`, and the weights.
        unread: (rows,) why an envelope could not be read; None: all could.
        raw: (rows,) the records as they came; None: a row has no text.
    """

    fields: Sequence[Field]
    records: pa.Table
    unread: pa.Array | None
    raw: pa.Array | None


def _read_records(plan: KeyedPlan, fields: Sequence[Field], records: pa.Table) -> _ReadRecords:
    """Read the envelopes of records, if they have some."""
    if plan.omits:
        return _ReadRecords((*fields, *LOG_FIELDS), records, None, None)
    more = PLACE_FIELDS if plan.of_topic else ()
    if (form := plan.envelope) is None:
        value = next((i for i, f in enumerate(fields) if f.name == "value" and plan.of_topic), None)
        raw = None if value is None else one_array(records.column(value))
        return _ReadRecords((*fields, *more), records, None, raw)
    read = read_envelopes(form, fields, plan.key, records)
    raw = one_array(records.column(form.value)).filter(read.kept)
    return _ReadRecords((*fields, OPERATION, *more), read.records, read.reasons, raw)


def _as_text(values: pa.Array) -> pa.Array:
    texts = values.view(pa.string()) if pa.types.is_binary(values.type) else values.cast(pa.string())
    return pc.utf8_slice_codeunits(with_shown_bytes(texts), 0, RAW_CHARACTERS)


def _reasons_to_reject(plan: KeyedPlan, read: _ReadRecords) -> pa.Array | None:
    """(rows,) string, why a record is no change; None if all are."""
    fields, records = read.fields, read.records
    reasons: list[pa.Array] = [] if read.unread is None else [read.unread]
    none, without_key = pa.scalar(None, pa.string()), pa.repeat(pa.scalar(False), records.num_rows)
    if plan.operations is not None:
        operations = _operation_texts(plan, records)
        name = fields[plan.operations.column].name
        known = _is_one_of(operations, plan.operations.every)
        text = pc.binary_join_element_wise(
            f"column {name!r} contains the unknown operation ", pc.fill_null(operations, "NULL"), ""
        )
        reasons.append(pc.if_else(known, none, text))
        without_key = _is_one_of(operations, plan.operations.truncates)
    for column, what in (*((c, "key") for c in plan.key), *((c, "sequence") for c in plan.sequence)):
        values = records.column(_place_of(plan, fields, column))
        if values.null_count:
            name = HiddenColumn(column).column if column < 0 else fields[column].name
            text = f"column {name!r} of the {what} is NULL"
            missing = one_array(values).is_null()
            reasons.append(pc.if_else(pc.and_not(missing, without_key) if what == "key" else missing, text, none))
    first_reasons = pc.coalesce(*reasons) if reasons else None
    return first_reasons if first_reasons is not None and first_reasons.null_count < len(first_reasons) else None


def _operation_texts(plan: KeyedPlan, records: pa.Table) -> pa.Array:
    """(rows,) the operation of each record in lower case; NULL if the source has no operations."""
    if plan.operations is None:
        return pa.nulls(records.num_rows, pa.string())
    return pc.utf8_lower(one_array(records.column(plan.operations.column)).cast(pa.string()))


def _is_one_of(operations: pa.Array, values: Sequence[str]) -> pa.BooleanArray:
    return pc.is_in(operations, pa.array(values, pa.string()), skip_nulls=True)


def _deletions(plan: KeyedPlan, records: pa.Table, operations: pa.Array, kernel: Kernel) -> pa.Array:
    """(rows,) whether a record deletes its key."""
    by_operation = _is_one_of(operations, () if plan.operations is None else plan.operations.deletes)
    if plan.delete_when is None or not records.num_rows:
        return by_operation
    try:
        computed = kernel.project_columns(records, [plan.delete_when], ["boolean"])
    except RowError as err:
        raise BadChangeError(
            _path_of(plan, records, err.row) if 0 <= err.row < records.num_rows else "",
            _number_of(plan, records, max(0, err.row)),
            f"delete_when ({expression_text(plan.delete_when)}) raised: {err.reason}",
            plan.of_topic,
        ) from err
    return pc.or_(by_operation, one_array(pc.fill_null(computed.column(0), False)))


def _positions(plan: KeyedPlan, fields: Sequence[Field], records: pa.Table) -> pa.Array:
    """(rows,) binary, the positions of changes."""
    parts = [encode_values(one_array(records.column(_place_of(plan, fields, c)))) for c in plan.sequence]
    if HiddenColumn.FILE_PATH in plan.hidden:
        paths = one_array(records.column(_place_of(plan, fields, HiddenColumn.FILE_PATH))).dictionary_encode()
        names = [natural_order(name_in_source(place_of(uri), plan.folders)) for uri in paths.dictionary.to_pylist()]
        parts.append(encode_values(pa.array(names, pa.binary())).take(paths.indices))
    parts.append(_digests(records, len(fields)) if plan.by_value else encode_values(one_array(records.column(-2))))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _digests(records: pa.Table, width: int) -> pa.Array:
    """(rows,) binary, the digests of records."""
    halves = np.stack(digests_of(records.columns[:width], records.num_rows), axis=1).astype(">u8")
    return pa.Array.from_buffers(pa.binary(16), len(halves), [None, pa.py_buffer(halves.tobytes())]).cast(pa.binary())


def _delivered_rows(
    plan: KeyedPlan, deliveries: Deliveries, fields: Sequence[Field], records: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The rows of deliveries as changes, and the deliveries.

    A delivery that is taken back has the weight -1, and its rows are omitted: an epoch reads whole deliveries.
    """
    files = file_of(records.column(-2).to_numpy())
    starts = np.flatnonzero(np.diff(files, prepend=-1))  # a few: the records of a file follow each other
    paths = records.column(_place_of(plan, fields, HiddenColumn.FILE_PATH)).take(pa.array(starts)).to_pylist()
    orders = pa.array([deliveries.order_of(place_of(uri)) for uri in paths], pa.binary())
    run = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(files)))
    scope, first = [records.column(c) for c in plan.scope], starts
    if scope:
        values = pc.binary_join_element_wise(*(encode_values(one_array(c)) for c in scope), pa.scalar(b"", pa.binary()))
        numbers = values.dictionary_encode().indices.to_numpy().astype(np.int64)
        _, first = np.unique(numbers * len(starts) + run, return_index=True)
    numbers_of_files = pa.array(files.astype(np.int32))
    at = pa.array(first)
    begun = make_chunk(
        [*(c.take(at) for c in scope), orders.take(pa.array(run[first])), numbers_of_files.take(at)],
        records[WEIGHT].take(at),
    )
    changes = make_chunk([*records.columns[: len(fields)], numbers_of_files], records[WEIGHT])
    come = changes if pc.min(records[WEIGHT]).as_py() == 1 else changes.filter(pc.greater(records[WEIGHT], 0))
    return come, begun


def _place_of(plan: KeyedPlan, fields: Sequence[Field], column: int) -> int:
    """The place of a scan's column among the columns of a record."""
    return column if column >= 0 else len(fields) + plan.hidden.index(HiddenColumn(column))


def _error_of(plan: KeyedPlan, fields: Sequence[Field], bad: pa.Table, reason: str) -> BadChangeError:
    return BadChangeError(_path_of(plan, bad, 0, len(fields)), _number_of(plan, bad, 0), reason, plan.of_topic)


def _path_of(plan: KeyedPlan, records: pa.Table, row: int, width: int | None = None) -> str:
    """The file or partition of a record. `width`: declared columns of the records; None: all but the hidden ones."""
    width = records.num_columns - 2 - len(plan.hidden) if width is None else width
    if plan.of_topic:
        return str(_partition_names(records, width)[row])
    if HiddenColumn.FILE_PATH not in plan.hidden:
        return ""
    return place_of(records.column(width + plan.hidden.index(HiddenColumn.FILE_PATH))[row].as_py())


def _partition_names(records: pa.Table, width: int) -> pa.Array:
    """(rows,) string, the partition of each message: the last two of its `width` columns."""
    topic, partition = (one_array(records.column(width - n)) for n in (2, 1))
    return pc.binary_join_element_wise(topic, partition.cast(pa.string()), "-")


def _number_of(plan: KeyedPlan, records: pa.Table, row: int) -> int:
    if plan.of_table:
        return OF_TABLE
    first = 0 if plan.of_topic else 1  # offsets count from 0
    return int(position_of(records.column(-2)[row].as_py())) + first


def _rejects_of(plan: KeyedPlan, read: _ReadRecords, is_bad: pa.Array, reasons: pa.Array) -> pa.Table:
    """The rows of the table of rejects. The metadata of a topic's record are NULL."""
    bad, width = read.records.filter(is_bad), len(read.fields)
    raw = pa.nulls(bad.num_rows, pa.string()) if read.raw is None else _as_text(read.raw.filter(is_bad))
    positions = pc.bit_wise_and(one_array(bad.column(-2)), (1 << POSITION_BITS) - 1)
    if plan.of_topic:
        names = _partition_names(bad, width)
        unknown = [pa.nulls(bad.num_rows, arrow_type(f.type)) for f in REJECT_FIELDS[4:]]
        return make_chunk([names, positions, reasons, raw, *unknown], bad[WEIGHT])
    columns = {c: one_array(bad.column(width + i)) for i, c in enumerate(plan.hidden)}
    paths = columns[HiddenColumn.FILE_PATH].dictionary_encode()
    files = pa.array([place_of(uri) for uri in paths.dictionary.to_pylist()], pa.string()).take(paths.indices)
    zeros = pa.repeat(pa.scalar(0, pa.int64()), bad.num_rows)
    metadata_kind = arrow_type(REJECT_FIELDS[4].type)
    known = [zeros if c is None else columns[c] for _, c in metadata_fields(OF_FILES)]
    metadata = pa.StructArray.from_arrays(
        [v.cast(metadata_kind.field(i).type) for i, v in enumerate(known)], fields=list(metadata_kind)
    )
    ingested = columns[HiddenColumn.INGESTED_AT]
    return make_chunk([files, pc.add(positions, 1), reasons, raw, metadata, ingested], bad[WEIGHT])
