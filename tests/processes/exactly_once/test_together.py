"""A train of epochs, two compactors and a vacuum on one store at once: no wrong row, no leaked or missing object.

The relations are in two schemas that share names.
"""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.fixtures import ROOT
from tests.support.exactly_once.workload import read
from tests.support.truth.compare import assert_same_answer
from tests.support.truth.model import TABLES, History
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.driver.train import Train
from tussock.jobs.session import Session
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.names import DATA

SECONDS = int(os.environ.get("TUSSOCK_TOGETHER_SECONDS", "600"))
_SALES = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("amount", pa.int64())])
_VIEWS = {  # each may read the earlier ones
    "by_group": "SELECT g, count(*) AS n, sum(amount) AS s, max(amount) AS hi FROM sales GROUP BY g",
    "by_count": "SELECT n % 5 AS m, count(*) AS groups, sum(s) AS s FROM by_group GROUP BY n % 5",
    "extremes": "SELECT g, min(a) AS lo, max(a) AS hi, min(s) AS first_s, count(*) AS n FROM t GROUP BY g",
    "joined": "SELECT t.k, u.id, t.a, u.label FROM t JOIN u u ON t.g = u.g",
    "with_sales": "SELECT t.k, t.a, b.n, b.s FROM t JOIN by_group b ON t.g = b.g",
    "best": "SELECT k, s FROM with_sales ORDER BY s DESC, k LIMIT 5",
}

#: The names in the store of relations that differ from those above. Each shares its name with another relation.
_PLACES = {"u": "twin.t", "sales": "twin.e", "by_count": "twin.by_group", "best": "twin.joined"}


def _placed(statement: str) -> str:
    """A statement with the names in the store."""
    return re.sub(
        r"\b(FROM|JOIN|INTO|UPDATE|VIEW|TABLE|SOURCE) (\w+)",
        lambda found: f"{found[1]} {_PLACES.get(found[2], found[2])}",
        statement,
    )


@contextmanager
def _at_work(store: Path, logs: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Two compactors and a vacuum that keeps two epochs; killed at the end."""
    compactor = [sys.executable, "-m", "tussock.jobs.submitted", "compact", "--store", str(store), "--pause", "0.1"]
    commands = [compactor, compactor, [sys.executable, "-m", "tests.support.exactly_once.sweeper", str(store), "2"]]
    processes = []
    for number, command in enumerate(commands):
        with (logs / f"{number}.log").open("w") as log:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)
            )
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.timeout(SECONDS + 1200)
@pytest.mark.parametrize(
    "seconds", [pytest.param(15, id="short"), pytest.param(SECONDS, marks=pytest.mark.deep, id="long")]
)
def test_a_train_two_compactors_and_a_vacuum_at_once(seconds: int, spark: SparkSession, tmp_path: Path) -> None:
    history, rng = History(seconds), random.Random(seconds)
    data, store = tmp_path / "sales", tmp_path / "store"
    data.mkdir()
    with Session(str(store), spark, runner="spark") as session:  # so that the workers of the train are warm
        sales = f"CREATE SOURCE sales (id bigint, g int, amount bigint) USING parquet OPTIONS (path '{data}')"
        tables = [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]
        views = [f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in _VIEWS.items()]
        session.execute("; ".join(["CREATE SCHEMA twin", *map(_placed, [sales, *tables, *views])]))
        _write(data, 0, rng)
        session.flush()
        with _at_work(store, tmp_path) as processes, Train(SparkRunner(spark), session.meta) as train:
            began, number = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                number += 1
                _write(data, number, rng)
                if statements := history.epoch():
                    session.execute("; ".join(map(_placed, statements)))
                barrier = train.next_barrier()
                assert barrier is not None
                train.run(barrier)
                if train.done:
                    session.meta.publish(train.done[-1].epoch)  # so that the floor may rise
                codes = [process.poll() for process in processes]
                assert codes == [None] * 3, (
                    f"exit codes {codes}: {[log.read_text()[-2000:] for log in sorted(tmp_path.glob('*.log'))]}"
                )
            train.drain_epochs()
        assert len(train.done) == number
        _compare(session, spark, data, history)
        version = session.meta.read_latest()
        assert version.next_task_id > 1, "nothing was compacted meanwhile"
        removed = [
            int(line.split()[0])
            for line in (tmp_path / "2.log").read_text().splitlines()
            if line.endswith("objects removed")
        ]
        assert sum(removed) > 0, "nothing was vacuumed meanwhile"
        session.meta.publish(version.epoch)
        for task in version.tasks:  # of the compactors that were killed
            session.meta.close_compaction(task.id, "its compactor was killed by the test")
        session.meta.apply_retention(keep_epochs=1)
        vacuum_store(session.meta)
        named = {sst.name for level in session.meta.read_latest().levels for sst in level}
        assert {found.name for found in session.meta.objects.list(DATA)} == named
        assert scrub_store(session.meta.objects).is_whole
        _compare(session, spark, data, history)


def _write(data: Path, number: int, rng: random.Random) -> None:
    rows = [{"id": number * 1000 + i, "g": rng.randrange(40), "amount": rng.randrange(1000)} for i in range(200)]
    pq.write_table(pa.Table.from_pylist(rows, _SALES), data / f"{number:06}.parquet")


def _compare(session: Session, spark: SparkSession, data: Path, history: History) -> None:
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.read.schema("id bigint, g int, amount bigint").parquet(str(data)).createOrReplaceTempView("sales")
    for table in TABLES:
        judge.createDataFrame(history.arrow(table)).createOrReplaceTempView(table)
        assert_same_answer(read(session.meta, _PLACES.get(table, table)), history.arrow(table), f"table {table}")
    for name, sql in _VIEWS.items():
        expected = judge.sql(sql)
        expected.createOrReplaceTempView(name)
        assert_same_answer(read(session.meta, _PLACES.get(name, name)), expected.toArrow(), name)
