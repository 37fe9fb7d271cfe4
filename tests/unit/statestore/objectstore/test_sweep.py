"""Leftovers of killed processes on a local disk are removed; the files of a slow writer are not."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tussock.statestore.objectstore.local import LocalObjectStore


def test_only_the_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = LocalObjectStore(root)
    store.put("data/a", b"kept")
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tussock.statestore.objectstore.local import LocalObjectStore\n"
        "with LocalObjectStore(Path(sys.argv[1]))._write_temporary(b'half', Path(sys.argv[1])):\n"
        "    print('up', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    assert store.sweep_temporary() == (), "it is at work"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    (left,) = store.sweep_temporary(dry_run=True)
    assert left.size == 4
    assert store.sweep_temporary() == (left,)
    assert store.sweep_temporary() == ()
    assert list((root / ".tmp").iterdir()) == []
    assert store.get("data/a") == b"kept"


def test_a_store_that_was_never_written_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert LocalObjectStore(tmp_path / "none").sweep_temporary() == ()


def test_writers_and_sweepers_at_once_do_not_get_in_each_other_s_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the test does not check durability; a shared disk is slow
    store = LocalObjectStore(tmp_path / "store")
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            store.sweep_temporary()

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    for i in range(300):
        store.put(f"a/{i}", b"x" * i)
        assert store.put_if_absent(f"b/{i}", b"y" * i)
    stop.set()
    for thread in sweepers:
        thread.join()
    assert len(list(store.list(""))) == 600
    assert list((tmp_path / "store/.tmp").iterdir()) == []


@pytest.mark.timeout(20)
def test_a_writer_does_not_wait_for_a_sweep_that_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalObjectStore(tmp_path / "store")
    store.put("data/a", b"before")
    opened, locked = os.open, list[int]()

    def open_late(path: Any, flags: int, *more: int) -> int:
        handle = opened(path, flags, *more)
        if flags & os.O_EXCL and not locked:
            locked.append(opened(path, os.O_RDONLY))
            fcntl.flock(locked[0], fcntl.LOCK_EX)  # as `sweep_temporary` of a process that stands still from here on
        return handle

    monkeypatch.setattr(os, "open", open_late)
    store.put("data/b", b"after")
    assert store.get("data/b") == b"after"
    os.close(locked[0])
    assert len(store.sweep_temporary()) == 1, "the file that the sweep had locked"
