"""Epochs on YARN, in client and cluster mode: two node managers of a real YARN in one JVM.

The store must have the same rows as one whose epochs ran on this host, also after the loss of an executor in an
exchange, and after the loss of the application master, which in cluster mode is the driver.
"""

import inspect
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from scripts.airflow_home import airflow_environment
from scripts.cluster import ROOT
from tests.support.cluster.hadoop import Hadoop, running_hadoop
from tests.support.jobs.driver.embedded import NOW, after, append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.waiting import eventually
from tests.unit.statestore.objectstore import test_contract as contract
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(1800)]

SCRIPT = str(ROOT / "tussock/jobs/submitted.py")
SQL = """
CREATE SOURCE orders (shop int, amount bigint) USING csv OPTIONS (path '${data}');
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS shops FROM per_shop GROUP BY n;
"""


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with running_hadoop(tmp_path_factory.mktemp("hadoop")) as running:
        yield running


def run(hadoop: Hadoop, folder: Path, *command: str) -> str:
    """Run a command of a client in a folder. Returns its output."""
    done = subprocess.run(
        command, cwd=folder, env=hadoop.environment(), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def new_pipeline(folder: Path, store: str) -> Path:
    """A pipeline with 300 rows of 10 shops, applied to an empty store. Returns its folder."""
    (pipeline := folder / "pipelines/shop").mkdir(parents=True)
    (folder / "data").mkdir()
    (pipeline / "views.sql").write_text(SQL)
    text = f'name = "shop"\nstore = "{store}"\ndata = "{folder}/data"\nsql = ["views.sql"]\n[epoch]\nunits = 4\n'
    (pipeline / "pipeline.toml").write_text(text)
    arrive(folder, "a", range(300))
    return pipeline


def arrive(folder: Path, name: str, amounts: Sequence[int]) -> None:
    (folder / f"data/{name}.csv").write_text("".join(f"{n % 10},{n}\n" for n in amounts))


def totals(store: str) -> list[tuple[int, int, int]]:
    """The committed rows, published."""
    meta = MetaStore(open_object_store(store), "reader", lambda: NOW)
    meta.publish(meta.read_latest().epoch)
    with Session(store, create=False) as session:
        rows = session.read("per_shop")
    return sorted(zip(*(rows[name].to_pylist() for name in ("shop", "n", "total")), strict=True))


def expected_totals(amounts: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(shop, len(own := [n for n in amounts if n % 10 == shop]), sum(own)) for shop in range(10)]


def in_cluster_mode(hadoop: Hadoop, folder: Path) -> list[str]:
    """The command of docs/clusters.md: the application master's host has no pipeline, so the job brings it along."""
    archive = shutil.make_archive(str(folder / "pipelines"), "zip", folder / "pipelines")
    options = ("--deploy-mode", "cluster", "--archives", f"{archive}#pipelines")
    return hadoop.submit(*options, SCRIPT, "epoch", "--pipeline", "pipelines/shop")


def test_epochs_run_in_client_mode_and_in_cluster_mode(hadoop: Hadoop, tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, store := str(tmp_path / "store"))
    run(hadoop, tmp_path, sys.executable, "-m", "tussock.jobs.cli", "apply", "shop")
    out = run(hadoop, tmp_path, *hadoop.submit(SCRIPT, "epoch", "--pipeline", str(pipeline)))
    assert out.count("committed version") == 1
    assert totals(store) == expected_totals(range(300))
    arrive(tmp_path, "b", range(300, 400))
    run(hadoop, tmp_path, *in_cluster_mode(hadoop, tmp_path))
    assert totals(store) == expected_totals(range(400))
    assert hosts_of_last_epoch(store), "the manifest lists the hosts of the units"


CHOICES = {
    "dynamic allocation": {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.initialExecutors": "1"},
    "two CPUs per task": {"spark.executor.cores": "2", "spark.task.cpus": "2"},
    "speculation": {"spark.speculation": "true", "spark.speculation.multiplier": "1.1"},
    "encryption": {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"},
    "fewer slots than units": {"spark.executor.instances": "1"},
}


@pytest.mark.parametrize("settings", CHOICES.values(), ids=CHOICES.keys())
def test_an_epoch_has_the_same_rows_with_other_settings_of_spark(
    settings: dict[str, str], hadoop: Hadoop, tmp_path: Path
) -> None:
    pipeline = new_pipeline(tmp_path, store := str(tmp_path / "store"))
    run(hadoop, tmp_path, sys.executable, "-m", "tussock.jobs.cli", "apply", "shop")
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    run(hadoop, tmp_path, *hadoop.submit(*options, SCRIPT, "epoch", "--pipeline", str(pipeline)))
    assert totals(store) == expected_totals(range(300))


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_run_of_airflow_submits_its_epoch_to_yarn(mode: str, hadoop: Hadoop, tmp_path: Path) -> None:
    """`airflow dags test` with the connection of docs/clusters.md; the tasks submit, check and publish."""
    pipeline = new_pipeline(tmp_path, store := str(tmp_path / "store"))
    toml = pipeline / "pipeline.toml"
    toml.write_text(toml.read_text() + 'runner = "spark"\n')
    run(hadoop, tmp_path, sys.executable, "-m", "tussock.jobs.cli", "apply", "shop")
    environment = {
        **hadoop.environment(),
        **airflow_environment(tmp_path / "home"),
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": mode}}
        ),
    }
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "epoch_shop"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-6000:]
    said = ran.stdout + ran.stderr
    assert "--master yarn" in said
    assert f"--deploy-mode {mode}" in said
    with Session(store, create=False) as session:
        assert session.read("per_shop").num_rows == 10, "the run published its epoch"
    assert totals(store) == expected_totals(range(300))


def hosts_of_last_epoch(store: str) -> list[int]:
    meta = MetaStore(open_object_store(store), "reader", lambda: NOW)
    manifest = meta.read_manifest(meta.read_latest().epoch)
    return [] if manifest is None else sorted(unit for units in manifest.hosts.values() for unit in units)


def test_an_epoch_survives_the_loss_of_an_executor_in_an_exchange(hadoop: Hadoop, tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=4)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta)
    rng = random.Random(3)
    insert(meta, "t", *((rng.randrange(5000), rng.randrange(400), k) for k in range(3000)))
    expected = after(tmp_path / "store", tmp_path / "here", LocalRunner())
    shutil.copytree(tmp_path / "store", there := tmp_path / "there")
    (markers := tmp_path / "markers").mkdir()
    script = str(Path(__file__).with_name("lose_executors.py"))
    driver = hadoop.environment()["PYSPARK_DRIVER_PYTHON"]
    out = run(hadoop, tmp_path, driver, script, str(there), str(markers), "1")
    assert (markers / "0").exists(), "no executor was killed"
    assert json.loads(out.splitlines()[-1])["ran"] == "on Spark, in one stage"
    assert MetaStore(open_object_store(str(there)), "reader", lambda: NOW).read_latest() == expected


def test_an_epoch_survives_the_loss_of_its_application_master(hadoop: Hadoop, tmp_path: Path) -> None:
    """In cluster mode the driver dies with it, and YARN starts another one."""
    new_pipeline(tmp_path, store := str(tmp_path / "store"))
    run(hadoop, tmp_path, sys.executable, "-m", "tussock.jobs.cli", "apply", "shop")
    meta = MetaStore(open_object_store(store), "reader", lambda: NOW)
    before = meta.read_latest().epoch
    with subprocess.Popen(in_cluster_mode(hadoop, tmp_path), cwd=tmp_path, env=hadoop.environment()) as client:
        eventually("the barrier of the epoch", lambda: meta.barrier_after(before) is not None, 300, every_s=0.01)
        killed = kill_application_masters(hadoop)
        assert client.wait(600) == 0
    assert killed
    assert totals(store) == expected_totals(range(300))
    assert meta.barrier_after(meta.read_latest().epoch) is None, "the second driver finished the epoch of the first"


def kill_application_masters(hadoop: Hadoop) -> int:
    """Kill the JVMs of the application masters of this Hadoop. Returns their number."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            place = (process / "cwd").readlink()
        except OSError:  # it has ended
            continue
        is_master = b"org.apache.spark.deploy.yarn.ApplicationMaster" in words and words[0].endswith(b"java")
        if is_master and place.is_relative_to(hadoop.folder):
            os.kill(int(process.name), signal.SIGKILL)
            killed += 1
    return killed


def test_a_store_and_files_in_hdfs_have_the_same_rows(hadoop: Hadoop, tmp_path: Path) -> None:
    """In cluster mode, with the data nodes of a real HDFS. The driver's host has neither the store nor the files."""
    pipeline = new_pipeline(tmp_path, in_hdfs(hadoop, "store"))
    text = (pipeline / "pipeline.toml").read_text()
    address = in_hdfs(hadoop, "orders", "/*.csv")
    (pipeline / "pipeline.toml").write_text(text.replace(f'data = "{tmp_path}/data"\n', ""))
    (pipeline / "views.sql").write_text(SQL.replace("${data}", address))
    open_object_store(in_hdfs(hadoop, "orders")).put("a.csv", (tmp_path / "data/a.csv").read_bytes())
    run(hadoop, tmp_path, sys.executable, "-m", "tussock.jobs.cli", "apply", "shop")
    run(hadoop, tmp_path, *in_cluster_mode(hadoop, tmp_path))
    assert totals(in_hdfs(hadoop, "store")) == expected_totals(range(300))


def in_hdfs(hadoop: Hadoop, folder: str, name: str = "") -> str:
    return f"{hadoop.hdfs}/{folder}{name}?endpoint={hadoop.webhdfs}"


STORE_CHECKS = [
    check
    for name, check in vars(contract).items()
    if name.startswith("test_") and [*inspect.signature(check).parameters] == ["any_store"]
]


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_hdfs_keeps_the_contract_of_every_object_store(check: Callable[[ObjectStore], None], hadoop: Hadoop) -> None:
    check(open_object_store(in_hdfs(hadoop, f"contract/{check.__name__}")))
