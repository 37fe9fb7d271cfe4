"""Where decoded blocks come from: the cache of the process, bytes that came with a footer, else one parallel fetch per call.

Blocks are 512 to 1,024 rows so that a random read fetches little. A call that needs many of them would pay Python's overhead for each;
so where it needs at least a quarter of a partition's 64 blocks, the partition is read, decoded and cached as one.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from statestore.hummock.cache import BlockCache
from statestore.hummock.errors import DamagedSstError, MissingSstError
from statestore.hummock.sorted_keys import Positions
from statestore.hummock.sst_format import require_crc
from statestore.hummock.sst_reader import FilterArena, Rows, SectionReader, SstReader
from statestore.meta.version import SstInfo
from statestore.objectstore.base import ObjectNotFoundError, ObjectStore, ShortReadError

_DENSE = 4  # a partition is read whole from one needed block in this many on
_THREADS = 8  # objects fetched at once; ranges of one object are the object store's own business


@dataclass(frozen=True, slots=True)
class OpenSection:
    """A section ready to be read."""

    sst: SstReader
    reader: SectionReader

    @property
    def per_partition(self) -> int:
        """Blocks of a filter partition."""
        return self.sst.tail.blocks_per_partition


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """Blocks a call needs from one section: ascending, each once."""

    section: OpenSection
    blocks: Positions


@dataclass(frozen=True, slots=True)
class _Span:
    """Consecutive blocks to be read, decoded and cached as one."""

    request: int
    first: int
    end: int


class BlockSource:
    """Reads indexes, filters and blocks of SSTs of one object store, through a cache."""

    def __init__(self, objects: ObjectStore, cache: BlockCache) -> None:
        self.objects, self.cache = objects, cache

    def open(self, ssts: Sequence[SstInfo]) -> list[SstReader]:
        """Open SSTs; those not in the cache are fetched in parallel, one range read each. Raises DamagedSstError."""
        found = {sst.name: self.cache.get((self.objects.uri, sst.name), SstReader) for sst in ssts}
        missing = {sst.name: sst for sst in ssts if found[sst.name] is None}
        ranges = {name: [(sst.size - sst.footer_size, sst.footer_size)] for name, sst in missing.items()}
        for name, (footer,) in self._fetch(ranges).items():
            opened = SstReader(missing[name], footer)
            self.cache.put((self.objects.uri, name), opened)
            found[name] = opened
        return [reader for sst in ssts if (reader := found[sst.name]) is not None]

    def filters(self, requests: Sequence[tuple[OpenSection, Positions]]) -> list[FilterArena]:
        """Filters of the sections; of each, the partitions asked for (numbers, ascending) are loaded. Raises DamagedSstError."""
        arenas: list[FilterArena] = []
        wanted: dict[str, list[tuple[int, int]]] = {}
        loads: list[tuple[int, int, memoryview | None]] = []  # request, partition, its bytes if they are here
        for number, (section, partitions) in enumerate(requests):
            reader = section.reader
            arena = self.cache.get_or_load(self._key(section, -1, -1), FilterArena, lambda reader=reader: _empty_arena(reader))  # type: ignore[misc]
            arenas.append(arena)
            for partition in partitions[~arena.loaded[partitions]].tolist():
                offset, length = int(reader.filter_offsets[partition]), int(reader.filter_lengths[partition])
                held = section.sst.held(offset, length)
                if held is None:
                    wanted.setdefault(reader.name, []).append((offset, length))
                loads.append((number, partition, held))
        fetched = {name: iter(parts) for name, parts in self._fetch(wanted).items()}
        for number, partition, held in loads:
            reader, arena = requests[number][0].reader, arenas[number]
            data = held if held is not None else next(fetched[reader.name])
            require_crc(reader.name, f"filter {partition} of table {reader.table_id}", data, int(reader.filter_crcs[partition]))
            start = int(reader.filter_starts[partition])
            arena.data[start : start + len(data)] = np.frombuffer(data, np.uint8)
            arena.loaded[partition] = True
        return arenas

    def blocks(self, requests: Sequence[BlockRequest]) -> list[list[Rows]]:
        """Decoded blocks of each request, ascending, all blocks asked for among them. Raises DamagedSstError.

        Cost: nothing but lookups where all is cached, else one round of range reads for all requests together.
        """
        answers: list[dict[int, Rows]] = [{} for _ in requests]
        missing: list[_Span] = []
        for number, request in enumerate(requests):
            for first, end in _spans(request, self._cached_partitions(request)):
                rows = self.cache.get(self._key(request.section, first, end), Rows)
                if rows is None:
                    missing.append(_Span(number, first, end))
                else:
                    answers[number][first] = rows
        for span, data in zip(missing, self._bytes_of(requests, missing), strict=True):
            section = requests[span.request].section
            rows = section.reader.decode(span.first, span.end, data)
            self.cache.put(self._key(section, span.first, span.end), rows)
            answers[span.request][span.first] = rows
        return [[answer[first] for first in sorted(answer)] for answer in answers]

    def scan(self, section: OpenSection, first: int, end: int, columns: Sequence[str] | None) -> Rows:
        """Blocks first … end - 1 as one, past the cache: a scan must not push out what point reads keep warm."""
        (data,) = self._bytes_of([BlockRequest(section, np.arange(first, end))], [_Span(0, first, end)])
        return section.reader.decode(first, end, data, columns)

    def _bytes_of(self, requests: Sequence[BlockRequest], spans: Sequence[_Span]) -> list[bytes | memoryview]:
        wanted: dict[str, list[tuple[int, int]]] = {}
        here: list[memoryview | None] = []
        for span in spans:
            section = requests[span.request].section
            reader = section.reader
            offset = int(reader.offsets[span.first])
            length = int(reader.offsets[span.end - 1] + reader.lengths[span.end - 1]) - offset
            here.append(section.sst.held(offset, length))
            if here[-1] is None:
                wanted.setdefault(reader.name, []).append((offset, length))
        fetched = {name: iter(parts) for name, parts in self._fetch(wanted).items()}
        return [
            data if data is not None else next(fetched[requests[span.request].section.reader.name])
            for span, data in zip(spans, here, strict=True)
        ]

    def _fetch(self, ranges: dict[str, list[tuple[int, int]]]) -> dict[str, list[bytes]]:
        if len(ranges) <= 1:
            return {name: self._get_ranges(name, parts) for name, parts in ranges.items()}
        with ThreadPoolExecutor(min(_THREADS, len(ranges))) as pool:
            return dict(zip(ranges, pool.map(self._get_ranges, ranges.keys(), ranges.values()), strict=True))

    def _get_ranges(self, name: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        try:
            return self.objects.get_ranges(name, ranges)
        except ObjectNotFoundError as error:
            raise MissingSstError(self.objects.uri, name) from error
        except ShortReadError as error:
            place = f"bytes {error.offset} to {error.offset + error.length}"
            raise DamagedSstError(name, place, f"{error.found} bytes", f"{error.length} bytes") from error

    def _cached_partitions(self, request: BlockRequest) -> Positions:
        partitions = np.unique(request.blocks // request.section.per_partition)
        cached = [
            partition
            for partition in partitions.tolist()
            if self.cache.holds(self._key(request.section, *_partition_span(request.section, partition)))
        ]
        return np.array(cached, np.int64)

    def _key(self, section: OpenSection, first: int, end: int) -> tuple[str, str, int, int, int]:
        return self.objects.uri, section.reader.name, section.reader.table_id, first, end


def _partition_span(section: OpenSection, partition: int) -> tuple[int, int]:
    return partition * section.per_partition, min((partition + 1) * section.per_partition, len(section.reader))


def _spans(request: BlockRequest, cached: Positions) -> Iterable[tuple[int, int]]:
    """How to read a request's blocks: whole partitions where they are cached or much of them is needed, else single blocks."""
    section = request.section
    partitions, starts, needed = np.unique(request.blocks // section.per_partition, return_index=True, return_counts=True)
    sizes = np.minimum((partitions + 1) * section.per_partition, len(section.reader)) - partitions * section.per_partition
    whole = (needed * _DENSE >= sizes) | np.isin(partitions, cached)
    for partition, start, number, dense in zip(partitions.tolist(), starts.tolist(), needed.tolist(), whole.tolist(), strict=True):
        if dense:
            yield _partition_span(section, partition)
        else:
            for block in request.blocks[start : start + number].tolist():
                yield block, block + 1


def _empty_arena(reader: SectionReader) -> FilterArena:
    return FilterArena(np.zeros(int(reader.filter_lengths.sum()), np.uint8), np.zeros(len(reader.filter_lengths), np.bool_))
