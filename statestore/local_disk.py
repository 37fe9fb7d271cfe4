"""Folders on the local disk for what does not fit into memory, and for files that other libraries read.

They are in Spark's folder if this process works for Spark, else in the system's folder for temporary files. A killed
process leaves its folders behind, and the next process of the host removes them. It decides as follows who owns one:

    the lock (flock) on a folder is held by its process and by the children that it forks. The kernel releases it
    the name contains the kernel's boot id. Only processes of one kernel, also in several containers, see each other's
        locks, so the folders of other machines that share the disk stay
    the owner is another user: the folder stays
"""

import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import OwnProcess

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # Spark sets it for its workers, and the fork server for its own


def local_folder() -> str | None:
    """The folder; None: the system's folder for temporary files."""
    folder = os.environ.get(LOCAL_DIRS, "").split(",")[0]
    return folder if folder and os.access(folder, os.W_OK) else None


class LocalDiskError(RetryableError):
    """The local disk cannot take rows of an epoch."""

    folder: str
    nbytes: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.nbytes:,} bytes of this epoch could not be written to {self.folder}: {self.reason}. Nothing of the "
            "epoch was committed. Free space there, or name a folder on a larger disk: on Spark with spark.local.dir "
            "(or SPARK_LOCAL_DIRS on its workers), without Spark with TMPDIR. Then run the epoch again."
        )


class TemporaryFolder:
    """A folder with mode 0700, which is deleted with this object, with its block, or at the end of the process."""

    def __init__(self, use: str) -> None:
        """`use`: a word for the name. The first folder of a process removes folders of killed processes beside it."""
        parent = local_folder() or tempfile.gettempdir()
        _remove_abandoned_once(parent)
        self.name, handle = _make_locked(f"{_folder_prefix()}{use}-", parent)
        self._end = finalize(self, _remove_folder, OwnProcess(), self.name, handle)

    def cleanup(self) -> None:
        """Delete the folder."""
        self._end()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def remove_abandoned(parent: str) -> list[str]:
    """Remove the folders below `parent` whose processes were killed, and return their names."""
    removed = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(_folder_prefix())]:
            with _locked_if_abandoned(entry.path) as abandoned:
                if abandoned:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    removed.append(entry.name)
    return removed


@functools.lru_cache(maxsize=64)
def _remove_abandoned_once(parent: str) -> None:
    remove_abandoned(parent)


@functools.cache
def _folder_prefix() -> str:
    """The start of the names of all folders of this kernel."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:  # not Linux: unique, so that nothing is removed
        boot = os.urandom(4).hex()
    return f"tussock-{boot}-"


def _make_locked(prefix: str, parent: str) -> tuple[str, int]:
    """Make a folder, and return its path and the open file with its lock."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # Another process has removed it.
            continue
        if lock_new(handle) and os.path.isdir(path):  # noqa: PTH112
            return path, handle
        os.close(handle)  # Another process locked or removed it first.


def lock_new(handle: int) -> bool:
    """Lock a new file or folder. False if another process has locked it to remove it.

    That process may stand still, so this does not wait.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # A file system without locks: no process can lock it, so it is never removed.
        pass
    return True


@contextmanager
def _locked_if_abandoned(path: str) -> Iterator[bool]:
    """Hold the lock of a folder of this user during the block. False if a process holds it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # not a folder, or gone
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.fstat(handle).st_uid == os.geteuid()
        except OSError:
            free = False
        yield free
    finally:
        os.close(handle)


def _remove_folder(process: OwnProcess, path: str, handle: int) -> None:
    if process.is_here:  # a forked child leaves the folder of its parent
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
