"""The rows of a relation that differ between two sides, in pairs of one key.

1. candidates   if both sides store rows by the same key, rows that differ by it (statestore/table/row_pairs.py): SSTs
                that both have are not read. Else all rows of both sides
2. pairs        by the relation's key, if readers see its columns and both sides have the same one. The candidates are
                pairs already, unless the storage key is another: a view with ORDER BY is stored by its order
   a bag        else, as for tables without a key, which are stored by hidden numbers: equal rows cancel
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.compare.parted import PartedRows, identify_rows
from tussock.jobs.compare.values import find_apart
from tussock.jobs.reading.reader import open_table, stored_output, stored_table
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.row_pairs import RowPairs, Side, read_pairs
from tussock.statestore.vnode import null_mask

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

IN_OTHER = "_in_other"  # of candidates that are parted: the side of a row


@dataclass(frozen=True, slots=True)
class RelationSide:
    """A relation of a store, at an epoch. Requires: the version's SSTs stay meanwhile."""

    objects: ObjectStore
    version: HummockVersion
    relation: Relation
    epoch: int

    def side(self, names: Sequence[str]) -> Side:
        """Its table with these columns."""
        places = {c.name: i for i, c in enumerate(self.relation.columns)}
        table = open_table(self.objects, self.version, stored_table(self.relation), self.epoch)
        return Side(table, tuple(places[name] for name in names))


@dataclass(frozen=True, slots=True)
class Layout:
    """How two sides of a relation are compared.

    Args:
        columns: names of the compared columns: those that both sides have, with the same type.
        key: names of the columns that identify a row on both sides; empty: rows are compared as bags.
        alike: whether both sides store rows by the same key.
        stored_by_key: whether that is `key`.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    alike: bool
    stored_by_key: bool

    @property
    def key_places(self) -> tuple[int, ...]:
        """The positions of the key in `columns`."""
        return tuple(self.columns.index(name) for name in self.key)


def layout_of(one: RelationSide, other: RelationSide) -> Layout:
    """How to compare the rows of two sides."""
    types = {c.name: c.type for c in other.relation.columns}
    columns = tuple(c.name for c in one.relation.columns if types.get(c.name) == c.type)
    keys = [_key_names(side.relation) for side in (one, other)]
    key = keys[0] if keys[0] is not None and keys[0] == keys[1] and set(keys[0]) <= set(columns) else ()
    stored = [_stored_by(side) for side in (one, other)]
    stored_names = tuple(name for name, *_ in stored[0][0])
    return Layout(columns, key, stored[0] == stored[1], bool(key) and sorted(stored_names) == sorted(key))


def _key_names(relation: Relation) -> tuple[str, ...] | None:
    """The names of the key's columns, sorted; None if readers do not see one of them."""
    key = stored_output(relation).key
    if any(place >= len(relation.columns) for place in key):
        return None
    return tuple(sorted(relation.columns[place].name for place in key))


def _stored_by(side: RelationSide) -> tuple[tuple[tuple[str, str, bool, bool], ...], tuple[str, ...], int]:
    """Everything that decides the storage key of a row. A hidden column is known by its place in its own table."""
    table, visible = stored_table(side.relation), [c.name for c in side.relation.columns]

    def name_of(place: int) -> str:
        return visible[place] if place < len(visible) else f"\0{table.table_id}.{place}"

    key = tuple(
        (name_of(part.column), table.columns[part.column].type, part.descending, part.nulls_last) for part in table.key
    )
    return key, tuple(name_of(place) for place in table.distribution), side.version.mapping.vnode_count


def differing_pairs(one: RelationSide, other: RelationSide, layout: Layout, tolerance: float) -> Iterator[RowPairs]:
    """The rows that differ, with the columns of `layout`. In a bag, each row is on one side only.

    Memory: a few blocks; without an equal storage key, also a part of the candidates. Cost: see above.
    """
    if layout.alike and layout.stored_by_key:
        yield from _unequal_pairs(one, other, layout, tolerance)
        return
    side = one.side(layout.columns)
    types = side.table.layout.rows.types
    schema = pa.schema([(name, types[at]) for name, at in zip(layout.columns, side.columns, strict=True)])
    parted_by = layout.key_places or _exact_places(schema, tolerance)
    with PartedRows(schema.append(pa.field(IN_OTHER, pa.bool_())), parted_by) as parted:
        for rows in _candidates(one, other, layout):
            parted.add_rows(rows)
        for part in parted.read_parts():
            yield from _pairs_of_part(part, layout, parted_by, tolerance)


def _unequal_pairs(one: RelationSide, other: RelationSide, layout: Layout, tolerance: float) -> Iterator[RowPairs]:
    for pairs in read_pairs(one.side(layout.columns), other.side(layout.columns)):
        left, right = (rows.rename_columns(layout.columns) for rows in (pairs.one, pairs.other))
        named = RowPairs(left, pairs.in_one, right, pairs.in_other)
        if (unequal := keep_unequal(named, tolerance)).one.num_rows:
            yield unequal


def keep_unequal(pairs: RowPairs, tolerance: float) -> RowPairs:
    """The pairs whose rows differ."""
    apart = pairs.in_one != pairs.in_other
    both = np.flatnonzero(pairs.in_one & pairs.in_other)
    if both.size:
        whole = both.size == len(apart)
        one, other = (rows if whole else rows.take(pa.array(both)) for rows in (pairs.one, pairs.other))
        for left, right in zip(one.columns, other.columns, strict=True):
            apart[both] |= find_apart(left, right, tolerance)
    if apart.all():
        return pairs
    are_unequal = pa.array(apart)
    return RowPairs(
        pairs.one.filter(are_unequal), pairs.in_one[apart], pairs.other.filter(are_unequal), pairs.in_other[apart]
    )


def _candidates(one: RelationSide, other: RelationSide, layout: Layout) -> Iterator[pa.Table]:
    """Rows of both sides that may differ, with their side. Equal rows of both may be among them."""
    if layout.alike:
        for pairs in _unequal_pairs(one, other, layout, 0.0):
            yield _with_side(pairs.one.filter(pa.array(pairs.in_one)), False)
            yield _with_side(pairs.other.filter(pa.array(pairs.in_other)), True)
        return
    for relation_at, in_other in ((one, False), (other, True)):
        side = relation_at.side(layout.columns)
        for rows in side.table.scan(side.columns):
            yield _with_side(rows.rename_columns(layout.columns), in_other)


def _with_side(rows: pa.Table, in_other: bool) -> pa.Table:
    return rows.append_column(IN_OTHER, pa.array(np.full(rows.num_rows, in_other)))


def _exact_places(schema: pa.Schema, tolerance: float) -> tuple[int, ...]:
    """The columns by which equal rows of a bag come together: with a tolerance, those without numbers near others."""
    return tuple(i for i, kind in enumerate(schema.types) if not (tolerance and _is_near_type(kind)))


def _is_near_type(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_is_near_type(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _pairs_of_part(part: pa.Table, layout: Layout, parted_by: Sequence[int], tolerance: float) -> Iterator[RowPairs]:
    """The unequal pairs of some candidates that include all rows of their keys."""
    in_other = part.column(IN_OTHER).to_numpy()
    rows = part.drop_columns([IN_OTHER])
    if not layout.key:
        rows, in_other = _cancel_equal(rows, in_other)
    one, other = rows.filter(pa.array(~in_other)), rows.filter(pa.array(in_other))
    pairs = _pair_ranked(one, other, parted_by) if layout.key or tolerance else _alone(one, other)
    unequal = keep_unequal(pairs, tolerance)
    if not layout.key:
        gone, come = unequal.one.filter(pa.array(unequal.in_one)), unequal.other.filter(pa.array(unequal.in_other))
        unequal = _alone(gone, come)
    if unequal.one.num_rows:
        yield unequal


def _cancel_equal(rows: pa.Table, in_other: Mask) -> tuple[pa.Table, Mask]:
    """A bag without the rows that both sides have. A row that one side has n times more often stays n times."""
    ids = pc.dictionary_encode(identify_rows(rows, range(rows.num_columns))).indices.to_numpy().astype(np.int64)
    sums = np.bincount(ids, np.where(in_other, 1, -1)).astype(np.int64)
    stays_in_other = sums[ids] > 0
    remains = (in_other == stays_in_other) & (_rank_within(2 * ids + in_other) < np.abs(sums[ids]))
    return rows.filter(pa.array(remains)), in_other[remains]


def _pair_ranked(one: pa.Table, other: pa.Table, places: Sequence[int]) -> RowPairs:
    """Pair the i-th rows with equal values in some columns, in the order of all their values."""
    rows = pa.concat_tables([one, other])
    ids = pc.dictionary_encode(identify_rows(rows, places)).indices.to_numpy().astype(np.int64)
    is_other = np.arange(rows.num_rows) >= one.num_rows
    ranks = _rank_within(2 * ids + is_other, lambda: identify_rows(rows, range(rows.num_columns)))
    names = ids * (rows.num_rows + 1) + ranks
    mine, its = pa.array(names[: one.num_rows]), pa.array(names[one.num_rows :])
    at = pc.index_in(mine, value_set=its)
    alone = np.flatnonzero(~pc.is_in(its, value_set=mine).to_numpy(zero_copy_only=False))
    first = pa.concat_arrays([pa.array(np.arange(len(mine))), pa.nulls(len(alone), pa.int64())])
    second = pa.concat_arrays([at.cast(pa.int64()), pa.array(alone)])
    return RowPairs(one.take(first), ~null_mask(first), other.take(second), ~null_mask(second))


def _rank_within(ids: Positions, order_of: Callable[[], pa.BinaryArray] | None = None) -> Positions:
    """(n,) the place of each row among the rows of its id, in their order, or in that of `order_of`.

    `order_of` is called only if an id comes twice.
    """
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    if order_of is not None and (in_order[1:] == in_order[:-1]).any():
        by_value = pc.array_sort_indices(order_of()).to_numpy().astype(np.int64)
        order = by_value[np.argsort(ids[by_value], kind="stable")]
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids)) - np.searchsorted(in_order, in_order)
    return ranks


def _alone(one: pa.Table, other: pa.Table) -> RowPairs:
    """Rows without partners."""
    counts = one.num_rows, other.num_rows
    in_one = np.append(np.ones(counts[0], np.bool_), np.zeros(counts[1], np.bool_))
    blank, others = pa.nulls(counts[1], pa.int64()), pa.nulls(counts[0], pa.int64())
    first = pa.concat_arrays([pa.array(np.arange(counts[0])), blank])
    second = pa.concat_arrays([others, pa.array(np.arange(counts[1]))])
    return RowPairs(one.take(first), in_one, other.take(second), ~in_one)
