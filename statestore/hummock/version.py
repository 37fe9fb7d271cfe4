"""Pure functions that find the SSTs of a HummockVersion that may hold a table's key range, newest first."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError
from tussock.statestore.meta.levels import ssts_between
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo, VersionPart


@dataclass(frozen=True, slots=True)
class SectionRef:
    """One table's section in one SST of a version."""

    level: int
    sst: SstInfo
    section: SectionInfo


def require_readable(version: HummockVersion, epoch: int, pinned: frozenset[int] = frozenset()) -> None:
    """Raise EpochExpiredError or EpochNotCommittedError unless `version` can be read at `epoch`.

    `pinned` lists epochs that the reader has pinned: they stay readable if the floor rises above them.
    """
    if epoch < version.min_readable_epoch and epoch not in pinned:
        raise EpochExpiredError(epoch, version.min_readable_epoch)
    if epoch > version.epoch:
        raise EpochNotCommittedError(epoch, version.epoch)


def section_of(sst: SstInfo, table_id: int) -> SectionInfo | None:
    """The table's section in an SST, or None. Uses binary search, since an SST of small tables has many sections."""
    low, high = 0, len(sst.sections)
    while low < high:
        middle = (low + high) // 2
        if sst.sections[middle].table_id < table_id:
            low = middle + 1
        else:
            high = middle
    return sst.sections[low] if low < len(sst.sections) and sst.sections[low].table_id == table_id else None


def sections_at(
    version: HummockVersion,
    table_id: int,
    epoch: int | None = None,
    first: bytes | None = None,
    last: bytes | None = None,
    since: int | None = None,
) -> Iterator[SectionRef]:
    """Sections of a table that may hold rows of keys first … last (inclusive; None: unbounded), newest first.

    If two sections hold rows of one key, the earlier section holds the newer row. No I/O.

    Cost: O(SSTs of L0 + SSTs of the table) and two binary searches per level below L0.

    Args:
        epoch: only rows visible at this epoch; None: any.
        since: only rows written after this epoch; None: any.
    """
    if isinstance(version, VersionPart) and table_id not in version.tables:
        raise LookupError(
            f"table {table_id} is read on a part of version {version.id} that has the SSTs of tables "
            f"{list(version.tables)} only; expected a table of this part, because its rows would be missing"
        )
    begin, end = keys_of(table_id)
    begin, end = begin if first is None else first, end if last is None else last
    for level, ssts in enumerate(version.levels):
        for sst in ssts_between(ssts, begin, end) if level else ssts:
            if (epoch is not None and sst.min_epoch > epoch) or (since is not None and sst.max_epoch <= since):
                continue
            section = section_of(sst, table_id)
            if (
                section is not None
                and (first is None or section.last_key >= first)
                and (last is None or section.first_key <= last)
            ):
                yield SectionRef(level, sst, section)


def keys_of(table_id: int) -> tuple[bytes, bytes]:
    """Bounds of all keys of a table, inclusive."""
    begin = table_id.to_bytes(4, "big")
    return begin, begin + b"\xff\xff"  # no vnode has this number


def stored_size(version: HummockVersion, table_id: int) -> tuple[int, int]:
    """Rows and bytes of a table in all SSTs, with old versions and deletes. Cost: as `sections_at`."""
    sections = [ref.section for ref in sections_at(version, table_id)]
    return sum(section.rows for section in sections), sum(section.bytes for section in sections)


def part_of(version: HummockVersion, tables: Collection[int]) -> VersionPart:
    """The part of a version that reads of these tables need. Cost: as `sections_at` for each table."""
    wanted = tuple(sorted(tables))
    return VersionPart(
        id=version.id,
        epoch=version.epoch,
        published=version.published,
        min_readable_epoch=version.min_readable_epoch,
        log_end=version.log_end,
        levels=tuple(_with_rows_of(wanted, ssts, level) for level, ssts in enumerate(version.levels)),
        catalog=Catalog(),
        mapping=version.mapping,
        epochs=version.epochs,
        moment=version.moment,
        tables=wanted,
    )


def _with_rows_of(tables: Sequence[int], ssts: Sequence[SstInfo], level: int) -> tuple[SstInfo, ...]:
    """The SSTs of a level that have rows of these tables, in their order."""
    if level == 0:
        return tuple(sst for sst in ssts if any(section_of(sst, table) is not None for table in tables))
    chosen_ssts = (
        sst for table in tables for sst in ssts_between(ssts, *keys_of(table)) if section_of(sst, table) is not None
    )
    return tuple({sst.name: sst for sst in chosen_ssts}.values())  # tables ascend, so keys do


def sorted_runs(sections: list[SectionRef]) -> list[list[SectionRef]]:
    """Group sections into runs, newest first. In a run, keys ascend and no two sections overlap.

    Sections of one level >= 1 form a run. So do neighbours on L0 without common keys, e.g. the SSTs of one flush or one
    merge.
    """
    runs: list[list[SectionRef]] = []
    firsts: list[bytes] = []  # the first keys of the last run, ascending
    for ref in sections:
        place = bisect_left(firsts, ref.section.first_key)
        if runs and _fits_run(runs[-1], place, ref):
            runs[-1].insert(place, ref)
            firsts.insert(place, ref.section.first_key)
        else:
            runs.append([ref])
            firsts = [ref.section.first_key]
    return runs


def _fits_run(run: list[SectionRef], place: int, ref: SectionRef) -> bool:
    """Whether a section shares no key with its neighbours in a run, at `place` and before it."""
    if run[0].level != ref.level:
        return False
    before = place == 0 or run[place - 1].section.last_key < ref.section.first_key
    return ref.level > 0 or (before and (place == len(run) or ref.section.last_key < run[place].section.first_key))
