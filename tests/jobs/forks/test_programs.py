"""Gunicorn, multiprocessing, Airflow and notebooks fork: children go on with the session of their parent."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.jobs.forks.programs import CHILDREN, PROGRAMS
from tests.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.delta.delta_calls import one_call
from tussock.jobs.kernels.kernel import Kernel, thread_kernel
from tussock.statestore.forks import InheritedError, OwnName, OwnProcess
from tussock.statestore.meta.store import MetaStore

ROOT = Path(__file__).parents[3]


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=2)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (1000, 0, 0))
    epoch(meta)
    meta.publish(meta.latest().epoch)
    return meta


@pytest.mark.kill
@pytest.mark.timeout(240)
@pytest.mark.parametrize("program", [one.__name__ for one in PROGRAMS])
def test_children_of_a_program_read_and_write_under_their_own_names(
    program: str, meta: MetaStore, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.jobs.forks.programs", program, str(tmp_path / "store")]
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert sorted(one["key"] for one in found) == list(range(-1, CHILDREN + 1)), ran.stderr[-3000:]
    assert len({one["writer"] for one in found}) == 1 + CHILDREN, "a child has its own name, and the parent keeps its"
    assert len({one["pin"] for one in found}) == len(found)
    pins = {pin.name for pin in meta.pins()}
    assert pins == {one["pin"] for one in found}, "no child has removed a pin of another process"
    for n, one in enumerate(found):
        assert one["counted"] == len(one["keys"]) == n + 2
    assert {row[0] for row in rows(meta, "t")} == {*range(-1, CHILDREN + 1), 1000}


def in_child(work: Callable[[], str]) -> str:
    """The answer of a forked child."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, work().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.wait()
    return found


def test_every_document_of_a_child_has_its_name(meta: MetaStore, tmp_path: Path) -> None:
    before = {found.name for found in meta.objects.list("meta/")}

    def work() -> str:
        insert(meta, "t", (1, 1, 1))
        epoch(meta)
        meta.publish(meta.latest().epoch)
        meta.pin(meta.latest().epoch)
        return meta.writer

    writer = in_child(work)
    assert writer.startswith(f"{meta.writer}+")
    texts = {found.name: meta.objects.get(found.name).decode(errors="replace") for found in meta.objects.list("meta/")}
    new = {name: text for name, text in texts.items() if name not in before and meta.writer in text}
    folders = {name.split("/")[1] for name in new}
    assert folders >= {"version", "barrier", "manifest", "log", "client", "pin"}
    assert [name for name, text in new.items() if text.count(meta.writer) != text.count(writer)] == []


def test_a_child_closes_no_kernel_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops the objects of the parent's other threads before any hook of the child runs."""
    made, done = threading.Event(), threading.Event()

    def hold_a_kernel() -> None:
        thread_kernel()
        made.set()
        done.wait()

    holder = threading.Thread(target=hold_a_kernel)
    holder.start()
    assert made.wait(60)
    monkeypatch.setattr(Kernel, "close", lambda _: os._exit(7))
    if (pid := os.fork()) == 0:
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    monkeypatch.undo()
    done.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_that_leaves_a_block_of_its_parent_keeps_the_pin(meta: MetaStore) -> None:
    with meta.reading(meta.latest().epoch):
        pins = meta.pins()

        if (pid := os.fork()) == 0:
            pass  # leaves the block
        else:
            assert os.waitpid(pid, 0)[1] == 0
            assert meta.pins() == pins
    if pid == 0:
        os._exit(0)
    assert meta.pins() == ()


def test_a_grandchild_has_another_name_than_its_parents() -> None:
    name, process = OwnName("w"), OwnProcess()

    def describe() -> str:
        return f"{name} {process.is_here}"

    one = in_child(describe)
    both = in_child(lambda: f"{describe()} {in_child(describe)}").split()
    assert (str(name), process.is_here) == ("w", True)
    assert one.split()[1] == both[1] == both[3] == "False"
    assert len({"w", one.split()[0], both[0], both[2]}) == 4
    assert both[2].startswith(both[0])


def test_delta_tables_of_a_child_are_refused_before_the_package_panics(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"k": [1]}))

    def read() -> str:
        with one_call("the table", "read"):
            return str(DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows)

    def refused() -> str:
        with pytest.raises(InheritedError) as raised:
            read()
        return str(raised.value)

    assert read() == "1"
    assert re.match(r"The parent process used Delta tables .* Use them only in the children, or", in_child(refused))
    assert read() == "1"
