"""Random histories of inserts, updates and deletes: after every epoch each view equals the same SELECT run by Spark over the same rows."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.catalog.reader import scan_relation
from jobs.driver.spark_runner import SparkRunner
from jobs.driver.train import Train
from jobs.session import Session
from statestore.types import arrow_type
from tests.truth.compare import assert_same_answer
from tests.truth.model import TABLES, History
from tests.truth.views import TOP_N, VIEWS

EPOCHS = int(os.environ.get("TUSSOCK_TRUTH_EPOCHS", "20"))
TRAIN_EPOCHS = 12
DEEP_SEEDS = 12


def read(session: Session, name: str, epoch: int | None = None) -> pa.Table:
    """A relation's rows at an epoch (None: the committed one), straight from the state store."""
    version = session.meta.latest()
    at = version.epoch if epoch is None else epoch
    (relation,) = [r for r in version.catalog.at(at) if r.name == name]
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in relation.columns])
    parts = list(scan_relation(session.meta.objects, version, relation, at))
    return pa.concat_tables([schema.empty_table(), *parts])


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.deep) for s in range(1, DEEP_SEEDS))])
def test_every_view_equals_spark_after_every_epoch(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    history = History(seed)
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.conf.set("spark.sql.shuffle.partitions", "1")
    with Session(str(tmp_path / "store"), spark, units=2 + seed % 3) as session:
        session.execute("; ".join(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
        late = dict(list(VIEWS.items())[::5])  # created when there are rows already: backfilled
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {n} AS {sql}" for n, sql in _early(late)))
        for epoch in range(EPOCHS):
            if statements := history.epoch():
                session.execute("; ".join(statements))
            if epoch == EPOCHS // 3:
                session.execute("; ".join(f"CREATE MATERIALIZED VIEW {n} AS {sql}" for n, sql in _late(late)))
            session.flush()
            rows = {table: history.arrow(table) for table in TABLES}
            _compare_all(session, judge, rows, f"seed {seed}, epoch {epoch}: {statements}")


@pytest.mark.spark
@pytest.mark.parametrize("seed", [20, *(pytest.param(s, marks=pytest.mark.deep) for s in range(21, 25))])
def test_every_view_equals_spark_at_every_epoch_of_a_train(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Epochs read what those in flight before them sealed; DML, and views that are created meanwhile, included."""
    history, depth, keep = History(seed), 2 + seed % 3, seed % 2
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.conf.set("spark.sql.shuffle.partitions", "1")
    ran: list[tuple[int, str, dict[str, pa.Table]]] = []
    with Session(str(tmp_path / "store"), spark, units=2 + seed % 3) as session:
        session.execute("; ".join(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
        late = dict(list(VIEWS.items())[::5])
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {n} AS {sql}" for n, sql in _early(late)))
        with Train(SparkRunner(spark), session.meta, depth, keep) as train:
            for number in range(TRAIN_EPOCHS):
                statements = history.epoch()
                if number == TRAIN_EPOCHS // 2:
                    statements += [f"CREATE MATERIALIZED VIEW {n} AS {sql}" for n, sql in _late(late)]
                if statements:
                    session.execute("; ".join(statements))
                if (barrier := train.next_barrier()) is not None:
                    train.run(barrier)
                    ran.append((barrier.epoch, f"{statements}", {table: history.arrow(table) for table in TABLES}))
        assert [summary.epoch for summary in train.done] == [epoch for epoch, _, _ in ran]
        assert session.meta.pins() == ()
        for epoch, statements, rows in ran[:: 1 if seed > 20 else 3] + ran[-1:]:
            _compare_all(session, judge, rows, f"seed {seed}, epoch {epoch} of a train: {statements}", epoch)


def _early(late: dict[str, str]) -> list[tuple[str, str]]:
    everything = [*VIEWS.items(), *((n, sql) for n, (sql, _) in TOP_N.items())]
    return [(n, sql) for n, sql in everything if n not in _waiting(late)]


def _late(late: dict[str, str]) -> list[tuple[str, str]]:
    everything = [*VIEWS.items(), *((n, sql) for n, (sql, _) in TOP_N.items())]
    return [(n, sql) for n, sql in everything if n in _waiting(late)]


def _waiting(late: dict[str, str]) -> set[str]:
    """The late views and what reads them."""
    waiting = set(late)
    for name, sql in [*VIEWS.items(), *((n, sql) for n, (sql, _) in TOP_N.items())]:
        if any(f" {w} " in f"{sql} " for w in waiting):
            waiting.add(name)
    return waiting


def _compare_all(session: Session, judge: SparkSession, rows: dict[str, pa.Table], when: str, epoch: int | None = None) -> None:
    for table in TABLES:
        judge.createDataFrame(rows[table]).createOrReplaceTempView(table)
        assert_same_answer(read(session, table, epoch), rows[table], f"table {table} at {when}")
    catalog = session.meta.latest().catalog
    live = {r.name for r in (catalog.live() if epoch is None else catalog.at(epoch))}
    doubles = [abs(d) for d in rows["t"]["d"].to_pylist() if d is not None and abs(d) < float("inf")]
    scale = max(1.0, sum(doubles))
    for name, sql in [*VIEWS.items(), *((n, sql) for n, (sql, _) in TOP_N.items())]:
        if name in live:
            expected = judge.sql(sql)
            expected.createOrReplaceTempView(name)
            only = TOP_N[name][1] if name in TOP_N else None
            own = scale if "double" in name else 1.0
            assert_same_answer(read(session, name, epoch), expected.toArrow(), f"{name} ({sql}) at {when}", only, own)
