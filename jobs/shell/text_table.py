"""Tables as text for people."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from statestore.months import shown
from statestore.types import VARIANT


def text_table(table: pa.Table) -> str:
    """A table as aligned text, numbers to the right."""
    columns = zip(table.column_names, table.columns, strict=True)
    texts = [[name, *("NULL" if v is None else _shown(v, column.type) for v in column.to_pylist())] for name, column in columns]
    right = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in table.schema]
    return aligned(zip(*texts, strict=True), right)


def _shown(value: Any, kind: pa.DataType) -> str:
    if kind != VARIANT:
        return str(shown(value))
    from pyspark.sql.types import VariantVal  # here, since few tables hold one and this import takes long

    return str(VariantVal(**value))


def aligned(rows: Iterable[Sequence[str]], right: Sequence[bool]) -> str:
    """Rows of cells, the header first, as lines. `right`: which columns are aligned to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ((t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) for row in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in shown)
