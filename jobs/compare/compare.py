"""Compares relations of two sides: two epochs of a store, or two stores."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.catalog.definition import UnknownRelationError, ViewDefinition, definition_of, stores_rows
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.compare.pairs import Layout, RelationSide, differing_pairs, layout_of
from tussock.jobs.compare.record import (
    DIFFERENCE,
    SIDE,
    ColumnCount,
    ComparedSide,
    DayCount,
    DifferenceKind,
    RelationDifference,
    RetypedColumn,
    StoreDifference,
)
from tussock.jobs.compare.values import find_apart
from tussock.jobs.kernels.zones import convert_micros
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows
from tussock.statestore.nested import copy_sliced
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.requests import CountsRequests, Requests
from tussock.statestore.progress import Progress, no_progress
from tussock.statestore.table.row_pairs import RowPairs
from tussock.statestore.vnode import null_mask
from tussock.statestore.zones import RuledZone, local_micros

SAMPLES = 5
_DAY_MICROS = 86_400_000_000

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StoreAt:
    """A store to compare, and the epoch: an epoch, or None for what readers see. `name`: for people."""

    meta: MetaStore
    name: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """The options of a comparison.

    Args:
        views: names; empty: all views and tables.
        tolerance: see `find_apart`.
        samples: rows to show of each kind of difference and view.
    """

    views: tuple[str, ...] = ()
    tolerance: float = 0.0
    samples: int = SAMPLES


@dataclass(frozen=True, slots=True)
class _OpenSide:
    objects: ObjectStore
    version: HummockVersion
    sight: Sight
    zone: RuledZone

    def relations(self) -> dict[str, Relation]:
        """Its views and tables by name."""
        visible = self.sight.visible_relations(self.version.catalog)
        return {r.name: r for r in visible if stores_rows(r) and not r.is_internal}

    def relation_at(self, relation: Relation) -> RelationSide:
        return RelationSide(self.objects, self.version, relation, self.sight.epoch_of(relation.name))

    def known_rows(self, relation: Relation) -> int | None:
        """The rows of a relation, if the version counts them at this epoch."""
        is_newest = self.sight.epoch_of(relation.name) == self.version.epoch
        return self.version.rows.get(relation.id) if is_newest else None


def compare_stores(
    before: StoreAt, after: StoreAt, wanted: ComparisonOptions = ComparisonOptions(), progress: Progress = no_progress
) -> StoreDifference:
    """Compare views and tables of two sides.

    Raises: UnknownRelationError for a name that neither side has; EpochNotCommittedError, EpochExpiredError.
    Warns: as reads do.
    Cost: see `differing_pairs`, per view.
    """
    stores = before.meta.objects, after.meta.objects
    began = _requests_of(stores)
    with ExitStack() as stack:
        one, other = (stack.enter_context(_open_side(side)) for side in (before, after))
        mine, its = one.relations(), other.relations()
        names = _chosen_names(wanted.views, mine, its)
        views = []
        for name in names:
            if name in mine and name in its:
                progress(f"comparing {name}")
                views.append(_compare_relation(one, mine[name], other, its[name], wanted))
    return StoreDifference(
        before=ComparedSide(before.name, one.sight.epoch),
        after=ComparedSide(after.name, other.sight.epoch),
        views=tuple(views),
        dropped=tuple(name for name in names if name not in its),
        created=tuple(name for name in names if name not in mine),
        tolerance=wanted.tolerance,
        requests=_requests_of(stores) - began,
    )


def _requests_of(stores: Sequence[ObjectStore]) -> Requests:
    counters = {id(store.requests): store.requests for store in stores if isinstance(store, CountsRequests)}
    return sum((counter.so_far() for counter in counters.values()), Requests())


@contextmanager
def _open_side(side: StoreAt) -> Iterator[_OpenSide]:
    with StoredRows(side.meta).open_sight(side.epoch) as (version, sight):
        yield _OpenSide(side.meta.objects, version, sight, store_zone(side.meta))


def _chosen_names(views: Sequence[str], mine: dict[str, Relation], its: dict[str, Relation]) -> tuple[str, ...]:
    there = tuple(dict.fromkeys((*its, *mine)))
    if not views:
        return there
    for name in views:
        if name.lower() not in there:
            raise UnknownRelationError(name, "view or table", tuple(sorted(there)))
    return tuple(dict.fromkeys(name.lower() for name in views))


def _compare_relation(
    one: _OpenSide, mine: Relation, other: _OpenSide, its: Relation, wanted: ComparisonOptions
) -> RelationDifference:
    left, right = one.relation_at(mine), other.relation_at(its)
    layout = layout_of(left, right)
    tally = _Tally(layout, wanted, other.zone)
    for pairs in differing_pairs(left, right, layout, wanted.tolerance):
        tally.add_pairs(pairs)
    rows_before, rows_after = one.known_rows(mine), other.known_rows(its)
    if rows_before is None and rows_after is not None:
        rows_before = rows_after - tally.counts[DifferenceKind.ADDED] + tally.counts[DifferenceKind.MISSING]
    if rows_after is None and rows_before is not None:
        rows_after = rows_before + tally.counts[DifferenceKind.ADDED] - tally.counts[DifferenceKind.MISSING]
    types, others = ({c.name: c.type for c in relation.columns} for relation in (mine, its))
    return RelationDifference(
        name=its.name,
        key=layout.key,
        rows_before=rows_before,
        rows_after=rows_after,
        missing=tally.counts[DifferenceKind.MISSING],
        added=tally.counts[DifferenceKind.ADDED],
        changed=tally.counts[DifferenceKind.CHANGED],
        columns=tally.count_columns(rows_before),
        day_column=tally.day_column,
        days=tally.count_days(),
        samples=tally.sample_rows(),
        is_redefined=_select_of(mine) != _select_of(its),
        added_columns=tuple(name for name in others if name not in types),
        dropped_columns=tuple(name for name in types if name not in others),
        retyped_columns=tuple(
            RetypedColumn(name, kind, others[name]) for name, kind in types.items() if others.get(name, kind) != kind
        ),
    )


def _select_of(relation: Relation) -> str:
    """The words of a view's SELECT; empty for a table."""
    definition = definition_of(relation)
    return " ".join(definition.sql.split()) if isinstance(definition, ViewDefinition) else ""


@dataclass(slots=True)
class _Tally:
    """Counts of the rows that differ, and the first of them."""

    layout: Layout
    wanted: ComparisonOptions
    zone: RuledZone
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    day_column: str = ""
    _columns: Counter[str] = field(default_factory=Counter)
    _days: dict[DifferenceKind, Counter[int | None]] = field(default_factory=dict)
    _samples: dict[DifferenceKind, list[pa.Table]] = field(default_factory=dict)

    def add_pairs(self, pairs: RowPairs) -> None:
        """Count pairs that differ."""
        both = pairs.in_one & pairs.in_other
        self._count_values(pairs, both)
        self.day_column = self.day_column or _day_column(pairs.one.schema, self.layout.key)
        for kind, mask, rows in (
            (DifferenceKind.MISSING, pairs.in_one & ~both, pairs.one),
            (DifferenceKind.ADDED, pairs.in_other & ~both, pairs.other),
            (DifferenceKind.CHANGED, both, pairs.other),
        ):
            if count := int(mask.sum()):
                self._add_samples(kind, mask, pairs)
                self.counts[kind] += count
                if self.day_column:
                    days = _days_of(rows.column(self.day_column).filter(pa.array(mask)), self.zone)
                    self._days.setdefault(kind, Counter()).update(days)

    def _count_values(self, pairs: RowPairs, both: Mask) -> None:
        if not both.any():
            return
        chosen = pa.array(both)
        for name in self.layout.columns:
            if name not in self.layout.key:
                left, right = (rows.column(name).filter(chosen) for rows in (pairs.one, pairs.other))
                if count := int(find_apart(left, right, self.wanted.tolerance).sum()):
                    self._columns[name] += count

    def _add_samples(self, kind: DifferenceKind, mask: Mask, pairs: RowPairs) -> None:
        places = np.flatnonzero(mask)[: max(0, self.wanted.samples - self.counts[kind])]
        for place in places.tolist():
            sides = (("from", pairs.in_one, pairs.one), ("to", pairs.in_other, pairs.other))
            for side, is_there, rows in sides:
                if is_there[place]:
                    row = copy_sliced(rows.slice(place, 1))
                    marked = row.add_column(0, SIDE, pa.array([side])).add_column(0, DIFFERENCE, pa.array([str(kind)]))
                    self._samples.setdefault(kind, []).append(marked)

    def count_columns(self, rows_before: int | None) -> tuple[ColumnCount, ...]:
        """Columns that differ, most rows first."""
        both = None if rows_before is None else rows_before - self.counts[DifferenceKind.MISSING]
        return tuple(
            ColumnCount(name, count, count / both if both else None) for name, count in self._columns.most_common()
        )

    def count_days(self) -> tuple[DayCount, ...]:
        """The days of rows that differ, ascending."""
        days = {day for counts in self._days.values() for day in counts}
        return tuple(
            DayCount(
                "" if day is None else str(np.datetime64(day, "D")),
                *(self._days.get(kind, Counter[int | None]())[day] for kind in DifferenceKind),
            )
            for day in sorted(days, key=lambda day: (day is not None, day or 0))
        )

    def sample_rows(self) -> pa.Table:
        """The samples: missing rows, added rows, changed rows."""
        tables = [row for kind in DifferenceKind for row in self._samples.get(kind, [])]
        if not tables:
            return pa.table({DIFFERENCE: pa.array([], pa.string()), SIDE: pa.array([], pa.string())})
        return given_rows(pa.concat_tables(tables))


def _day_column(schema: pa.Schema, key: Sequence[str]) -> str:
    """The first column with a day, of the key if it has one; empty: none."""
    names = (*key, *schema.names)
    return next((n for n in names if pa.types.is_date(schema.field(n).type) or _is_time(schema.field(n).type)), "")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _days_of(values: pa.ChunkedArray, zone: RuledZone) -> Counter[int | None]:
    """How many values each day has, as days since 1970."""
    array = values.combine_chunks()
    if pa.types.is_timestamp(array.type):
        micros = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        local = convert_micros(micros, zone, local_micros) if array.type.tz is not None else micros
        # In integers: a double would round the last moments of a day in 9999 up to the next day.
        whole = local.fill_null(0).to_numpy() // _DAY_MICROS
        days = pa.array(whole, mask=null_mask(local))
    else:
        days = array.cast(pa.int32()).cast(pa.int64())
    counted = pc.value_counts(days).to_pylist()
    return Counter({cast("int | None", entry["values"]): entry["counts"] for entry in counted})
