"""Reads bytes of SSTs from the host's disk cache, or from the bucket with few parallel range requests.

A request to a bucket takes 30 ms, whether it returns 16 KiB or 256 KiB. A point read that misses the disk cache
therefore fetches the surrounding aligned 256 KiB, and the cache keeps them, so later keys in this range need no
request. A scan uses the cached parts, fetches only the rest, and leaves the cache unchanged. Otherwise a single scan or
compaction would evict the data that point reads need.
"""

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from tussock.statestore.forks import renew_in_child
from tussock.statestore.hummock.cache_file import PIECE_BYTES
from tussock.statestore.hummock.disk_cache import CachedObject, DiskCache, disk_cache_for
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, ShortReadError
from tussock.statestore.positions import expand_ranges

log = logging.getLogger(__name__)

Range = tuple[int, int]  # offset, length

FILL_PIECES = 4  # pieces per fetch
WHOLE_BYTES = 16 << 20  # an uploaded SST up to this size is cached completely
_THREADS = 8  # objects fetched concurrently; the object store parallelises ranges of one object


@cache
def _fetch_threads() -> ThreadPoolExecutor:
    """The threads that fetch from several objects, shared by all readers of a process."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch")


renew_in_child(_fetch_threads.cache_clear)


class RangeReader:
    """Reads byte ranges of SSTs in one object store, through the disk cache if it has one."""

    def __init__(self, objects: ObjectStore, disk: DiskCache | None) -> None:
        self.objects, self.disk = objects, disk

    def fetch_ranges(self, wanted: Sequence[tuple[SstInfo, Sequence[Range]]], keep: bool = True) -> list[list[bytes]]:
        """Read ranges of several SSTs. Returns the bytes per SST, in the order of its ranges.

        Args:
            wanted: distinct SSTs, and ranges of each.
            keep: whether to add fetched bytes to the disk cache, and to count cached bytes as used.

        Raises:
            MissingSstError: the object does not exist.
            DamagedSstError: the object is shorter than its version records.
        """
        if len(wanted) <= 1:
            return [self._read_ranges(sst, parts, keep) for sst, parts in wanted]
        answers: list[list[bytes]] = [[]] * len(wanted)
        left = iter(range(len(wanted)))

        def read_some(_: int) -> None:
            for number in left:  # several threads may share an iterator over a range
                sst, parts = wanted[number]
                answers[number] = self._read_ranges(sst, parts, keep)

        # One task per thread. To submit one per object took longer than to read 1 KB of a local file.
        deque(_fetch_threads().map(read_some, range(min(_THREADS, len(wanted)))), maxlen=0)
        return answers

    def fetch_again(self, sst: SstInfo, part: Range) -> bytes | None:
        """Read damaged bytes again from the bucket, and remove them from the disk cache.

        Returns None without a disk cache: the damaged bytes came from the bucket. Raises the same as `fetch_ranges`.
        """
        if self.disk is None:
            return None
        offset, length = part
        of = CachedObject.of_object(self.objects.uri, sst.name, sst.size)
        self.disk.forget_pieces(of, np.arange(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1))
        return self._get_ranges(sst, [part])[0]

    def _read_ranges(self, sst: SstInfo, ranges: Sequence[Range], keep: bool) -> list[bytes]:
        if self.disk is None or not ranges:
            return self._get_ranges(sst, ranges)
        of = CachedObject.of_object(self.objects.uri, sst.name, sst.size)
        spans = np.array(ranges, np.int64)
        begins, ends = spans[:, 0], spans[:, 0] + spans[:, 1]
        # The index is invalid; reading from the bucket raises the precise error.
        if (spans[:, 1] <= 0).any() or begins.min() < 0 or ends.max() > sst.size:
            return self._get_ranges(sst, ranges)
        pieces, lows, highs = _pieces_of(begins, ends)
        loaded = dict(
            zip(
                pieces.tolist(),
                zip(lows.tolist(), self.disk.read_pieces(of, pieces, lows, highs, use=keep), strict=True),
                strict=True,
            )
        )
        missing = np.array([piece for piece, (_, data) in loaded.items() if data is None], np.int64)
        if not len(missing):
            return [_assemble_range(loaded, *part) for part in ranges]
        if not keep:
            return self._rest_of(sst, ranges, loaded)
        return self._read_filling(sst, of, ranges, loaded, missing)

    def _rest_of(self, sst: SstInfo, ranges: Sequence[Range], loaded: "_LoadedPieces") -> list[bytes]:
        """The ranges; incomplete ones are read entirely from the bucket."""
        whole = [_is_whole(loaded, *part) for part in ranges]
        fetched = iter(self._get_ranges(sst, [part for part, here in zip(ranges, whole, strict=True) if not here]))
        return [
            _assemble_range(loaded, *part) if here else next(fetched) for part, here in zip(ranges, whole, strict=True)
        ]

    def _read_filling(
        self, sst: SstInfo, of: CachedObject, ranges: Sequence[Range], loaded: "_LoadedPieces", missing: Positions
    ) -> list[bytes]:
        """The ranges; missing pieces are fetched with their neighbours and cached on disk."""
        assert self.disk is not None
        firsts = np.unique(missing // FILL_PIECES) * FILL_PIECES
        stops = np.minimum((firsts + FILL_PIECES) * PIECE_BYTES, of.size)
        # Separate ranges let the object store spread a long run over its connections.
        wanted = list(zip((firsts * PIECE_BYTES).tolist(), (stops - firsts * PIECE_BYTES).tolist(), strict=True))
        try:
            fetched = self.objects.get_ranges(sst.name, wanted)
        except ShortReadError:
            return self._get_ranges(sst, ranges)  # The object is truncated; the requested bytes may still exist.
        except ObjectNotFoundError as error:
            raise MissingSstError(self.objects.uri, sst.name) from error
        for (offset, _), data in zip(wanted, fetched, strict=True):
            view, first = memoryview(data), offset // PIECE_BYTES
            for place in range(0, len(view), PIECE_BYTES):
                piece = first + place // PIECE_BYTES
                if loaded.get(piece, (0, None))[1] is None:
                    loaded[piece] = (0, view[place : place + PIECE_BYTES])
            self.disk.write_pieces(of, first, view)
        return [_assemble_range(loaded, *part) for part in ranges]

    def _get_ranges(self, sst: SstInfo, ranges: Sequence[Range]) -> list[bytes]:
        if log.isEnabledFor(logging.DEBUG):  # The sum runs over each block of a large read.
            log.debug("%s: %d ranges, %d bytes read", sst.name, len(ranges), sum(length for _, length in ranges))
        try:
            return self.objects.get_ranges(sst.name, ranges)
        except ObjectNotFoundError as error:
            raise MissingSstError(self.objects.uri, sst.name) from error
        except ShortReadError as error:
            place = f"bytes {error.offset} to {error.offset + error.length}"
            raise DamagedSstError(sst.name, place, f"{error.available} bytes", f"{error.length} bytes") from error


def keep_uploaded(objects: ObjectStore, sst: SstInfo, data: bytes) -> None:
    """Put an SST that this host uploaded into its disk cache, because the next epoch reads it.

    For a large SST, only the footer is cached, which every reader needs. A first load must not evict everything else.
    """
    if (disk := disk_cache_for(objects)) is not None:
        first = 0 if sst.size <= WHOLE_BYTES else (sst.size - sst.footer_size) // PIECE_BYTES
        disk.write_pieces(
            CachedObject.of_object(objects.uri, sst.name, sst.size), first, memoryview(data)[first * PIECE_BYTES :]
        )


#: Per piece, the bytes that are loaded, and their offset in the piece.
_LoadedPieces = dict[int, tuple[int, bytes | memoryview | None]]


def _pieces_of(begins: Positions, ends: Positions) -> tuple[Positions, Positions, Positions]:
    """The pieces that the ranges touch, ascending, and the smallest part [low, high) of each that covers the ranges."""
    firsts, counts = begins // PIECE_BYTES, (ends - 1) // PIECE_BYTES - begins // PIECE_BYTES + 1
    owner = np.repeat(np.arange(len(begins)), counts)
    touched = expand_ranges(firsts, counts)
    order = np.argsort(touched, kind="stable")
    pieces, starts = np.unique(touched[order], return_index=True)
    low = np.maximum(begins[owner] - touched * PIECE_BYTES, 0)[order]
    high = np.minimum(ends[owner] - touched * PIECE_BYTES, PIECE_BYTES)[order]
    return pieces, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def _is_whole(loaded: _LoadedPieces, offset: int, length: int) -> bool:
    return all(
        loaded[piece][1] is not None for piece in range(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1)
    )


def _assemble_range(loaded: _LoadedPieces, offset: int, length: int) -> bytes:
    """The bytes of a range. Requires: its pieces are loaded."""
    parts = []
    for piece in range(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1):
        low, data = loaded[piece]
        assert data is not None
        begin = piece * PIECE_BYTES + low
        parts.append(data[max(offset - begin, 0) : offset + length - begin])
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
