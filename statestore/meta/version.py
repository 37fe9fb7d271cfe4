"""HummockVersion: everything a reader at one moment needs, as plain data. Version n+1 is version n plus a delta."""

import msgspec

from tussock.statestore.meta.catalog import Catalog


class SectionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One table's rows within an SST. Keys are full storage keys (table_id | vnode | primary key), inclusive."""

    table_id: int
    first_key: bytes
    last_key: bytes
    rows: int
    bytes: int
    dead: int = 0  # of the rows: deletes, and those with a newer row of their key here; 0 where an earlier release did not count them


class SstInfo(msgspec.Struct, frozen=True):
    """One immutable sorted object, enough to decide without opening it whether a read needs it."""

    name: str  # object name, data/<epoch or task>/<hash of its bytes>.sst
    size: int
    footer_size: int  # bytes from the end that hold footer and index: one range read opens the SST
    rows: int
    min_epoch: int
    max_epoch: int
    sections: tuple[SectionInfo, ...]  # in table_id order


class VnodeMapping(msgspec.Struct, frozen=True):
    """vnode -> parallel unit; `units[v]` is the unit of vnode v."""

    id: int
    units: tuple[int, ...]

    @property
    def unit_count(self) -> int:
        """The number of parallel units, which are numbered from 0; each owns at least one vnode."""
        return max(self.units) + 1


class KeyRange(msgspec.Struct, frozen=True):
    """Full storage keys, both ends inclusive."""

    first: bytes
    last: bytes


class LevelInput(msgspec.Struct, frozen=True):
    """SSTs that a compaction task takes from one level, by name."""

    level: int
    ssts: tuple[str, ...]


class CompactionTask(msgspec.Struct, frozen=True):
    """SSTs that one compactor merges down to level `target`. While it is open, no other task may take them or enter its keys there."""

    id: int  # allotted by meta, never reused; its objects are named data/task-<id>/…
    writer: str  # who opened it
    opened: int  # id of the version that opened it
    expires_ms: int  # Unix ms from which on others may close it: a matter of progress, not of safety
    target: int
    inputs: tuple[LevelInput, ...]  # by level, ascending
    ranges: tuple[KeyRange, ...] = ()  # always empty: merges are cut when they are planned; a field of the stored form


class HeldBack(msgspec.Struct, frozen=True):
    """A relation whose rows at the published epoch readers do not see: its quality suite refused them, or those of one that it reads."""

    relation: int
    epoch: int  # as of which readers go on seeing it; 0: not at all


class HummockVersion(msgspec.Struct, frozen=True):
    """What a read sees. Epochs are u64: Unix ms << 16 | counter; 0 is the empty store before its first epoch."""

    id: int
    epoch: int  # committed epoch
    published: int  # published epoch, <= epoch
    min_readable_epoch: int  # the floor: no reader may start below it
    log_end: int  # entries of the DML/DDL log taken so far (next position to read)
    levels: tuple[tuple[SstInfo, ...], ...]  # levels[0] = L0 runs, newest first; levels[k>=1] sorted, not overlapping
    catalog: Catalog
    mapping: VnodeMapping
    epochs: tuple[int, ...] = (
        0,
    )  # committed epochs that a reader may name, ascending: from the floor on, MAX_EPOCHS at most
    next_task_id: int = 1  # of compaction; a task below it that is not in `tasks` is closed
    tasks: tuple[CompactionTask, ...] = ()  # open ones, in order of id
    retired: tuple[
        str, ...
    ] = ()  # SSTs that compactions took out since `epoch` was committed: the run of the next epoch may read them
    moment: int = 0  # Unix microseconds: what now() means in the views of `epoch`; 0: no epoch had one
    held: tuple[HeldBack, ...] = ()  # of the relations of the published epoch; see tussock.statestore.meta.sight
    rows: dict[
        int, int
    ] = {}  # by relation's id, its rows at `epoch`, of a source those taken; without those that were not counted all along
