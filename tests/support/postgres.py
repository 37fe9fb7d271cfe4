"""A Postgres server in a temporary folder, reached by a socket. As root, it runs as the user `postgres` or `nobody`."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
import pytest

from tests.support.waiting import eventually

_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")
_START_S = 60


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`; None if this machine has none."""
    found = [Path(at).resolve().parent for at in (shutil.which("initdb"),) if at]
    found += [path for pattern in _FOLDERS for path in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _user() -> str | None:
    """The user of the server's processes; None: this user. Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


class PostgresServer:
    """A server of its own; it can be killed and started again."""

    def __init__(self, settings: str = "") -> None:
        """`settings`: further lines of postgresql.conf."""
        programs = find_programs()
        if programs is None:
            pytest.skip("no Postgres server on this machine: apt-get install postgresql")
        self._programs, self._user = programs, _user()
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has at most 107 bytes
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._data = self.folder / "data"
        self._running: subprocess.Popen[bytes] | None = None
        (self.folder / "password").write_text("secret")
        self._run("initdb", "-D", str(self._data), "-U", "owner", "--auth", "scram-sha-256", "-E", "UTF8",
                  "--locale", "C", "--no-sync", "--pwfile", str(self.folder / "password"))  # fmt: skip
        own = f"listen_addresses=''\nunix_socket_directories='{self.folder}'\nfsync=off\nmax_connections=20\n"
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(own + settings)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [shutil.which(program, path=str(self._programs)) or program, *arguments],
            user=self._user,
            cwd=self.folder,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            command = [str(self._programs / "postgres"), "-D", str(self._data)]
            self._running = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
        eventually("the server answers", self._answers, _START_S)

    def _answers(self) -> bool:
        assert self._running is not None
        assert self._running.poll() is None, (self.folder / "log").read_text()[-3000:]
        try:
            psycopg.connect(self.address("postgres"), password="secret").close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def pid(self) -> int:
        """The process of the running server."""
        assert self._running is not None
        return self._running.pid

    def kill(self) -> None:
        """End it at once, without a checkpoint."""
        if self._running is not None:
            self._running.send_signal(signal.SIGQUIT)
            self._running.wait()
            self._running = None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """After the block, the server is again as before it, from a copy of its folder."""
        copy = self.folder / "copy"
        self.kill()
        self._run("cp", "-a", str(self._data), str(copy))
        self.start()
        yield
        self.kill()
        shutil.rmtree(self._data)
        copy.rename(self._data)
        self.start()

    def address(self, database: str, user: str = "owner") -> str:
        """The address of a database, without a password."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def create_database(self, name: str) -> str:
        """Create an empty database, and return its address."""
        with psycopg.connect(self.address("postgres"), password="secret", autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return self.address(name)

    def execute(self, database: str, statement: str) -> None:
        """Run a statement as the owner."""
        with psycopg.connect(self.address(database), password="secret", autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def read(self, database: str, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with psycopg.connect(self.address(database), password="secret") as connection:
            connection.execute("SET timezone = 'UTC'")
            return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def password_set() -> Iterator[None]:
    """Within the block, the environment contains the password of `owner`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", "secret")
        yield
