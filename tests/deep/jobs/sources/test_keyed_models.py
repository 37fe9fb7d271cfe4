"""Views over sources that change, for each kind of `changes` and each runner, at every epoch of random histories.

The rows of the source come from the models of the unit tests, and those of the views from DuckDB over the model's rows.
After the last epoch, Spark computes the views too.
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, new_store, open_store, restate, rows
from tests.support.spark_types import SparkSession
from tests.unit.jobs.driver import test_deliveries as deliveries
from tests.unit.jobs.driver import test_keyed_sources as keyed
from tests.unit.jobs.driver.test_keyed_sources import FIELDS, Record, divide_input, some_records
from tussock.jobs.driver import runner as runners
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LevelRunner, LocalRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.catalyst import relation_of_ddl
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.types import arrow_type

pytestmark = [pytest.mark.deep, pytest.mark.spark]

EPOCHS = 30
SCHEMA = pa.schema([(f.name, arrow_type(f.type)) for f in FIELDS])
OVER = "OVER (PARTITION BY v ORDER BY n, id, s)"
VIEWS = {
    "every_row": "SELECT * FROM customers",
    "groups": "SELECT v, min(n) AS a, max(s) AS b, count(*) AS c, count(DISTINCT s) AS d FROM customers GROUP BY v",
    "texts": "SELECT DISTINCT v, s FROM customers",
    "pairs": "SELECT a.id, b.id AS other, a.s FROM customers a JOIN customers b ON a.v = b.v AND a.id < b.id",
    "highest": "SELECT a.id, b.n FROM customers a LEFT JOIN (SELECT v, max(n) AS n FROM customers GROUP BY v) b "
    "ON a.v <=> b.v AND a.n = b.n",
    "ranked": f"SELECT id, n, row_number() {OVER} AS r, lag(s) {OVER} AS before FROM customers",
}
OF_DUCKDB = {name: select.replace("<=>", "IS NOT DISTINCT FROM") for name, select in VIEWS.items()}


class History(Protocol):
    """The input of a source, and the rows that it should have."""

    source: CreateSource

    def begin(self) -> None:
        """Write the first files."""

    def change(self, meta: MetaStore, epoch: int) -> bool:
        """Write, correct or withdraw files. False: start another process."""

    def rows(self) -> Sequence[tuple[object, ...]]:
        """The rows of the source."""


class Changes:
    """Files of changes: upserts, operations, or envelopes of Debezium."""

    def __init__(self, folder: Path, kind: str, chance: random.Random) -> None:
        self.folder, self.kind, self.chance = folder, kind, chance
        self.ending = "json" if kind == "debezium" else "parquet"
        by_sequence = kind != "debezium" and chance.random() < 0.5
        self.model = keyed.Model(by_sequence)
        self.texts = ["a", "b", "gone"] if kind == "upsert" else ["I", "U", "u", "D"]
        options = {"sequence_by": "n"} if by_sequence else {}
        if kind == "operations":
            options |= {"changes": kind, "op_column": "s"}
        self.source = keyed.customers(folder, **options)
        if kind == "debezium":
            given = {"path": str(folder), "retain": "files", "changes": kind}
            self.source = CreateSource("customers", "json", FIELDS, given, keyed=KeyedBy((0,)))

    def begin(self) -> None:
        self._write(f"f50.{self.ending}", some_records(self.chance, 0, self.texts))

    def rows(self) -> Sequence[tuple[object, ...]]:
        return self.model.rows()

    def change(self, meta: MetaStore, epoch: int) -> bool:
        chance, files = self.chance, self.model.files
        match chance.choice(["new"] * 5 + ["corrected", "withdrawn", "restarted"]):
            case "corrected" if files:
                name = chance.choice(sorted(files))
                left = [r for r in files[name] if chance.random() < 0.7]
                self._write(name, [*left, *some_records(chance, epoch, self.texts)])
                restate(meta, "customers", self.folder / name)
            case "withdrawn" if files:
                name = chance.choice(sorted(files))
                del files[name]
                restate(meta, "customers", self.folder / name, gone=True)
                (self.folder / name).unlink()
            case "restarted":
                return False
            case _:
                again = chance.choice([*files.values()]) if files and chance.random() < 0.1 else []
                name = f"f{chance.randrange(100):02}{epoch:02}.{self.ending}"
                self._write(name, [*again, *some_records(chance, epoch, self.texts)])
        return True

    def _write(self, name: str, records: list[Record]) -> None:
        self.model.files[name] = records
        if self.kind != "debezium":
            keyed.write(self.folder / name, records)
            return
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text("".join(f"{json.dumps(_envelope(record))}\n" for record in records))


def _envelope(record: Record) -> Mapping[str, object]:
    row = dict(zip((f.name for f in FIELDS), record, strict=True))
    match record[3]:
        case "T":
            return {"op": "t"}
        case "D":
            return {"op": "d", "before": {"id": record[0]}, "after": None}
        case _:
            return {"op": "c", "before": None, "after": row}


class Dumps:
    """Deliveries of the whole source."""

    def __init__(self, folder: Path, kind: str, chance: random.Random) -> None:
        self.feed = deliveries.Feed(chance, folder, deliveries.Model(kind))
        self.source = deliveries.customers(folder, kind, snapshot_done=deliveries.DONE)

    def begin(self) -> None:
        self.feed.write_delivery(self.feed.day, complete=True)

    def rows(self) -> Sequence[tuple[object, ...]]:
        return self.feed.model.rows()

    def change(self, meta: MetaStore, epoch: int) -> bool:
        return deliveries.change_feed(self.feed, meta)


def history_of(kind: str, folder: Path, chance: random.Random) -> History:
    return Dumps(folder, kind, chance) if kind in deliveries.KINDS else Changes(folder, kind, chance)


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> Sequence[CreateView]:
    columns = ", ".join(f"{f.name} {f.type}" for f in FIELDS)
    binder = Binder(spark, (relation_of_ddl(1, f"customers ({columns})"),), "UTC", ("parquet",))
    bound = [binder.bind(f"CREATE MATERIALIZED VIEW {name} AS {select}") for name, select in VIEWS.items()]
    return [view for view in bound if isinstance(view, CreateView)]


@pytest.fixture(params=["one process", "two workers", "Spark"])
def runner(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> LevelRunner:
    match request.param:
        case "one process":
            return LocalRunner()
        case "two workers":
            monkeypatch.setattr(runners, "WORTH_WORKERS_BYTES", 0)
            return LocalRunner(workers=2)
        case _:
            return SparkRunner(spark)


def require_equal(meta: MetaStore, expected: Sequence[tuple[object, ...]]) -> None:
    customers = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in expected], schema=SCHEMA)
    with duckdb.connect() as duck:
        duck.register("customers", customers)
        for name, select in OF_DUCKDB.items():
            assert rows(meta, name) == sorted(duck.execute(select).fetchall(), key=repr), name


@pytest.mark.parametrize("kind", ["upsert", "operations", "debezium", *deliveries.KINDS])
@pytest.mark.parametrize("seed", range(100))
def test_views_equal_the_model_at_every_epoch(
    tmp_path: Path,
    spark: SparkSession,
    views: Sequence[CreateView],
    runner: LevelRunner,
    seed: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(seed)
    if isinstance(runner, LocalRunner):  # Spark's workers have the constants of the modules
        runner.policy = divide_input(random.Random(f"division {seed}"), monkeypatch).policy
    history = history_of(kind, tmp_path / "in", chance)
    meta = new_store(tmp_path / "store", units=chance.choice([2, 4]))
    history.begin()
    append(meta, history.source, *views)
    advance_store(runner, meta)
    for epoch in range(1, EPOCHS + 1):
        require_equal(meta, history.rows())
        if not history.change(meta, epoch):
            meta = open_store(tmp_path / "store", f"run {epoch}")
        advance_store(runner, meta)
    require_equal(meta, history.rows())
    ddl = ", ".join(f"{f.name} {f.type}" for f in FIELDS)
    spark.createDataFrame([tuple(row) for row in history.rows()], ddl).createOrReplaceTempView("customers")
    for name, select in VIEWS.items():
        assert rows(meta, name) == sorted(map(tuple, spark.sql(select).collect()), key=repr), name
