"""Where bytes of SSTs come from: the host's disk cache, else range reads of the bucket, in parallel and with few requests.

A request to a bucket costs 30 ms whether it brings 16 KiB or 256 KiB. So a point read that misses the disk brings the aligned 256 KiB
around what it needs, and the disk keeps them: the next keys that fall in there cost nothing. A scan takes what the disk has, fetches the
rest as it is asked for and leaves the cache as it was; else one scan, or one compaction, would push out what point reads keep warm.
"""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from tussock.statestore.hummock.cache_file import PIECE_BYTES
from tussock.statestore.hummock.disk_cache import CachedObject, DiskCache, disk_cache_for
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, ShortReadError

log = logging.getLogger(__name__)

Range = tuple[int, int]  # offset, length

FILL_PIECES = 4  # pieces that are fetched together
WHOLE_BYTES = 16 << 20  # up to this size an uploaded SST is kept whole
_THREADS = 8  # objects fetched at once; ranges of one object are the object store's own business


@lru_cache(maxsize=1)
def _threads_of(process: int) -> ThreadPoolExecutor:
    """The threads that fetch from several objects, for all readers of this process; a forked child lacks its parent's."""
    del process  # only the key
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch")


class RangeReader:
    """Reads byte ranges of SSTs of one object store, through a disk cache if there is one."""

    def __init__(self, objects: ObjectStore, disk: DiskCache | None) -> None:
        self.objects, self.disk = objects, disk

    def fetch(self, wanted: Sequence[tuple[SstInfo, Sequence[Range]]], keep: bool = True) -> list[list[bytes]]:
        """The bytes of each range, per SST in the order asked.

        Args:
            wanted: SSTs, each once, and ranges of them.
            keep: whether what the disk cache lacks is put there, and what it has counts as used.

        Raises:
            MissingSstError: the bucket has no such object.
            DamagedSstError: the object is shorter than the version says.
        """
        if len(wanted) <= 1:
            return [self._read(sst, parts, keep) for sst, parts in wanted]
        return list(_threads_of(os.getpid()).map(lambda item: self._read(item[0], item[1], keep), wanted))

    def fetch_again(self, sst: SstInfo, part: Range) -> bytes | None:
        """The bytes from the bucket, after they were found to be damaged; the disk cache forgets them. None: the bucket is where they
        had come from. Raises as `fetch` does."""
        if self.disk is None:
            return None
        offset, length = part
        of = CachedObject.of(self.objects.uri, sst.name, sst.size)
        self.disk.forget(of, np.arange(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1))
        return self._get_ranges(sst, [part])[0]

    def _read(self, sst: SstInfo, ranges: Sequence[Range], keep: bool) -> list[bytes]:
        if self.disk is None or not ranges:
            return self._get_ranges(sst, ranges)
        of = CachedObject.of(self.objects.uri, sst.name, sst.size)
        spans = np.array(ranges, np.int64)
        begins, ends = spans[:, 0], spans[:, 0] + spans[:, 1]
        if (
            (spans[:, 1] <= 0).any() or begins.min() < 0 or ends.max() > sst.size
        ):  # an index that cannot be right: the bucket says why
            return self._get_ranges(sst, ranges)
        pieces, lows, highs = _pieces_of(begins, ends)
        held = dict(
            zip(
                pieces.tolist(),
                zip(lows.tolist(), self.disk.read(of, pieces, lows, highs, use=keep), strict=True),
                strict=True,
            )
        )
        missing = np.array([piece for piece, (_, data) in held.items() if data is None], np.int64)
        if not len(missing):
            return [_assembled(held, *part) for part in ranges]
        if not keep:
            return self._rest_of(sst, ranges, held)
        return self._filled(sst, of, ranges, held, missing)

    def _rest_of(self, sst: SstInfo, ranges: Sequence[Range], held: "_Held") -> list[bytes]:
        """The ranges, those with a hole as they are from the bucket."""
        whole = [_is_whole(held, *part) for part in ranges]
        fetched = iter(self._get_ranges(sst, [part for part, here in zip(ranges, whole, strict=True) if not here]))
        return [_assembled(held, *part) if here else next(fetched) for part, here in zip(ranges, whole, strict=True)]

    def _filled(
        self, sst: SstInfo, of: CachedObject, ranges: Sequence[Range], held: "_Held", missing: Positions
    ) -> list[bytes]:
        """The ranges, what is missing fetched with its neighbours and put on the disk."""
        assert self.disk is not None
        firsts = np.unique(missing // FILL_PIECES) * FILL_PIECES
        stops = np.minimum((firsts + FILL_PIECES) * PIECE_BYTES, of.size)
        # Side by side and not as one, so that the object store can divide what is long among its connections.
        wanted = list(zip((firsts * PIECE_BYTES).tolist(), (stops - firsts * PIECE_BYTES).tolist(), strict=True))
        try:
            fetched = self.objects.get_ranges(sst.name, wanted)
        except ShortReadError:
            return self._get_ranges(sst, ranges)  # it is cut; what was asked for may still be there
        except ObjectNotFoundError as error:
            raise MissingSstError(self.objects.uri, sst.name) from error
        for (offset, _), data in zip(wanted, fetched, strict=True):
            view, first = memoryview(data), offset // PIECE_BYTES
            for place in range(0, len(view), PIECE_BYTES):
                piece = first + place // PIECE_BYTES
                if held.get(piece, (0, None))[1] is None:
                    held[piece] = (0, view[place : place + PIECE_BYTES])
            self.disk.write(of, first, view)
        return [_assembled(held, *part) for part in ranges]

    def _get_ranges(self, sst: SstInfo, ranges: Sequence[Range]) -> list[bytes]:
        if log.isEnabledFor(logging.DEBUG):  # the sum is over each block of a large read
            log.debug("%s: %d ranges, %d bytes read", sst.name, len(ranges), sum(length for _, length in ranges))
        try:
            return self.objects.get_ranges(sst.name, ranges)
        except ObjectNotFoundError as error:
            raise MissingSstError(self.objects.uri, sst.name) from error
        except ShortReadError as error:
            place = f"bytes {error.offset} to {error.offset + error.length}"
            raise DamagedSstError(sst.name, place, f"{error.found} bytes", f"{error.length} bytes") from error


def keep_uploaded(objects: ObjectStore, sst: SstInfo, data: bytes) -> None:
    """Put what this host has just uploaded into its disk cache: the next epoch reads it. Of a large SST only the footer, which every
    reader needs; a first load must not push everything else out."""
    if (disk := disk_cache_for(objects)) is not None:
        first = 0 if sst.size <= WHOLE_BYTES else (sst.size - sst.footer_size) // PIECE_BYTES
        disk.write(CachedObject.of(objects.uri, sst.name, sst.size), first, memoryview(data)[first * PIECE_BYTES :])


#: Per piece the bytes of it that are at hand, and where in the piece they begin.
_Held = dict[int, tuple[int, bytes | memoryview | None]]


def _pieces_of(begins: Positions, ends: Positions) -> tuple[Positions, Positions, Positions]:
    """The pieces that the ranges touch, ascending, and of each the least part [low, high) that holds all that is needed of it."""
    firsts, counts = begins // PIECE_BYTES, (ends - 1) // PIECE_BYTES - begins // PIECE_BYTES + 1
    owner = np.repeat(np.arange(len(begins)), counts)
    touched = firsts[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.argsort(touched, kind="stable")
    pieces, starts = np.unique(touched[order], return_index=True)
    low = np.maximum(begins[owner] - touched * PIECE_BYTES, 0)[order]
    high = np.minimum(ends[owner] - touched * PIECE_BYTES, PIECE_BYTES)[order]
    return pieces, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def _is_whole(held: _Held, offset: int, length: int) -> bool:
    return all(
        held[piece][1] is not None for piece in range(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1)
    )


def _assembled(held: _Held, offset: int, length: int) -> bytes:
    """The bytes of a range. Requires: its pieces are at hand."""
    parts = []
    for piece in range(offset // PIECE_BYTES, (offset + length - 1) // PIECE_BYTES + 1):
        low, data = held[piece]
        assert data is not None
        begin = piece * PIECE_BYTES + low
        parts.append(data[max(offset - begin, 0) : offset + length - begin])
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
