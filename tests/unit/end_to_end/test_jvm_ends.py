"""A JVM that does not start, or ends while it works: one message and exit code 1, no stack trace."""

import signal
import subprocess

import pytest
from pyspark import SparkConf

from tussock.jobs.spark.session import _launch_jvm


def test_an_interrupt_while_the_jvm_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark's interrupted `launch_gateway` does not tell which process it started."""
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(conf: object, popen_kwargs: dict[str, int]) -> None:
        started.append(subprocess.Popen(["sleep", "600"], **popen_kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr("tussock.jobs.spark.session.launch_gateway", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _launch_jvm(SparkConf(loadDefaults=False), {})
    assert started[0].wait(timeout=60) == -signal.SIGKILL
