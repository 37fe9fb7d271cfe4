"""Cells that a process has received and not read yet: in memory up to a bound, then in a file on the local disk."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from tussock.jobs.outside import world
from tussock.jobs.wire.cell import CELL_SCHEMA, split_cells
from tussock.statestore.extras import extras_named
from tussock.statestore.local_disk import LocalDiskError
from tussock.statestore.memory import memory_limit

KEPT_BYTES = 256 << 20
_MEMORY_PART = 8  # of a limited memory
_KEY_BYTES, _NONCE_BYTES = 32, 12

_Spooled = tuple[int, int]  # offset and length in the file


class Mailbox:
    """The cells of all levels for the units of this process, and the end marks of its peers. Thread-safe."""

    def __init__(
        self,
        peers: Iterable[int] = (),
        folder: str | None = None,
        kept_bytes: int | None = None,
        *,
        encrypts: bool = False,
    ) -> None:
        """
        Args:
            peers: the ranks of the other processes.
            folder: for the file; None: the system's folder for temporary files.
            kept_bytes: cells in memory, by default KEPT_BYTES; further cells go to the file.
            encrypts: whether the file is encrypted, with a key that only this object has.

        Raises MissingExtraError.
        """
        self._peers = frozenset(peers)
        self._folder, self._kept_bytes = folder, KEPT_BYTES if kept_bytes is None else kept_bytes
        self._changed = world.Condition()
        self._cells: dict[tuple[int, int], list[pa.RecordBatch | _Spooled]] = {}  # by level and unit
        self._ended: dict[int, dict[int, int]] = {}  # by level: the number in each peer's end mark
        self._gone: dict[int, Exception] = {}  # by rank: peers without a connection
        self._failure: Exception | None = None
        self._in_memory = 0
        self._file: IO[bytes] | None = None
        self._written = 0
        self._cipher = _FileCipher() if encrypts else None

    @property
    def encrypts(self) -> bool:
        """Whether the file is encrypted."""
        return self._cipher is not None

    def put_cells(self, level: int, batch: pa.RecordBatch) -> None:
        """Add cells for units of this process, to be read at `level`. Raises LocalDiskError."""
        for unit, mine in split_cells(batch, np.asarray(batch.column(0))):
            with self._changed:
                stored_cells: pa.RecordBatch | _Spooled = mine
                if self._in_memory + mine.nbytes > memory_limit.limit_share(self._kept_bytes, _MEMORY_PART):
                    stored_cells = self._spool_batch(mine)
                else:
                    self._in_memory += mine.nbytes
                self._cells.setdefault((level, unit), []).append(stored_cells)

    def take_cells(self, level: int, unit: int) -> Iterator[pa.RecordBatch]:
        """Yield and forget the cells of one unit at one level, in the order of their arrival."""
        with self._changed:
            waiting = self._cells.pop((level, unit), [])
        waiting.reverse()
        while waiting:
            stored_cells = waiting.pop()
            if isinstance(stored_cells, tuple):
                yield from self._read_spooled(stored_cells)
            else:
                with self._changed:
                    self._in_memory -= stored_cells.nbytes
                yield stored_cells

    def end_level(self, level: int, peer: int, number: int) -> None:
        """Note that a peer has sent all its cells of a level; `number` comes with the mark."""
        with self._changed:
            self._ended.setdefault(level, {})[peer] = number
            self._changed.notify_all()

    def note_leaving(self, peer: int, error: Exception) -> None:
        """Note that nothing more comes from a peer.

        `wait_for_level` raises `error` for levels that the peer has not ended.
        """
        with self._changed:
            self._gone.setdefault(peer, error)
            self._changed.notify_all()

    def fail_waits(self, error: Exception) -> None:
        """End all waits with this error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def wait_for_level(self, level: int) -> int:
        """Wait until all peers have ended a level. Returns the sum of the numbers in their end marks.

        Raises the error of `fail_waits` or `note_leaving`. The thread that receives guards the time.
        """
        with self._changed:
            while missing := self._peers - self._ended.get(level, {}).keys():
                if self._failure is not None:
                    raise self._failure
                if gone := sorted(missing & self._gone.keys()):
                    raise self._gone[gone[0]]
                self._changed.wait()
            return sum(self._ended.get(level, {}).values())

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()

    def _spool_batch(self, batch: pa.RecordBatch) -> _Spooled:
        data: pa.Buffer = batch.serialize()
        if self._cipher is not None:
            data = pa.py_buffer(self._cipher.encrypt(self._written, memoryview(data).cast("B")))
        try:
            if self._file is None:
                # `close` closes it.
                self._file = tempfile.TemporaryFile(  # noqa: SIM115
                    prefix="tussock-exchange-", dir=self._folder, buffering=0
                )
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError as err:
            raise LocalDiskError(self._folder or tempfile.gettempdir(), data.size, err.strerror or str(err)) from err
        place = (self._written, data.size)
        self._written += data.size
        return place

    def _read_spooled(self, place: _Spooled) -> Iterator[pa.RecordBatch]:
        assert self._file is not None
        offset, length = place
        data = pa.allocate_buffer(length)
        left = memoryview(data)
        while left:
            read = os.preadv(self._file.fileno(), [left], offset)
            assert read, "the file ended early"
            left, offset = left[read:], offset + read
        if self._cipher is not None:
            data = pa.py_buffer(self._cipher.decrypt(place[0], memoryview(data).cast("B")))
        yield pa.ipc.read_record_batch(data, CELL_SCHEMA)


class _FileCipher:
    """Encrypts the parts of one file with AES-GCM. The key is as old as the object, and stays in memory.

    A part's place in the file is its nonce: the file only grows, so no nonce repeats.
    """

    def __init__(self) -> None:
        with extras_named():
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        self._aes = AESGCM(world.random_bytes(_KEY_BYTES))

    def encrypt(self, place: int, data: memoryview) -> bytes:
        """Encrypt the part at this offset."""
        return self._aes.encrypt(place.to_bytes(_NONCE_BYTES, "big"), data, None)

    def decrypt(self, place: int, data: memoryview) -> bytes:
        """Decrypt the part at this offset."""
        return self._aes.decrypt(place.to_bytes(_NONCE_BYTES, "big"), data, None)
