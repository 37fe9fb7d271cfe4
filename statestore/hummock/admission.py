"""Decides which filters a look-up reads, and which keys they admit.

A filter partition covers 64 blocks and takes 10 to 90 KB. It is worth reading if it excludes blocks that cost more. In
a large section few keys fall in each partition, and if most of them exist, filters exclude little: a look-up of 2,000
keys among 12 M, four fifths of which existed, read 35 MB of filters to save 400 blocks of 3 KB. So a look-up that needs
many bytes of filters reads some of them first, and the others only if the share of absent keys in these is worth it.
Sections of one sorted run are judged together: 150 SSTs of 100 M keys have less than 1 MB of filters each.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tussock.statestore.hummock.filter import KeyHashes
from tussock.statestore.hummock.shared_buffer import BufferedIndex, BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Mask, Positions
from tussock.statestore.hummock.sst_reader import FilterArena

SAMPLED_BYTES = 4 << 20  # a look-up reads fewer bytes of filters of a sorted run without looking at some first
_SAMPLE_KEYS = 64
_BLOCK_BYTES = 16 << 10  # of filters, whose reading takes as long as it takes to read and search one block
_NO_PARTITIONS = np.zeros(0, np.int64)


@dataclass(slots=True)
class FilterSearch:
    """The filters of one section for some of the sorted keys of a look-up.

    Args:
        part: the keys in the section's range.
        blocks: the block that may hold each of them; None: the section has one partition.
        once: later look-ups have other keys, so that a filter must be smaller than the blocks of its keys.
    """

    section: Section
    part: slice
    blocks: Positions | None
    once: bool

    @property
    def at(self) -> Positions | None:
        """The partition of each key; None: the section has one."""
        return None if self.blocks is None else self.blocks // self.section.per_partition

    def filter_bytes(self, numbers: Positions) -> int:
        """The bytes of the filters of some partitions. 0 for a section in memory."""
        reader = self.section.reader
        return 0 if isinstance(reader, BufferedIndex) else int(reader.filter_lengths[numbers].sum())

    def count_keys(self) -> tuple[Positions, Positions]:
        """The partitions with keys, and the keys in each."""
        if (at := self.at) is None:
            return np.zeros(1, np.int64), np.array([self.part.stop - self.part.start])
        return np.unique(at, return_counts=True)

    def count_absent(self, arena: FilterArena, hashes: KeyHashes) -> tuple[int, int]:
        """The number of keys whose filter is loaded, and how many of them are absent."""
        at = self.at
        loaded = arena.loaded[np.zeros(self.part.stop - self.part.start, np.int64) if at is None else at]
        admitted = self.admit_keys(arena, hashes) & loaded
        return int(loaded.sum()), int(loaded.sum() - admitted.sum())

    def worth_reading(self, numbers: Positions, counts: Positions, absent: float) -> Positions:
        """The partitions whose filter costs less than the blocks of the keys that it excludes.

        Args:
            counts: the keys in each.
            absent: the share of them that is absent.
        """
        reader = self.section.reader
        if isinstance(reader, BufferedIndex):
            return numbers
        block = reader.lengths.mean() + (0 if self.once else _BLOCK_BYTES)
        worth: Positions = numbers[counts * absent * block > reader.filter_lengths[numbers]]
        return worth

    def admit_keys(self, arena: FilterArena | None, hashes: KeyHashes) -> Mask:
        """Whether the section may hold each key. Filters that are not loaded exclude none."""
        reader = self.section.reader
        if arena is None or isinstance(reader, BufferedIndex) or not len(arena.loaded):
            return np.ones(self.part.stop - self.part.start, np.bool_)
        bits = 8 * reader.filter_lengths
        if (at := self.at) is None:
            if not arena.loaded[0]:
                return np.ones(self.part.stop - self.part.start, np.bool_)
            return hashes.may_be_in(arena.data, int(bits[0]), self.part)
        if arena.loaded.all():
            return hashes.may_be_in_each(arena.data, reader.filter_starts[at], bits[at], self.part)
        maybe = np.ones(len(at), np.bool_)
        tested = np.flatnonzero(arena.loaded[at])  # a look at other memory would cost a page of it
        at = at[tested]
        maybe[tested] = hashes.may_be_in_each(arena.data, reader.filter_starts[at], bits[at], self.part.start + tested)
        return maybe


class _RunSearch:
    """The filters of a sorted run: sections without common keys.

    `first`: per section, the partitions to read first: all that are worth it, or a sample of them.
    """

    def __init__(self, searches: Sequence[FilterSearch]) -> None:
        self.searches = searches
        self._counted = [search.count_keys() for search in searches]
        self.first = self._chosen = [numbers for numbers, _ in self._counted]
        self._is_sample = False
        if searches[0].once or self._is_large():
            self.first = self._chosen = self._worth_reading(1.0)
        if self._is_large():
            self._take_sample()

    def choose_others(self, arenas: Sequence[FilterArena | None], hashes: KeyHashes) -> list[Positions]:
        """Per section, the further partitions that are worth reading, given the keys that the loaded ones exclude."""
        if not self._is_sample:
            return [_NO_PARTITIONS] * len(self.searches)
        counts = [
            search.count_absent(arena, hashes)
            for search, arena in zip(self.searches, arenas, strict=True)
            if arena is not None
        ]
        tested, absent = (sum(column) for column in zip(*counts, strict=True))
        return self._worth_reading(absent / max(1, tested))

    def _take_sample(self) -> None:
        """Let `first` have about _SAMPLE_KEYS keys, evenly spread."""
        total = sum(len(numbers) for numbers in self._chosen)
        keys = sum(search.part.stop - search.part.start for search in self.searches)
        step = total // -(-_SAMPLE_KEYS * total // keys)
        if step < 2:
            return
        self._is_sample = True
        starts = np.cumsum([0, *(len(numbers) for numbers in self._chosen[:-1])]).tolist()
        self.first = [numbers[-start % step :: step] for numbers, start in zip(self._chosen, starts, strict=True)]

    def _is_large(self) -> bool:
        """Whether the filters of the chosen partitions have more than SAMPLED_BYTES."""
        sizes = (search.filter_bytes(numbers) for search, numbers in zip(self.searches, self._chosen, strict=True))
        return sum(sizes) > SAMPLED_BYTES

    def _worth_reading(self, absent: float) -> list[Positions]:
        """Per section, the partitions that are worth reading if this share of the keys is absent."""
        return [search.worth_reading(*some, absent) for search, some in zip(self.searches, self._counted, strict=True)]


def admit_keys(source: BufferedSource, searches: Sequence[FilterSearch], hashes: KeyHashes) -> list[Mask]:
    """Per search, whether its section may hold each of its keys. Raises DamagedSstError.

    `searches`: the sections of a sorted run follow one another.

    Cost: one round of reads, or two if a sorted run has more than SAMPLED_BYTES of filters for these keys.
    """
    runs = [_RunSearch(run) for run in _sorted_runs(searches)]
    arenas = _load_filters(source, searches, [numbers for run in runs for numbers in run.first])
    loaded = iter(arenas)
    others = [numbers for run in runs for numbers in run.choose_others([next(loaded) for _ in run.searches], hashes)]
    if any(map(len, others)):
        more = _load_filters(source, searches, others)
        arenas = [arena if new is None else new for arena, new in zip(arenas, more, strict=True)]
    return [search.admit_keys(arena, hashes) for search, arena in zip(searches, arenas, strict=True)]


def _load_filters(
    source: BufferedSource, searches: Sequence[FilterSearch], partitions: Sequence[Positions]
) -> list[FilterArena | None]:
    return source.load_filters([(search.section, some) for search, some in zip(searches, partitions, strict=True)])


def _sorted_runs(searches: Sequence[FilterSearch]) -> Iterator[list[FilterSearch]]:
    """Divide searches where one has keys of the searches before. Sections of one epoch may be in any order."""
    run: list[FilterSearch] = []
    parts: list[tuple[int, int]] = []  # of the run, ascending
    for search in searches:
        start, stop = search.part.start, search.part.stop
        place = bisect_left(parts, (start, stop))
        if (place and parts[place - 1][1] > start) or (place < len(parts) and parts[place][0] < stop):
            yield run
            run, parts, place = [], [], 0
        run.append(search)
        parts.insert(place, (start, stop))
    if run:
        yield run
