"""A train whose source is held and resumes: killed at any creation of an object, it ends in the same rows as Spark's.

The actors run without Spark (local_engine). Spark computes the expected rows over the files that were taken.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

VIEWS = {
    "n": "SELECT g, count(*) AS n, sum(amount) AS s FROM sales GROUP BY g",
    "joined": "SELECT t.k, n.n, n.s FROM t JOIN n ON t.g = n.g",
    "others": "SELECT g, count(*) AS n FROM more GROUP BY g",
}
DAMAGED = "2-1.parquet"  # of `sales`: an epoch before it takes 2-0, one after it would take 2-2


def run(store: Path, objects: FaultyObjectStore | None = None, writer: str = "driver") -> MetaStore:
    meta = MetaStore(objects or open_object_store(str(store)), writer, lambda: workload.CLOCK_MS)
    advance_store(UnkindShuffle(3), meta, settings=EpochSettings(max_bytes=workload.MAX_EPOCH_BYTES))
    return meta


def taken(meta: MetaStore, data: Path, folder: str) -> list[str]:
    """The files of a source that its newest version has taken: all files except the waiting ones."""
    (source,) = [s for s in list_sources(meta) if Path(s.path).name == folder]
    files = sorted(str(f) for f in (data / folder).iterdir())
    return files[: source.taken_files]  # files are taken in the order of their paths


def require_truth(meta: MetaStore, data: Path, spark: SparkSession, what: str) -> None:
    judge = spark.newSession()
    for source, folder in (("sales", "sales"), ("more", "more")):
        judge.read.parquet(*taken(meta, data, folder)).createOrReplaceTempView(source)
    judge.sql("SELECT * FROM VALUES (1, 2), (2, 2), (3, 1) AS t(k, g)").createOrReplaceTempView("t")
    for name, sql in VIEWS.items():
        answer = judge.sql(sql)
        answer.createOrReplaceTempView(name)
        assert_same_answer(workload.read(meta, name), answer.toArrow(), f"{name}, {what}")


@pytest.fixture
def template(spark: SparkSession, tmp_path: Path) -> Path:
    """A store one epoch old; files and statements wait, and one of the files is damaged."""
    template, data = tmp_path / "template", tmp_path / "data"
    workload.write_files(data, 1)
    shutil.copytree(data / "sales", data / "more")
    MetaStore.init(open_object_store(str(template)), units=2)
    with Session(str(template), spark, create=False, runner=UnkindShuffle(3)) as session:
        session.meta = workload.open_meta(template)
        for source in ("sales", "more"):
            session.execute(
                f"CREATE SOURCE {source} (id int, g int, amount int) USING parquet OPTIONS (path '{data}/{source}')"
            )
        views = ";".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in VIEWS.items())
        session.execute(f"CREATE TABLE t (k int, g int, PRIMARY KEY (k)); {views}; INSERT INTO t VALUES (1, 1), (2, 2)")
        session.flush()
        session.execute("INSERT INTO t VALUES (3, 1); UPDATE t SET g = 2 WHERE k = 1")
    workload.write_files(data, 2)
    shutil.copytree(data / "sales", data / "more", dirs_exist_ok=True)
    return template


@pytest.mark.spark
@pytest.mark.parametrize(
    "at", ["meta/barrier", pytest.param("", marks=pytest.mark.deep)], ids=["barriers", "every creation"]
)
def test_a_train_with_a_held_source_killed_at_any_creation_ends_with_the_rows_of_the_taken_files(
    at: str, template: Path, spark: SparkSession, tmp_path: Path, copied: Callable[[int], Path]
) -> None:
    data = tmp_path / "data"
    file = data / "sales" / DAMAGED
    whole = file.read_bytes()
    cut = whole[: len(whole) // 2]
    file.write_bytes(cut)
    watched = FaultyObjectStore(open_object_store(str(copied(-1))))
    undisturbed = run(copied(-1), watched)
    assert list(held_sources(undisturbed.read_latest().catalog)) == ["sales"]
    require_truth(undisturbed, data, spark, "held")
    attempts = [
        name for operation, name in watched.calls if operation == "put_if_absent" and name.startswith("meta/barrier")
    ]
    assert any(name.endswith("00001.json") for name in attempts), "a barrier was superseded"
    for number in [
        i for i, (operation, name) in enumerate(watched.calls) if operation == "put_if_absent" and name.startswith(at)
    ]:
        objects = FaultyObjectStore(open_object_store(str(copied(number))))
        objects.kill(number)
        with suppress(Killed, RetryableError):
            run(copied(number), objects)
        meta = run(copied(number), writer="another")
        assert meta.open_barrier() is None
        assert held_sources(meta.read_latest().catalog) == held_sources(undisturbed.read_latest().catalog), (
            watched.calls[number]
        )
        for name in VIEWS:
            assert_same_answer(
                workload.read(meta, name),
                workload.read(undisturbed, name),
                f"{name}, killed at {watched.calls[number]}",
            )
    file.write_bytes(whole)
    for last in (-1, number):  # the undisturbed one, and the last that was killed
        meta = run(copied(last), writer="later")
        assert held_sources(meta.read_latest().catalog) == {}
        assert len(taken(meta, data, "sales")) == 4
        require_truth(meta, data, spark, "repaired")


@pytest.fixture
def copied(template: Path, tmp_path: Path) -> Callable[[int], Path]:
    """A function from a number to its store, a copy of the template made at the first call."""

    def store(number: int) -> Path:
        place = tmp_path / f"store-{number}"
        return place if place.exists() else Path(shutil.copytree(template, place))

    return store
