"""The fsyncs of a directory: nothing is visible that could survive an earlier write, and blocks end durable."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.statestore.objectstore import local, syncs
from tussock.statestore.objectstore.base import ObjectStoreFullError, ObjectStoreUnavailableError
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.syncs import settle, synced_in_order


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
        name = str(path.relative_to(self.root.parent))
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
        settle()
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
                settle()
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


def test_the_folders_of_a_write_that_failed_are_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = LocalObjectStore(disk.root)
    store.put("x", b"0")
    disk.done.clear()
    with monkeypatch.context() as patched:
        patched.setattr(local, "_write", full)
        with pytest.raises(ObjectStoreFullError):
            store.put("a/b/x", b"1")
    store.put("a/b/x", b"1")  # finds the folders, so it does not sync their parents
    assert {"sync store", "sync store/a", "sync store/a/b"} <= set(disk.done)
