"""The driver's requests to the store refused, their answers lost, or the driver killed after them: epochs commit once.

The actors run without Spark (local_engine); the driver's code is unchanged.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.faulty_store import Fault, FaultyObjectStore, Killed
from tests.support.lossy_proxy import LossyProxy
from tests.support.s3_servers import BUCKET, moto_server
from tussock.jobs.driver import epoch
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.open import open_object_store

DEEP = pytest.mark.deep


@dataclass(frozen=True)
class Prepared:
    """A store with a train of epochs to run, and the requests and the result of an undisturbed run."""

    template: Path
    calls: tuple[tuple[str, str], ...]
    undisturbed: HummockVersion


def advance(store: Path, objects: FaultyObjectStore | None = None, writer: str = "driver") -> MetaStore:
    """Run the part of the epoch job between opening the store and exit."""
    meta = MetaStore(objects or open_object_store(str(store)), writer, lambda: workload.CLOCK_MS)
    epoch.advance_store(UnkindShuffle(3), meta, settings=EpochSettings(max_bytes=workload.MAX_EPOCH_BYTES))
    return meta


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("lost_answers")
    template, data, undisturbed = root / "template", root / "data", root / "undisturbed"
    workload.write_files(data, 1)
    MetaStore.init(open_object_store(str(template)), units=2)
    with Session(str(template), spark, create=False, runner=UnkindShuffle(3)) as session:
        session.meta = workload.open_meta(template)
        session.execute(
            f"CREATE SOURCE sales (id int, g int, amount int) USING parquet OPTIONS (path '{data}/sales');"
            "CREATE TABLE t (k int, g int, PRIMARY KEY (k));"
            "CREATE MATERIALIZED VIEW n AS SELECT g, count(*) AS n FROM sales GROUP BY g;"
            "CREATE MATERIALIZED VIEW joined AS SELECT t.k, n.n FROM t JOIN n ON t.g = n.g;"
            " INSERT INTO t VALUES (1, 1), (2, 2)"
        )
        session.flush()
        session.execute("INSERT INTO t VALUES (3, 1); UPDATE t SET g = 2 WHERE k = 1")
    workload.write_files(data, 2)
    shutil.copytree(template, undisturbed)
    watched = FaultyObjectStore(open_object_store(str(undisturbed)))
    meta = advance(undisturbed, watched)
    return Prepared(template, tuple(watched.calls), meta.read_latest())


@pytest.mark.spark
@pytest.mark.parametrize(
    "fault", [Fault.REFUSED, Fault.LOST_ANSWER, Killed], ids=lambda f: getattr(f, "name", "KILLED")
)
@pytest.mark.parametrize("only", ["put_if_absent", pytest.param("", marks=DEEP)], ids=["creations", "every request"])
@pytest.mark.sampled(3)
def test_a_driver_cut_off_at_any_request_and_started_again_commits_once(
    fault: Any, only: str, prepared: Prepared, tmp_path: Path
) -> None:
    chosen = [i for i, (operation, _) in enumerate(prepared.calls) if operation.startswith(only)]
    assert sum(name.startswith("meta/version") for i in chosen for _, name in [prepared.calls[i]]) >= 1
    for number in chosen:
        what = f"{fault} at request {number}, {prepared.calls[number]}"
        store = Path(shutil.copytree(prepared.template, tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        if fault is Killed:
            objects.kill(number)
        else:
            objects.fail(number, fault)
        # The process died, or reports an unreachable store; anything else is an error.
        with suppress(Killed, RetryableError):
            advance(store, objects)
        meta = advance(store, writer="another")
        assert meta.read_latest() == prepared.undisturbed, what
        assert meta.open_barrier() is None, what


@pytest.mark.spark
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=DEEP)])
def test_a_driver_whose_epoch_another_committed_meanwhile_reports_that_it_lost(
    step: int, prepared: Prepared, tmp_path: Path
) -> None:
    """The other driver acts right before each request: all later requests can only lose, and never double anything."""
    commit = next(
        i for i, (o, name) in enumerate(prepared.calls) if o == "put_if_absent" and name.startswith("meta/version")
    )
    lost = 0
    for number in range(commit, -1, -step):
        store = Path(shutil.copytree(prepared.template, tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        objects.before(number, partial(_overtake, store))
        try:
            advance(store, objects)
        except LostRaceError:
            lost += 1
        advance(store, writer="a third")  # the leftovers of both, after each lost to the other
        assert workload.open_meta(store).read_latest() == prepared.undisturbed, (
            f"overtaken before request {number}, {prepared.calls[number]}"
        )
    assert lost > 0


def _overtake(store: Path) -> None:
    with suppress(LostRaceError):  # the driver's commits continue meanwhile
        advance(store, writer="another")


@pytest.mark.spark
def test_a_writer_recognises_its_own_commit_after_a_lost_answer(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over S3: barrier, manifest and version are created, the connection breaks, and the retry meets its own object."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.01)
    lost: list[str] = []

    def lose(method: str, path: str) -> bool:
        first = (
            method == "PUT" and "/meta/" in path and not path.startswith(f"/{BUCKET}/s/meta/log") and path not in lost
        )
        lost.extend([path] if first else [])
        return first

    with moto_server() as endpoint, LossyProxy(endpoint) as proxy:
        store = f"s3://{BUCKET}/s?endpoint={proxy.endpoint}&path_style=true"
        with Session(store, spark, runner=UnkindShuffle(3)) as session:
            session.execute(
                "CREATE TABLE t (k int, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t"
            )
            for k in range(3):
                session.execute(f"INSERT INTO t VALUES ({k})")
                proxy.lose = lose
                summary = session.flush()
                proxy.lose = lambda method, path: False
                counts = summary.rows["t"]
                assert (counts.rows_in, counts.rows_out, counts.net) == (0, 1, 1)
                assert workload.read(session.meta, "n")["n"].to_pylist() == [k + 1]
            assert session.meta.read_latest().epochs[-1] == summary.epoch
            assert len(session.meta.read_latest().epochs) == 4  # 0 and the three
    for kind in ("barrier", "manifest", "version"):
        assert sum(f"/meta/{kind}/" in path for path in lost) >= 3
