"""A relation as a Delta table: its columns, what is known about it, and what Delta cannot hold. The same whoever writes it."""

import re
from collections.abc import Sequence
from math import ceil

import pyarrow as pa

from tussock.jobs.settings.pipeline import TableEngine
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError
from tussock.statestore.types import INTERVALS, MONTH_INTERVALS, TIMES, arrow_type, holds_variant

_APP = "tussock"
STORE, ENGINE, KEY = "tussock.store", "tussock.engine", "tussock.key"

_NOT_IN_NAMES = re.compile(
    r"[ ,;{}()\n\t=]"
)  # Delta's protocol keeps these out of names of columns that are not mapped
_SPAN = re.compile(
    "|".join(re.escape(name) for name in sorted((*INTERVALS, *MONTH_INTERVALS, *TIMES), key=len, reverse=True))
)


def app_of(replaced: int) -> str:
    """The appId of the transaction identifiers whose version is the epoch that a table holds.

    Versions of one appId never go back: Spark skips a write whose version is recorded. So a table that is replaced by the same epoch or an
    earlier one, since its rows were of a history that the store no longer has, goes on with the next appId: `tussock`, `tussock.1`, …

    Args:
        replaced: how often that has happened to the table.
    """
    return f"{_APP}.{replaced}" if replaced else _APP


def delta_schema(outline: Outline) -> pa.Schema:
    """The columns as Arrow, of Delta's types."""
    comments = outline.comments or ("",) * len(outline.columns)
    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.type), metadata={"comment": comment} if comment else None)
            for column, comment in zip(outline.columns, comments, strict=True)
        ]
    )


def merge_key(outline: Outline) -> tuple[str, ...]:
    """The key by which a MERGE finds the rows that a change is about; empty where it could find others, or none, than the store does.

    0.0 and -0.0 are one key in a store, and not everywhere; nested keys are not compared everywhere.
    """
    types = {column.name: column.type for column in outline.columns}
    return (
        ()
        if any("float" in types[name] or "double" in types[name] or "<" in types[name] for name in outline.key)
        else outline.key
    )


def kept_hours(keep_ms: int) -> int:
    """How long what a state needs stays after the next one. An hour at least: it may be of a publish that is under way."""
    return max(1, ceil(keep_ms / 3_600_000))


def properties_of(outline: Outline, engine: TableEngine) -> dict[str, str]:
    """What the table's properties say of it."""
    return {STORE: outline.store, ENGINE: engine.value, KEY: ",".join(outline.key)}


def checked_columns(outline: Outline, taken: Sequence[str] = ()) -> None:
    """Whether Delta can hold the columns; `taken` are names that the writer needs. Raises UnpublishableColumnError."""
    for column in outline.columns:
        if (found := _NOT_IN_NAMES.search(column.name)) is not None:
            reason = f"has {found[0]!r} in its name, which Delta does not take"
        elif column.name in taken:
            reason = "has a name that is taken"
        elif _SPAN.search(column.type):
            reason = f"is of type {column.type}, and Delta has neither intervals nor times of day"
        elif holds_variant(arrow_type(column.type)):
            reason = (
                f"is of type {column.type}, and few readers of Delta know variants; publish a view with to_json of it"
            )
        else:
            continue
        raise UnpublishableColumnError(outline.name, column.name, reason)
