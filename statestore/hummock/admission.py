"""Decides which filters a look-up reads, and which keys they admit.

A filter partition covers 64 blocks and takes 10 to 90 KB. It is worth reading if it excludes blocks that cost more. In
a large section few keys fall in each partition, and if most of them exist, filters exclude little: a look-up of 2,000
keys among 12 M, four fifths of which existed, read 35 MB of filters to save 400 blocks of 3 KB. So a look-up that needs
many bytes of filters reads some of them first, and the others only if the share of absent keys in these is worth it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tussock.statestore.hummock.filter import KeyHashes
from tussock.statestore.hummock.shared_buffer import BufferedIndex, BufferedSection, BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Mask, Positions
from tussock.statestore.hummock.sst_reader import FilterArena

SAMPLED_BYTES = 4 << 20  # a look-up reads fewer bytes of filters of a section without looking at some first
_SAMPLE_KEYS = 64
_BLOCK_BYTES = 16 << 10  # of filters, whose reading takes as long as it takes to read and search one block


@dataclass(slots=True)
class FilterSearch:
    """The filters of one section for some of the sorted keys of a look-up.

    Args:
        part: the keys in the section's range.
        at: the partition of each of them; None: the section has one.
        once: later look-ups have other keys, so that a filter must be smaller than the blocks of its keys.
    """

    section: Section
    part: slice
    at: Positions | None
    once: bool

    def choose_partitions(self) -> Positions:
        """The partitions to read, unless a sample shows that few keys are absent."""
        numbers, counts = self._counted_partitions()
        if isinstance(self.section, BufferedSection) or not (self.once or self._is_large(numbers)):
            return numbers
        return self._worth_reading(numbers, counts, 1.0)

    def sample_partitions(self, chosen: Positions) -> Positions | None:
        """Those of `chosen` that have about _SAMPLE_KEYS keys together, evenly spread. None: no sample is needed."""
        if isinstance(self.section, BufferedSection) or not self._is_large(chosen):
            return None
        count = -(-_SAMPLE_KEYS * len(chosen) // (self.part.stop - self.part.start))
        return chosen[:: len(chosen) // count] if count < len(chosen) else None

    def _is_large(self, numbers: Positions) -> bool:
        """Whether the filters of these partitions have more than SAMPLED_BYTES."""
        reader = self.section.reader
        assert not isinstance(reader, BufferedIndex)
        return int(reader.filter_lengths[numbers].sum()) > SAMPLED_BYTES

    def choose_others(self, arena: FilterArena, hashes: KeyHashes, chosen: Positions) -> Positions:
        """Those of `chosen` that are worth reading, given the keys that the loaded ones exclude."""
        assert self.at is not None
        loaded = arena.loaded[self.at]
        tested, admitted = (int(mask.sum()) for mask in (loaded, self.admit_keys(arena, hashes) & loaded))
        absent = 1 - admitted / max(1, tested)
        numbers, counts = self._counted_partitions()
        wanted = np.isin(numbers, chosen)
        return self._worth_reading(numbers[wanted], counts[wanted], absent)

    def admit_keys(self, arena: FilterArena | None, hashes: KeyHashes) -> Mask:
        """Whether the section may hold each key. Filters that are not loaded exclude none."""
        reader = self.section.reader
        if arena is None or isinstance(reader, BufferedIndex) or not len(arena.loaded):
            return np.ones(self.part.stop - self.part.start, np.bool_)
        bits = 8 * reader.filter_lengths
        if self.at is None:
            if not arena.loaded[0]:
                return np.ones(self.part.stop - self.part.start, np.bool_)
            return hashes.may_be_in(arena.data, int(bits[0]), self.part)
        if arena.loaded.all():
            return hashes.may_be_in_each(arena.data, reader.filter_starts[self.at], bits[self.at], self.part)
        maybe = np.ones(len(self.at), np.bool_)
        tested = np.flatnonzero(arena.loaded[self.at])  # a look at other memory would cost a page of it
        at = self.at[tested]
        maybe[tested] = hashes.may_be_in_each(arena.data, reader.filter_starts[at], bits[at], self.part.start + tested)
        return maybe

    def _counted_partitions(self) -> tuple[Positions, Positions]:
        """The partitions with keys, and the keys in each."""
        if self.at is None:
            return np.zeros(1, np.int64), np.array([self.part.stop - self.part.start])
        return np.unique(self.at, return_counts=True)

    def _worth_reading(self, numbers: Positions, counts: Positions, absent: float) -> Positions:
        """The partitions whose filter costs less than the blocks of the keys that it excludes.

        `absent`: the share of these keys.
        """
        reader = self.section.reader
        assert not isinstance(reader, BufferedIndex)
        block = reader.lengths.mean() + (0 if self.once else _BLOCK_BYTES)
        worth: Positions = numbers[counts * absent * block > reader.filter_lengths[numbers]]
        return worth


def admit_keys(source: BufferedSource, searches: Sequence[FilterSearch], hashes: KeyHashes) -> list[Mask]:
    """Per search, whether its section may hold each of its keys. Raises DamagedSstError.

    Cost: one round of reads, or two if a section has more than SAMPLED_BYTES of filters for these keys.
    """
    chosen = [search.choose_partitions() for search in searches]
    samples = [search.sample_partitions(numbers) for search, numbers in zip(searches, chosen, strict=True)]
    first = [numbers if sample is None else sample for numbers, sample in zip(chosen, samples, strict=True)]
    arenas = source.load_filters([(search.section, numbers) for search, numbers in zip(searches, first, strict=True)])
    others = []
    for search, arena, numbers, sample in zip(searches, arenas, chosen, samples, strict=True):
        if sample is not None and arena is not None:
            others.append((search.section, search.choose_others(arena, hashes, numbers)))
    if others:
        source.load_filters(others)
    return [search.admit_keys(arena, hashes) for search, arena in zip(searches, arenas, strict=True)]
