"""Waits for the disk: the fsyncs of a directory as an object store.

A write is durable after an fsync of its file, and then one of each changed folder. Each takes milliseconds, mostly for
the disk. Fsyncs that wait at the same time share a write of the file system's journal. So a write syncs its file
together with the parents of folders that are new, or that a killed writer may have made.

In a block of `synced_in_order`, a write returns when it is visible, and its folder is synced in a thread. The next
write of the thread waits for this fsync before it becomes visible, and the end of the block waits too. So no write is
visible that could survive an earlier one, and all are durable when the block ends.
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


class _OfThread(threading.local):
    """The pending fsyncs of a thread; None outside of `synced_in_order`."""

    pending: list[_Sync] | None = None


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
        settle()
    finally:
        pending, _of_thread.pending = _of_thread.pending, None
        for sync in pending:  # after an error, which the caller should see
            sync.join()


def settle() -> None:
    """Wait until all writes of this thread are durable. Raises ObjectStoreUnavailableError if the last fsyncs failed.

    Only needed in a block of `synced_in_order`, for example before another thread continues.
    """
    try:
        _wait_for(_of_thread.pending or [])
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


def sync_together(file: int, folders: Sequence[Path]) -> None:
    """Sync an open file and folders at the same time, and wait for the earlier fsyncs of this thread.

    Raises OSError.
    """
    syncs = [_Sync(folder) for folder in dict.fromkeys(folders)]
    try:
        os.fsync(file)
    finally:
        for sync in syncs:
            sync.join()
    _wait_for(syncs)
    if _of_thread.pending:
        _wait_for(_of_thread.pending)


def _wait_for(syncs: list[_Sync]) -> None:
    """Wait for fsyncs, and forget those that succeeded. Raises the first error."""
    while syncs:
        syncs[0].wait()
        del syncs[0]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
