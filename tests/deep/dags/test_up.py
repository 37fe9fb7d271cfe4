"""`make up` opens nothing to other users of the machine or its network."""

import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from scripts.airflow_home import airflow_environment
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 240.0
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(600)]


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def at_work(home: Path) -> int:
    """How many of Airflow's processes have reported a heartbeat to its database."""
    with (
        suppress(sqlite3.OperationalError),
        sqlite3.connect(f"file:{home}/.airflow/airflow.db?mode=ro", uri=True) as database,
    ):
        found: int = database.execute(
            "SELECT count(*) FROM job WHERE state = 'running' AND latest_heartbeat > start_date"
        ).fetchone()[0]
        return found
    return 0


def listening_at(process: psutil.Process) -> list[tuple[str, int]]:
    try:
        found = process.net_connections(kind="inet")
    except psutil.NoSuchProcess:  # Airflow's processes come and go
        return []
    return [(place.laddr.ip, place.laddr.port) for place in found if place.status == psutil.CONN_LISTEN]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, psutil.Process, int]]:
    """A home started by `scripts/airflow.sh up`, its process, and the port of the API server, which answers."""
    home = tmp_path_factory.mktemp("home")
    env = {**airflow_environment(home), "AIRFLOW__CORE__DAGS_FOLDER": str(home)}
    port = int(env["AIRFLOW__API__PORT"])
    log = (home / "up.log").open("w")
    server = psutil.Popen(
        ["bash", "-c", "umask 022; exec scripts/airflow.sh up"],
        cwd=ROOT,
        env=env,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:

        def is_up() -> bool:
            """Whether scheduler, DAG processor and triggerer have started, and so listen on all their ports."""
            assert server.poll() is None, (home / "up.log").read_text()[-5000:]
            return answers(port) and "user and password: in " in (home / "up.log").read_text() and at_work(home) >= 3

        eventually(f"Airflow is up ({home / 'up.log'})", is_up, PATIENCE_S, every_s=1)
        yield home, server, port
    finally:
        children = server.children(recursive=True)
        server.terminate()
        server.wait(60)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == [], "every started process is stopped"


def test_airflow_listens_on_the_loopback_interface_alone(started: tuple[Path, psutil.Process, int]) -> None:
    _, server, port = started
    listening = {place for process in [server, *server.children(recursive=True)] for place in listening_at(process)}
    assert ("127.0.0.1", port) in listening
    assert {address for address, _ in listening} <= {"127.0.0.1", "::1"}, listening


def test_the_password_is_in_its_file_and_in_no_log(started: tuple[Path, psutil.Process, int]) -> None:
    home, _, _ = started
    passwords = json.loads((home / ".airflow/passwords.json").read_text())
    assert list(passwords) == ["admin"]
    assert len(passwords["admin"]) >= 16
    logs = [
        path
        for path in [home / "up.log", *home.rglob("*.log")]
        if passwords["admin"] in path.read_text(errors="replace")
    ]
    assert logs == []


def test_passwords_keys_and_database_are_for_their_owner_alone(started: tuple[Path, psutil.Process, int]) -> None:
    home, _, _ = started
    state = home / ".airflow"
    assert state.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in state.iterdir() if path.is_file()}
    assert {"passwords.json", "airflow.db", "JWT_SECRET", "SECRET_KEY"} <= set(modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
