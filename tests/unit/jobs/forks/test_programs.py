"""Gunicorn, multiprocessing, Airflow and notebooks fork: children go on with the session of their parent."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs.driver.embedded import epoch, insert
from tests.support.jobs.forks import programs_lanes as shared
from tussock.jobs.delta.delta_calls import one_call
from tussock.jobs.kernels.kernel import Kernel, thread_kernel
from tussock.statestore.forks import InheritedError, OwnName, OwnProcess
from tussock.statestore.meta.store import MetaStore

meta = shared.meta


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
        meta.publish(meta.read_latest().epoch)
        meta.pin_epoch(meta.read_latest().epoch)
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
    with meta.open_for_reading(meta.read_latest().epoch):
        pins = meta.all_pins()

        if (pid := os.fork()) == 0:
            pass  # leaves the block
        else:
            assert os.waitpid(pid, 0)[1] == 0
            assert meta.all_pins() == pins
    if pid == 0:
        os._exit(0)
    assert meta.all_pins() == ()


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
