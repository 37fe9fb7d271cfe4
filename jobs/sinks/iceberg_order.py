"""The sort order of an Iceberg table: `sort_by` of the settings, and the order of the rows in each new file.

A publish sorts the rows of each file that it writes. A change of `sort_by` changes the table's order with the next
snapshot; earlier files keep the order that their entries name.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    UNSORTED_SORT_ORDER_ID,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.table.update import AddSortOrderUpdate, AssertDefaultSortOrderId, SetDefaultSortOrderUpdate

from tussock.jobs.sinks.base import Outline
from tussock.jobs.sinks.iceberg_outline import (
    SORT_BY,
    BadTableLayoutError,
    Partition,
    parsed_terms,
    transform_of,
    transformed_column,
)

_ASC, _DESC = "ascending", "descending"
_FIRST_ORDER_ID = 1


SortTerm = tuple[Partition, bool, bool]
"""A column or a transform of it; whether it is descending; whether NULL comes first."""


def parsed_order(outline: Outline, text: str) -> tuple[SortTerm, ...]:
    """Return the columns of `sort_by`. NULL is the least value unless the text differs. Raises BadTableLayoutError."""
    return tuple(
        (
            term.partition,
            term.direction == "desc",
            term.nulls == "first" or (not term.nulls and term.direction != "desc"),
        )
        for term in parsed_terms(SORT_BY, outline, text)
    )


def order_of(metadata: TableMetadata) -> tuple[SortTerm, ...]:
    """Return the present order of a table."""
    order, schema = metadata.sort_order_by_id(metadata.default_sort_order_id), metadata.schema()
    return tuple(
        (
            Partition(str(field.transform), schema.find_column_name(field.source_id) or ""),
            field.direction == SortDirection.DESC,
            field.null_order == NullOrder.NULLS_FIRST,
        )
        for field in (() if order is None else order.fields)
    )


def sort_order(relation: str, schema: Schema, terms: Sequence[SortTerm]) -> SortOrder:
    """Return the order of a new table. Raises BadTableLayoutError for a column that has no order."""
    fields = []
    for partition, descending, nulls_first in terms:
        source, transform = schema.find_field(partition.column), transform_of(partition)
        if not (source.field_type.is_primitive and transform.can_transform(source.field_type)):
            reason = f"does not fit the type {source.field_type}"
            raise BadTableLayoutError(SORT_BY, relation, f"{partition.transform} of {partition.column}", reason)
        fields.append(
            SortField(
                source.field_id,
                transform,
                SortDirection.DESC if descending else SortDirection.ASC,
                NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*fields, order_id=_FIRST_ORDER_ID) if fields else UNSORTED_SORT_ORDER


def change_order(transaction: Transaction, relation: str, terms: tuple[SortTerm, ...]) -> None:
    """Give a table an order, if it has another one. Raises BadTableLayoutError."""
    metadata = transaction.table_metadata
    if order_of(metadata) == terms:
        return
    if not terms:  # pyiceberg's update cannot add the order of unsorted tables
        missing = metadata.sort_order_by_id(UNSORTED_SORT_ORDER_ID) is None
        unsorted = AddSortOrderUpdate.model_validate({"sort-order": UNSORTED_SORT_ORDER})
        default = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": UNSORTED_SORT_ORDER_ID})
        # Requirements of one kind count once, so this one decides also for an order that follows in the transaction.
        present = {"default-sort-order-id": metadata.default_sort_order_id}
        transaction._apply(
            (unsorted, default) if missing else (default,), (AssertDefaultSortOrderId.model_validate(present),)
        )
        return
    sort_order(relation, metadata.schema(), terms)
    with transaction.update_sort_order() as update:
        for partition, descending, nulls_first in terms:
            nulls = NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST
            (update.desc if descending else update.asc)(partition.column, transform_of(partition), nulls)


def sorted_places(rows: pa.Table, metadata: TableMetadata) -> pa.Array | None:
    """Return the places of rows in the table's order, as (n,) uint64; None if it has none.

    NaN is the greatest value, as in Iceberg. Equal rows keep their order.
    """
    columns, keys = list[pa.Array | pa.ChunkedArray](), list[tuple[str, str]]()
    for partition, descending, nulls_first in order_of(metadata):
        source = metadata.schema().find_field(partition.column)
        values = transformed_column(rows, metadata.schema(), source.field_id, transform_of(partition))
        direction = _DESC if descending else _ASC
        parts = [(pc.is_null(values), _DESC if nulls_first else _ASC)]
        if pa.types.is_floating(values.type):
            parts.append((pc.fill_null(pc.is_nan(values), False), direction))
        for column, order in (*parts, (values, direction)):
            keys.append((str(len(columns)), order))
            columns.append(column)
    if not keys:
        return None
    columns.append(pa.array(np.arange(rows.num_rows)))
    names = [str(place) for place in range(len(columns))]
    return pc.sort_indices(pa.table(columns, names), sort_keys=[*keys, (names[-1], _ASC)])
