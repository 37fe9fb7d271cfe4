"""Edge values per type, and tables made of them, for comparisons of expressions with Spark."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from tussock.statestore.types import arrow_type, type_name

_INF, _NAN = float("inf"), float("nan")
_UTC = dt.UTC


def _integers(bits: int) -> list[int | None]:
    top = (1 << (bits - 1)) - 1
    some = [7, -7, 2, 3, 10, 100, -25, 31]
    return [0, 1, -1, top, -top - 1, None, top - 1, top // 2, -top // 2, *some]


_DATES = [
    "0001-01-01", "1582-10-04", "1582-10-15", "1900-02-28", "1969-12-31", "1970-01-01", "2000-02-29", "2012-12-31",
    "2015-01-04",
    "2019-03-31", "2020-01-31", "2021-02-28", "2021-04-30",
]  # fmt: skip
_INSTANTS = [
    "0001-01-01 00:00:00",
    "1582-10-10 12:00:00",
    "1883-11-18 17:00:01",
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00",
    "2000-02-29 23:59:59.5",
    "2021-03-14 06:59:59",
    "2021-03-14 07:00:00",
    "2021-11-07 05:30:00",
    "2021-11-07 06:30:00.123456",
    "2021-03-28 01:00:00",
    "2021-10-31 00:30:00.000001",
    "2021-03-28 02:30:00",
    "2021-11-07 01:30:00",
    "2021-03-14 02:30:00",
    "2024-12-30 10:11:12.12",
    "9999-12-31 23:59:59.999999",
    "2021-01-31 12:00:00",
    "2021-02-28 12:00:00",
    "2020-02-29 12:00:00",
    "2021-03-31 11:59:59.5",
    "2021-04-30 12:00:00.000001",
    "2022-03-01 12:00:00",
]


def _moments(zone: dt.tzinfo | None) -> list[dt.datetime | None]:
    return [*(dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in _INSTANTS), None]


def _decimals(precision: int, scale: int) -> list[Decimal | None]:
    top = 10**precision - 1
    steps = [
        0, 1, -1, top, -top, None, top // 2, 5, -5, 15, 25, -25, 150, 10**scale, -(10**scale), 3 * 10**scale // 2,
        10 ** (precision - 1),
    ]  # fmt: skip
    return [None if n is None else _scaled(max(min(n, top), -top), scale) for n in steps]


def _scaled(unscaled: int, scale: int) -> Decimal:
    """Exact with any precision of the context."""
    return Decimal((int(unscaled < 0), tuple(int(d) for d in str(abs(unscaled))), -scale))


_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    None,
    _NAN,
    _INF,
    -_INF,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    1e10,
    123456.789,
    -1e-5,
    2147483647.0,
    99.995,
    7.0,
]
_STRINGS = [
    "", " ", "a", "A", "abc", "Abc Def", None, "ß", "İstanbul", "ΑΣ ΌΣΟΣ", "ab😀c", "é", "e\u0301", "  lead",
    "trail  ", " both ", "1",
    "-12", "+7", "1.5",
    "1e3", "NaN", "true", "2020-02-29", "2020-02-29 01:02:03.4", "a,b,,c", "a%b_c", "x\ty\nz", "\u0000", "Ǆungla",
    "\uffff", "abcabcabc", "aaaaa", "xababaabay", "\U0001f1e9\U0001f1ea",
]  # fmt: skip

EDGES: dict[str, list[object]] = {
    "boolean": [True, False, None],
    "tinyint": [*_integers(8)],
    "smallint": [*_integers(16), 128, -129],
    "int": [*_integers(32), 32768, -32769],
    "bigint": [*_integers(64), 2147483648, -2147483649, 9007199254740993],
    "float": [*_FLOATS, 3.4028234663852886e38, 1.401298464324817e-45, 16777217.0],
    "double": [
        *_FLOATS,
        1.7976931348623157e308,
        5e-324,
        9.223372036854775807e18,
        -9.3e18,
        9007199254740993.0,
        1e22,
        1e23,
        2.675,
        1.005,
    ],
    "string": [*_STRINGS],
    "binary": [b"", b"a", b"abc", None, b"\x00\xff", "ß".encode()],
    "date": [
        *(dt.date.fromisoformat(d) for d in [*_DATES, "2020-12-31", "2021-01-03", "2024-12-30", "9999-12-31"]),
        None,
    ],
    "timestamp": [*_moments(_UTC)],
    "timestamp_ntz": [*_moments(None)],
    "interval year to month": [*_integers(32), 12, -13, 14],
    "interval day to second": [*_integers(64), 1_000_000, -86_400_000_000, 86_400_000_001],
    "time(6)": [0, 1000, 86_399_999_999_000, None, 3_600_000_000_000, 36_000_123_456_000],
}

#: Texts for casts to other types.
TEXTS: dict[str, list[object]] = {
    "numbers": [
        "0", "-0", "1", "+1", " 12 ", "\t3\n", "007", "1.5", "-1.5", "1.", ".5", ".", "-.", "+", "-", "", " ", None,
        "1e3", "1E-3",
        "1e400", "-1e400", "1e-400", "abc",
        "1a", "1 2", "127", "128", "-128", "-129", "32768", "2147483647", "2147483648", "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809", "nan", "NaN", "inf",
        "-Infinity", "+inf", "Infinit", "1.5d", "1.5F", "1_000", "0.1", "0.30000000000000004", "2.675", "1.005",
        "99999999.995",
        "123456789012345678901234567890", "1\x7f", "0b1", "1,5",
        "1e", "e1", "--1", "+-1", "4.35", "3.4028235e38", "1.17549435E-38", "8.5e0", "12.345e1", "\u00a01",
    ],
    "booleans": ["t", "T", "true", "TRUE", " true ", "y", "yes", "1", "f", "false", "n", "No", "0", "", "2", "tru",
    None, "on", "off",
    "truee", "\ttrue\n", "-1"],
    "dates": [
        "2020-01-01", "2020-1-1", "2020-12-31", "2020-02-30", "2020-13-01", "2020-00-10", "2020-01-00", "2020",
        "2020-06", "2020-6-",
        "20-01-01", "12020-01-01", "0001-01-01",
        " 2020-01-01 ", "2020-01-01T", "2020-01-01 ", "2020-01-01 10:00", "2020-01-01Tjunk\n", "2020-01-01x",
        "2020/01/01", "20200101",
        "", "  ", None, "abc", "1582-10-10", "2021-02-29",
        "2020-01-001", "+2020-01-01", "9999-12-31", "2020-01-01-", "1900-02-29", "2020-2-29", "\t2020-03-04\n",
        "2020-01-01  x",
    ],
    "timestamps": [
        "2020-01-01", "2020-01-01 10:11:12", "2020-01-01T10:11:12", "2020-01-01 10:11:12.5",
        "2020-01-01 10:11:12.123456",
        "2020-01-01 10:11:12.1234567", "2020-01-01 1:2:3",
        "2020-01-01 24:00:00", "2020-01-01 23:60:00", "2020-01-01 23:59:60", "2020-01-01 10:11", "2020-01-01T10",
        "2020", "2020-05",
        " 2020-01-01 10:11:12 ", "2020-02-30 00:00:00",
        "", None, "abc", "2020-01-01 10:11:12Z", "2020-01-01T10:11:12+01:00", "2020-01-01 10:11:12.",
        "1582-10-10 00:00:00",
        "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999",
        "2020-01-01 10:11:12 x", "2020-01-01x10:11:12", "2021-03-14 02:30:00", "2021-11-07 01:30:00",
        "2020-1-1 0:0:0.000001",
    ],
}  # fmt: skip


def edges_of(name: str) -> list[object]:
    """Edge values of a type, or of a family of texts (`text:dates`)."""
    if "<" in name:
        return _nested_edges(arrow_type(name))
    if name.startswith("decimal("):
        precision, scale = (int(part) for part in name[8:-1].split(","))
        return [*_decimals(precision, scale)]
    return TEXTS[name[5:]] if name.startswith("text:") else EDGES[name]


def _nested_edges(kind: pa.DataType) -> list[object]:
    """Arrays, structs and maps: NULL, with NULLs, empty, and with every pair of neighbouring edge values."""
    if pa.types.is_map(kind):
        keys, items = (
            [k for k in edges_of(type_name(kind.key_type)) if k is not None],
            edges_of(type_name(kind.item_type)),
        )
        return [
            None,
            [],
            *([(key, item)] for key, item in zip(keys, items, strict=False)),
            [*zip(keys, items, strict=False)],
        ]
    if pa.types.is_struct(kind):
        lists = [[*edges_of(type_name(field.type))] for field in kind]
        longest = max(len(values) for values in lists)
        fields = [[values[(i + shift) % len(values)] for shift in (0, 1) for i in range(longest)] for values in lists]
        fields[-1] = fields[-1][1:] + fields[-1][:1]
        rows: list[object] = [
            dict(zip((field.name for field in kind), row, strict=True)) for row in zip(*fields, strict=True)
        ]
        return [None, *rows, dict.fromkeys(field.name for field in kind)]
    values = [*edges_of(type_name(kind.value_type))]
    pairs = [[a, b] for a, b in zip(values, values[1:] + values[:1], strict=True)]
    return [
        [],
        None,
        [None],
        [None, None],
        *([value] for value in values),
        *pairs,
        *([b, a, b] for a, b in pairs[:8]),
        [*values],
    ]


def type_of(name: str) -> str:
    """The type of a column of those edges."""
    return "string" if name.startswith("text:") else name


def edge_table(columns: Sequence[str]) -> pa.Table:
    """A table of edge values, columns `c0`, `c1`, … of these kinds.

    One column: each value once. More: each column with itself (all rows equal) and with shifts of the others, so that
    most pairs of neighbours in the lists meet. The lists have different lengths and repeat.
    """
    lists = [edges_of(c) for c in columns]
    longest = max(len(values) for values in lists)
    shifts = (0,) if len(lists) == 1 else (0, 1, 5)
    arrays = []
    for place, (name, values) in enumerate(zip(columns, lists, strict=True)):
        taken = [values[(i + shift * place) % len(values)] for shift in shifts for i in range(longest)]
        arrays.append(pa.array(taken, arrow_type(type_of(name))))
    return pa.table(arrays, names=[f"c{i}" for i in range(len(arrays))])
