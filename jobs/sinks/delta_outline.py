"""A relation as a Delta table: its columns and properties, and the types that Delta lacks.

The same for both engines.
"""

import re
from collections.abc import Sequence
from math import ceil

import pyarrow as pa

from tussock.jobs.settings.publishing import TableEngine
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError
from tussock.statestore.types import INTERVALS, MONTH_INTERVALS, TIMES, arrow_type, holds_variant

_APP = "tussock"
STORE, ENGINE, KEY = "tussock.store", "tussock.engine", "tussock.key"

_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")  # Delta's protocol excludes these from names of unmapped columns
_SPAN = re.compile(
    "|".join(re.escape(name) for name in sorted((*INTERVALS, *MONTH_INTERVALS, *TIMES), key=len, reverse=True))
)


def app_of(replaced: int) -> str:
    """Return the appId of the transaction identifiers whose version is the table's epoch.

    Versions of one appId never decrease: Spark skips a write whose version is already recorded. If a table is replaced
    by the same or an earlier epoch, because its rows belong to a history that the store no longer has, it gets the next
    appId: `tussock`, `tussock.1`, …

    Args:
        replaced: how often the table has been replaced this way.
    """
    return f"{_APP}.{replaced}" if replaced else _APP


def delta_schema(outline: Outline) -> pa.Schema:
    """Return the columns as Arrow fields of Delta's types."""
    comments = outline.comments or ("",) * len(outline.columns)
    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.type), metadata={"comment": comment} if comment else None)
            for column, comment in zip(outline.columns, comments, strict=True)
        ]
    )


def merge_key(outline: Outline) -> tuple[str, ...]:
    """Return the key by which a MERGE finds the rows to change; empty if it could match other rows than the store does.

    0.0 and -0.0 are one key in a store, but not in every engine; some engines do not compare nested keys.
    """
    types = {column.name: column.type for column in outline.columns}
    return (
        ()
        if any("float" in types[name] or "double" in types[name] or "<" in types[name] for name in outline.key)
        else outline.key
    )


def kept_hours(keep_ms: int) -> int:
    """Return how many hours a superseded state is kept: at least one, because a running publish may need it."""
    return max(1, ceil(keep_ms / 3_600_000))


def properties_of(outline: Outline, engine: TableEngine) -> dict[str, str]:
    """Return the properties of the table."""
    return {STORE: outline.store, ENGINE: engine.value, KEY: ",".join(outline.key)}


def checked_columns(outline: Outline, taken: Sequence[str] = ()) -> None:
    """Require that Delta supports the columns.

    `taken`: names that the writer needs. Raises UnpublishableColumnError.
    """
    for column in outline.columns:
        if (match := _NOT_IN_NAMES.search(column.name)) is not None:
            reason = f"has {match[0]!r} in its name, which Delta does not support"
        elif column.name in taken:
            reason = "has a reserved name"
        elif _SPAN.search(column.type):
            reason = f"has the type {column.type}, and Delta has neither intervals nor times of day"
        elif holds_variant(arrow_type(column.type)):
            reason = (
                f"has the type {column.type}, and few Delta readers support variants; publish a view with to_json of it"
            )
        else:
            continue
        raise UnpublishableColumnError(outline.name, column.name, reason)
