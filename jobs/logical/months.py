"""Intervals of years and months between Spark and Python, which exchange them as int (statestore/months.py).

Spark casts an int to `interval month` and back, also within arrays, maps and structs. It also casts `interval month` to
the units of the declared type.
"""

import re
from collections.abc import Sequence

from tussock.jobs.logical.quoting import quote_name
from tussock.statestore.types import MONTH_INTERVALS

_NAMES = re.compile(r"(`(?:[^`]|``)*`)|" + "|".join(sorted(MONTH_INTERVALS, key=len, reverse=True)))


def carried_name(kind: str) -> str:
    """A type's name with int for intervals of months."""
    return _replace_interval_type(kind, "int")


def as_carried(text: str, kind: str) -> str:
    """The SQL text that converts a value of this type for Python. `text` unchanged if the type has no such interval."""
    return (
        text
        if carried_name(kind) == kind
        else f"CAST(CAST({text} AS {_replace_interval_type(kind, 'interval month')}) AS {carried_name(kind)})"
    )


def of_carried(text: str, kind: str) -> str:
    """The SQL text that converts a value from Python to this type.

    `text` unchanged if the type has no such interval.
    """
    return (
        text
        if carried_name(kind) == kind
        else f"CAST(CAST({text} AS {_replace_interval_type(kind, 'interval month')}) AS {kind})"
    )


def columns_of_carried(columns: Sequence[tuple[str, str]]) -> list[str] | None:
    """The SELECT list that converts a frame from Python to these names and types.

    None if no column needs a conversion.
    """
    texts = [(of_carried(quote_name(name), kind), quote_name(name)) for name, kind in columns]
    return [f"{text} AS {name}" for text, name in texts] if any(text != name for text, name in texts) else None


def _replace_interval_type(kind: str, by: str) -> str:
    return _NAMES.sub(
        lambda match: match[1] or by, kind
    )  # quoted field names are skipped, since one may look like a type
