"""Scrub: reads the whole store and reports damaged or missing objects, the affected keys, and the readable rest.

Each SST of the newest version or of a pinned one is read completely. The scrub checks the hash in its name, the
checksums of footer, filters and blocks, the rows of each block, and the facts in the version. If bytes are wrong, it
finds the affected blocks, so that the loss is a range of keys and not an object.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import xxhash

from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.hummock.errors import DamagedSstError, show_key
from tussock.statestore.hummock.in_use import is_needed
from tussock.statestore.hummock.sst_format import require_crc
from tussock.statestore.hummock.sst_reader import SectionReader, SstReader
from tussock.statestore.meta.log_check import DamagedObject, check_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.progress import Progress, no_progress

_DECODED = 64  # blocks decoded per step


@dataclass(frozen=True, slots=True)
class LostRange:
    """Keys of a table that are unreadable if a read needs this SST. Storage keys, inclusive."""

    table_id: int
    first_key: bytes
    last_key: bytes
    rows: int  # rows of these keys in the SST, at most
    detail: str

    def __str__(self) -> str:
        return (
            f"table {self.table_id}, keys {show_key(self.first_key)} to {show_key(self.last_key)} ({self.rows} rows): "
            f"{self.detail}"
        )


@dataclass(frozen=True, slots=True)
class DamagedSst:
    """One damaged or missing SST."""

    name: str
    level: int
    missing: bool
    lost: tuple[LostRange, ...]  # reads of these keys raise an error; all other keys are readable


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """The result of a scrub."""

    version: HummockVersion | None  # the newest readable version
    meta: tuple[DamagedObject, ...]
    ssts: tuple[DamagedSst, ...]
    objects: int
    bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether the store is undamaged."""
        return not self.meta and not self.ssts

    def hurt_tables(self) -> dict[int, tuple[LostRange, ...]]:
        """The unreadable keys by table. All other tables are undamaged."""
        hurt: dict[int, list[LostRange]] = {}
        for sst in self.ssts:
            for lost in sst.lost:
                hurt.setdefault(lost.table_id, []).append(lost)
        return {
            table_id: tuple(sorted(ranges, key=lambda lost: lost.first_key))
            for table_id, ranges in sorted(hurt.items())
        }


def scrub_store(objects: ObjectStore, progress: Progress = no_progress, threads: int = 2) -> ScrubReport:
    """Read the whole store and check every byte. Changes nothing.

    Args:
        progress: called with a line from time to time.
        threads: SSTs to read concurrently; each is held in memory completely.

    Epochs, compactions and vacuums may run meanwhile: an object that they removed is not damage.

    Raises: errors of the object store. Damage goes into the report.

    Cost: one GET per object, except those below data/ that no version in use names.
    """
    progress("reading meta/")
    meta = check_meta(objects, progress)
    placed = _ssts_with_level([version for version in (meta.newest, *meta.pinned) if version is not None])
    total = sum(sst.size for _, sst in placed)
    damaged, done, reported = [], 0, 0
    with ThreadPoolExecutor(threads) as pool:
        for (level, sst), damage in zip(
            placed, _in_order(pool, threads, objects, [sst for _, sst in placed]), strict=True
        ):
            if damage is not None:
                damaged.append(DamagedSst(sst.name, level, damage.missing, damage.lost))
            done += sst.size
            if done - reported > 256 << 20 or done == total:
                progress(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB of SSTs read, {len(damaged)} damaged")
                reported = done
    missing = {d.name for d in meta.damages if d.missing} | {sst.name for sst in damaged if sst.missing}
    lost = _still_lost(objects, missing)
    return ScrubReport(
        meta.newest,
        tuple(d for d in meta.damages if not d.missing or d.name in lost),
        tuple(d for d in damaged if not d.missing or d.name in lost),
        meta.objects + len(placed),
        meta.bytes + total,
    )


def _still_lost(objects: ObjectStore, missing: set[str]) -> set[str]:
    """Those of the missing objects that the store still needs; all of them if its newest version is unreadable."""
    meta = MetaStore(objects, "scrub", lambda: 0)  # writes nothing
    try:
        return {name for name in missing if is_needed(meta, name)}
    except (DamagedError, InputError):
        return missing


def check_sst(objects: ObjectStore, info: SstInfo) -> tuple[LostRange, ...]:
    """The unreadable ranges of an SST; empty if it is intact. Raises ObjectNotFoundError. Memory: the whole object."""
    data = memoryview(objects.get(info.name))
    try:
        if len(data) != info.size:
            raise DamagedSstError(info.name, "its end", f"{len(data)} bytes", f"{info.size} bytes")
        reader = SstReader(info, bytes(data[-info.footer_size :]))
    except DamagedSstError as err:
        return _whole_of(info, str(err))
    lost: list[LostRange] = []
    if reader.table_ids != [section.table_id for section in info.sections]:
        return _whole_of(
            info, f"it holds tables {reader.table_ids}, but its version lists others: it is a different SST"
        )
    for section in info.sections:
        lost += _check_section(reader.open_section(section.table_id), section, data)
    if not lost and not info.name.endswith(f"/{xxhash.xxh3_128_hexdigest(data)}.sst"):
        # The changed bytes are ones that reads ignore, such as the schema message of a section, which the footer
        # repeats.
        return _whole_of(
            info, "its bytes do not match the hash in its name, but every block is intact: rows are readable"
        )
    return tuple(lost)


def _check_section(reader: SectionReader, info: SectionInfo, data: memoryview) -> Iterator[LostRange]:
    rows, first, last = int(reader.rows.sum()), reader.first_keys.array[0].as_py(), reader.last_keys.array[-1].as_py()
    if (rows, first, last) != (info.rows, info.first_key, info.last_key):
        yield LostRange(
            info.table_id,
            info.first_key,
            info.last_key,
            info.rows,
            f"its index lists {rows} rows, its version {info.rows}",
        )
        return
    for start in range(0, len(reader), _DECODED):
        end = min(start + _DECODED, len(reader))
        try:
            reader.decode_blocks(
                start, end, data[int(reader.offsets[start]) : int(reader.offsets[end - 1] + reader.lengths[end - 1])]
            )
        except DamagedSstError:
            yield from _damaged_blocks(reader, start, end, data)
    for partition, (offset, length, crc) in enumerate(
        zip(reader.filter_offsets.tolist(), reader.filter_lengths.tolist(), reader.filter_crcs.tolist(), strict=True)
    ):
        try:
            require_crc(reader.name, f"filter {partition}", data[offset : offset + length], crc)
        except DamagedSstError as err:
            detail = f"filter {partition} ({err.finding}, expected {err.expected}): look-ups by key fail, scans do not"
            yield LostRange(info.table_id, info.first_key, info.last_key, info.rows, detail)


def _damaged_blocks(reader: SectionReader, start: int, end: int, data: memoryview) -> Iterator[LostRange]:
    """Find the blocks among start … end - 1 that do not decode."""
    for block in range(start, end):
        offset, length = int(reader.offsets[block]), int(reader.lengths[block])
        try:
            reader.decode_blocks(block, block + 1, data[offset : offset + length])
        except DamagedSstError as err:
            low, high = reader.first_keys.array[block].as_py(), reader.last_keys.array[block].as_py()
            detail = f"block {block}, bytes {offset} to {offset + length}: found {err.finding}, expected {err.expected}"
            yield LostRange(reader.table_id, low, high, int(reader.rows[block]), detail)


def _whole_of(info: SstInfo, detail: str) -> tuple[LostRange, ...]:
    return tuple(LostRange(s.table_id, s.first_key, s.last_key, s.rows, detail) for s in info.sections)


@dataclass(frozen=True, slots=True)
class _Found:
    missing: bool
    lost: tuple[LostRange, ...]


def _judge_sst(objects: ObjectStore, info: SstInfo) -> _Found | None:
    try:
        lost = check_sst(objects, info)
    except ObjectNotFoundError:
        return _Found(True, _whole_of(info, "the object is missing"))
    return _Found(False, lost) if lost else None


def _in_order(
    pool: ThreadPoolExecutor, ahead: int, objects: ObjectStore, ssts: list[SstInfo]
) -> Iterator[_Found | None]:
    """Check results in order. At most `ahead` SSTs are in memory."""
    for start in range(0, len(ssts), ahead):
        yield from pool.map(lambda sst: _judge_sst(objects, sst), ssts[start : start + ahead])


def _ssts_with_level(versions: list[HummockVersion]) -> list[tuple[int, SstInfo]]:
    """Each SST of the versions once, with its level."""
    placed = {
        sst.name: (level, sst) for version in versions for level, ssts in enumerate(version.levels) for sst in ssts
    }
    return list(placed.values())
