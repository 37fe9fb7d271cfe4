"""Airflow for tests and benchmarks: a separate home folder, with the DAGs and plugins of a checkout, on a free port."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


def airflow_environment(home: Path, checkout: Path = ROOT) -> dict[str, str]:
    """The environment of Airflow processes with this home and the code of `checkout`, on a port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    foreign = (
        "AIRFLOW_",
        "PYTHONDONTWRITEBYTECODE",
    )  # without byte code, each task would compile its imports, unlike in a deployment
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONFIG": str(checkout / "airflow.cfg"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(checkout / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(checkout / "plugins"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "PATH": f"{checkout / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'plugins'}",  # before the paths of an editable install
    }


@dataclass(frozen=True)
class AirflowHome:
    """An Airflow home with its own pipelines, and the Airflow that runs on it within `up`."""

    folder: Path
    checkout: Path
    env: Mapping[str, str]

    @classmethod
    def with_flights(cls, folder: Path, checkout: Path = ROOT, more: Mapping[str, str] | None = None) -> Self:
        """Create a home with copies of a checkout's pipelines; store, files and tables of the flights are inside it.

        Args:
            more: further environment variables.
        """
        shutil.copytree(checkout / "pipelines", folder / "pipelines")
        env = airflow_environment(folder, checkout) | {
            "TUSSOCK_PIPELINES": str(folder / "pipelines"),
            "FLIGHTS_STORE": str(folder / "store"),
            "FLIGHTS_DATA": str(folder / "data"),
            "FLIGHTS_TABLES": str(folder / "tables"),
        }
        return cls(folder, checkout, {**env, **(more or {})})

    def command(self, *arguments: str) -> str:
        """Run a command in the checkout with the home's environment.

        Return its output; raise RuntimeError if it fails.
        """
        run = subprocess.run(arguments, cwd=self.checkout, env=self.env, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
        return run.stdout

    def python(self, *arguments: str) -> str:
        """Run the checkout's Python; otherwise as `command`."""
        return self.command(str(self.checkout / ".venv/bin/python"), *arguments)

    def airflow(self, *arguments: str) -> str:
        """Run Airflow's command line; otherwise as `command`."""
        return self.command(str(self.checkout / "scripts/airflow.sh"), *arguments)

    def query(self, sql: str) -> list[tuple[str, ...]]:
        """Run a query on Airflow's database."""
        with sqlite3.connect(f"file:{self.folder}/.airflow/airflow.db?mode=ro", uri=True, timeout=60) as database:
            return database.execute(sql).fetchall()

    def trigger(self, dag: str, asked: Mapping[str, object]) -> str:
        """Trigger a run through the API, as the trigger form does. Return its id."""
        run_id: str = self.api(f"dags/{dag}/dagRuns", asked)["dag_run_id"]
        return run_id

    def api(self, path: str, body: Mapping[str, object], method: str = "POST") -> dict[str, Any]:
        """Send a request to Airflow's API as admin. `path` is relative to api/v2. Raises urllib's HTTPError."""
        (password,) = json.loads((self.folder / ".airflow/passwords.json").read_text()).values()
        token = self._asked("auth/token", {"username": "admin", "password": password})["access_token"]
        return self._asked(f"api/v2/{path}", body, method, {"Authorization": f"Bearer {token}"})

    @contextmanager
    def up(self, dag: str, patience_s: float) -> Iterator[subprocess.Popen[bytes]]:
        """Run all of Airflow until the end of the block, once it has parsed `dag`.

        Raises RuntimeError after the timeout.
        """
        with (self.folder / "up.log").open("wb") as log:
            command = [str(self.checkout / "scripts/airflow.sh"), "up"]
            server = subprocess.Popen(
                command, cwd=self.checkout, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
            try:
                self._wait_for(dag, patience_s, server)
                yield server
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait(60)

    def _wait_for(self, dag: str, patience_s: float, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and server.poll() is None:
            try:
                if self.query(f"SELECT 1 FROM dag WHERE dag_id = '{dag}'") and self._answers():
                    return
            except sqlite3.OperationalError:  # the tables are still being created
                pass
            time.sleep(1)
        within = f"within {patience_s:.0f} s" if server.poll() is None else "and has ended"
        raise RuntimeError(f"Airflow did not load DAG {dag} {within}. See {self.folder / 'up.log'}.")

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", int(self.env["AIRFLOW__API__PORT"]))) == 0

    def _asked(
        self, path: str, body: Mapping[str, object], method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **(headers or {})}
        url = f"{self.env['AIRFLOW__API__BASE_URL']}/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            parsed: dict[str, Any] = json.load(answer)
        return parsed
