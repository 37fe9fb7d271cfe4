"""Waits for the disk: the fsyncs of a directory as an object store.

A write is durable after an fsync of its file, and then one of each changed folder. Each takes milliseconds, mostly for
the disk. Fsyncs that wait at the same time share a write of the file system's journal. So a write syncs its file
together with the parents of folders that are new, or that a killed writer may have made.

In a block of `synced_in_order`, a write returns when it is visible, and its folder is synced in a thread. The next
write of the thread waits for this fsync before it becomes visible, and the end of the block waits too. So no write is
visible that could survive an earlier one, and all are durable when the block ends.

An object that another process made visible may be lost with its host's power, if that process was killed before it
synced the folder. So a thread also syncs the folders of the objects that it has read, before its next write is visible
and before `wait_until_durable` returns.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tussock.statestore.objectstore.base import ObjectStoreUnavailableError


class _Sync:
    """An fsync of a folder, in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="sync")
        try:
            self._thread.start()
        except RuntimeError:  # the process may not start another thread
            self._run()

    def _run(self) -> None:
        try:
            _sync_folder(self._folder)
        except OSError as err:
            err.filename = str(self._folder)
            self._error = err

    def join(self) -> None:
        """Wait for its end."""
        if self._thread.ident is not None:
            self._thread.join()

    def wait(self) -> None:
        """Wait for its end. Raises its OSError."""
        self.join()
        if self._error is not None:
            raise self._error


_MOST_SEEN = 1000  # folders of a thread that never writes


class _OfThread(threading.local):
    """The pending fsyncs of a thread (None outside of `synced_in_order`), and folders of objects of other processes."""

    pending: list[_Sync] | None = None

    def __init__(self) -> None:
        self.seen: dict[Path, None] = {}  # a set in order


_of_thread = _OfThread()


@contextmanager
def synced_in_order() -> Iterator[None]:
    """Let the writes of this thread overlap with their fsyncs inside the block; see the module.

    A nested block ends with the outer one.

    Raises: ObjectStoreUnavailableError at the end of a block that raises nothing else, if its last fsyncs failed.
    """
    if _of_thread.pending is not None:
        yield
        return
    _of_thread.pending = []
    try:
        yield
        wait_until_durable()
    finally:
        pending, _of_thread.pending = _of_thread.pending, None
        for sync in pending:  # after an error, which the caller should see
            sync.join()


def wait_until_durable() -> None:
    """Wait until all objects that this thread has written or read are durable.

    Call it in a block of `synced_in_order` before another thread continues, and before a success is reported because of
    an object of another process.

    Raises: ObjectStoreUnavailableError if an fsync failed.
    """
    try:
        _wait_for(_of_thread.pending or [])
        _sync_all(_take_seen())
    except OSError as err:
        folder = Path(str(err.filename)).as_uri()
        raise ObjectStoreUnavailableError(folder, "fsync", os.strerror(err.errno or 0)) from err


def sync_soon(folder: Path) -> None:
    """Sync a folder: before this returns, or in a block of `synced_in_order` before the thread's next write is visible.

    Raises OSError.
    """
    if _of_thread.pending is None:
        _sync_folder(folder)
    else:
        _of_thread.pending.append(_Sync(folder))


def note_seen(folder: Path) -> None:
    """Note that this thread has read an object in a folder, which another process may not have synced yet."""
    seen = _of_thread.seen
    if folder not in seen:
        if len(seen) >= _MOST_SEEN:
            del seen[next(iter(seen))]
        seen[folder] = None


def sync_together(file: int, folders: Sequence[Path]) -> None:
    """Sync an open file and folders at the same time, with the ones of `note_seen`, and wait for this thread's earlier
    fsyncs.

    Raises OSError.
    """
    _sync_all([*folders, *_take_seen()], file)
    if _of_thread.pending:
        _wait_for(_of_thread.pending)


def _take_seen() -> list[Path]:
    """The folders of `note_seen`, once. One that was removed since has no object that could be lost."""
    seen, _of_thread.seen = _of_thread.seen, {}
    return [folder for folder in seen if folder.is_dir()]


def _sync_all(folders: Sequence[Path], file: int | None = None) -> None:
    """Sync folders and a file at the same time."""
    syncs = [_Sync(folder) for folder in dict.fromkeys(folders)]
    try:
        if file is not None:
            os.fsync(file)
    finally:
        for sync in syncs:
            sync.join()
    _wait_for(syncs)


def _wait_for(syncs: list[_Sync]) -> None:
    """Wait for fsyncs, and forget the ones that succeeded. Raises the first error."""
    while syncs:
        syncs[0].wait()
        del syncs[0]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
