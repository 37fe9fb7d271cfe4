"""Intervals of years and months on their way between Spark and Python, which hand them to each other as int (statestore/months.py).

Spark casts an int to `interval month` and back, also within arrays, maps and structs; and that to the units that a type names.
"""

import re
from collections.abc import Sequence

from tussock.jobs.logical.quoting import quoted
from tussock.statestore.types import MONTH_INTERVALS

_NAMES = re.compile(r"(`(?:[^`]|``)*`)|" + "|".join(sorted(MONTH_INTERVALS, key=len, reverse=True)))


def carried_name(kind: str) -> str:
    """A type's name with int for intervals of months."""
    return _with(kind, "int")


def as_carried(text: str, kind: str) -> str:
    """The SQL text of a value of the type as it is handed to Python; `text` itself where it holds no such interval."""
    return (
        text
        if carried_name(kind) == kind
        else f"CAST(CAST({text} AS {_with(kind, 'interval month')}) AS {carried_name(kind)})"
    )


def of_carried(text: str, kind: str) -> str:
    """The SQL text of a value of the type, from what Python hands over; `text` itself where it holds no such interval."""
    return text if carried_name(kind) == kind else f"CAST(CAST({text} AS {_with(kind, 'interval month')}) AS {kind})"


def columns_of_carried(columns: Sequence[tuple[str, str]]) -> list[str] | None:
    """What to select of a frame that Python hands over, for these names and types; None: what it holds is of these types."""
    texts = [(of_carried(quoted(name), kind), quoted(name)) for name, kind in columns]
    return [f"{text} AS {name}" for text, name in texts] if any(text != name for text, name in texts) else None


def _with(kind: str, by: str) -> str:
    return _NAMES.sub(lambda found: found[1] or by, kind)  # the name of a field may read like one
