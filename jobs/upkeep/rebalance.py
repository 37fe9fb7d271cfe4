"""Rebalancing: which parallel unit owns which vnode. Planned by what units carry, moved by one delta, in force from the next barrier on.

    measure  ──>  VnodeLoads  what each vnode holds, and what the last epochs wrote of it
    plan     ──>  Rebalance   the vnodes that move, and each unit before and after
    move                      the version's mapping; no row moves in storage, a vnode's new unit reads it where it is
    verify                    reads back what is in force

With a number of units, each gets its share of the vnodes (`remap`). Without one, units that carry more than `target` times the mean give
vnodes to others (`relieve`). What a unit carries is what the last epochs wrote of its vnodes: epochs pay for what changes. Where none of
what they wrote is there any more, it is what is stored.

A vnode that is beyond the target by itself is beyond it on any unit. Then nothing moves, and the key that makes it so is looked for.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.reading.reader import open_table
from tussock.jobs.settings.pipeline import FILE, Pipeline, RebalanceSettings
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.vnode_sizes import Amounts, VnodeSizes, sum_of, vnode_sizes
from tussock.statestore.meta.barrier import MutationKind
from tussock.statestore.meta.catalog import Relation, TableSchema
from tussock.statestore.meta.errors import SettingError
from tussock.statestore.meta.mapping import relieve, remap
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.months import shown_at

LAST_EPOCHS = 20  # whose writes say what a vnode costs
HOT_SHARE = 0.5  # of a vnode's rows, from which on one key is the cause of what it costs
_MOST_ROWS = 4_000_000  # of a vnode that are looked through for its hottest key


class MoveVerdict(StrEnum):
    """What comes of a look at the units."""

    MOVE = "move"  # vnodes are to move
    EVEN = "even"  # nothing to do: no unit carries more than the target, or the vnodes lie as asked for
    HOT = "hot"  # nothing can be done: one vnode alone is beyond the target
    STUCK = "stuck"  # nothing can be done: no vnode could move that would make it more even


class UnitsInFileError(InputError):
    """The pipeline's file asks for another number of units."""

    def __init__(self, file: str, units: int, asked: int) -> None:
        super().__init__(file, units, asked)
        self.file, self.units, self.asked = file, units, asked

    def __str__(self) -> str:
        return (
            f"{self.file} says units = {self.units}, so the next epoch would go back from {self.asked}. Write units = {self.asked} there, "
            "which moves the vnodes with the next epoch, or leave the key out. Nothing was changed."
        )


class OtherMappingError(InputError):
    """A mapping is in force that is not the planned one."""

    def __init__(self, planned: int, found: int) -> None:
        super().__init__(planned, found)
        self.planned, self.found = planned, found

    def __str__(self) -> str:
        return (
            f"vnodes are to lie as mapping {self.planned} says, and mapping {self.found} is in force: somebody else has moved vnodes. "
            "Rows are right under any mapping. `tussock rebalance --plan` shows what is in force; plan anew if it is not what you want."
        )


class OtherMovesError(InputError):
    """The approved moves are not the ones that a plan would make now."""

    def __init__(self, approved: str, found: str) -> None:
        super().__init__(approved, found)
        self.approved, self.found = approved, found

    def __str__(self) -> str:
        return (
            f"the moves with digest {self.approved} were approved; now the moves would have digest {self.found}, since the vnodes lie "
            "elsewhere or carry other loads. Nothing was changed. Look at the moves again (`tussock rebalance --plan`), and approve those."
        )


class VnodeMove(msgspec.Struct, frozen=True):
    """Neighbouring vnodes that go from one unit to another."""

    first: int
    last: int  # inclusive
    source: int
    target: int


class UnitShare(msgspec.Struct, frozen=True):
    """What a unit has under one mapping. Rows and bytes as SSTs hold them: old versions and deletes count; by block indexes, so about."""

    vnodes: int
    rows: int
    bytes: int
    load: float  # its part of what all units carry, 0 to 1


class Rebalance(msgspec.Struct, frozen=True):
    """A plan: plain data, JSON goes through."""

    verdict: MoveVerdict
    standing: VnodeMapping  # the version's own
    planned: VnodeMapping  # the version's own where nothing is to move
    moves: tuple[VnodeMove, ...]
    before: tuple[UnitShare, ...]  # by unit
    after: tuple[UnitShare, ...]
    epochs: int  # by whose writes the load was judged; 0: by what is stored
    target: float | None  # None: units were asked for
    hottest: int  # the vnode that carries most
    hottest_load: float  # its part of what all carry

    @property
    def digest(self) -> str:
        """64 hexadecimal digits of the mapping before and after: equal digests make equal moves."""
        return hashlib.sha256(msgspec.json.encode((self.standing, self.planned))).hexdigest()

    @property
    def moved(self) -> int:
        """Vnodes that change their unit."""
        return sum(move.last - move.first + 1 for move in self.moves)


class VnodeHotKey(msgspec.Struct, frozen=True):
    """What most rows of a vnode have in common, in the state table that has most of them."""

    relation: str
    table_id: int
    key: str  # `column = value, …`; empty: the table is not distributed, all of its rows lie in one vnode
    rows: int  # of the key
    of: int  # rows looked at, all of the vnode

    @property
    def share(self) -> float:
        """Of the vnode's rows."""
        return self.rows / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class VnodeLoads:
    """What the vnodes of a version hold, and what the last epochs wrote of each."""

    version: HummockVersion
    stored: Mapping[int, VnodeSizes]  # by table, of relations that are in use
    written: Mapping[int, VnodeSizes]
    epochs: int  # that `written` counts

    @property
    def vnode_count(self) -> int:
        """V."""
        return len(self.version.mapping.units)

    @property
    def load_of_tables(self) -> Mapping[int, VnodeSizes]:
        """What is taken for what vnodes cost, by table."""
        return self.written if self.epochs else self.stored

    @property
    def weights(self) -> Amounts:
        """(vnodes,) what each costs its unit, in rows."""
        return sum_of(self.load_of_tables.values(), self.vnode_count).rows


def measure(meta: MetaStore, last: int = LAST_EPOCHS) -> VnodeLoads:
    """Look at the newest version, and at what its `last` epochs wrote; not at those that created something, which happens once.

    Raises: DamagedSstError; MissingSstError where a compaction and a vacuum were quicker: try again.
    Cost: a manifest for each of the epochs, and a range read of each SST that this process has not opened yet.
    """
    version = meta.latest()
    source, vnodes = BlockSource(meta.objects, process_cache()), len(version.mapping.units)
    live = {table.table_id for relation in version.catalog.live() for table in relation.state_tables}
    stored = vnode_sizes(source, [sst for level in version.levels for sst in level], vnodes)
    written: dict[int, VnodeSizes] = {}
    epochs = 0
    for sealed in (meta.sealed(epoch) for epoch in version.epochs[-last:] if epoch):
        if (
            sealed is None
            or not sealed.ssts
            or (sealed.mutation is not None and sealed.mutation.kind is MutationKind.ADD)
        ):
            continue
        try:
            found = vnode_sizes(source, sealed.ssts, vnodes)
        except MissingSstError:  # compacted, and removed since
            continue
        epochs += 1
        for table_id, sizes in found.items():
            written[table_id] = written[table_id] + sizes if table_id in written else sizes
    return VnodeLoads(version, _of(stored, live), _of(written, live), epochs)


def _of(sizes: Mapping[int, VnodeSizes], tables: set[int]) -> dict[int, VnodeSizes]:
    return {table_id: found for table_id, found in sizes.items() if table_id in tables}


def plan(measured: VnodeLoads, units: int | None = None, target: float = RebalanceSettings().target) -> Rebalance:
    """Which vnodes are to move. Nothing is written.

    Args:
        units: spread the vnodes evenly over so many; None: as many as there are, by what they carry.
        target: how many times the mean a unit may carry; of no meaning with `units`.

    Raises: SettingError for a number of units that the store can't have, or a target below 1.
    """
    if target < 1:
        raise SettingError("the target", f"{target:g}", "1 or more: no unit can be below the mean if none is above it")
    mapping, weights = measured.version.mapping, measured.weights
    planned, verdict = mapping, MoveVerdict.EVEN
    if units is not None:
        after = remap(mapping, units)
        if after.units != mapping.units:
            planned, verdict = after, MoveVerdict.MOVE
    else:
        most = target * weights.sum() / mapping.unit_count
        if np.bincount(mapping.units, weights).max() > most:
            planned = mapping if weights.max() > most else relieve(mapping, weights, most)
            verdict = (
                MoveVerdict.MOVE
                if planned is not mapping
                else MoveVerdict.HOT
                if weights.max() > most
                else MoveVerdict.STUCK
            )
    hottest = int(weights.argmax())
    return Rebalance(
        verdict,
        mapping,
        planned,
        tuple(_moves(mapping, planned)),
        _shares(measured, weights, mapping),
        _shares(measured, weights, planned),
        measured.epochs,
        None if units is not None else target,
        hottest,
        float(weights[hottest] / max(1.0, weights.sum())),
    )


def move(meta: MetaStore, rebalance: Rebalance) -> HummockVersion:
    """Put the plan's mapping in force; without effect where it is already. Barriers injected from now on run on it.

    Raises LostRaceError if the mapping in force is neither the one that the plan was made over nor the planned one.
    """
    return meta.move_vnodes(rebalance.planned, rebalance.standing)


def verify(meta: MetaStore, rebalance: Rebalance) -> tuple[UnitShare, ...]:
    """Read back that the plan's mapping is in force, and that what its units are to read is there: the index of every SST, checked.

    Returns: what each unit has now.
    Raises: OtherMappingError; MissingSstError, DamagedSstError.
    Cost: as `measure`.
    """
    measured = measure(meta)
    mapping = measured.version.mapping
    if mapping != rebalance.planned:
        raise OtherMappingError(rebalance.planned.id, mapping.id)
    return _shares(measured, measured.weights, mapping)


def require_approved(found: Rebalance, approved: str) -> None:
    """Raises OtherMovesError if the moves have another digest."""
    if found.digest != approved:
        raise OtherMovesError(approved, found.digest)


def require_units_of_file(pipeline: Pipeline, units: int | None) -> None:
    """Raises UnitsInFileError where the pipeline's file would have the next epoch undo a move to so many units."""
    if units is not None and pipeline.epoch.units is not None and units != pipeline.epoch.units:
        raise UnitsInFileError(str(pipeline.folder / FILE), pipeline.epoch.units, units)


def cause_of(meta: MetaStore, measured: VnodeLoads, found: Rebalance) -> VnodeHotKey | None:
    """What makes a vnode hot, where that is why nothing moves. Raises, cost: as `hottest_key`."""
    return hottest_key(meta, measured, found.hottest) if found.verdict is MoveVerdict.HOT else None


def hottest_key(meta: MetaStore, measured: VnodeLoads, vnode: int) -> VnodeHotKey | None:
    """The key with most rows of a vnode, in the state table that the vnode costs most for; None where nothing is stored of it.

    Raises: EpochExpiredError and what a read of the store raises.
    Cost: reads the distribution columns of the vnode's rows in that table, a few million rows at most.
    """
    version = measured.version
    tables = {t.table_id: (r, t) for r in version.catalog.stored() for t in r.state_tables}
    load = {table_id: float(sizes.rows[vnode]) for table_id, sizes in measured.load_of_tables.items()}
    if not load:
        return None
    relation, table = tables[max(load, key=load.__getitem__)]
    rows = int(measured.stored[table.table_id].rows[vnode]) if table.table_id in measured.stored else 0
    if not table.distribution:
        return VnodeHotKey(relation.name, table.table_id, "", rows, rows)
    with meta.reading(version.epoch) as pinned:
        keys = _counted(open_table(meta.objects, pinned, table, version.epoch).scan(table.distribution, [vnode]))
    if keys is None:
        return None
    counts = keys.column("rows")
    most = int(pc.index(counts, pc.max(counts)).as_py())
    text = ", ".join(
        f"{_column(relation, table, n)} = {shown_at(keys.column(i), most)!r}" for i, n in enumerate(table.distribution)
    )
    return VnodeHotKey(relation.name, table.table_id, text, counts[most].as_py(), pc.sum(counts).as_py())


def _column(relation: Relation, table: TableSchema, column: int) -> str:
    """A state table's column for people; the relation's own rows have its names."""
    own = (
        len(relation.columns) <= len(table.columns)
        and column < len(relation.columns)
        and table is relation.state_tables[-1]
    )
    return relation.columns[column].name if own else table.columns[column].name


def _counted(parts: Iterator[pa.Table]) -> pa.Table | None:
    """Distinct rows with how often each is there, in a column `rows` behind theirs."""
    counted: pa.Table | None = None
    seen = 0
    for part in parts:
        seen += part.num_rows
        more = part.append_column("rows", pa.array(np.ones(part.num_rows, np.int64)))
        both = more if counted is None else pa.concat_tables([counted, more])
        names = part.column_names
        counted = (
            both.group_by(names, use_threads=False)
            .aggregate([("rows", "sum")])
            .rename_columns([*names, "rows"])
            .select([*names, "rows"])
        )
        if seen >= _MOST_ROWS:
            break
    return counted


def _moves(before: VnodeMapping, after: VnodeMapping) -> Iterator[VnodeMove]:
    """What differs, neighbours with the same way together."""
    old, new = np.asarray(before.units), np.asarray(after.units)
    begins = np.r_[True, (old[1:] != old[:-1]) | (new[1:] != new[:-1])]
    firsts = np.flatnonzero(begins)
    for first, last in zip(firsts.tolist(), np.r_[firsts[1:] - 1, len(old) - 1].tolist(), strict=True):
        if old[first] != new[first]:
            yield VnodeMove(first, last, int(old[first]), int(new[first]))


def _shares(measured: VnodeLoads, weights: Amounts, mapping: VnodeMapping) -> tuple[UnitShare, ...]:
    owners = np.asarray(mapping.units)
    stored = sum_of(measured.stored.values(), measured.vnode_count)

    loads = weights / max(1.0, weights.sum())
    columns = np.bincount(owners), *(np.bincount(owners, amounts) for amounts in (stored.rows, stored.bytes, loads))
    return tuple(UnitShare(int(v), round(r), round(b), float(w)) for v, r, b, w in zip(*columns, strict=True))
