"""Measures amplification: sorted runs per read, and bytes stored and written relative to the bytes needed."""

from dataclasses import dataclass

from tussock.statestore.hummock.compaction_picker import CompactionOptions, level_bytes, level_goals
from tussock.statestore.hummock.version import SectionRef, sorted_runs
from tussock.statestore.meta.branch import first_version
from tussock.statestore.meta.delta import CompactionCommitted, EpochCommitted
from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import VersionLog


@dataclass(frozen=True, slots=True)
class LevelShape:
    """One non-empty level."""

    level: int
    ssts: int
    rows: int
    bytes: int
    goal: int | None  # size limit in bytes; None for L0, which is limited by its number of runs


@dataclass(frozen=True, slots=True)
class Amplification:
    """The three costs of a log-structured merge tree at one version."""

    levels: tuple[LevelShape, ...]
    read: int  # the most sorted runs of any table: the upper limit for any key
    # Stored bytes / bytes of the largest level below L0, which approximate the live rows. None: all rows are on L0.
    space: float | None
    flushed: int  # bytes that epochs wrote in the inspected versions
    compacted: int  # bytes that compaction rewrote in them

    @property
    def write(self) -> float | None:
        """Bytes written / bytes flushed; None if nothing was flushed."""
        return (self.flushed + self.compacted) / self.flushed if self.flushed else None


def read_amplification(version: HummockVersion) -> int:
    """The number of sorted runs of the table with the most. Cost: O(sections log sections), no I/O."""
    tables: dict[int, list[SectionRef]] = {}
    for level, ssts in enumerate(version.levels):
        for sst in ssts:
            for section in sst.sections:
                tables.setdefault(section.table_id, []).append(SectionRef(level, sst, section))
    return max((len(sorted_runs(sections)) for sections in tables.values()), default=0)


def space_amplification(version: HummockVersion) -> float | None:
    """Stored bytes / bytes of the largest level below L0, which holds each row once. None if all rows are on L0."""
    sizes = level_bytes(version)
    largest = max(sizes[1:])
    return sum(sizes) / largest if largest else None


_LAST_VERSIONS = 1_000


def written_bytes(meta: MetaStore, last_versions: int) -> tuple[int, int]:
    """(bytes that epochs flushed, bytes that compaction wrote) in the newest versions. Cost: one GET per version."""
    log = VersionLog(meta.objects, meta.writer, lambda: first_version(meta.objects, meta.settings))
    newest = log.read_latest().id
    flushed = compacted = 0
    for delta in log.read_deltas(max(1, newest - last_versions + 1), newest):
        match delta.change:
            case EpochCommitted(ssts=ssts):
                flushed += sum(sst.size for sst in ssts)
            # Outputs include SSTs that stayed unchanged, which cost nothing.
            case CompactionCommitted(task_id, outputs):
                compacted += sum(sst.size for sst in outputs if sst.name.startswith(task_prefix(task_id)))
    return flushed, compacted


def measure_amplification(meta: MetaStore) -> Amplification:
    """Measure the costs at the newest version."""
    version = meta.read_latest()
    _, goals = level_goals(version, CompactionOptions())
    levels = tuple(
        LevelShape(
            level, len(ssts), sum(s.rows for s in ssts), sum(s.size for s in ssts), goals[level] if level else None
        )
        for level, ssts in enumerate(version.levels)
        if ssts
    )
    return Amplification(
        levels, read_amplification(version), space_amplification(version), *written_bytes(meta, _LAST_VERSIONS)
    )
