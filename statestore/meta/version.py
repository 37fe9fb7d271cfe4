"""HummockVersion: everything that a reader at one moment needs, as plain data.

Version n+1 is version n plus a delta.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tussock.statestore.meta.catalog import Catalog


class SectionInfo(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One table's rows in an SST. Keys are full storage keys (table_id | vnode | primary key), inclusive.

    Like SstInfo, it is invisible to the garbage collector, because it refers to no object that could refer back. So
    reading 100,000 SSTs takes a third of the time.
    """

    table_id: int
    first_key: bytes
    last_key: bytes
    rows: int
    bytes: int
    dead: int = 0  # deletes, and rows with a newer row of their key in this SST


class SstInfo(msgspec.Struct, frozen=True, gc=False):
    """One immutable sorted object: enough to decide whether a read needs it, without opening it."""

    name: str  # object name, data/<epoch or task>/<hash of its bytes>.sst
    size: int
    footer_size: int  # bytes of index and footer at the end: one range read opens the SST
    rows: int
    min_epoch: int
    max_epoch: int
    sections: tuple[SectionInfo, ...]  # in table_id order


if TYPE_CHECKING:
    Level = Sequence[SstInfo]
else:
    Level = tuple[SstInfo, ...]  # the stored form; in memory, a large level is a PagedLevel (pages.py)


class VnodeMapping(msgspec.Struct, frozen=True):
    """The parallel unit of each vnode."""

    id: int
    unit_of_vnode: tuple[int, ...] = msgspec.field(name="units")

    @property
    def vnode_count(self) -> int:
        """The number of vnodes."""
        return len(self.unit_of_vnode)

    @property
    def unit_count(self) -> int:
        """The number of parallel units. They are numbered from 0, and each owns at least one vnode."""
        return max(self.unit_of_vnode) + 1


class KeyRange(msgspec.Struct, frozen=True):
    """A range of full storage keys, both ends inclusive."""

    first: bytes
    last: bytes


class LevelInput(msgspec.Struct, frozen=True):
    """SSTs that a compaction task takes from one level, by name."""

    level: int
    ssts: tuple[str, ...]


class CompactionTask(msgspec.Struct, frozen=True):
    """SSTs that one compactor merges to level `target`.

    Until it ends, no other task takes them or enters its keys there.
    """

    id: int  # assigned by meta, never reused; names the task's objects, data/task-<id>/…
    writer: str  # the process that opened it
    opened: int  # id of the version that opened it
    expires_ms: int  # Unix ms after which others may close it; ensures progress, not safety
    target: int
    inputs: tuple[LevelInput, ...]  # by level, ascending
    ranges: tuple[KeyRange, ...] = ()  # of the keys of each input, if levels have pages; else empty


class HeldBack(msgspec.Struct, frozen=True):
    """A relation whose rows at the published epoch are hidden: a quality suite refused them, or its inputs' rows."""

    relation: int
    epoch: int  # the epoch as of which readers see it; 0: hidden


class Branch(msgspec.Struct, frozen=True):
    """A branch of this store (branch.py). The objects that its first version names stay until it ends."""

    number: int  # assigned by meta, never reused; names its objects, branches/<number>/…
    name: str
    id: str  # of the call that created it, so that a repeated call finds it
    version: int  # of this store: the branch's first version
    epoch: int  # committed in that version
    log_start: int  # the log end of that version
    created_ms: int
    expires_ms: int  # Unix ms after which retention ends it
    follows: bool = False  # takes the epochs of this store, whose SSTs stay: all of epochs after `epoch`


class HummockVersion(msgspec.Struct, frozen=True):
    """The committed state of a store: its epochs, catalog, SSTs, tasks and branches.

    Epochs are u64: Unix ms << 16 | counter; 0 is the empty store before its first epoch.
    """

    id: int
    epoch: int  # committed epoch
    published: int  # published epoch, <= epoch
    min_readable_epoch: int  # the floor: no reader may start below it
    log_end: int  # entries of the DML/DDL log taken so far; the next position to read
    levels: tuple[Level, ...]  # levels[0]: L0 runs, newest first; levels[k>=1]: sorted, disjoint
    catalog: Catalog
    mapping: VnodeMapping
    epochs: tuple[int, ...] = (0,)  # committed epochs that readers may name, from the floor; at most MAX_EPOCHS
    next_task_id: int = 1  # of compaction; lower ids that are not in `tasks` are closed
    tasks: tuple[CompactionTask, ...] = ()  # open ones, in order of id
    retired: tuple[str, ...] = ()  # SSTs that compactions removed after `epoch`; the next epoch's run may read them
    moment: int = 0  # Unix microseconds: the value of now() in the views of `epoch`; 0: no epoch had one
    by_intervals: bool = False  # epochs without an interval keep the moment
    held: tuple[HeldBack, ...] = ()  # relations of the published epoch; see tussock.statestore.meta.sight
    # Row counts at `epoch` by relation id; of a source, the rows taken. Omits relations that were not always counted.
    rows: dict[int, int] = {}
    branches: tuple[Branch, ...] = ()  # that have not ended, in order of number
    next_branch: int = 1  # lower numbers that are not in `branches` have ended
    followed: int = 0  # of a branch: the parent's version up to which it has taken the parent's epochs


class VersionPart(HummockVersion, frozen=True):
    """The part of a version that reads of some state tables need, for a worker. It is never stored.

    Its levels have the SSTs of these tables only, and it has no catalog, compaction tasks or row counts. Reads of other
    tables are refused, because they would find no rows.
    """

    tables: tuple[int, ...] = ()  # ascending
