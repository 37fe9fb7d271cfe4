"""What the shape of a store costs: sorted runs a read looks at, bytes stored and bytes written compared with the bytes that were needed."""

from dataclasses import dataclass

from tussock.statestore.hummock.compaction_picker import CompactionOptions, level_bytes, level_goals
from tussock.statestore.hummock.version import sections_at, sorted_runs
from tussock.statestore.meta.delta import CompactionCommitted, EpochCommitted
from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.settings import initial_version
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import VersionLog


@dataclass(frozen=True, slots=True)
class LevelShape:
    """One level in use."""

    level: int
    ssts: int
    rows: int
    bytes: int
    goal: int | None  # bytes it should hold at most; None for L0, which goes by its runs


@dataclass(frozen=True, slots=True)
class Amplification:
    """The three costs of a log-structured tree, at one version."""

    levels: tuple[LevelShape, ...]
    read: int  # sorted runs that hold rows of one table: of the table with most, so of any key at most
    space: (
        float | None
    )  # stored bytes / bytes of the largest level below L0: at least what live rows are stored as; None: all is on L0
    flushed: int  # bytes that epochs wrote, over the versions looked at
    compacted: int  # bytes that compaction wrote anew there

    @property
    def write(self) -> float | None:
        """Bytes written / bytes flushed; None: nothing was flushed."""
        return (self.flushed + self.compacted) / self.flushed if self.flushed else None


def read_amplification(version: HummockVersion) -> int:
    """The most sorted runs that any table has. Cost: O(tables x SSTs), no I/O."""
    tables = {section.table_id for level in version.levels for sst in level for section in sst.sections}
    return max((len(sorted_runs(list(sections_at(version, table)))) for table in tables), default=0)


def space_amplification(version: HummockVersion) -> float | None:
    """Stored bytes over those of the largest level below L0, which holds each row once."""
    sizes = level_bytes(version)
    largest = max(sizes[1:])
    return sum(sizes) / largest if largest else None


def written_bytes(meta: MetaStore, last_versions: int) -> tuple[int, int]:
    """(bytes that epochs flushed, bytes that compaction wrote) in the newest versions of the log. Cost: one GET for each."""
    log = VersionLog(meta.objects, meta.writer, lambda: initial_version(meta.settings))
    newest = log.latest().id
    flushed = compacted = 0
    for delta in log.deltas(max(1, newest - last_versions + 1), newest):
        match delta.change:
            case EpochCommitted(ssts=ssts):
                flushed += sum(sst.size for sst in ssts)
            case CompactionCommitted(
                task_id, outputs
            ):  # SSTs that stayed as they were are among the outputs, and cost nothing
                compacted += sum(sst.size for sst in outputs if sst.name.startswith(task_prefix(task_id)))
    return flushed, compacted


def measure(meta: MetaStore, options: CompactionOptions, last_versions: int = 1_000) -> Amplification:
    """The costs at the newest version."""
    version = meta.latest()
    _, goals = level_goals(version, options)
    levels = tuple(
        LevelShape(
            level, len(ssts), sum(s.rows for s in ssts), sum(s.size for s in ssts), goals[level] if level else None
        )
        for level, ssts in enumerate(version.levels)
        if ssts
    )
    return Amplification(
        levels, read_amplification(version), space_amplification(version), *written_bytes(meta, last_versions)
    )
