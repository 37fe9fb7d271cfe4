"""The fsyncs of a directory: nothing is visible that could survive an earlier write, and blocks end durable."""

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tussock.statestore.meta.statement_log import StatementLog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore import local, syncs
from tussock.statestore.objectstore.base import ObjectStoreFullError, ObjectStoreUnavailableError
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.syncs import synced_in_order, wait_until_durable


class Disk:
    """Records fsyncs and names. An fsync of a folder waits until `held` is set."""

    def __init__(self, root: Path) -> None:
        self.root, self.done, self.held = root, list[str](), threading.Event()
        self.held.set()
        self.error: OSError | None = None

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            assert self.held.wait(30)
            if self.error is not None:
                raise self.error
        name = os.path.relpath(path, self.root.parent)
        self.done.append("sync file" if ".tmp/" in name else f"sync {name}")

    def named(self, path: Path) -> None:
        self.done.append(f"name {path.relative_to(self.root.parent)}")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "store")
    link, replace = Path.hardlink_to, Path.replace

    def linked(path: Path, target: Path) -> None:
        link(path, target)
        disk.named(path)

    def replaced(path: Path, target: Path) -> Path:
        disk.named(target)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", disk.fsync)
    monkeypatch.setattr(local.Path, "hardlink_to", linked)
    monkeypatch.setattr(local.Path, "replace", replaced)
    yield disk
    disk.held.set()


def test_a_write_is_durable_when_it_returns(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/x", b"1")
    assert disk.done[-2:] == ["name store/a/x", "sync store/a"]
    assert {"sync file", "sync store"} <= set(disk.done[:-2])


def test_in_a_block_a_write_is_visible_only_after_the_earlier_ones_are_durable(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/0", b"0")
    store.put("b/0", b"0")
    disk.done.clear()
    with synced_in_order():
        disk.held.clear()
        store.put("a/x", b"1")  # returns before its folder is synced
        assert disk.done == ["sync file", "name store/a/x"]
        threading.Timer(0.2, disk.held.set).start()
        assert store.put_if_absent("b/y", b"2")
        store.put("a/z", b"3")
    assert [d for d in disk.done if d != "sync file"] == [
        "name store/a/x",
        "sync store/a",
        "name store/b/y",
        "sync store/b",
        "name store/a/z",
        "sync store/a",
    ]


def test_a_nested_block_and_settle(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/0", b"0")
    with synced_in_order():
        with synced_in_order():
            disk.held.clear()
            store.put("a/x", b"1")
        assert disk.done[-1] == "name store/a/x"
        disk.held.set()
        wait_until_durable()
        assert disk.done[-1] == "sync store/a"


def test_another_thread_does_not_share_the_block(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    with synced_in_order():
        other = threading.Thread(target=store.put, args=("a/x", b"1"))
        other.start()
        other.join()
        assert disk.done[-1] == "sync store/a"


@pytest.mark.parametrize("ends", ["block", "settle", "write"])
def test_a_failed_sync_is_reported_before_anything_depends_on_it(disk: Disk, ends: str) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/0", b"0")

    def writes() -> None:
        with synced_in_order():
            disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
            store.put("a/x", b"1")
            if ends == "settle":
                wait_until_durable()
            if ends == "write":
                store.put("a/y", b"2")
            assert ends == "block"

    with pytest.raises(ObjectStoreUnavailableError, match=os.strerror(errno.EIO)):
        writes()
    assert not (disk.root / "a" / "y").exists()
    disk.error = None
    store.put("a/y", b"2")  # the thread is outside of the block again


def test_an_error_in_a_block_is_not_replaced(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/0", b"0")

    def writes() -> None:
        with synced_in_order():
            disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
            store.put("a/x", b"1")
            raise KeyError("the error")

    with pytest.raises(KeyError, match="the error"):
        writes()
    assert syncs._of_thread.pending is None


def test_without_another_thread_a_write_waits(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    store = LocalObjectStore(disk.root)
    with synced_in_order():
        store.put("a/x", b"1")
        assert disk.done[-1] == "sync store/a"


class EntriesOnDisk:
    """The names that a power failure leaves: those in a folder at its last fsync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._entries, self._fsync = set[Path](), os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            self._entries.update(path.iterdir())

    def lost(self, path: Path, above: Path) -> list[str]:
        """The parts of a path below the folder `above` that a power failure would remove."""
        chain = [path, *path.parents]
        return [str(part) for part in chain[: chain.index(above)] if part not in self._entries]


def killed_after(steps: int, write: Callable[[], object]) -> bool:
    """Run a writer in a process that is killed after some folders and fsyncs. False if it ended before."""
    if (pid := os.fork()) == 0:
        mkdir, fsync, left = os.mkdir, os.fsync, iter(range(steps))

        def step(call: Callable[..., None], *args: Any) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            call(*args)

        os.mkdir, os.fsync = partial(step, mkdir), partial(step, fsync)  # type: ignore[assignment]
        write()
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, -signal.SIGKILL), "otherwise no number of steps would be enough"
    return ended != 0


def test_the_next_writer_syncs_the_folders_of_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in count():
        root = tmp_path / str(steps) / "new" / "store"
        killed = killed_after(steps, lambda root=root: LocalObjectStore(root).put_if_absent("data/77/one", b"x"))
        with monkeypatch.context() as patched:
            disk, store = EntriesOnDisk(patched), LocalObjectStore(root)
            store.put_if_absent("data/77/one", b"x")
            assert disk.lost(root / "data" / "77" / "one", tmp_path) == [], steps
            store.put("data/78/two", b"x")
            assert disk.lost(root / "data" / "78" / "two", tmp_path) == [], steps
        if not killed:
            break
    assert steps > 10


def test_a_folder_is_synced_once_and_again_if_it_is_made_again(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/x", b"1")
    disk.done.clear()
    store.put("a/y", b"1")
    assert disk.done == ["sync file", "name store/a/y", "sync store/a"]
    shutil.rmtree(disk.root)
    store.put("a/y", b"1")
    assert {"sync .", "sync store"} <= set(disk.done)


def test_a_parent_that_may_not_be_read_is_left_alone(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    store, access = LocalObjectStore(disk.root), os.access
    disk.root.mkdir()
    hidden = disk.root.parent
    monkeypatch.setattr(os, "access", lambda path, mode: path != hidden and access(path, mode))
    store.put("a/x", b"1")
    assert "sync store" in disk.done
    assert "sync ." not in disk.done


def test_the_folders_of_a_write_that_failed_are_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = LocalObjectStore(disk.root)
    store.put("x", b"0")
    disk.done.clear()
    with monkeypatch.context() as patched:
        patched.setattr(local, "_write_all", full)
        with pytest.raises(ObjectStoreFullError):
            store.put("a/b/x", b"1")
    store.put("a/b/x", b"1")
    assert {"sync store", "sync store/a", "sync store/a/b"} <= set(disk.done)


@pytest.mark.parametrize("ends", ["a write", "settle", "a block"])
def test_an_object_of_a_killed_writer_is_durable_before_anything_depends_on_it(disk: Disk, ends: str) -> None:
    LocalObjectStore(disk.root).put("a/x", b"1")  # and killed before it synced the folder
    store = LocalObjectStore(disk.root)
    store.put("b/y", b"1")
    store.get("a/x")
    disk.done.clear()
    match ends:
        case "a write":
            store.put("b/z", b"2")
            assert disk.done.index("sync store/a") < disk.done.index("name store/b/z")
        case "settle":
            wait_until_durable()
            assert disk.done == ["sync store/a"]
        case _:
            with synced_in_order():
                store.head("a/x")
            assert disk.done == ["sync store/a"]
    disk.done.clear()
    wait_until_durable()
    assert disk.done == []


def test_files_that_no_store_has_written_are_not_synced(disk: Disk) -> None:
    store = LocalObjectStore(disk.root)
    store.put("a/x", b"1")
    (files := disk.root.parent / "files").mkdir()
    (files / "day.csv").write_bytes(b"1,2")
    disk.done.clear()
    LocalObjectStore(files).get("day.csv")
    wait_until_durable()
    assert disk.done == []


def test_a_repeated_statement_is_durable_when_it_returns(disk: Disk) -> None:
    first, second = (StatementLog(LocalObjectStore(disk.root), writer) for writer in ("killed", "its retry"))
    first.append_statement("client", b"1")
    disk.done.clear()
    assert second.append_statement("client", b"1") == 0
    assert "sync store/meta/log" in disk.done


def test_a_version_of_another_process_is_durable_when_it_is_reported(disk: Disk) -> None:
    objects = LocalObjectStore(disk.root)
    MetaStore.init(objects)
    MetaStore(objects, "killed", lambda: 1).rescale(4)
    disk.done.clear()
    MetaStore(LocalObjectStore(disk.root), "its retry", lambda: 1).rescale(4)
    assert "sync store/meta/version" in disk.done
