"""Supplies decoded blocks: from the process's cache, from bytes read with a footer, or from one fetch per call.

range_reader.py serves the fetch from the host's disk cache or the bucket.

Blocks have at most 1,024 rows, so that a random read fetches little. A call that needs many blocks would pay Python's
overhead for each, and so would each later call. If a call needs at least half of a partition's 64 blocks, or a quarter
of a small partition's blocks, the partition is read, decoded and cached as one.
"""

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import compress, groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.disk_cache import disk_cache_for
from tussock.statestore.hummock.errors import DamagedSstError
from tussock.statestore.hummock.packed_blocks import PackedBlock
from tussock.statestore.hummock.range_reader import Range, RangeReader
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.hummock.sst_format import BLOCKS_PER_PARTITION, require_crc
from tussock.statestore.hummock.sst_reader import (
    FilterArena,
    Rows,
    SectionReader,
    SstReader,
    StoredBlock,
    decode_stored,
)
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore

# Read a partition whole if at least one in this many blocks is needed. Higher values fill the cache with unneeded
# blocks. Those of a small partition cost less than the overhead and requests for single blocks.
_DENSE, _DENSE_IF_SMALL = 2, 4
_SMALL_BYTES = 2 << 20  # of an encoded partition
_MOST_BYTES = 32 << 20  # a partition with more encoded bytes has very wide rows, and is never read whole
_RUN_BYTES = 8 << 20  # limit of neighbouring blocks per range request
_WAVE_BYTES = 16 << 20  # encoded blocks per fetch, if a call needs more
_WAVES_AT_ONCE = 2

_HUGE_PAGE = 2 << 20  # bytes
_WORTH_PACKING = 8  # single blocks of a call; a search in packed blocks takes 0.2 ms, however few they are


class ReadMode(Enum):
    """How a call reads blocks."""

    DENSE = auto()  # whole partitions, if they are largely needed
    SINGLE = auto()  # few rows of each of many blocks: no partition whole
    PASSING = auto()  # the same, and so many that they would evict all others: single blocks are not cached


T = TypeVar("T")
Bytes = bytes | memoryview
Unit = Rows | PackedBlock  # decoded blocks, or a single block
_Cached = Unit | StoredBlock
_CACHED: Any = _Cached


@dataclass(frozen=True, slots=True)
class OpenSection:
    """An opened section."""

    sst: SstReader
    reader: SectionReader

    @property
    def per_partition(self) -> int:
        """Blocks per filter partition."""
        return self.sst.tail.blocks_per_partition


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """Blocks that a call needs from one section: ascending, distinct."""

    section: OpenSection
    blocks: Positions


class _Span(NamedTuple):
    """Consecutive blocks to read, decode and cache as one. Cheap to create, since a call may have thousands."""

    request: int
    first: int
    end: int
    offset: int  # in the object
    length: int


class _FilterLoad(NamedTuple):
    """Filter partitions first … end - 1 of a section, which are read as one."""

    section: OpenSection
    arena: FilterArena
    first: int
    end: int

    @property
    def range(self) -> Range:
        """Their range in the object."""
        reader = self.section.reader
        return int(reader.filter_offsets[self.first]), int(reader.filter_lengths[self.first : self.end].sum())


class _Run(NamedTuple):
    """Spans of one section that are adjacent in its object."""

    spans: list[_Span]
    range: Range


class BlockSource:
    """Reads indexes, filters and blocks of SSTs in one object store, through a cache."""

    def __init__(self, objects: ObjectStore, cache: BlockCache, ranges: RangeReader | None = None) -> None:
        """`ranges` reads bytes of `objects`. Default: through the host's disk cache if the store is remote."""
        self.objects, self.cache = objects, cache
        self.ranges = RangeReader(objects, disk_cache_for(objects)) if ranges is None else ranges

    def open_ssts(self, ssts: Sequence[SstInfo]) -> list[SstReader]:
        """Open SSTs. Fetches uncached footers in parallel, one range read each. Raises DamagedSstError."""
        reader_by_name = {sst.name: self.cache.get((self.objects.uri, sst.name), SstReader) for sst in ssts}
        missing = list({sst.name: sst for sst in ssts if reader_by_name[sst.name] is None}.values())
        footers = self.ranges.fetch_ranges([(sst, [_footer_range(sst)]) for sst in missing])
        for sst, (footer,) in zip(missing, footers, strict=True):
            opened = self._read_with_retry(sst, _footer_range(sst), footer, partial(SstReader, sst))
            self.cache.put((self.objects.uri, sst.name), opened)
            reader_by_name[sst.name] = opened
        return [reader for sst in ssts if (reader := reader_by_name[sst.name]) is not None]

    def load_filters(self, requests: Sequence[tuple[OpenSection, Positions]]) -> list[FilterArena | None]:
        """Filters of the sections, with the requested partitions (ascending numbers) loaded. Raises DamagedSstError.

        None: no partition was requested or is loaded.

        Cost: an array of all partitions, instead of a copy of each, if a section needs most of its filters.
        """
        arenas: list[FilterArena | None] = []
        loads: list[_FilterLoad] = []
        for section, partitions in requests:
            reader, key = section.reader, (*self._section_key(section), -1, -1)
            if not len(partitions):
                arenas.append(self.cache.get(key, FilterArena))
                continue
            arena = self.cache.get_or_load(
                key,
                FilterArena,
                lambda reader=reader: _empty_arena(reader),  # type: ignore[misc]
            )
            arenas.append(arena)
            missing = partitions[~arena.loaded[partitions]].tolist()
            if 2 * len(missing) > len(arena.loaded) and not arena.loaded.any():
                loads.append(_FilterLoad(section, arena, 0, len(arena.loaded)))
            else:
                loads += [_FilterLoad(section, arena, partition, partition + 1) for partition in missing]
        wanted = [(load.section.sst, load.range) for load in loads]
        for load, (sst, part), data in zip(loads, wanted, self._fetch_ranges(wanted), strict=True):
            bits = self._read_with_retry(sst.info, part, data, partial(_filter_bits, load))
            load.arena.keep_bits(load.section.reader, load.first, load.end, bits)
        return arenas

    def read_blocks(self, requests: Sequence[BlockRequest]) -> list[list[Rows]]:
        """Decoded blocks of each request, ascending; may include unrequested neighbours. Raises DamagedSstError.

        Cost: look-ups if all blocks are cached, else one round of range reads for all requests, or one per 16 MB.
        """
        return [
            [self.decode_block(request.section, unit) if isinstance(unit, PackedBlock) else unit for unit in units]
            for request, units in zip(requests, self.read_units(requests, 0), strict=True)
        ]

    def read_units(
        self, requests: Sequence[BlockRequest], until: int, mode: ReadMode = ReadMode.DENSE
    ) -> list[list[Unit]]:
        """Like `read_blocks`, but single blocks without a row after the epoch `until` may be packed.

        Single blocks with texts or nested columns are cached as they are stored, and decoded together.

        Cost: a fifth of `read_blocks` for each block that is read and packed.
        """
        answers: list[dict[int, _Cached]] = [{} for _ in requests]
        missing: list[_Span] = []
        keys = [self._section_key(request.section) for request in requests]
        for number, (request, answer, section) in enumerate(zip(requests, answers, keys, strict=True)):
            alone = mode is not ReadMode.DENSE
            spans = list(_spans_of(number, request, partial(self._is_span_cached, section), alone))
            units = self.cache.get_each([(*section, first, end) for _, first, end, _, _ in spans], _CACHED)
            latest = request.section.reader.max_epochs
            for span, unit in zip(spans, units, strict=True):
                if unit is None:
                    missing.append(span)
                elif isinstance(unit, PackedBlock) and latest[span.first] > until:
                    answer[span.first] = self.decode_block(request.section, unit)
                else:
                    answer[span.first] = unit
        single = sum([end == first + 1 for _, first, end, _, _ in missing])
        for part in self._read_spans(requests, missing, until if single >= _WORTH_PACKING else 0):
            self.cache.put_each(
                [
                    ((*keys[number], first, end), unit)
                    for (number, first, end, _, _), unit in part
                    if mode is not ReadMode.PASSING or isinstance(unit, Rows)
                ]
            )
            for span, unit in part:
                answers[span.request][span.first] = unit
        return _decode_stored(requests, [[answer[first] for first in sorted(answer)] for answer in answers])

    def decode_block(self, section: OpenSection, block: PackedBlock) -> Rows:
        """Decode a block of a section, which replaces the packed one in the cache. Raises DamagedSstError."""
        rows = section.reader.unpack_block(block)
        self.cache.put((*self._section_key(section), block.first_block, block.end_block), rows)
        return rows

    def _is_span_cached(self, section: tuple[str, str, int, str], first: int, end: int) -> bool:
        """Whether blocks first … end - 1 of a section are cached as one."""
        return self.cache.has_key((*section, first, end))

    def scan_blocks(self, section: OpenSection, first: int, end: int, columns: Sequence[str] | None) -> Rows:
        """Read blocks first … end - 1 as one.

        Bypasses the caches: a scan must not evict data that point reads need.
        """
        part = _bytes_of(section, first, end)
        (data,) = self._fetch_ranges([(section.sst, part)], keep=False)
        return self._read_with_retry(
            section.sst.info, part, data, lambda data: section.reader.decode_blocks(first, end, data, columns)
        )

    def _read_spans(
        self, requests: Sequence[BlockRequest], spans: Sequence[_Span], until: int
    ) -> Iterator[list[tuple[_Span, _Cached]]]:
        """Decode spans, or pack them if they are single blocks without a row after the epoch `until`.

        Large reads proceed in waves, two at a time. One wave is fetched while another is decoded, and memory holds the
        encoded form of at most two.
        """
        waves = list(_group_waves(spans))
        if len(waves) <= 1:
            for wave in waves:
                yield self._read_wave(requests, until, wave)
            return
        with ThreadPoolExecutor(_WAVES_AT_ONCE) as pool:
            yield from pool.map(partial(self._read_wave, requests, until), waves)

    def _read_wave(
        self, requests: Sequence[BlockRequest], until: int, runs: Sequence[_Run]
    ) -> list[tuple[_Span, _Cached]]:
        """Decode the spans of some runs. A run is fetched as one range and not copied: spans are views of it."""
        decoded: list[tuple[_Span, _Cached]] = []
        single: list[tuple[_Span, memoryview]] = []
        fetched = self._fetch_ranges([(requests[run.spans[0].request].section.sst, run.range) for run in runs])
        for (spans, (start, _)), data in zip(runs, fetched, strict=True):
            view = memoryview(data)
            for span in spans:
                part = view[span.offset - start : span.offset - start + span.length]
                section = requests[span.request].section
                if span.end == span.first + 1 and (len(section.reader) > 1 or section.reader.can_pack):
                    single.append((span, part))
                else:
                    decoded.append((span, self._decode_span(section, span, part)))
        for request, same in groupby(single, lambda one: one[0].request):
            blocks = list(same)
            section = requests[request].section
            if not section.reader.can_pack:
                decoded += self._stored_each(section, blocks)
                continue
            if until:
                late = section.reader.max_epochs[[span.first for span, _ in blocks]] > until
                if late.any():
                    early, blocks = list(compress(blocks, ~late)), list(compress(blocks, late))
                else:
                    early, blocks = blocks, []
                decoded += self._packed_each(section, early)
            for low in range(0, len(blocks), BLOCKS_PER_PARTITION):
                decoded += self._decoded_each(section, blocks[low : low + BLOCKS_PER_PARTITION])
        return decoded

    def _decode_span(self, section: OpenSection, span: _Span, part: memoryview) -> Rows:
        read = partial(section.reader.decode_blocks, span.first, span.end)
        return self._read_with_retry(section.sst.info, (span.offset, span.length), part, read)

    def _decoded_each(
        self, section: OpenSection, single: Sequence[tuple[_Span, memoryview]]
    ) -> Iterator[tuple[_Span, Rows]]:
        """Decode single blocks of a section together, or one by one if any is damaged."""
        try:
            rows = section.reader.decode_each([span.first for span, _ in single], [part for _, part in single])
        except DamagedSstError:
            rows = [self._decode_span(section, span, part) for span, part in single]
        return zip((span for span, _ in single), rows, strict=True)

    def _packed_each(
        self, section: OpenSection, single: Sequence[tuple[_Span, memoryview]]
    ) -> Iterator[tuple[_Span, PackedBlock]]:
        """Pack single blocks of a section."""
        try:
            blocks = section.reader.pack_each([span.first for span, _ in single], [part for _, part in single])
        except DamagedSstError:
            blocks = [self._pack_span(section, span, part) for span, part in single]
        return zip((span for span, _ in single), blocks, strict=True)

    def _stored_each(
        self, section: OpenSection, single: Sequence[tuple[_Span, memoryview]]
    ) -> Iterator[tuple[_Span, StoredBlock]]:
        """Verify single blocks of a section."""
        try:
            blocks = section.reader.store_each([span.first for span, _ in single], [part for _, part in single])
        except DamagedSstError:
            blocks = [self._store_span(section, span, part) for span, part in single]
        return zip((span for span, _ in single), blocks, strict=True)

    def _store_span(self, section: OpenSection, span: _Span, part: memoryview) -> StoredBlock:
        def store_bytes(data: Bytes) -> StoredBlock:
            return section.reader.store_each([span.first], [memoryview(data)])[0]

        return self._read_with_retry(section.sst.info, (span.offset, span.length), part, store_bytes)

    def _pack_span(self, section: OpenSection, span: _Span, part: memoryview) -> PackedBlock:
        def pack_bytes(data: Bytes) -> PackedBlock:
            return section.reader.pack_each([span.first], [memoryview(data)])[0]

        return self._read_with_retry(section.sst.info, (span.offset, span.length), part, pack_bytes)

    def _fetch_ranges(self, wanted: Sequence[tuple[SstReader, Range]], keep: bool = True) -> list[Bytes]:
        """The bytes of each range: those read with the footer, and all others in one round."""
        held_parts: list[Bytes | None] = [sst.held_bytes(*part) for sst, part in wanted]
        by_sst: dict[str, tuple[SstInfo, list[Range]]] = {}
        for (sst, part), here in zip(wanted, held_parts, strict=True):
            if here is None:
                by_sst.setdefault(sst.name, (sst.info, []))[1].append(part)
        fetched = {
            name: iter(parts)
            for name, parts in zip(by_sst, self.ranges.fetch_ranges(list(by_sst.values()), keep), strict=True)
        }
        return [
            here if here is not None else next(fetched[sst.name])
            for (sst, _), here in zip(wanted, held_parts, strict=True)
        ]

    def _read_with_retry(self, sst: SstInfo, part: Range, data: Bytes, read: Callable[[Bytes], T]) -> T:
        """Apply `read` to the bytes.

        If they are damaged and came from a disk cache, retry with the bucket's bytes.
        """
        try:
            return read(data)
        except DamagedSstError:
            if (again := self.ranges.fetch_again(sst, part)) is None:
                raise
            return read(again)

    def _section_key(self, section: OpenSection) -> tuple[str, str, int, str]:
        """The common part of this section's cache keys, for the shape in which it is read."""
        shape = section.reader.shape
        return self.objects.uri, section.reader.name, section.reader.table_id, "" if shape is None else shape.digest


def _decode_stored(requests: Sequence[BlockRequest], units_by_request: Sequence[Sequence[_Cached]]) -> list[list[Unit]]:
    """The units of each request, with stored blocks decoded: neighbours as one, those of several sections together."""
    answers = list[list[Unit]]()
    stored_runs = list[_StoredRun]()
    for request, units in zip(requests, units_by_request, strict=True):
        answer: list[Any] = []
        for is_stored, same in groupby(units, lambda unit: isinstance(unit, StoredBlock)):
            if not is_stored:
                answer += same
                continue
            blocks: list[Any] = list(same)
            for low in range(0, len(blocks), BLOCKS_PER_PARTITION):
                stored_runs.append(
                    _StoredRun(request.section.reader, blocks[low : low + BLOCKS_PER_PARTITION], answer, len(answer))
                )
                answer.append(None)
        answers.append(answer)
    for together in _group_alike(stored_runs):
        for run, rows in zip(together, decode_stored([(run.reader, run.blocks) for run in together]), strict=True):
            run.answer[run.place] = rows
    return answers


class _StoredRun(NamedTuple):
    """Neighbouring stored blocks of a request, and the place of their rows in its answer."""

    reader: SectionReader
    blocks: list[StoredBlock]
    answer: list[Any]
    place: int


def _group_alike(runs: Sequence[_StoredRun]) -> Iterator[list[_StoredRun]]:
    """Consecutive runs of one layout with at most BLOCKS_PER_PARTITION blocks, which are decoded together."""
    together, count = list[_StoredRun](), 0
    for run in runs:
        if together and (
            run.reader.schema_message != together[0].reader.schema_message
            or count + len(run.blocks) > BLOCKS_PER_PARTITION
        ):
            yield together
            together, count = [], 0
        together.append(run)
        count += len(run.blocks)
    if together:
        yield together


def _spans_of(
    number: int, request: BlockRequest, is_cached: Callable[[int, int], bool], alone: bool = False
) -> Iterable[_Span]:
    """Spans for a request's blocks: whole partitions if they are cached or largely needed, else single blocks.

    `alone`: single blocks even if they are largely needed.

    Cost: some microseconds, since small epochs request one block of many sections.
    """
    blocks, section, reader = request.blocks, request.section, request.section.reader
    if not len(blocks):
        return []
    if len(reader) <= section.per_partition:
        return _spans_of_one_partition(number, blocks, reader, is_cached, alone)
    partitions = blocks // section.per_partition
    starts = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1  # of each partition but the first, in `read_blocks`
    firsts = partitions[[0, *starts]] * section.per_partition
    ends = np.minimum(firsts + section.per_partition, len(reader))
    needed = np.array([*starts, len(blocks)]) - [0, *starts]
    bounds = zip(firsts.tolist(), ends.tolist(), strict=True)
    whole = np.array([is_cached(*span) for span in bounds])
    if not alone:
        encoded = _encoded_bytes(reader, firsts, ends)
        dense = np.where(encoded <= _SMALL_BYTES, _DENSE_IF_SMALL, _DENSE)
        whole |= (needed * dense >= ends - firsts) & (encoded <= _MOST_BYTES)
    if whole.all():
        first, end = firsts, ends
    elif not whole.any():
        first, end = blocks, blocks + 1
    else:
        single = blocks[~np.repeat(whole, needed)]
        first, end = np.concatenate([firsts[whole], single]), np.concatenate([ends[whole], single + 1])
        order = np.argsort(first)
        first, end = first[order], end[order]
    offset, length = reader.offsets[first], _encoded_bytes(reader, first, end)
    columns = (column.tolist() for column in (first, end, offset, length))
    return [_Span(number, *span) for span in zip(*columns, strict=True)]


def _spans_of_one_partition(
    number: int, blocks: Positions, reader: SectionReader, is_cached: Callable[[int, int], bool], alone: bool
) -> list[_Span]:
    """`_spans_of` of a section with one partition, as most sections of small epochs.

    Cheaper, since it needs no arrays.
    """
    count, offset = len(reader), int(reader.offsets[0])
    length = int(reader.offsets[-1] + reader.lengths[-1]) - offset
    dense = _DENSE_IF_SMALL if length <= _SMALL_BYTES else _DENSE
    if (not alone and len(blocks) * dense >= count and length <= _MOST_BYTES) or is_cached(0, count):
        return [_Span(number, 0, count, offset, length)]
    places = zip(blocks.tolist(), reader.offsets[blocks].tolist(), reader.lengths[blocks].tolist(), strict=True)
    return [_Span(number, block, block + 1, offset, length) for block, offset, length in places]


def _encoded_bytes(reader: SectionReader, first: Positions, end: Positions) -> Positions:
    """The bytes of the blocks first … end - 1 of each range."""
    length: Positions = reader.offsets[end - 1] + reader.lengths[end - 1] - reader.offsets[first]
    return length


def _group_waves(spans: Sequence[_Span]) -> Iterator[list[_Run]]:
    """Group spans into runs of about _RUN_BYTES at most, and runs into waves of about _WAVE_BYTES."""
    wave: list[_Run] = []
    size = 0
    for run in _group_neighbours(spans):
        wave.append(run)
        size += run.range[1]
        if size >= _WAVE_BYTES:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


def _group_neighbours(spans: Sequence[_Span]) -> Iterator[_Run]:
    neighbours: list[_Span] = []
    size = 0
    for span in spans:
        if neighbours and (
            neighbours[-1].request != span.request
            or neighbours[-1].end != span.first
            or size + span.length > _RUN_BYTES
        ):
            yield _Run(neighbours, (neighbours[0].offset, size))
            neighbours, size = [], 0
        neighbours.append(span)
        size += span.length
    if neighbours:
        yield _Run(neighbours, (neighbours[0].offset, size))


def _footer_range(sst: SstInfo) -> Range:
    return sst.size - sst.footer_size, sst.footer_size


def _bytes_of(section: OpenSection, first: int, end: int) -> Range:
    """The range of blocks first … end - 1 in the object."""
    reader = section.reader
    offset = int(reader.offsets[first])
    return offset, int(reader.offsets[end - 1] + reader.lengths[end - 1]) - offset


def _filter_bits(load: _FilterLoad, data: Bytes) -> npt.NDArray[np.uint8]:
    """The verified bytes of some filters. Raises DamagedSstError."""
    reader, view = load.section.reader, memoryview(data)
    starts = reader.filter_starts[load.first : load.end] - reader.filter_starts[load.first]
    for number, start in enumerate(starts.tolist(), load.first):
        part = view[start : start + int(reader.filter_lengths[number])]
        require_crc(reader.name, f"filter {number} of table {reader.table_id}", part, int(reader.filter_crcs[number]))
    return np.frombuffer(data, np.uint8)


def _empty_arena(reader: SectionReader) -> FilterArena:
    size = int(reader.filter_lengths.sum())
    return FilterArena(_zeros_in_small_pages(size), np.zeros(len(reader.filter_lengths), np.bool_))


def _zeros_in_small_pages(size: int) -> npt.NDArray[np.uint8]:
    """`size` zeros whose pages have 4 KB.

    NumPy requests pages of 2 MB for 4 MB or more: the first filter in such a page would cost 2 MB of zeros.
    """
    if size < _HUGE_PAGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(size, np.uint8)
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)
