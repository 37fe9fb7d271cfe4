"""Functions that DuckDB lacks, vectorised over Arrow columns.

A function is declared once by name, and registered with the process's connection before its first use. DuckDB calls it
with at most 2,048 rows. Constants are expanded to columns. Only rows that reach the call are passed, so a CASE before
it prevents errors. A call costs about 30 µs for any number of rows. Use these functions only if DuckDB cannot match
Spark.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ArrowFunction:
    """`call` maps Arrow columns of types `parameters` (Spark's names) to an equally long column of type `result`."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., pa.Array | pa.ChunkedArray]


_FUNCTIONS: dict[str, ArrowFunction] = {}


def declare(
    name: str, parameters: tuple[str, ...], result: str, call: Callable[..., pa.Array | pa.ChunkedArray]
) -> str:
    """Declare a function and return its name.

    Declaring it again has no effect. Requires: equal names mean equal functions.
    """
    if name not in _FUNCTIONS:
        _FUNCTIONS[name] = ArrowFunction(name, parameters, result, call)
    return name


def declared() -> dict[str, ArrowFunction]:
    """All declared functions by name, oldest first."""
    return _FUNCTIONS
