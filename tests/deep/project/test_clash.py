"""Tussock beside a team's own packages that have the names of its rooms.

Airflow puts a team's dags and plugins folders on `sys.path`, and such folders often have a `jobs` or a `settings`.
Neither side may hide the other.
"""

import secrets
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.deep.project.test_package import Installation, daily
from tests.support.clash import THEIRS, write_packages
from tests.support.dags.waiting import wait_for

DAG = """
import json
from datetime import UTC, datetime
from pathlib import Path

import tussock
from airflow.sdk import dag, task
"""
TEAM_DAG = """

@dag(schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def team():
    @task
    def note():
        Path("PLACE").write_text(json.dumps({**OWNERS, "tussock": tussock.__file__}))

    note()


team()
"""


@pytest.mark.deep
@pytest.mark.airflow
@pytest.mark.timeout(3600)
def test_epochs_and_a_teams_dag_run_in_one_airflow_whose_folders_hold_packages_of_the_same_names(
    tmp_path: Path,
) -> None:
    here = Installation(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    here.run("tussock", "new", "shop", cwd=project)
    home, settings = project / "airflow", project / "pipelines/shop/pipeline.toml"
    text = settings.read_text()
    for old, new in (("catchup = false", "end = 2026-01-02\ncatchup = true"), ('runner = "auto"', 'runner = "spark"')):
        assert text.count(old) == 1
        text = text.replace(old, new)
    settings.write_text(text)
    here.run("tussock", "apply", "shop", cwd=project)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    here.env |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2,4]", '
        '"extra": {"deploy-mode": "client"}}',
        "TUSSOCK_PIPELINES": str(project / "pipelines"),
    }
    for folder in (home / "dags", home / "plugins"):
        write_packages(folder)
    here.run("airflow", "db", "migrate", cwd=project)
    here.run("tussock", "airflow-files", str(home / "dags"), cwd=project)
    noted = tmp_path / "noted.json"
    (home / "dags/team.py").write_text(DAG + THEIRS + TEAM_DAG.replace("PLACE", str(noted)))
    with airflow_of(here, project):
        wait_for("the API server", lambda: answers(port))
        wait_for(
            "the DAGs", lambda: {"epoch_shop", "team"} <= {dag for (dag,) in rows_of(home, "SELECT dag_id FROM dag")}
        )
        for dag in ("epoch_shop", "team"):
            here.run("airflow", "dags", "unpause", dag, cwd=project)
        wait_for("the runs of both DAGs", lambda: ended(home, {"epoch_shop": 2, "team": 1}))
    assert str(here.bin.parent) in noted.read_text(), "the team's DAG imports the tussock of the wheel"
    rows = daily(here.run("tussock", "read", "--pipeline", "shop", "daily_sales", "--csv", cwd=project))
    assert {day: orders for day, (orders, _) in rows.items()} == {"2026-01-01": 12, "2026-01-02": 12}
    logs = "".join(log.read_text() for log in (home / "logs").rglob("task_id=run_actors/*.log"))
    assert "spark-submit" in logs


@contextmanager
def airflow_of(here: Installation, folder: Path) -> Iterator[None]:
    """Airflow's scheduler and the processes that it needs, until the end of the block."""
    commands = (
        ("api-server",),
        ("scheduler", "--skip-serve-logs"),
        ("dag-processor",),
        ("triggerer", "--skip-serve-logs"),
    )
    with ExitStack() as running:
        for name, *options in commands:
            log = running.enter_context((folder / f"{name}.log").open("wb"))
            command = [str(here.bin / "airflow"), name, *options]
            process = subprocess.Popen(command, cwd=folder, env=here.env, stdout=log, stderr=log)
            running.callback(process.wait, 60)
            running.callback(process.terminate)
        yield


def ended(home: Path, wanted: dict[str, int]) -> bool:
    """Whether enough runs of each DAG have ended; fails at once if one has failed."""
    runs = rows_of(home, "SELECT dag_id, state FROM dag_run")
    assert not (errors := rows_of(home, "SELECT filename, stacktrace FROM import_error")), errors
    of_these = [(dag, state) for dag, state in runs if dag in wanted]
    assert "failed" not in {state for _, state in of_these}, f"{of_these}: see {home / 'logs'}"
    done = [dag for dag, state in of_these if state == "success"]
    return all(done.count(dag) >= number for dag, number in wanted.items())


def rows_of(home: Path, sql: str) -> list[tuple[str, ...]]:
    """From Airflow's own database."""
    with sqlite3.connect(f"file:{home}/airflow.db?mode=ro", uri=True, timeout=60) as database:
        return database.execute(sql).fetchall()


def answers(port: int) -> bool:
    """Whether a server listens on the port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
