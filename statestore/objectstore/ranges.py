"""Plans the requests for a set of byte ranges. Neighbours share one, so a batch of blocks needs few round trips."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from tussock.statestore.forks import renew_in_child
from tussock.statestore.objectstore.base import ShortReadError

# Reading a gap of this size (1 ms at 100 MB/s) is cheaper than another request (10 to 30 ms).
COALESCE_GAP_BYTES = 64 << 10
PARALLEL_REQUESTS = 16  # per process; S3's connection pool has the same size, so no connection is opened and discarded
MAX_READ_BYTES = 16 << 20  # limit of a shared request, so that a long run of neighbours still loads in parallel


class ByteRange(NamedTuple):
    """One request: `length` bytes at `offset`, or the last `-offset` bytes if negative.

    `parts` are the indices of the ranges that it serves. Cheap to create, since a call may have thousands.
    """

    offset: int
    length: int
    parts: tuple[int, ...]


def plan_reads(ranges: Sequence[tuple[int, int]], gap: int = COALESCE_GAP_BYTES) -> list[ByteRange]:
    """Cover all ranges (offset, length) with few requests; empty ranges need none.

    `gap`: the bytes between neighbours that cost less than another request.

    Ranges with negative offsets share one request for the object's tail: they are footers, close to each other and to
    the end.
    """
    by_offset = sorted((offset, length, i) for i, (offset, length) in enumerate(ranges) if length > 0)
    tail = [(offset, length, i) for offset, length, i in by_offset if offset < 0]
    reads = [ByteRange(tail[0][0], -tail[0][0], tuple(i for _, _, i in tail))] if tail else []
    start, end, parts = 0, 0, list[int]()
    for offset, length, i in by_offset[len(tail) :]:
        stop = max(end, offset + length)
        if parts and offset <= end + gap and (stop - start <= MAX_READ_BYTES or stop == end):
            end = stop
        else:
            if parts:
                reads.append(ByteRange(start, end - start, tuple(parts)))
            start, end, parts = offset, offset + length, []
        parts.append(i)
    if parts:
        reads.append(ByteRange(start, end - start, tuple(parts)))
    return reads


def slice_of(read: ByteRange, data: bytes, offset: int, length: int) -> bytes:
    """Cut the range (offset, length) out of the result of `read`; shorter than `length` if the object ended early.

    A tail request on a smaller object returns the whole object, aligned at its end.
    """
    start = len(data) + offset if offset < 0 else offset - read.offset
    if start < 0:
        return b""
    if start == 0 and length == len(data):
        return data
    return data[start : start + length]


def fetch_ranges(
    uri: str, name: str, ranges: Sequence[tuple[int, int]], fetch: Callable[[ByteRange], bytes]
) -> list[bytes]:
    """Read the bytes at each (offset, length) of an object, with as few requests as `plan_reads` needs, in parallel.

    Args:
        fetch: sends one request; returns fewer bytes than requested, or none, if the object ends early.

    Raises: ShortReadError if the object ends before a range does.
    """
    reads = plan_reads(ranges)
    bodies = list(_fetch_threads().map(fetch, reads)) if len(reads) > 1 else [fetch(read) for read in reads]
    parts = [b""] * len(ranges)
    for read, data in zip(reads, bodies, strict=True):
        for i in read.parts:
            offset, length = ranges[i]
            parts[i] = slice_of(read, data, offset, length)
            if len(parts[i]) < length:
                raise ShortReadError(uri, name, offset, length, len(parts[i]))
    return parts


@cache
def _fetch_threads() -> ThreadPoolExecutor:
    """The threads that fetch ranges, shared by all stores of this process."""
    return ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="range-get")


renew_in_child(_fetch_threads.cache_clear)  # a forked child lacks its parent's threads
