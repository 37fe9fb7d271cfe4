"""Which requests a set of ranges becomes, against plain slicing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tussock.statestore.objectstore import ranges
from tussock.statestore.objectstore.ranges import COALESCE_GAP_BYTES, MAX_READ_BYTES, plan_reads, slice_of

SIZE = 5 * COALESCE_GAP_BYTES
DATA = bytes(i * i % 251 for i in range(SIZE))


def _answer(read: ranges.ByteRange, data: bytes) -> bytes:
    """The bytes that a server returns for a range read."""
    return (
        data[read.offset : read.offset + read.length] if read.offset >= 0 else data[max(0, len(data) + read.offset) :]
    )


from_start = st.tuples(st.integers(0, SIZE - 1), st.integers(0, 3000))
from_end = st.integers(1, 5000).flatmap(lambda back: st.tuples(st.just(-back), st.integers(0, back)))


@given(st.lists(from_start | from_end, max_size=30))
def test_every_range_gets_its_bytes_from_the_request_that_serves_it(asked: list[tuple[int, int]]) -> None:
    reads = plan_reads(asked)
    served = {i: slice_of(read, _answer(read, DATA), *asked[i]) for read in reads for i in read.parts}
    for i, (offset, length) in enumerate(asked):
        start = offset if offset >= 0 else SIZE + offset
        assert served.get(i, b"") == DATA[start : start + length]
    assert sum(len(read.parts) for read in reads) == len(served)
    forward = sorted((r.offset, r.offset + r.length) for r in reads if r.offset >= 0)
    assert all(later - end > COALESCE_GAP_BYTES for (_, end), (later, _) in pairwise(forward))
    assert sum(r.offset < 0 for r in reads) <= 1


def test_neighbours_share_a_request_and_far_ones_do_not() -> None:
    far = 2 * COALESCE_GAP_BYTES
    assert [(r.offset, r.length) for r in plan_reads([(far, 10), (0, 10), (20, 5), (far + 5, 10)])] == [
        (0, 25),
        (far, 15),
    ]


def test_a_long_run_of_neighbours_is_cut_so_that_it_loads_in_parallel() -> None:
    block = 1 << 20
    reads = plan_reads([(i * block, block) for i in range(64)])
    assert [r.length for r in reads] == [MAX_READ_BYTES] * (64 * block // MAX_READ_BYTES)


def test_empty_ranges_need_no_request() -> None:
    assert plan_reads([(5, 0), (-1, 0)]) == []


def test_reads_that_cost_little_leave_out_smaller_gaps() -> None:
    ranges = [(0, 100), (1_100, 100), (20_000, 100)]
    assert [read.parts for read in plan_reads(ranges)] == [(0, 1, 2)]
    assert [read.parts for read in plan_reads(ranges, gap=5_000)] == [(0, 1), (2,)]
