"""Rows and helpers of test_query_command.py, which is in several lanes."""

import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, epoch, open_store
from tests.support.zone_rules import rules_of_python
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreatePlainView, CreateTable, RecordZone
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

_FIELDS = (Field("id", "bigint"), Field("Shop", "int"), Field("price", "decimal(6,2)"), Field("at", "timestamp"))
_ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "shop": [7, 7, None],
        "price": pa.array(["1.50", "-0.01", None]).cast(pa.decimal128(6, 2)),
        "at": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("query") / "store"
    MetaStore.init(open_object_store(str(folder)), units=2, time_zone="Europe/Zurich")
    meta = open_store(folder, "maker")
    named = CreatePlainView("named", "SELECT id FROM orders", _FIELDS[:1], ("id",), ("orders",))
    words = CreateTable("words", (Field("id", "bigint"), Field("true", "int"), Field("null", "int")), (0,))
    zone = RecordZone(rules_of_python("Europe/Zurich"))
    append(meta, CreateTable("orders", _FIELDS, (0,)), named, words, zone)
    meta.publish(epoch(meta).epoch)
    with Session(str(folder), create=False, runner="local", workers=1) as session:
        session.insert("orders", _ROWS)
        session.flush()
        session.insert("orders", pa.table({"id": [4]}))
    append(open_store(folder, "later"), CreateTable("late", _FIELDS, (0,)))
    return str(folder)


def lines(text: str) -> list[str]:
    return sorted(" ".join(line.split()) for line in text.splitlines())
