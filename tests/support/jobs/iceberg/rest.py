"""A REST catalog in a JVM: the servlet of Iceberg's own tests, under Jetty (rest_server/RestCatalog.java)."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.waiting import eventually

_HERE = Path(__file__).with_name("rest_server")
_JARS = Path.home() / ".cache" / "tussock-tests" / "iceberg-rest"


@dataclass
class RestServer:
    """A server, which can be stopped and started again at the same address."""

    folder: Path
    port: int
    tokens: tuple[str, ...] = ()  # of an owner, and of a reader; empty: all may do everything
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
        command = [str(java), "-Xmx300m", "-cp", f"{_jars()}/*", str(_HERE / "RestCatalog.java")]
        out = self.folder / "rest.out"
        with out.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, str(self.folder), str(self.port), *self.tokens], stdout=sink, stderr=subprocess.STDOUT
            )
        eventually("the REST catalog is up", lambda: self.process.poll() is not None or "READY" in out.read_text(), 120)
        assert self.process.poll() is None, out.read_text()[-3000:]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _jars() -> Path:
    """The folder of the jars, fetched once."""
    if not _JARS.is_dir():
        if (maven := shutil.which("mvn")) is None:
            pytest.skip("Maven, which fetches Iceberg's servlet, is not installed")
        folder = _JARS.with_name(f"iceberg-rest.{os.getpid()}")
        command = [maven, "-q", "-B", "-f", str(_HERE / "pom.xml"), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            pytest.skip(f"Iceberg's servlet cannot be fetched here: {done.stdout[-300:]}")
        folder.rename(_JARS)
    return _JARS


@contextmanager
def rest_server(folder: Path, tokens: tuple[str, ...] = ()) -> Iterator[RestServer]:
    """Start a REST catalog with its files in a folder; stop it at the end. `tokens`: see RestServer."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = RestServer(folder, free.getsockname()[1], tokens)
    server.start()
    try:
        yield server
    finally:
        server.stop()
