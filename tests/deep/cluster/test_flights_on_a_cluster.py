"""The flights pipeline on a Spark standalone cluster with its store in S3 has the same views as local Spark."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipelines.flights import load
from scripts.cluster import ROOT, Cluster, running_cluster
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import advance_store, interval_of
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
]  # fixtures count; a minute and a half on an idle machine

FOLDER = ROOT / "pipelines" / "flights"
DAYS = 3
FIRST_DAY = ("2013-01-01", "2013-01-02")
VIEWS = dict(
    re.findall(
        r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) AS\s+(.*?);", (FOLDER / "views.sql").read_text(), re.DOTALL
    )
)
BOTH_WORKERS = ("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0", "--conf", "spark.driver.memory=1g")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first days' files, and the rows of the small tables."""
    folder = tmp_path_factory.mktemp("flights")
    load.load(folder, days=DAYS)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), memory="512m") as running:
        yield running


@pytest.fixture(scope="module")
def on_the_cluster(cluster: Cluster, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the output of `read_views.py`, after two epochs of the pipeline: the first day, then the rest."""
    store = cluster.store("flights")
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # no process finds the code through its working folder

    def run(*command: str) -> str:
        environment = cluster.environment() | {
            "FLIGHTS_STORE": store,
            "FLIGHTS_DATA": str(data),
            "TUSSOCK_PIPELINES": str(FOLDER.parent),
        }
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def submit(*arguments: str) -> str:
        return run(*cluster.submit(*BOTH_WORKERS, "--conf", "spark.executor.memory=512m", *arguments))

    python = cluster.environment()["PYSPARK_DRIVER_PYTHON"]
    script = str(ROOT / "tussock" / "jobs" / "submitted.py")
    run(python, "-m", "tussock.jobs.cli", "apply", "flights")
    first = submit(script, "epoch", "--pipeline", str(FOLDER), "--interval", *FIRST_DAY)
    rest = submit(script, "epoch", "--pipeline", str(FOLDER))
    assert (first.count("committed version"), rest.count("committed version")) == (1, 1), first + rest
    publish_newest(store, cluster)
    run(python, str(Path(__file__).with_name("read_views.py")), store, str(elsewhere), *VIEWS)
    return elsewhere


def publish_newest(store: str, cluster: Cluster) -> None:
    """Publish as the task publish_views does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        meta = open_meta(store)
        meta.publish(meta.read_latest().epoch)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_the_cluster_equals_spark_over_the_same_files(
    view: str, on_the_cluster: Path, truth: dict[str, pa.Table]
) -> None:
    assert truth[view].num_rows
    assert_same_answer(found_in(on_the_cluster, view), truth[view], f"{view}, on a cluster")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_the_cluster_equals_that_of_local_spark_over_a_folder(
    view: str, on_the_cluster: Path, on_local_spark: dict[str, pa.Table]
) -> None:
    assert_same_answer(found_in(on_the_cluster, view), on_local_spark[view], f"{view}, on a cluster")


def test_workers_run_the_code_that_was_submitted(cluster: Cluster, on_the_cluster: Path) -> None:
    origins = json.loads((on_the_cluster / "origins.json").read_text())
    assert len({folder for folder, *_ in origins}) == 2, "each of the two workers had an executor"
    for folder, prefix, *files in origins:
        assert Path(folder).is_relative_to(cluster.folder), "an executor runs below its worker's folder"
        assert Path(prefix) == cluster.folder / "python", "workers' Python is an environment without the project"
        for file in files:
            assert cluster.code.name in file, f"{file} is not in the zip that was submitted"
            assert Path(folder, file).is_relative_to(folder), f"{file} is not the executor's own copy"


def test_workers_have_no_other_code_to_run(cluster: Cluster, tmp_path: Path) -> None:
    run = subprocess.run(
        [str(cluster.python), "-c", "import tussock"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "No module named 'tussock'" in run.stderr
    # The code's dependencies are installed.
    subprocess.run([str(cluster.python), "-c", "import pyarrow, duckdb, pyspark"], cwd=tmp_path, check=True)


@pytest.fixture(scope="module")
def truth(spark: SparkSession, data: Path) -> dict[str, pa.Table]:
    """Every view's SELECT, run by Spark over the files."""
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    for name in ("flights", "weather"):
        judge.read.parquet(str(data / name)).createOrReplaceTempView(name)
    for name in ("airlines", "airports", "planes"):
        judge.createDataFrame(load.read_table(name)).createOrReplaceTempView(name)
    answers = {}
    for view, select in VIEWS.items():
        frame = judge.sql(select)
        frame.createOrReplaceTempView(view)
        answers[view] = frame.toArrow()
    return answers


@pytest.fixture(scope="module")
def on_local_spark(spark: SparkSession, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """Every view of the same pipeline on local[2,4] over a folder, after the same two epochs."""
    store = str(tmp_path_factory.mktemp("local"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLIGHTS_STORE", store)
        patch.setenv("FLIGHTS_DATA", str(data))
        pipeline = load_pipeline(FOLDER)
        MetaStore.init(open_object_store(store), vnode_count=pipeline.epoch.vnodes, units=pipeline.epoch.units)
        with Session(store, spark, create=False) as session:
            for path, script in pipeline.read_scripts():
                session.execute(script, base=path.parent)
            for interval in (interval_of(*FIRST_DAY, pipeline.time_zone), None):
                advance_store(SparkRunner(spark), session.meta, InputRequest(interval))
            session.meta.publish(session.meta.read_latest().epoch)
            return answers_of(session, list(VIEWS))


def answers_of(session: Session, views: Sequence[str]) -> dict[str, pa.Table]:
    return {view: session.query(f"SELECT * FROM {view}") for view in views}


def found_in(folder: Path, view: str) -> pa.Table:
    return pq.read_table(folder / f"{view}.parquet")
