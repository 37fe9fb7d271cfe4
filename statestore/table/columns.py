"""Gathers rows from several tables with little extra memory."""

import pyarrow as pa

from tussock.statestore.stacked import FEW_ROWS, take_rows
from tussock.statestore.vnode import one_array


def take_columns(tables: list[pa.Table], places: pa.Array) -> pa.Table:
    """The rows at `places` of the concatenated tables.

    Args:
        tables: tables of one schema; the list is emptied. Columns that no other object holds are released one by one.
        places: (n,) integers.

    Cost: a gather. Memory: the result, the tables, and at most one more column.
    """
    if sum(table.num_rows for table in tables) <= FEW_ROWS:
        rows = pa.concat_tables(tables)
        tables.clear()
        return take_rows(rows, places)
    schema = tables[0].schema
    columns = [
        pa.chunked_array([chunk for table in tables for chunk in table.column(i).chunks], f.type)
        for i, f in enumerate(schema)
    ]
    tables.clear()
    taken = []
    while columns:
        taken.append(one_array(columns.pop(0).take(places)))
    return pa.table(taken, schema=schema)
