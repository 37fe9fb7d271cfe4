"""The failures that only a directory can have."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tussock.statestore.errors import TussockError
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadObjectNameError,
    BadStoreError,
    ObjectStoreFullError,
    ObjectStoreUnavailableError,
)
from tussock.statestore.objectstore.local import LocalObjectStore


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    return LocalObjectStore(tmp_path / "store")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_and_existing_objects_remain(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store.put("x", b"old")

    def full(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        for write in (lambda: store.put("x", b"new"), lambda: store.put_if_absent("y", b"new")):
            with pytest.raises(ObjectStoreFullError, match=r"3 bytes .* no space left.*Free space"):
                write()
    assert [o.name for o in store.list("")] == ["x"]
    assert store.get("x") == b"old"
    assert list((tmp_path / "store" / ".tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.EACCES, AccessDeniedError), (errno.EROFS, AccessDeniedError), (errno.EIO, ObjectStoreUnavailableError)],
)
def test_errors_of_the_system_are_translated(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch, code: int, error: type[TussockError]
) -> None:
    store.put("x", b"old")

    def refuse(*args: object, **options: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as system:
        system.setattr(os, "open", refuse)
        with pytest.raises(error, match=os.strerror(code)):
            store.put("x", b"new")
    assert store.get("x") == b"old"


def test_a_file_system_without_hard_links_is_named(store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object, **options: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(BadStoreError, match="hard link"):
        store.put_if_absent("x", b"1")


def test_an_object_cannot_lie_below_another_one(store: LocalObjectStore) -> None:
    store.put("a", b"1")
    store.put("b/c", b"1")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(BadObjectNameError, match="local store"):
            write("a/b", b"2")
    with pytest.raises(BadObjectNameError, match="local store"):
        store.put("b", b"2")
    assert not store.put_if_absent("b", b"2")


def test_temporary_files_are_no_objects(store: LocalObjectStore, tmp_path: Path) -> None:
    store.put("x", b"1")
    (tmp_path / "store" / ".tmp" / "left-by-a-crash").write_bytes(b"half")
    assert [o.name for o in store.list("")] == ["x"]
    with pytest.raises(BadObjectNameError, match="reserves the folder"):
        store.get(".tmp/left-by-a-crash")


def test_an_object_is_as_readable_as_the_umask_says(store: LocalObjectStore, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        store.put("x", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "store" / "x").stat().st_mode & 0o777 == 0o640


def test_a_process_killed_while_it_writes_leaves_whole_objects(tmp_path: Path) -> None:
    root = tmp_path / "store"
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tussock.statestore.objectstore.local import LocalObjectStore\n"
        "store = LocalObjectStore(Path(sys.argv[1]))\n"
        "for n in range(10**9):\n"
        "    store.put('replaced', b'%07d' % n * 50_000)\n"
        "    assert store.put_if_absent(f'created/{n:07}', b'%07d' % n * 50_000)\n"
        "    print(n, flush=True)\n"
    )
    victim = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
    )
    assert victim.stdout is not None
    for _ in range(7):
        victim.stdout.readline()
    os.kill(victim.pid, signal.SIGKILL)
    told = 6 + len(victim.stdout.readlines())
    victim.wait()

    store = LocalObjectStore(root)
    created = [o.name for o in store.list("created/")]
    assert len(created) >= told
    for name in [*created, "replaced"]:
        data = store.get(name)
        assert data == data[:7] * 50_000


def test_a_linked_folder_that_disappears_during_a_listing_is_skipped(tmp_path: Path) -> None:
    """As those of processes below /dev and /proc do."""
    root = tmp_path / "root"
    root.mkdir()
    for name in "123":
        (root / name).write_bytes(b"x")
    for name in ("gone", "stays"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "4").write_bytes(b"x")
        (root / name).symlink_to(tmp_path / name)
    listed = LocalObjectStore(root).list("")
    found = [next(listed).name]
    shutil.rmtree(tmp_path / "gone")
    assert [*found, *(info.name for info in listed)] == ["1", "2", "3", "stays/4"]


@pytest.mark.parametrize(
    ("code", "error"), [(errno.EACCES, AccessDeniedError), (errno.EIO, ObjectStoreUnavailableError)]
)
def test_a_listing_that_fails_names_the_folder(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch, code: int, error: type[TussockError]
) -> None:
    store.put("a/x", b"")
    whole = os.scandir

    def refuse(path: Path) -> object:
        if path.name == "a":
            raise OSError(code, os.strerror(code), str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(error, match=f"{os.strerror(code)}: /.*/a"):
        list(store.list(""))


def test_a_failed_read_does_not_speak_of_commits() -> None:
    read, write = (ObjectStoreUnavailableError("s3://b", f"{what} 'x'", "timed out") for what in ("list", "put"))
    assert str(read).endswith(": timed out. Check the endpoint, the disk and the network, then run again.")
    assert "A commit whose answer was lost is recognised" in str(write)


def test_a_link_that_leads_back_or_nowhere_is_skipped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    for path in (root / "1", root / "a" / "2", root / "a" / "b" / "3", tmp_path / "beside" / "4"):
        path.write_bytes(b"x")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "further_up").symlink_to(tmp_path)
    (root / "a" / "b" / "itself").symlink_to(root / "a" / "b" / "itself")
    (root / "a" / "nowhere").symlink_to(tmp_path / "no such")
    (root / "beside").symlink_to(tmp_path / "beside")
    (tmp_path / "beside" / "back").symlink_to(root)
    assert [info.name for info in LocalObjectStore(root).list("")] == ["1", "a/2", "a/b/3", "beside/4"]
