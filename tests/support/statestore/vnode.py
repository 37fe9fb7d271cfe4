"""Rows and helpers of test_vnode.py, which is in several lanes."""

from decimal import Decimal
from typing import Any

import pyarrow as pa

from tussock.statestore.types import arrow_type

LONGS = [0, 1, -1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e-40, -3.4e38]
TEXTS = [
    "",
    "abc",
    "abcd",
    "1234567",
    "12345678",
    "a\x00b",
    "ß中🙂",
    *("xyz" * n for n in (10, 11, 21, 22, 33, 400)),
    "x" * 32,
    "y" * 64,
]
TEXTS += ["ab" * n + "c" for n in (127, 128, 5000)]
WIDE = [
    Decimal(0),
    *(Decimal(s * (2**b + d)) for s in (1, -1) for b in (7, 8, 15, 63, 64, 71, 119) for d in (-1, 0, 1)),
]
EDGES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [0, 1, -1, 127, -128, None],
    "smallint": [0, 1, -1, 2**15 - 1, -(2**15), None],
    "int": [0, 1, -1, 2**31 - 1, -(2**31), None],
    "bigint": [*LONGS, None],
    "float": [*FLOATS, None],
    "double": [*FLOATS, 5e-324, -1.7e308, None],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99"), None],
    "decimal(18,4)": [Decimal("0"), Decimal("-1.2500"), Decimal("99999999999999.9999"), None],
    "decimal(19,0)": [
        Decimal(0),
        Decimal(-1),
        Decimal(127),
        Decimal(128),
        Decimal(-128),
        Decimal(-129),
        Decimal(10**19 - 1),
        None,
    ],
    "decimal(38,0)": [*WIDE, Decimal(10**38 - 1), Decimal(1 - 10**38), None],
    "string": [*TEXTS, None],
    "binary": [*(t.encode() for t in TEXTS), b"\xff\x00\x80", None],
    "date": [0, 1, -1, 19000, -719162, None],
    "timestamp": [0, 1, -1, 10**15, -(10**14), None],
    "timestamp_ntz": [0, 1, -1, 10**15, -(10**14), None],
}


def column(name: str) -> pa.Array:
    physical = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(name, arrow_type(name))
    return pa.array(EDGES[name], physical).cast(arrow_type(name))
