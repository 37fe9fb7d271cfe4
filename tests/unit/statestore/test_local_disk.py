"""Temporary folders: folders of killed processes are removed, and no other."""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually
from tussock.statestore import local_disk
from tussock.statestore.local_disk import LOCAL_DIRS, TemporaryFolder, remove_abandoned


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LOCAL_DIRS, str(tmp_path))
    local_disk._remove_abandoned_once.cache_clear()
    yield tmp_path
    local_disk._remove_abandoned_once.cache_clear()


def stopped(work: Callable[[], object]) -> int:
    """A child that has done `work`, keeps its result, and waits to be killed."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(20)  # also if the test fails
        kept = work()
        assert kept
        os.write(writing, b"done")
        signal.pause()
    assert os.read(reading, 4) == b"done"
    os.close(reading)
    os.close(writing)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def use() -> TemporaryFolder:
    folder = TemporaryFolder("test")
    Path(folder.name, "rows").mkdir()
    Path(folder.name, "rows", "x").write_bytes(b"1")
    return folder


def test_the_next_process_removes_the_folder_of_a_killed_one(parent: Path) -> None:
    pid = stopped(use)
    (folder,) = parent.iterdir()
    with TemporaryFolder("test") as mine:
        assert set(parent.iterdir()) == {folder, Path(mine)}, "the other process lives"
    kill(pid)
    assert remove_abandoned(str(parent)) == [folder.name]
    kill(stopped(use))
    local_disk._remove_abandoned_once.cache_clear()
    with TemporaryFolder("test") as mine:
        assert list(parent.iterdir()) == [Path(mine)]
    assert list(parent.iterdir()) == []


def test_a_folder_stays_while_a_child_of_its_killed_process_lives(parent: Path) -> None:
    reading, writing = os.pipe()

    def work() -> TemporaryFolder:
        folder = use()
        if (child := os.fork()) == 0:
            signal.alarm(20)
            signal.pause()
        os.write(writing, str(child).encode())
        return folder

    pid = stopped(work)
    child = int(os.read(reading, 99))
    kill(pid)
    assert remove_abandoned(str(parent)) == []
    os.kill(child, signal.SIGKILL)
    eventually("the child has ended", lambda: remove_abandoned(str(parent)))


def test_a_child_leaves_the_folder_of_its_parent(parent: Path) -> None:
    folder = use()
    if (pid := os.fork()) == 0:
        folder.cleanup()
        os._exit(0)
    os.waitpid(pid, 0)
    assert Path(folder.name, "rows", "x").exists()
    folder.cleanup()
    assert list(parent.iterdir()) == []


def test_folders_of_others_stay(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(stopped(use))
    (folder,) = parent.iterdir()
    others = [parent / "tussock-kernel-x", parent / folder.name.replace(folder.name.split("-")[1], "00000000")]
    for other in others:
        other.mkdir()
    (parent / f"{folder.name}-link").symlink_to(others[0])
    (parent / f"{folder.name}-file").write_bytes(b"")
    before = set(parent.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        assert remove_abandoned(str(parent)) == [], "of another user"
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", _no_locks)
        assert remove_abandoned(str(parent)) == [], "a file system without locks"
    assert set(parent.iterdir()) == before
    assert remove_abandoned(str(parent)) == [folder.name]
    assert set(parent.iterdir()) == before - {folder}


def _no_locks(handle: int, operation: int) -> None:
    raise OSError


@pytest.mark.parametrize("step", ["open", "flock"])
def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    step: str, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = os if step == "open" else fcntl
    call, removed = getattr(module, step), list[str]()

    def late(*args: Any, **named: Any) -> Any:
        if not removed:
            removed.append("")  # the removal makes these calls too
            removed[:] = remove_abandoned(str(parent))
        return call(*args, **named)

    local_disk._folder_prefix()
    local_disk._remove_abandoned_once(str(parent))
    monkeypatch.setattr(module, step, late)
    with TemporaryFolder("test") as folder:
        assert len(removed) == 1
        assert removed[0] != Path(folder).name
        assert Path(folder).is_dir()


@pytest.mark.timeout(20)
def test_a_folder_that_a_stopped_process_has_locked_is_not_waited_for(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, stopped_at = os.open, list[str]()

    def open_late(path: Any, flags: int, *more: int) -> int:
        handle = opened(path, flags, *more)
        if not stopped_at and Path(path).parent == parent:
            stopped_at.append(path)
            other = opened(path, flags)
            fcntl.flock(other, fcntl.LOCK_EX)  # as `remove_abandoned` of a process that stands still from here on
        return handle

    local_disk._folder_prefix()
    local_disk._remove_abandoned_once(str(parent))
    monkeypatch.setattr(os, "open", open_late)
    with TemporaryFolder("test") as folder:
        assert stopped_at
        assert str(folder) != stopped_at[0]
