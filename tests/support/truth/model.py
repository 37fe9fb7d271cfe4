"""A random history of three tables: SQL statements, and the expected rows after them, kept in plain Python."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

TABLES = {
    "t": "k int, g int, a int, d double, s string, m decimal(10,2), PRIMARY KEY (k)",
    "u": "id bigint, g int, f float, label string, at timestamp, PRIMARY KEY (id)",
    "w": "label string, day date, flag boolean, big bigint, PRIMARY KEY (label, day)",
    "e": "g int, a int, s string",  # no key: rows may be equal
}
KEYS = {"t": ("k",), "u": ("id",), "w": ("label", "day")}
ARROW = {
    "t": pa.schema(
        [
            ("k", pa.int32()),
            ("g", pa.int32()),
            ("a", pa.int32()),
            ("d", pa.float64()),
            ("s", pa.string()),
            ("m", pa.decimal128(10, 2)),
        ]
    ),
    "u": pa.schema(
        [
            ("id", pa.int64()),
            ("g", pa.int32()),
            ("f", pa.float32()),
            ("label", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    ),
    "w": pa.schema([("label", pa.string()), ("day", pa.date32()), ("flag", pa.bool_()), ("big", pa.int64())]),
    "e": pa.schema([("g", pa.int32()), ("a", pa.int32()), ("s", pa.string())]),
}
_STRINGS = ("", "a", "ab", "b", "ß", "日本", "x'y", "NULL", "z" * 40)
_DOUBLES = (
    "0.0D",
    "-0.0D",
    "1.5D",
    "-2.25D",
    "1e40D",
    "-1e40D",
    "1e20D",
    "1e-300D",
    "double('NaN')",
    "double('Infinity')",
    "0.1D",
)
_FLOATS = ("0.0", "1.5", "-3.25", "NaN", "-0.0", "100.125")
_DAYS = ("2013-01-01", "2013-02-28", "1969-12-31", "2400-01-01")


@dataclass
class History:
    """Statements of one random run, one epoch at a time."""

    seed: int
    wild: bool = True  # NaN, infinities and values that cancel badly
    rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=lambda: {name: {} for name in TABLES}
    )

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._inserted = 0

    def epoch(self) -> list[str]:
        """The statements of one epoch, sometimes none. The model applies them immediately."""
        if self.random.random() < 0.1:
            return []
        statements = []
        for _ in range(self.random.randint(1, 6)):
            table = self.random.choice(list(TABLES))
            step = self.random.choice((self._insert, self._insert, self._update, self._delete, self._touch_and_go))
            statements += step(table)
        return statements

    def arrow(self, table: str) -> pa.Table:
        """The table's rows now."""
        return pa.Table.from_pylist(list(self.rows[table].values()), schema=ARROW[table])

    # --- statements ------------------------------------------------------------------------------------------------

    def _insert(self, table: str) -> list[str]:
        values = []
        for _ in range(self.random.randint(1, 12)):
            row, sql = self._row(table)
            self._inserted += 1
            self.rows[table][tuple(row[k] for k in KEYS[table]) if table in KEYS else (self._inserted,)] = row
            values.append(sql)
        return [f"INSERT INTO {table} VALUES {', '.join(values)}"]

    def _update(self, table: str) -> list[str]:
        g = self._group()
        if table == "t":
            for row in self.rows["t"].values():
                if row["g"] == g and g is not None:
                    row["g"], row["a"] = (g + 1) % 5, None if row["a"] is None else row["a"] + 1
            return [f"UPDATE t SET g = (g + 1) % 5, a = a + 1 WHERE g = {'NULL' if g is None else g}"]
        if table == "u":
            label = self.random.choice(_STRINGS)
            for row in self.rows["u"].values():
                if row["g"] is None or row["g"] > 2:
                    row["label"] = label
            return [f"UPDATE u SET label = {_text(label)} WHERE g IS NULL OR g > 2"]
        if table == "e":
            for row in self.rows["e"].values():
                if row["a"] is not None and row["a"] < 5:
                    row["g"], row["s"] = g, None if row["s"] is None else row["s"] + "+"
            return [f"UPDATE e SET g = {_null(g)}, s = concat(s, '+') WHERE a < 5"]
        for row in self.rows["w"].values():
            row["flag"] = None if row["flag"] is None else not row["flag"]
        return ["UPDATE w SET flag = NOT flag"]

    def _delete(self, table: str) -> list[str]:
        column, value = {
            "t": ("k", self.random.randint(0, 40)),
            "u": ("g", self.random.randint(0, 4)),
            "w": ("flag", True),
            "e": ("a", self.random.randint(-3, 8)),
        }[table]
        below = table == "t"
        doomed = [
            k
            for k, r in self.rows[table].items()
            if r[column] is not None and (r[column] < value if below else r[column] == value)
        ]
        if below and self.random.random() < 0.7:
            doomed = [k for k in doomed if k[0] % 3 == 0]
            for key in doomed:
                del self.rows[table][key]
            return [f"DELETE FROM t WHERE k < {value} AND k % 3 = 0"]
        for key in doomed:
            del self.rows[table][key]
        return [f"DELETE FROM {table} WHERE {column} {'<' if below else '='} {str(value).lower()}"]

    def _touch_and_go(self, table: str) -> list[str]:
        """Insert, update and delete a key in one epoch; every other time, insert it again."""
        row, sql = self._row("t")
        again, sql_again = self._row("t")
        again["k"] = row["k"]
        sql_again = f"({row['k']}{sql_again[sql_again.index(',') :]}"
        self.rows["t"].pop((row["k"],), None)
        statements = [
            f"INSERT INTO t VALUES {sql}",
            f"UPDATE t SET a = 7 WHERE k = {row['k']}",
            f"DELETE FROM t WHERE k = {row['k']}",
        ]
        if self.random.random() < 0.5:
            self.rows["t"][(row["k"],)] = again
            statements.append(f"INSERT INTO t VALUES {sql_again}")
        return statements

    def _row(self, table: str) -> tuple[dict[str, Any], str]:
        r = self.random
        g = self._group()
        if table == "t":
            double = r.choice(_DOUBLES if self.wild else _DOUBLES[:4])
            values = [
                (k := r.randint(0, 40), str(k)),
                (g, _null(g)),
                _pick(r, [(i, str(i)) for i in range(-3, 12)]),
                (_double(double), double),
                _pick(r, [(s, _text(s)) for s in _STRINGS]),
                _pick(r, [(Decimal(n) / 100, f"{Decimal(n) / 100}BD") for n in (0, 1, -250, 99999999, 12345)]),
            ]
        elif table == "u":
            f = r.choice(_FLOATS if self.wild else ("0.0", "1.5"))
            moment = r.choice(("2013-01-01 00:00:00", "2013-03-10 07:30:00.123456", "1900-01-01 00:00:00"))
            values = [
                (i := r.randint(0, 30) * 10**11, str(i)),
                (g, _null(g)),
                (float(f), f"float('{f}')"),
                _pick(r, [(s, _text(s)) for s in _STRINGS]),
                (_moment(moment), f"TIMESTAMP '{moment}'"),
            ]
        elif table == "e":
            values = [
                (g, _null(g)),
                _pick(r, [(i, str(i)) for i in range(-3, 9)]),
                _pick(r, [(s, _text(s)) for s in _STRINGS[:4]]),
            ]
        else:
            label, day = r.choice(_STRINGS), r.choice(_DAYS)
            values = [
                (label, _text(label)),
                (_day(day), f"DATE '{day}'"),
                _pick(r, [(True, "true"), (False, "false")]),
                _pick(r, [(n, str(n)) for n in (0, 2**62, -(2**62), 17)]),
            ]
        names: Sequence[str] = ARROW[table].names
        return dict(zip(names, (v for v, _ in values), strict=True)), f"({', '.join(sql for _, sql in values)})"

    def _group(self) -> int | None:
        return self.random.choice((None, 0, 1, 2, 3, 4))


def _pick(r: random.Random, values: list[tuple[Any, str]]) -> tuple[Any, str]:
    return (None, "NULL") if r.random() < 0.15 else r.choice(values)


def _null(value: object) -> str:
    return "NULL" if value is None else str(value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "\\'") + "'"


def _double(sql: str) -> float:
    return float(sql.removeprefix("double('").removesuffix("')").rstrip("D"))


def _moment(text: str) -> Any:
    return pa.scalar(text).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")).as_py()


def _day(text: str) -> Any:
    return pa.scalar(text).cast(pa.date32()).as_py()
