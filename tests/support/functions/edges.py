"""One table of edge values with a column per type, the input of every function's example."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from tussock.statestore.types import arrow_type, type_name

_COLUMNS: dict[str, tuple[str, list[object]]] = {
    "i": ("int", [0, 1, -1, 2147483647, -2147483648, 7, 100, 20]),
    "l": ("bigint", [0, 1, -1, 9223372036854775807, -9223372036854775808, 65, 8364, 3]),
    "small": ("int", [1, 2, 3, 12, 13, 0, -1, 5]),
    "d": ("double", [0.0, -0.0, 1.5, -2.5, 1e300, float("nan"), float("inf"), 0.1, 2.0, 1.0]),
    "f": ("float", [0.0, 1.5, -1.5, 0.5, float("nan"), float("-inf"), 3.0, 2.0]),
    "dec": (
        "decimal(10,2)",
        [Decimal("0.00"), Decimal("1.25"), Decimal("-1.25"), Decimal("99999999.99"), Decimal("2.35")],
    ),
    "s": (
        "string",
        [
            "",
            "a",
            "Abc Def",
            "aab,b,,c",
            "ß",
            "éa\u0301",
            "ab😀c",
            "a%b_c",
            "  ab ",
            "2020-02-29",
            "x'y`z\\n",
            "aB1b2",
        ],
    ),
    "num": (
        "string",
        ["1", "-7", "12.5", "x", "2020-02-29", "79927398713", "20200229", "10:11:12", "2021-03-14 02:30:00"],
    ),
    "j": ("string", ['{"a": 1, "b": ["x", "y"]}', '{"a": null}', "[1, 2]", "{", '"q"', '{"a": {"c": 2.5}}', "null"]),
    "u": (
        "string",
        [
            "http://h.org/p?q=1&r=2#f",
            "not a url",
            "https://u:p@h:8/%41?q=",
            "ftp://x",
            "http://h.org/?q=%zz",
            "a%20b+c",
        ],
    ),
    "x": ("string", ["<p><a>1</a><a>2</a></p>", "<p/>", "<p><a>x</a></p>", "<p>", ""]),
    "b": ("boolean", [True, False]),
    "bin": ("binary", [b"", b"a", b"\x00\xff", "ß".encode(), bytes(21)]),
    "dt": (
        "date",
        [dt.date(1, 1, 1), dt.date(1582, 10, 15), dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(2024, 12, 30)],
    ),
    "ts": (
        "timestamp",
        [
            dt.datetime(*moment, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]
            for moment in [
                (1969, 12, 31, 23, 59, 59, 999999),
                (2021, 3, 14, 7),
                (2021, 11, 7, 5, 30),
                (2000, 2, 29, 12),
                (1900, 1, 1),
            ]
        ],
    ),
    "n": (
        "timestamp_ntz",
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2021, 3, 14, 2, 30), dt.datetime(2000, 2, 29)],
    ),
}
ROWS = 26


def edges() -> pa.Table:
    """(ROWS, a column per name). Values repeat at different intervals, so most pairs meet; `id` numbers the rows."""
    columns = {"id": pa.array(range(ROWS), pa.int32())}
    for place, (name, (kind, values)) in enumerate(_COLUMNS.items()):
        cycle = [*values, None]
        columns[name] = pa.array(
            [cycle[(row + (row // len(cycle)) * place) % len(cycle)] for row in range(ROWS)], arrow_type(kind)
        )
    return pa.table(columns)


def columns_text() -> str:
    """The columns and their types, by type, for people."""
    by_type: dict[str, list[str]] = {}
    for name, (kind, _) in _COLUMNS.items():
        by_type.setdefault(kind, []).append(f"`{name}`")
    return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in by_type.items())


def ddl() -> str:
    """The table's columns as text."""
    return ", ".join(f"{f.name} {type_name(f.type)}" for f in edges().schema)
