"""Which requests to send for a set of byte ranges: neighbours share one, so that a batch of blocks costs few round trips."""

from collections.abc import Sequence
from dataclasses import dataclass

COALESCE_GAP_BYTES = (
    64 << 10
)  # reading this much for nothing costs less than another request (1 ms at 100 MB/s against 10-30 ms)
MAX_READ_BYTES = 16 << 20  # coalescing stops here, so that a long run of neighbours still loads in parallel


@dataclass(frozen=True, slots=True)
class Read:
    """One request: `length` bytes at `offset`, or the last `-offset` bytes if negative. `parts` are indices of the ranges it serves."""

    offset: int
    length: int
    parts: tuple[int, ...]


def plan_reads(ranges: Sequence[tuple[int, int]]) -> list[Read]:
    """The fewest sensible requests that cover all ranges (offset, length); empty ranges need none.

    Ranges that count from the end become a single request for the object's tail: they are footers, near to each other and to the end.
    """
    by_offset = sorted((offset, length, i) for i, (offset, length) in enumerate(ranges) if length > 0)
    tail = [(offset, length, i) for offset, length, i in by_offset if offset < 0]
    reads = [Read(tail[0][0], -tail[0][0], tuple(i for _, _, i in tail))] if tail else []
    start, end, parts = 0, 0, list[int]()
    for offset, length, i in by_offset[len(tail) :]:
        stop = max(end, offset + length)
        if parts and offset <= end + COALESCE_GAP_BYTES and (stop - start <= MAX_READ_BYTES or stop == end):
            end = stop
        else:
            if parts:
                reads.append(Read(start, end - start, tuple(parts)))
            start, end, parts = offset, offset + length, []
        parts.append(i)
    if parts:
        reads.append(Read(start, end - start, tuple(parts)))
    return reads


def slice_of(read: Read, data: bytes, offset: int, length: int) -> bytes:
    """The bytes of the range (offset, length) from what `read` returned; shorter than `length` if the object ended early.

    A tail request on a smaller object returns all of it, aligned at its end.
    """
    start = len(data) + offset if offset < 0 else offset - read.offset
    if start < 0:
        return b""
    if start == 0 and length == len(data):
        return data
    return data[start : start + length]
