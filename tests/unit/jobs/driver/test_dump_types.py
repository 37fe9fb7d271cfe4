"""Dumps with keys and columns of many types, compared in parts, give the rows of the newest dump."""

import datetime as dt
import decimal
import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, new_store, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, KeyedBy
from tussock.jobs.task import source_leaf, vnode_parts
from tussock.statestore.types import arrow_type

Row = dict[str, object]
TYPES = {
    "flag": "boolean",
    "id": "int",
    "part": "bigint",
    "score": "double",
    "price": "decimal(38,5)",
    "name": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "seen": "timestamp_ntz",
    "place": "struct<a:int,b:string>",
    "tags": "array<string>",
}
SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in TYPES.items()])


def value_of(name: str, n: int) -> object:
    """A value of a column; most columns have another one for each number."""
    hours = dt.timedelta(hours=n, microseconds=n)
    values: Row = {
        "flag": bool(n % 2),
        "id": n * 7919 - 10**6,
        "part": n * 10**12,
        "score": [-0.0, math.inf, math.nan][n] if n < 3 else n / 3,
        "price": decimal.Decimal(n * 10**20).scaleb(-3),
        "name": ["", "é", "a\0b"][n] if n < 3 else f"k{n}",
        "raw": bytes([n % 256, n // 256]),
        "day": dt.date(1900, 1, 1) + dt.timedelta(n * 37),
        "at": dt.datetime(1960, 1, 1, tzinfo=dt.UTC) + hours,
        "seen": dt.datetime(1960, 1, 1) + hours,
        "place": {"a": n, "b": None if n % 3 else "x"},
        "tags": [*map(str, range(n % 4)), None],
    }
    return values[name]


def next_dump(chance: random.Random, key: tuple[str, ...], before: dict[int, Row]) -> dict[int, Row]:
    """Rows by number: most of them as before."""
    dump: dict[int, Row] = {}
    for n in chance.sample(range(260), 250):
        if n in before and chance.random() < 0.95:
            dump[n] = before[n]
        else:
            values = {name: value_of(name, chance.randrange(5)) if chance.random() < 0.8 else None for name in TYPES}
            dump[n] = values | {name: value_of(name, n) for name in key}
    return dump


@pytest.mark.parametrize(
    "key", [("id",), ("name",), ("score", "name"), ("price",), ("raw",), ("day", "flag"), ("at",), ("seen", "part")]
)
def test_dumps_give_the_rows_of_the_newest_one(
    tmp_path: Path, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_leaf, "_CHANGED_AT_ONCE", 40)
    monkeypatch.setattr(vnode_parts, "DIVIDED_ROWS", 60)
    monkeypatch.setattr(vnode_parts, "ENCODED_BYTES", 2_000)
    monkeypatch.setattr(vnode_parts, "KEPT_BYTES", 0)
    chance = random.Random(",".join(key))
    fields = tuple(Field(name, kind) for name, kind in TYPES.items())
    options = {"path": str(tmp_path / "in"), "retain": "files", "changes": "snapshot"}
    keyed = KeyedBy(tuple(SCHEMA.names.index(name) for name in key))
    meta = new_store(tmp_path / "store", units=2)
    (tmp_path / "in").mkdir()
    dump: dict[int, Row] = {}
    for day in range(3):
        dump = next_dump(chance, key, dump)
        table = pa.Table.from_pylist(chance.sample(list(dump.values()), len(dump)), schema=SCHEMA)
        pq.write_table(table, tmp_path / f"in/{day}.parquet", row_group_size=100)
        if not day:
            append(meta, CreateSource("shop", "parquet", fields, options, keyed=keyed))
        advance_store(LocalRunner(), meta)
        assert not held_sources(meta.read_latest().catalog)
        expected = zip(*(column.to_pylist() for column in table.columns), strict=True)
        assert sorted(map(repr, rows(meta, "shop"))) == sorted(map(repr, expected))
