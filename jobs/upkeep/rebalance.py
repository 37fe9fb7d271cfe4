"""Rebalancing: assigns vnodes to parallel units by load. One delta moves vnodes; the next barrier uses the new mapping.

    measure  ──>  VnodeLoads  the stored rows of each vnode, and the rows written by the last epochs
    plan     ──>  Rebalance   the vnodes that move, and each unit before and after
    move                      sets the version's mapping; no row moves in storage, the new unit reads the same objects
    verify                    reads the mapping in force back

With a number of units, each unit gets an equal share of the vnodes (`remap_vnodes`). Without it, units that carry more
than `target` times the mean give vnodes to others (`relieve_units`). The load of a unit is the number of rows that the
last epochs wrote in its vnodes, because epochs pay for changes. If none of these writes exists any more, it is the
stored rows.

A vnode whose own load exceeds the target exceeds it on any unit. Then nothing moves, and its hottest key is searched.
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
from tussock.jobs.settings.pipeline import FILE, Pipeline
from tussock.jobs.settings.tables import RebalanceSettings
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.hummock.vnode_sizes import Amounts, VnodeSizes, sum_of, vnode_sizes
from tussock.statestore.meta.barrier import MutationKind
from tussock.statestore.meta.catalog import Relation, TableSchema
from tussock.statestore.meta.errors import SettingError
from tussock.statestore.meta.mapping import relieve_units, remap_vnodes
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.months import shown_at

LAST_EPOCHS = 20  # number of epochs whose writes measure the load
HOT_SHARE = 0.5  # share of a vnode's rows above which a key is the cause of its load
_MOST_ROWS = 4_000_000  # maximum number of a vnode's rows that are searched for its hottest key


class MoveVerdict(StrEnum):
    """The decision on the units."""

    MOVE = "move"  # vnodes should move
    EVEN = "even"  # nothing to do: no unit exceeds the target, or the vnodes already have the requested mapping
    HOT = "hot"  # no remedy: a single vnode exceeds the target
    STUCK = "stuck"  # no remedy: no move would improve the balance


class UnitsInFileError(InputError, hides_row_values=True):
    """pipeline.toml sets another number of units."""

    file: str
    units: int
    asked: int

    def __str__(self) -> str:
        return (
            f"{self.file} sets units = {self.units}, so the next epoch would revert a change to {self.asked} units. "
            f"Set units = {self.asked} there, which moves the vnodes with the next epoch, or remove the key. Nothing "
            "was changed."
        )


class OtherMappingError(InputError, hides_row_values=True):
    """The mapping in force is not the planned one."""

    planned: int
    current: int

    def __str__(self) -> str:
        return (
            f"mapping {self.planned} was planned, but mapping {self.current} is in force: another process has moved "
            "vnodes. Rows are correct under any mapping. `tussock rebalance --plan` shows the current mapping; plan "
            "again to change it."
        )


class OtherMovesError(InputError):
    """The approved moves differ from the current plan."""

    approved: str
    current: str

    def __str__(self) -> str:
        return (
            f"the moves with digest {self.approved} were approved, but the current plan has digest {self.current}, "
            "because the mapping or the loads have changed. Nothing was changed. Review the moves again (`tussock "
            "rebalance --plan`), and approve those."
        )


class VnodeMove(msgspec.Struct, frozen=True):
    """Adjacent vnodes that move from one unit to another."""

    first: int
    last: int  # inclusive
    source: int
    target: int


class UnitShare(msgspec.Struct, frozen=True):
    """The share of a unit under a mapping.

    Rows and bytes are estimates from block indexes. They include old versions and deletes.
    """

    vnodes: int
    rows: int
    bytes: int
    load: float  # its fraction of the load of all units, 0 to 1


class Rebalance(msgspec.Struct, frozen=True):
    """A plan, as plain data that can be stored as JSON."""

    verdict: MoveVerdict
    standing: VnodeMapping  # the version's mapping
    planned: VnodeMapping  # equal to `standing` if nothing moves
    moves: tuple[VnodeMove, ...]
    before: tuple[UnitShare, ...]  # by unit
    after: tuple[UnitShare, ...]
    epochs: int  # number of epochs whose writes measure the load; 0: measured by stored rows
    target: float | None  # None: a number of units was requested
    hottest: int  # the vnode with the highest load
    hottest_load: float  # its fraction of the load of all vnodes

    @property
    def digest(self) -> str:
        """64 hexadecimal digits of the mappings before and after: equal digests mean equal moves."""
        return hashlib.sha256(msgspec.json.encode((self.standing, self.planned))).hexdigest()

    @property
    def moved_vnodes(self) -> int:
        """The number of vnodes that change their unit."""
        return sum(move.last - move.first + 1 for move in self.moves)


class VnodeHotKey(msgspec.Struct, frozen=True):
    """The most frequent key of a vnode, in the state table with most of its load."""

    relation: str
    table_id: int
    key: str  # `column = value, …`; empty: the table has no distribution, and all of its rows are in one vnode
    rows: int  # rows with this key
    of: int  # all rows of the vnode that were read

    @property
    def share(self) -> float:
        """The fraction of the vnode's rows."""
        return self.rows / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class VnodeLoads:
    """The stored rows of a version's vnodes, and the rows that the last epochs wrote in each."""

    version: HummockVersion
    stored: Mapping[int, VnodeSizes]  # by table, for live relations
    written: Mapping[int, VnodeSizes]
    epochs: int  # number of epochs in `written`

    @property
    def vnode_count(self) -> int:
        """The number of vnodes."""
        return self.version.mapping.vnode_count

    @property
    def load_of_tables(self) -> Mapping[int, VnodeSizes]:
        """The sizes that measure the load, by table."""
        return self.written if self.epochs else self.stored

    @property
    def weights(self) -> Amounts:
        """The load of each vnode in rows, shape (vnodes,)."""
        return sum_of(self.load_of_tables.values(), self.vnode_count).rows


def measure_loads(meta: MetaStore, last: int = LAST_EPOCHS) -> VnodeLoads:
    """Measure the newest version and the writes of its `last` epochs. Skips epochs that created relations.

    Begins again if compaction and vacuum remove an SST meanwhile.

    Raises: DamagedSstError; MissingSstError if an SST is lost.
    Cost: a manifest per epoch, and a range read of each SST that this process has not opened yet.
    """
    return on_newest(meta, lambda version: _measure_version(meta, version, last))


def _measure_version(meta: MetaStore, version: HummockVersion, last: int) -> VnodeLoads:
    source, vnodes = BlockSource(meta.objects, process_cache()), version.mapping.vnode_count
    live = {table.table_id for relation in version.catalog.live_relations() for table in relation.state_tables}
    stored = vnode_sizes(source, [sst for level in version.levels for sst in level], vnodes)
    written: dict[int, VnodeSizes] = {}
    epochs = 0
    for sealed in (meta.read_manifest(epoch) for epoch in version.epochs[-last:] if epoch):
        if (
            sealed is None
            or not sealed.ssts
            or (sealed.mutation is not None and sealed.mutation.kind is MutationKind.ADD)
        ):
            continue
        try:
            sizes_by_table = vnode_sizes(source, sealed.ssts, vnodes)
        except MissingSstError:  # compacted and removed
            continue
        epochs += 1
        for table_id, sizes in sizes_by_table.items():
            written[table_id] = written[table_id] + sizes if table_id in written else sizes
    return VnodeLoads(version, _of_tables(stored, live), _of_tables(written, live), epochs)


def _of_tables(sizes: Mapping[int, VnodeSizes], tables: set[int]) -> dict[int, VnodeSizes]:
    return {table_id: table_sizes for table_id, table_sizes in sizes.items() if table_id in tables}


def plan_rebalance(
    measured: VnodeLoads, units: int | None = None, target: float = RebalanceSettings().target
) -> Rebalance:
    """Plan which vnodes move. Writes nothing.

    Args:
        units: spread the vnodes evenly over this many units; None: keep the number, and balance the load.
        target: maximum load of a unit as a multiple of the mean; ignored with `units`.

    Raises: SettingError if the store cannot have this number of units, or if the target is below 1.
    """
    if target < 1:
        raise SettingError("the target", f"{target:g}", "1 or more: without a unit above the mean, none is below it")
    mapping, weights = measured.version.mapping, measured.weights
    planned, verdict = mapping, MoveVerdict.EVEN
    if units is not None:
        after = remap_vnodes(mapping, units)
        if after.unit_of_vnode != mapping.unit_of_vnode:
            planned, verdict = after, MoveVerdict.MOVE
    else:
        most = target * weights.sum() / mapping.unit_count
        if np.bincount(mapping.unit_of_vnode, weights).max() > most:
            planned = mapping if weights.max() > most else relieve_units(mapping, weights, most)
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
        tuple(_merge_moves(mapping, planned)),
        _unit_shares(measured, weights, mapping),
        _unit_shares(measured, weights, planned),
        measured.epochs,
        None if units is not None else target,
        hottest,
        float(weights[hottest] / max(1.0, weights.sum())),
    )


def move_vnodes(meta: MetaStore, rebalance: Rebalance) -> HummockVersion:
    """Put the plan's mapping in force; no effect if it already is. Barriers injected from now on use it.

    Raises LostRaceError if the mapping in force is neither the one before the plan nor the planned one.
    """
    return meta.move_vnodes(rebalance.planned, rebalance.standing)


def verify_rebalance(meta: MetaStore, rebalance: Rebalance) -> tuple[UnitShare, ...]:
    """Check that the plan's mapping is in force, and that the index of every SST can be read.

    Returns: the share of each unit.
    Raises: OtherMappingError; MissingSstError, DamagedSstError.
    Cost: as `measure_loads`.
    """
    measured = measure_loads(meta)
    mapping = measured.version.mapping
    if mapping != rebalance.planned:
        raise OtherMappingError(rebalance.planned.id, mapping.id)
    return _unit_shares(measured, measured.weights, mapping)


def require_approved(plan: Rebalance, approved: str) -> None:
    """Raises OtherMovesError if the moves have another digest."""
    if plan.digest != approved:
        raise OtherMovesError(approved, plan.digest)


def require_units_of_file(pipeline: Pipeline, units: int | None) -> None:
    """Raises UnitsInFileError if pipeline.toml would make the next epoch undo a change to this number of units."""
    if units is not None and pipeline.epoch.units is not None and units != pipeline.epoch.units:
        raise UnitsInFileError(str(pipeline.folder / FILE), pipeline.epoch.units, units)


def cause_of(meta: MetaStore, measured: VnodeLoads, plan: Rebalance) -> VnodeHotKey | None:
    """Return the key that makes a vnode hot, if that is why nothing moves. Raises, cost: as `hottest_key`."""
    return hottest_key(meta, measured, plan.hottest) if plan.verdict is MoveVerdict.HOT else None


def hottest_key(meta: MetaStore, measured: VnodeLoads, vnode: int) -> VnodeHotKey | None:
    """Return a vnode's most frequent key, in the state table with most of its load; None without stored rows.

    Raises: EpochExpiredError, and errors of reading the store.
    Cost: reads the distribution columns of the vnode's rows in that table, a few million rows at most.
    """
    version = measured.version
    tables = {t.table_id: (r, t) for r in version.catalog.stored_relations() for t in r.state_tables}
    load = {table_id: float(sizes.rows[vnode]) for table_id, sizes in measured.load_of_tables.items()}
    if not load:
        return None
    relation, table = tables[max(load, key=load.__getitem__)]
    rows = int(measured.stored[table.table_id].rows[vnode]) if table.table_id in measured.stored else 0
    if not table.distribution:
        return VnodeHotKey(relation.name, table.table_id, "", rows, rows)
    with meta.open_for_reading(version.epoch) as pinned:
        keys = _count_rows(open_table(meta.objects, pinned, table, version.epoch).scan(table.distribution, [vnode]))
    if keys is None:
        return None
    counts = keys.column("rows")
    most = int(pc.index(counts, pc.max(counts)).as_py())
    text = ", ".join(
        f"{_column_name(relation, table, n)} = {shown_at(keys.column(i), most)!r}"
        for i, n in enumerate(table.distribution)
    )
    return VnodeHotKey(relation.name, table.table_id, text, counts[most].as_py(), pc.sum(counts).as_py())


def _column_name(relation: Relation, table: TableSchema, column: int) -> str:
    """Return the display name of a state table's column. The table of a relation's rows uses the relation's names."""
    own = (
        len(relation.columns) <= len(table.columns)
        and column < len(relation.columns)
        and table is relation.state_tables[-1]
    )
    return relation.columns[column].name if own else table.columns[column].name


def _count_rows(parts: Iterator[pa.Table]) -> pa.Table | None:
    """Return the distinct rows with their counts, in an additional column `rows`."""
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


def _merge_moves(before: VnodeMapping, after: VnodeMapping) -> Iterator[VnodeMove]:
    """Yield the moved vnodes, with adjacent ones of equal source and target merged."""
    old, new = np.asarray(before.unit_of_vnode), np.asarray(after.unit_of_vnode)
    begins = np.r_[True, (old[1:] != old[:-1]) | (new[1:] != new[:-1])]
    firsts = np.flatnonzero(begins)
    for first, last in zip(firsts.tolist(), np.r_[firsts[1:] - 1, len(old) - 1].tolist(), strict=True):
        if old[first] != new[first]:
            yield VnodeMove(first, last, int(old[first]), int(new[first]))


def _unit_shares(measured: VnodeLoads, weights: Amounts, mapping: VnodeMapping) -> tuple[UnitShare, ...]:
    owners = np.asarray(mapping.unit_of_vnode)
    stored = sum_of(measured.stored.values(), measured.vnode_count)

    loads = weights / max(1.0, weights.sum())
    columns = np.bincount(owners), *(np.bincount(owners, amounts) for amounts in (stored.rows, stored.bytes, loads))
    return tuple(UnitShare(int(v), round(r), round(b), float(w)) for v, r, b, w in zip(*columns, strict=True))
