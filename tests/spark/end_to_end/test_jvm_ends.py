"""A JVM that does not start, or ends while it works: one message and exit code 1, no stack trace."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.end_to_end import jvm_ends as shared
from tests.support.end_to_end.jvm_ends import started
from tests.support.waiting import eventually

store = shared.store


def children_of(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == process:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.spark
def test_a_java_that_does_not_start_is_reported_in_one_message(store: str, tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space for the object heap' >&2\nexit 1\n")
    java.chmod(0o755)
    process = started(store, "SELECT 1 AS a", JAVA_HOME=str(tmp_path / "java"))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "Could not reserve enough space" in err
    assert "error: Spark could not be started" in err
    assert "JAVA_HOME" in err
    assert "Traceback" not in err


@pytest.mark.spark
@pytest.mark.deep
def test_a_jvm_that_is_killed_at_work_is_reported_in_one_message_and_the_store_is_unchanged(store: str) -> None:
    process = started(
        store,
        "CREATE TABLE t (a int, PRIMARY KEY (a)); SELECT count(*) AS n FROM range(100000000000000) WHERE hash(id) = 7",
    )
    assert process.stdout is not None
    while "takes effect" not in process.stdout.readline():  # then the SELECT begins
        assert process.poll() is None, process.communicate()
    (jvm,) = children_of(process.pid)
    began = psutil.Process(jvm).cpu_times().user
    eventually("the JVM is at work on the SELECT", lambda: psutil.Process(jvm).cpu_times().user > began + 2)
    os.kill(jvm, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "error: Spark's JVM ended during its work (killed by signal 9)" in err
    assert "Traceback" not in err
    assert err.count("\n") < 4, err
    again = started(store, "SHOW TABLES")
    assert "t     table  a int" in again.communicate(timeout=120)[0]
