"""A pipeline's metrics, sent through Airflow's metrics to a listening StatsD server."""

import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tussock_metrics as metrics
import tussock_publishing
from tussock_airflow import AirflowFailException
from tussock_operators import health, run_actors
from tussock_publishing import owed_events
from tussock_steps import open_pipeline_store, pipeline_of

from tests.support.airflow import start_metrics
from tests.support.jobs.driver.embedded import append, epoch
from tests.support.jobs.plan.catalogs import counted, view
from tests.support.plugins import by_name as steps
from tussock.jobs.driver.run_record import recorded_run
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.facts.runs import RunState, last_run
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.pipeline import find_pipeline
from tussock.statestore.errors import InputError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ExpiredCredentialsError
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store

NAME = "shop"
FIELDS = (Field("k", "bigint"), Field("g", "int"))


class Server:
    """A StatsD server."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()

    def received(self) -> dict[str, tuple[float, str]]:
        """The metrics received since the last call: value and kind by name; counters are added up."""
        found: dict[str, tuple[float, str]] = {}
        while True:
            try:
                line = self._socket.recv(1 << 16).decode()
            except TimeoutError:
                return found
            match = re.fullmatch(r"airflow\.tussock\.shop\.([\w.]+):([-+.\de]+)\|(c|g|ms)", line)
            assert match is not None, line
            before = found.get(match[1], (0.0, ""))[0] if match[3] == "c" else 0.0
            found[match[1]] = (before + float(match[2]), match[3])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Airflow sends to it, as its task runner sets that up in each task."""
    server = Server()
    settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.port)}
    for name, value in settings.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
    start_metrics()
    yield server
    server.close()
    monkeypatch.undo()
    start_metrics()


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """A pipeline with a source and a view over it; a file waits."""
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    folder = tmp_path / "pipelines" / NAME
    folder.mkdir(parents=True)
    (folder / "views.sql").write_text("")
    text = f'name = "{NAME}"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
    (folder / "pipeline.toml").write_text(text)
    (tmp_path / "files").mkdir()
    pipeline = find_pipeline(NAME, tmp_path / "pipelines")
    MetaStore.init(open_object_store(pipeline.store))
    meta = open_pipeline_store(NAME).meta
    scan = Scan("s", (0, 1), FIELDS)
    append(
        meta, CreateSource("s", "parquet", FIELDS, {"path": str(tmp_path / "files")}), view("per_g", counted(scan, 1))
    )
    epoch(meta)
    write(tmp_path / "files/1.parquet", 10)
    return meta


def test_numbers_arrive_as_the_facts_have_them(meta: MetaStore, server: Server, tmp_path: Path) -> None:
    with metrics.sends_epochs(NAME):
        steps.advance(NAME, None, None, {}, print)
    (done,) = list_epochs(meta, 1)
    found = server.received()
    assert done.requests is not None
    assert done.seconds is not None
    assert found["epochs"] == (1.0, "c")
    assert (found["rows_in"], found["rows_out"]) == ((10.0, "c"), (float(done.rows_out), "c"))
    assert found["requests.get"] == (float(done.requests.get), "c")
    assert found["requests.bytes_out"] == (float(done.requests.bytes_out), "c")
    assert found["epoch.run"] == (pytest.approx(done.seconds.run * 1000, abs=0.01), "ms")
    assert {name for name in found if name.endswith(".busy")} == {f"unit.{work.unit}.busy" for work in done.units}
    assert found["store.bytes"] == (float(sum(sst.size for level in meta.read_latest().levels for sst in level)), "g")

    write(tmp_path / "files/2.parquet", 3)
    steps.publish(NAME, meta.read_latest().epoch)
    now = read_status(meta, datetime.now(UTC), find_pipeline(NAME, tmp_path / "pipelines"))
    metrics.send_health(NAME, now)
    found = server.received()
    (one,) = now.views
    assert found["view.per_g.rows"] == (float(one.rows or 0), "g")
    assert found["view.per_g.state_bytes"] == (float(one.state_bytes), "g")
    assert found["view.per_g.freshness_seconds"][0] >= 0
    assert found["source.s.waiting_files"] == (1.0, "g")
    assert found["source.s.waiting_bytes"] == (float((tmp_path / "files/2.parquet").stat().st_size), "g")
    assert (found["views_paused"], found["sources_held"]) == ((0.0, "g"), (0.0, "g"))
    assert (found["health"], found["trouble.epoch_unpublished"]) == ((0.0, "g"), (0.0, "g"))
    assert found["trouble.source_held"] == (0.0, "g"), "also the numbers of what is well"

    metrics.send_upkeep(NAME, (3, 1_000))
    found = server.received()
    assert (found["vacuum.objects"], found["vacuum.bytes"]) == ((3.0, "c"), (1_000.0, "c"))


def test_the_task_that_runs_epochs_sends_metrics_even_if_it_fails(
    meta: MetaStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = run_actors(pipeline_of(NAME))

    def take_in(_: object) -> None:
        steps.advance(NAME, None, None, {}, print)
        raise RuntimeError("afterwards")

    monkeypatch.setattr(task, "_take_in", take_in)
    with pytest.raises(RuntimeError, match="afterwards"):
        task.execute({})
    assert server.received()["epochs"] == (1.0, "c")


def test_a_run_without_input_ends_the_failure_of_an_earlier_attempt(meta: MetaStore) -> None:
    """Such a run is also the sign of life without which a schedule would look overdue."""
    steps.advance(NAME, None, None, {}, print)
    with pytest.raises(InputError), recorded_run(meta, "epoch", {"dag": "d", "run": "r"}):
        raise InputError("S3 does not answer")
    run = SimpleNamespace(dag_id="d", run_id="r", run_type="manual", data_interval_start=None, data_interval_end=None)
    run_actors(pipeline_of(NAME)).execute({"dag_run": run, "params": {}})
    found = last_run(meta, datetime.now(UTC))
    assert found is not None
    assert (found.state, found.run["run"]) == (RunState.COMMITTED, "r"), "its last task records its end"


def test_a_store_that_the_last_tasks_cannot_read_is_one_message_and_a_metric(
    meta: MetaStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed task has sent the message; `health` and `owed_events` fail for the same cause."""

    def expired(*_: object) -> bytes:
        raise ExpiredCredentialsError("s3://b", "get 'meta/store.json'", "ExpiredToken")

    monkeypatch.setattr(LocalObjectStore, "get", expired)
    monkeypatch.setattr(tussock_publishing, "has_announced", lambda context: False)
    monkeypatch.setattr(tussock_publishing, "wait_for_those_who_speak", lambda *_: None)
    monkeypatch.setattr(tussock_publishing, "announce_changes", lambda pipeline, *_: open_pipeline_store(pipeline.name))
    last, owed = health(pipeline_of(NAME)), owed_events(pipeline_of(NAME))
    for failed, told in (["see run_actors"], True), ([], False):
        monkeypatch.setattr(type(last), "_failed_tasks", lambda self, context, found=failed: found)
        with pytest.raises(AirflowFailException, match="expired") as raised:
            last.execute({})
        assert (getattr(raised.value, "notices", None) == ()) == told
        found = server.received()
        assert (found["health"], found["trouble.store_unreadable"]) == ((2.0, "g"), (1.0, "g"))
    with pytest.raises(AirflowFailException, match="expired") as raised:
        owed.execute({})
    assert raised.value.notices == ()  # type: ignore[attr-defined]


def test_missing_figures_fail_no_task(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with metrics.sends_epochs("nowhere"):
        pass
    metrics.send_upkeep("nowhere")
    assert "Could not send the metrics of pipeline nowhere: UnknownPipelineError" in caplog.text
    assert server.received() == {}


def test_nothing_is_looked_up_if_airflow_sends_no_metrics(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(_: str) -> MetaStore:
        raise AssertionError

    monkeypatch.setattr(metrics, "_open_meta", looked_up)
    with metrics.sends_epochs(NAME):
        pass
    metrics.send_upkeep(NAME)


def write(path: Path, rows: int) -> None:
    pq.write_table(
        pa.table({"k": pa.array(range(rows), pa.int64()), "g": pa.array([k % 4 for k in range(rows)], pa.int32())}),
        path,
    )
