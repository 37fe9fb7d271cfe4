"""Functions that DuckDB lacks, vectorised over Arrow columns.

A function is declared once by name. A kernel registers it before the first query that calls it, so a function that
cannot be registered fails only the queries that call it. DuckDB calls it with at most 2,048 rows. Constants are
expanded to columns. Only rows that reach the call are passed, so a CASE before it prevents errors. A call costs about
30 µs for any number of rows. Use these functions only if DuckDB cannot match Spark.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tussock.jobs.kernels.duck import duck_type

_CALL = re.compile(r"'(?:[^']|'')*'|(\w+)\(")  # a string constant, which may contain anything, or a call


@dataclass(frozen=True, slots=True)
class ArrowFunction:
    """`call` maps Arrow columns of types `parameters` (Spark's names) to an equally long column of type `result`."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., pa.Array | pa.ChunkedArray]


_FUNCTIONS: dict[str, ArrowFunction] = {}


def declare_function(
    name: str, parameters: tuple[str, ...], result: str, call: Callable[..., pa.Array | pa.ChunkedArray]
) -> str:
    """Declare a function and return its name.

    Declaring it again has no effect. Requires: equal names mean equal functions.

    Raises: UnsupportedTypeError if DuckDB has no type for a parameter or the result. Nothing is declared then.
    """
    if name not in _FUNCTIONS:
        for type_name in (*parameters, result):
            duck_type(type_name)
        _FUNCTIONS[name] = ArrowFunction(name, parameters, result, call)
    return name


def called_functions(sql: str) -> list[ArrowFunction]:
    """The declared functions that a rendered text calls. Cost: one pass over the text."""
    names = dict.fromkeys(match[1] for match in _CALL.finditer(sql))
    return [_FUNCTIONS[name] for name in names if name in _FUNCTIONS]
