"""Which blocks are read together: whole filter partitions or single blocks, as counted one by one."""

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tussock.statestore.hummock.block_source import BlockRequest, _spans_of

PER_PARTITION = 8


@dataclass
class Blocks:
    """The parts of a section that the choice needs: offset and length of each block."""

    lengths: np.ndarray
    per_partition: int = PER_PARTITION
    offsets: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def reader(self) -> "Blocks":
        """Section and reader in one."""
        return self


def expected(section: Blocks, wanted: list[int], cached: set[int]) -> list[tuple[int, int, int, int]]:
    """(first, end, offset, length), partition by partition."""
    found = []
    for partition in sorted({block // PER_PARTITION for block in wanted}):
        first, end = partition * PER_PARTITION, min((partition + 1) * PER_PARTITION, len(section))
        inside = [block for block in wanted if first <= block < end]
        size = int(section.lengths[first:end].sum())
        enough = (end - first) / (4 if size <= 2 << 20 else 2)
        whole = (len(inside) >= enough and size <= 32 << 20) or partition in cached
        found += [(first, end)] if whole else [(block, block + 1) for block in inside]
    return [(a, b, int(section.offsets[a]), int(section.lengths[a:b].sum())) for a, b in found]


def is_cached(cached: set[int], first: int, _: int) -> bool:
    """Whether the partition that starts at a block is cached."""
    return first // PER_PARTITION in cached


def test_partitions_are_read_whole_if_much_of_them_is_needed_or_they_are_cached() -> None:
    """Half of a partition's blocks, or a quarter if it is small. A very large one is not read whole."""
    rng, single, whole = random.Random(3), 0, 0
    for _ in range(600):
        unit = rng.choice([1, 20_000, 90_000])  # bytes
        section: Any = Blocks(np.array([unit * rng.randint(1, 99) for _ in range(rng.randint(1, 60))]))
        wanted = sorted(rng.sample(range(len(section)), rng.randint(0, len(section))))
        cached = {p for p in range(-(-len(section) // PER_PARTITION)) if rng.random() < 0.3}
        request = BlockRequest(section, np.array(wanted, np.int64))
        spans = list(_spans_of(7, request, partial(is_cached, cached)))
        assert all(span.request == 7 for span in spans)
        assert [tuple(span)[1:] for span in spans] == expected(section, wanted, cached)
        single += sum(span.end - span.first == 1 for span in spans)
        whole += sum(span.end - span.first > 1 for span in spans)
    assert single > 100
    assert whole > 100
