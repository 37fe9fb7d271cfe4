"""Finds the keys of a table whose rows may differ between two versions, without reading what both have in common.

An SST is named after its bytes, so equal names mean equal entries. A key whose entries all lie in SSTs of both versions
has the same row in both, if both are read at the same epoch. So its row can differ only if one of these has an entry:

    SSTs that one version lacks, up to the epoch at which the other is read
    SSTs of both, between the two epochs

A compaction on one side rewrites SSTs, but most of its blocks keep their bytes. Two blocks with the same keys, epochs,
length and checksum count as common too.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.block_source import OpenSection
from tussock.statestore.hummock.merge import READ_AHEAD_THREADS, RunCursor, merge_runs, newest_between, share_of
from tussock.statestore.hummock.sorted_keys import sort_order
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.version import SectionRef, sections_at, sorted_runs
from tussock.statestore.vnode import one_array

Mask = npt.NDArray[np.bool_]

KEYS_AT_ONCE = 65_536
_SCAN_INSTEAD = 4  # if more than one row in this many may differ, reading all rows in order is cheaper


@dataclass(frozen=True, slots=True)
class TableAt:
    """One table of a version, as of an epoch."""

    store: HummockStore
    table_id: int
    epoch: int

    def sections(self) -> dict[str, SectionRef]:
        """The sections with rows of the table up to the epoch, newest first, by SST."""
        return {ref.sst.name: ref for ref in sections_at(self.store.version, self.table_id, self.epoch)}


@dataclass(frozen=True, slots=True)
class _Part:
    """Sections of one side with the blocks to read, and the epochs (exclusive, inclusive) of their entries."""

    side: TableAt
    blocks: dict[str, tuple[OpenSection, Mask]]  # by SST
    since: int
    until: int

    @property
    def rows(self) -> int:
        """The rows of the blocks."""
        return sum(int(section.reader.rows[mask].sum()) for section, mask in self.blocks.values())


class UnsharedKeys:
    """The keys of one table whose rows may differ between two sides.

    Requires: the sides have the same table id and layout. Unrelated stores are no error; they have no SST in common.
    """

    def __init__(self, one: TableAt, other: TableAt) -> None:
        """Open the SSTs that the sides do not share. Cost: their footers."""
        sections = one.sections(), other.sections()
        low, high = sorted((one.epoch, other.epoch))
        later = one if one.epoch == high else other
        shared = {name: ref for name, ref in sections[0].items() if name in sections[1]}
        own = [
            _open_blocks(side, [ref for name, ref in refs.items() if name not in shared], 0)
            for side, refs in zip((one, other), sections, strict=True)
        ]
        _drop_equal_blocks(own[0].blocks, own[1].blocks, low)
        between = _open_blocks(later, [ref for ref in shared.values() if ref.sst.max_epoch > low], low)
        self._parts = [part for part in (*own, between) if part.rows]
        self.rows = sum(part.rows for part in self._parts)
        self._stored = sum(ref.section.rows for refs in sections for ref in refs.values())

    @property
    def are_most(self) -> bool:
        """Whether so many keys may differ that comparing all rows in key order is cheaper than looking keys up."""
        return self.rows * _SCAN_INSTEAD > self._stored

    def read(self) -> Iterator[pa.BinaryArray]:
        """The keys in ascending order, without repetition, as non-empty arrays of at most KEYS_AT_ONCE."""
        streams = [_read_keys(part) for part in self._parts]
        for keys in _merge_streams(streams):
            for start in range(0, len(keys), KEYS_AT_ONCE):
                yield keys.slice(start, KEYS_AT_ONCE)


def _open_blocks(side: TableAt, refs: Sequence[SectionRef], since: int) -> _Part:
    readers = side.store.source.stored.open_ssts([ref.sst for ref in refs])
    blocks = {}
    for ref, reader in zip(refs, readers, strict=True):
        section = OpenSection(reader, reader.open_section(side.table_id))
        index = section.reader
        mask = (index.max_epochs > np.uint64(since)) & (index.min_epochs <= np.uint64(side.epoch))
        blocks[ref.sst.name] = section, mask
    return _Part(side, blocks, since, side.epoch)


def _drop_equal_blocks(
    one: dict[str, tuple[OpenSection, Mask]], other: dict[str, tuple[OpenSection, Mask]], low: int
) -> None:
    """Clear the blocks that both sides have, and that have no entry after `low`."""
    if not one or not other:
        return
    places = {name: (mask, at) for mask, at, name in _named_blocks(one, low)}
    for mask, at, name in _named_blocks(other, low):
        if (same := places.get(name)) is not None:
            mask[at] = False
            same[0][same[1]] = False


def _named_blocks(
    sections: dict[str, tuple[OpenSection, Mask]], low: int
) -> Iterator[tuple[Mask, int, tuple[object, ...]]]:
    """The blocks without entries after `low`: the mask of their section, their place in it, and their identity."""
    for section, mask in sections.values():
        index = section.reader
        firsts, lasts = index.first_keys.array, index.last_keys.array
        for at in np.flatnonzero(mask & (index.max_epochs <= np.uint64(low))).tolist():
            counts = int(index.rows[at]), int(index.deletes[at]), int(index.lengths[at]), int(index.crcs[at])
            epochs = int(index.min_epochs[at]), int(index.max_epochs[at])
            yield mask, at, (firsts[at].as_py(), lasts[at].as_py(), *counts, *epochs, index.schema_message)


def _read_keys(part: _Part) -> Iterator[pa.BinaryArray]:
    """The keys of a part's entries in ascending order, without repetition."""
    refs = [ref for name, ref in part.side.sections().items() if name in part.blocks]
    runs = [[part.blocks[ref.sst.name][0] for ref in run] for run in sorted_runs(refs)]
    masks = {id(section): mask for section, mask in part.blocks.values()}
    share = share_of(len(runs))
    with ThreadPoolExecutor(READ_AHEAD_THREADS) as ahead:
        cursors = [
            RunCursor(part.side.store.source, run, None, None, [], ahead, lambda section: masks[id(section)], share)
            for run in runs
        ]
        for rows in merge_runs(cursors, newest_between(part.since, part.until)):
            yield one_array(rows.column(0)).cast(pa.binary())


def _merge_streams(streams: Sequence[Iterator[pa.BinaryArray]]) -> Iterator[pa.BinaryArray]:
    """Merge ascending keys of several streams, each key once."""
    if len(streams) == 1:
        yield from streams[0]
        return
    keys_by_stream = {number: keys for number, stream in enumerate(streams) if (keys := next(stream, None)) is not None}
    while keys_by_stream:
        frontier = min(keys[-1].as_py() for keys in keys_by_stream.values())
        taken = []
        for number, keys in list(keys_by_stream.items()):
            end = count_through(keys, frontier)
            taken.append(keys.slice(0, end))
            if end < len(keys):
                keys_by_stream[number] = keys.slice(end)
            elif (following := next(streams[number], None)) is not None:
                keys_by_stream[number] = following
            else:
                del keys_by_stream[number]
        merged = pc.unique(pa.concat_arrays(taken))
        if len(merged):
            yield merged.take(pa.array(sort_order(merged)))


def count_through(keys: pa.Array | pa.ChunkedArray, frontier: bytes) -> int:
    """The number of ascending keys up to and including `frontier`."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= frontier:
            low = middle + 1
        else:
            high = middle
    return low
