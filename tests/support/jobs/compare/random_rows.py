"""Random rows of many types, and stores that contain them in a table."""

import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.jobs.driver.embedded import append
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.session import Session
from tussock.statestore.types import arrow_type

TYPES = {
    "k": "int",
    "x": "double",
    "s": "string",
    "d": "decimal(20,3)",
    "many": "array<double>",
    "pair": "struct<a:float,b:string>",
    "day": "date",
}
FIELDS = tuple(Field(name, kind) for name, kind in TYPES.items())
SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in TYPES.items()])
FLOATS = (None, 0.0, -0.0, 1.5, 1.5000001, float("nan"), float("inf"))
Row = tuple[Any, ...]


def random_row(rng: random.Random, keys: int) -> Row:
    floats = [rng.choice(FLOATS) for _ in range(4)]
    return (
        rng.randrange(keys),
        floats[0],
        rng.choice((None, "", "a", "é\0")),
        rng.choice((None, Decimal("0.000"), Decimal("1.5"), Decimal("-99999999999999999.999"))),
        rng.choice((None, [], floats[1:3])),
        rng.choice((None, {"a": floats[3], "b": rng.choice((None, "b"))})),
        rng.choice((None, date(1970, 1, 1), date(1969, 12, 31), date(2026, 2, 3))),
    )


def table_of(rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)]
    return pa.table(arrays, schema=SCHEMA)


def comparable(value: Any) -> Any:
    """A value whose Python equality is that of Spark's EXCEPT ALL."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, list):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return tuple(comparable(part) for part in value.values())
    return value


def comparable_rows(rows: pa.Table) -> list[Row]:
    return [tuple(map(comparable, row)) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)]


def store_of(folder: Path, key: tuple[int, ...], rows: Sequence[Row]) -> Session:
    session = Session(str(folder), runner="local", workers=1)
    append(session.meta, CreateTable("t", FIELDS, key))
    session.insert("t", table_of(rows))
    session.flush()
    return session
