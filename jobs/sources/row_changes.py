"""Turn the records of a keyed source into changes of its rows: one function over whole columns.

A change is (the columns of the row, whether it deletes the key, its position, weight). Comparing the bytes of two
positions compares the changes of a key:

    the values of `sequence_by` | the file's name below the source's folder | `_row_id`

So without `sequence_by`, files count in the natural order of their names, whenever they arrive, and records in their
order. The order is a function of the input alone: a file that is corrected keeps its place, and a store that reads all
files at once has the rows of a store that read them one by one. In Kafka, `_row_id` is the partition and the offset.

If files form deliveries of the whole source, the position of a record is the order of its delivery, and the second
output has one row per delivery and values of its scope.

A record with NULL in a column of the key or of `sequence_by` is no change: it is a reject, or an error of its file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn, metadata_fields
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.deliveries import Deliveries, name_in_source, natural_order
from tussock.jobs.sources.errors import ways_on
from tussock.jobs.sources.keyed import KeyedPlan
from tussock.jobs.sources.rejects import FIELDS as REJECT_FIELDS
from tussock.jobs.sources.row_ids import POSITION_BITS, position_of
from tussock.jobs.sources.spark_paths import place_of
from tussock.statestore.hummock.key import encode_values
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array


class BadChangeError(SourceFileError):
    """A record of a keyed source is no change of a row.

    Args:
        path: of its file; empty for a topic.
        record: its number within the file, from 1, or its offset in the topic.
    """

    path: str
    record: int
    reason: str

    def __str__(self) -> str:
        place = f"file {self.path}, record {self.record}" if self.path else f"the record at offset {self.record}"
        return (
            f"{place}: {self.reason}. Repair the record, and the next run reads the file. With the option on_error "
            f"'quarantine', such records go to the source's table of rejects. {ways_on(self.path)}."
        )


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of some records.

    Args:
        changes: a chunk: the columns of the row, CHANGE_TYPES, and the weights.
        truncations: a chunk: the columns of the scope, TRUNCATION_TYPES, and the weights.
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
        fields: of a record.
        records: a chunk: the fields, the plan's hidden columns, `_row_id`, and the weights. A record that is taken back
            has the weight -1.
        quarantine: return records that are no changes as rejects.

    Raises: BadChangeError.
    """
    rejects = empty_chunk([f.type for f in REJECT_FIELDS])
    if records.num_rows and (reasons := _reasons_to_reject(plan, fields, records, kernel)) is not None:
        bad = reasons.is_valid()
        if not quarantine:
            raise _error_of(plan, fields, records.filter(bad), reasons.filter(bad)[0].as_py())
        rejects = _rejects_of(plan, fields, records.filter(bad), reasons.filter(bad))
        records = records.filter(pc.invert(bad))
    if plan.deliveries is not None:
        return RowChanges(*_delivered_rows(plan, plan.deliveries, fields, records), rejects)
    positions, operations = _positions(plan, fields, records), _operation_texts(plan, records)
    columns = [*records.columns[: len(fields)], _deletions(plan, records, operations, kernel), positions]
    changes, truncations = make_chunk(columns, records[WEIGHT]), make_chunk([positions], records[WEIGHT])
    truncates = _is_one_of(operations, () if plan.operations is None else plan.operations.truncates)
    return RowChanges(changes.filter(pc.invert(truncates)), truncations.filter(truncates), rejects)


def _reasons_to_reject(plan: KeyedPlan, fields: Sequence[Field], records: pa.Table, kernel: Kernel) -> pa.Array | None:
    """(rows,) string, why a record is no change; None if all are."""
    reasons: list[pa.Array] = []
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
    found = pc.coalesce(*reasons) if reasons else None
    return found if found is not None and found.null_count < len(found) else None


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
            _number_of(records, max(0, err.row)),
            f"delete_when ({expression_text(plan.delete_when)}) raised: {err.reason}",
        ) from err
    return pc.or_(by_operation, one_array(pc.fill_null(computed.column(0), False)))


def _positions(plan: KeyedPlan, fields: Sequence[Field], records: pa.Table) -> pa.Array:
    """(rows,) binary, the positions of changes."""
    parts = [encode_values(one_array(records.column(_place_of(plan, fields, c)))) for c in plan.sequence]
    if HiddenColumn.FILE_PATH in plan.hidden:
        paths = one_array(records.column(_place_of(plan, fields, HiddenColumn.FILE_PATH))).dictionary_encode()
        names = [natural_order(name_in_source(place_of(uri), plan.folders)) for uri in paths.dictionary.to_pylist()]
        parts.append(encode_values(pa.array(names, pa.binary()).take(paths.indices)))
    parts.append(encode_values(one_array(records.column(-2))))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _delivered_rows(
    plan: KeyedPlan, deliveries: Deliveries, fields: Sequence[Field], records: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The rows of deliveries as changes, and the deliveries.

    A delivery that is taken back has the weight -1, and its rows are omitted: an epoch reads whole deliveries.
    """
    paths = one_array(records.column(_place_of(plan, fields, HiddenColumn.FILE_PATH))).dictionary_encode()
    orders = [deliveries.order_of(place_of(uri)) for uri in paths.dictionary.to_pylist()]  # one per file
    positions = pa.array(orders, pa.binary()).take(paths.indices)
    scope, weights = [records.column(c) for c in plan.scope], records[WEIGHT].to_numpy()
    values = [encode_values(one_array(column)) for column in scope]
    of_scope = pc.binary_join_element_wise(*values, positions, pa.scalar(b"", pa.binary())) if scope else positions
    numbers = of_scope.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first = np.unique(2 * numbers + (weights > 0), return_index=True)
    begun = make_chunk([*scope, positions], records[WEIGHT]).take(pa.array(first))
    keeps = pa.repeat(pa.scalar(False), records.num_rows)
    changes = make_chunk([*records.columns[: len(fields)], keeps, positions], records[WEIGHT])
    return changes.filter(pc.greater(records[WEIGHT], 0)), begun


def _place_of(plan: KeyedPlan, fields: Sequence[Field], column: int) -> int:
    """The place of a scan's column among the columns of a record."""
    return column if column >= 0 else len(fields) + plan.hidden.index(HiddenColumn(column))


def _error_of(plan: KeyedPlan, fields: Sequence[Field], bad: pa.Table, reason: str) -> BadChangeError:
    return BadChangeError(_path_of(plan, bad, 0, len(fields)), _number_of(bad, 0), reason)


def _path_of(plan: KeyedPlan, records: pa.Table, row: int, width: int | None = None) -> str:
    if HiddenColumn.FILE_PATH not in plan.hidden:
        return ""
    width = records.num_columns - 2 - len(plan.hidden) if width is None else width
    return place_of(records.column(width + plan.hidden.index(HiddenColumn.FILE_PATH))[row].as_py())


def _number_of(records: pa.Table, row: int) -> int:
    return int(position_of(records.column(-2)[row].as_py())) + 1


def _rejects_of(plan: KeyedPlan, fields: Sequence[Field], bad: pa.Table, reasons: pa.Array) -> pa.Table:
    """The rows of the table of rejects."""
    columns = {c: one_array(bad.column(len(fields) + i)) for i, c in enumerate(plan.hidden)}
    paths = columns[HiddenColumn.FILE_PATH].dictionary_encode()
    files = pa.array([place_of(uri) for uri in paths.dictionary.to_pylist()], pa.string()).take(paths.indices)
    numbers = pc.add(pc.bit_wise_and(one_array(bad.column(-2)), (1 << POSITION_BITS) - 1), 1)
    zeros = pa.repeat(pa.scalar(0, pa.int64()), bad.num_rows)
    metadata_kind = arrow_type(REJECT_FIELDS[4].type)
    known = [zeros if c is None else columns[c] for _, c in metadata_fields(OF_FILES)]
    metadata = pa.StructArray.from_arrays(
        [v.cast(metadata_kind.field(i).type) for i, v in enumerate(known)], fields=list(metadata_kind)
    )
    raw = pa.nulls(bad.num_rows, pa.string())
    return make_chunk([files, numbers, reasons, raw, metadata, columns[HiddenColumn.INGESTED_AT]], bad[WEIGHT])
