"""Iceberg's Java in a process of its own: see java_server.py. Its Python is an environment with another Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_ENVIRONMENT = Path.home() / ".cache" / "tussock-tests" / "spark-4.1"
_RELEASE = "pyspark==4.1.*"
_SERVER = Path(__file__).with_name("java_server.py")


class Java:
    """Iceberg's Java, which answers commands."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, **command: Any) -> Any:
        """Run one command. Raises AssertionError with Java's error."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self.read_line())
        assert "ok" in answer, f"{command}: {answer}"
        return answer["ok"]

    def read_line(self) -> str:
        """Return the next answer."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("Spark has ended; its output has the reason")


def python_with_spark() -> Path:
    """Return the Python of an environment with the Spark that Iceberg supports. Makes it at the first call."""
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", _RELEASE]
        if subprocess.run(install, check=False).returncode:
            pytest.skip(f"{_RELEASE} cannot be installed here")
    return python


@contextmanager
def java_in(folder: Path, rest: str = "") -> Iterator[Java]:
    """Start Iceberg's Java with a catalog in a folder, and a REST catalog at an address."""
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    command = [str(python_with_spark()), str(_SERVER), str(folder), *filter(None, [rest])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        java = Java(process)
        try:
            assert java.read_line() == "ready"
            yield java
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
