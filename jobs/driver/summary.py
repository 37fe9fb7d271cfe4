"""The summary of an epoch, as data and as text."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tussock.jobs.barriers.moment import following_views, moment_text, passed_over_text
from tussock.jobs.barriers.source_holds import holds_text
from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.fed_tables import fed_by_source
from tussock.jobs.schedule.lineage import Lineage
from tussock.jobs.schedule.schedule import Schedule, ScheduledFragment
from tussock.jobs.settings.row_values import printed_reason
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import rejects_name
from tussock.jobs.wire.epoch_task import FragmentReport, HotKeyFound
from tussock.statestore.meta.barrier import Barrier, MutationKind
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Hold, shown_name
from tussock.statestore.meta.manifest import HotKey, RowCounts, SealedManifest, StepSeconds, UnitWork
from tussock.statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """The result of one epoch. Times are wall seconds of this run; a resumed epoch has only its remaining parts."""

    epoch: int
    version: int
    rows: Mapping[str, RowCounts]  # by relation
    ssts: int
    bytes: int
    seconds: Mapping[str, float]
    undeclared: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # undeclared columns of new files, by source
    held: Mapping[str, tuple[Hold, ...]] = field(default_factory=dict)  # sources whose new files wait, by name
    paused: Mapping[str, str] = field(default_factory=dict)  # views that the run paused in this epoch, with reasons
    rejected: Mapping[str, int] = field(default_factory=dict)  # number of unreadable records in new files, by source
    # Input that the barrier skipped or pinned again, with the reason; columns that files brought to their sources.
    notes: tuple[str, ...] = ()
    # Number of unreadable records of earlier files that were removed with the files' other rows, by source.
    withdrawn: Mapping[str, int] = field(default_factory=dict)
    restated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # items whose old rows left, by source
    moment: str = ""  # the value of now() in views that follow it, if the store runs by intervals


def summary_of(
    sealed: SealedManifest,
    version: HummockVersion,
    seconds: Mapping[str, float],
    undeclared: Mapping[str, tuple[str, ...]],
    restated: Mapping[str, tuple[str, ...]],
) -> EpochSummary:
    """Return the summary of a sealed epoch that was committed as `version`."""
    size, rows, catalog = sum(s.size for s in sealed.ssts), sealed.rows or {}, version.catalog
    paused = {r.name: r.paused_for for r in catalog.live_relations() if r.paused == sealed.epoch and r.paused_for}
    tables = fed_by_source(catalog, Port.REJECTS)
    counts = {source: _inserted_and_deleted(rows[r.name]) for source, r in tables.items() if r.name in rows}
    rejected = {source: came for source, (came, _) in counts.items() if came}
    withdrawn = {source: gone for source, (_, gone) in counts.items() if gone}
    holds = holds_of(catalog)
    return EpochSummary(
        sealed.epoch,
        version.id,
        rows,
        len(sealed.ssts),
        size,
        dict(seconds),
        undeclared,
        holds,
        paused,
        rejected,
        (*sealed.skipped, *sealed.columns),
        withdrawn,
        restated,
        _moment_of(sealed, catalog),
    )


def _moment_of(sealed: SealedManifest, catalog: Catalog) -> str:
    if not (sealed.by_intervals or sealed.passed_over) or not following_views(catalog):
        return ""
    passed = "" if sealed.passed_over is None else f"; it passed over {passed_over_text(sealed.passed_over)}"
    return f"{moment_text(sealed.moment)}{passed}"


def _inserted_and_deleted(counts: RowCounts) -> tuple[int, int]:
    """(inserted, deleted) rows. A row to remove that a user has deleted is neither."""
    net = counts.rows_out if counts.net is None else counts.net
    return (counts.rows_out + net) // 2, (counts.rows_out - net) // 2


def restated_items(barrier: Barrier, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Return the items whose old rows a barrier takes back, by source. `catalog`: used if the barrier changes none."""
    items_by_source: dict[str, tuple[str, ...]] = {}
    for relation in (barrier.catalog or catalog).live_relations():
        document, statement = barrier.splits.get(relation.id), source_of(relation)
        if document is not None and statement is not None:
            items_by_source[relation.name] = tuple(
                item.name for item in reader_of(statement).items(document) if item.goes
            )
    return {name: items for name, items in items_by_source.items() if items}


def holds_of(catalog: Catalog) -> dict[str, tuple[Hold, ...]]:
    """Return the held sources by name, with their holds."""
    return {r.name: r.holds for r in catalog.live_relations() if r.holds}


def row_counts(
    reports: Iterable[FragmentReport], plan: Schedule, others: Mapping[str, RowCounts] | None
) -> dict[str, RowCounts] | None:
    """Sum the rows of each relation with reports, by name. Internal views come last, as people look for their own.

    `others`: counts of relations that did not run; None: they were not counted, so no counts are complete.
    """
    if others is None:
        return None
    rows: dict[str, RowCounts] = {}
    names = {s.id: s.shown_name for s in plan.all_fragments() if s.replayed is None}
    for report in (report for report in reports if report.fragment in names):
        before = rows.get(names[report.fragment], RowCounts(0, 0, 0))
        put_out = report.rows_out if report.last else 0
        net = (before.net or 0) + report.net
        sums = before.rows_in + report.rows_in, before.rows_out + put_out, net, before.matched + report.matched
        rows[names[report.fragment]] = RowCounts(*sums)
    return dict(sorted({**others, **rows}.items(), key=lambda counted: (counted[0].startswith(INTERNAL), counted[0])))


def unit_work(
    reports: Iterable[FragmentReport], plan: Schedule, catalog: Catalog, seconds: Mapping[int, float], units: int
) -> tuple[UnitWork, ...]:
    """Return the work of each unit that did any.

    Args:
        seconds: its busy time.
        units: if unit 0 ran for this many units, they count for equal parts of its work.
    """
    of_unit: dict[int, list[FragmentReport]] = {}
    for report in reports:
        of_unit.setdefault(report.unit, []).append(report)
    lineage = Lineage(plan.all_fragments(), catalog.stored_relations())
    fragments = {s.id: s for s in plan.all_fragments()}
    work = []
    for unit in sorted({*of_unit, *seconds}):
        mine = of_unit.get(unit, [])
        hot_keys = [(report.hot, fragments[report.fragment]) for report in mine if report.hot is not None]
        hot, of = max(hot_keys, key=lambda both: both[0].share * both[0].rows, default=(None, None))
        named = None if hot is None or of is None else _name_hot_key(hot, of, lineage)
        took = round(seconds.get(unit, 0.0), 3)
        work.append(UnitWork(unit, sum(r.rows_in for r in mine), sum(r.bytes_in for r in mine), took, named))
    if units > 1:
        return tuple(_equal_part(one, unit, units) for one in work for unit in range(units))
    return tuple(work)


def _equal_part(work: UnitWork, unit: int, units: int) -> UnitWork:
    """An equal part of the work for one of several units. The sums of all parts are the sums of the work."""
    rows, nbytes = (whole * (unit + 1) // units - whole * unit // units for whole in (work.rows, work.bytes))
    return UnitWork(unit, rows, nbytes, round(work.seconds / units, 3), work.hot if unit == 0 else None)


def _name_hot_key(hot: HotKeyFound, fragment: ScheduledFragment, lineage: Lineage) -> HotKey:
    columns = lineage.input_columns(fragment)[hot.input]
    names = tuple(columns[key].name for key in hot.keys)
    return HotKey(fragment.shown_name, names, ", ".join(hot.values), hot.vnode, round(hot.share, 4), hot.rows)


def undeclared_columns(reports: Iterable[FragmentReport], plan: Schedule) -> dict[str, tuple[str, ...]]:
    """Return the undeclared columns of new files by source, each as `name type`."""
    names = {s.id: s.shown_name for s in plan.all_fragments()}
    columns_by_source: dict[str, set[str]] = {}
    for report in reports:
        columns_by_source.setdefault(names[report.fragment], set()).update(report.undeclared)
    return {name: tuple(sorted(columns)) for name, columns in sorted(columns_by_source.items()) if columns}


def step_seconds(measured: Mapping[str, float]) -> StepSeconds:
    """Return the seconds of `PartTimer` in the format of a manifest, to the millisecond."""
    return StepSeconds(*(round(measured.get(step, 0.0), 3) for step in StepSeconds.__struct_fields__))


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Format steps and their seconds, such as `plan 0.10 s, run 1.25 s`."""
    return ", ".join(f"{step} {s:.2f} s" for step, s in seconds.items())


def barrier_text(barrier: Barrier, before: Catalog) -> str:
    """Describe a barrier in one line: its changes, and skipped input. `before`: the catalog of the previous epoch."""
    names = {r.id: r.name for r in (*before.stored_relations(), *(barrier.catalog or before).stored_relations())}
    about = ", ".join(shown_name(names.get(r, f"relation {r}")) for r in barrier.mutation.relations)
    changes: tuple[str, ...]
    match barrier.mutation.kind:
        case MutationKind.UNDO:
            undo = barrier.mutation.undo
            assert undo is not None, "a barrier of this kind has it"
            changes = (f"goes back to epoch {undo.to}",)
        case MutationKind.ADD:
            known = {r.name for r in before.live_relations()}
            added = [names.get(r, f"relation {r}") for r in barrier.mutation.relations]
            both = {"creates": [n for n in added if n not in known], "replaces": [n for n in added if n in known]}
            changes = tuple(
                f"{verb} {', '.join(map(shown_name, relations))}" for verb, relations in both.items() if relations
            )
        case MutationKind.STOP:
            changes = (f"drops {about}",)
        case MutationKind.BUILD:
            builds = () if barrier.catalog is None else barrier.catalog.builds
            changes = tuple(
                f"builds {', '.join(r.name for r in build.relations)} ({build.progress})" for build in builds
            )
        case MutationKind.PAUSE:
            changes = (f"pauses {about}",)
        case MutationKind.UPDATE:
            changes = (f"runs on {barrier.mapping.unit_count} units from this epoch on",)
        case MutationKind.NOTHING:
            changes = ()
        case unknown:
            assert_never(unknown)
    changes = (*changes, *(() if barrier.catalog is None else holds_text(before, barrier.catalog)))
    said = {f"paused {names.get(r)}" for r in barrier.mutation.relations if barrier.mutation.kind is MutationKind.PAUSE}
    restated = (f"restates {', '.join(items)} of {name}" for name, items in restated_items(barrier, before).items())
    parts = (*changes, *restated, *(text for text in barrier.skipped if text not in said), *barrier.columns)
    return ": ".join((f"barrier {barrier.epoch} after {barrier.prev_epoch}", *([", ".join(parts)] if parts else [])))


def show_summary(summary: EpochSummary, *, reasons: bool = True) -> str:
    """Format the summary: the epoch, then each relation with its rows in and its changes out.

    `reasons`: include why sources are held and views are paused.
    """

    def reason_text(reason: str) -> str:
        return f": {printed_reason(reason)}" if reasons else ""

    seconds = seconds_text(summary.seconds)
    lines = [
        f"epoch {summary.epoch}: version {summary.version}, {summary.ssts} SSTs, {summary.bytes:,} bytes; {seconds}"
    ]
    rows = [(shown_name(name), counts.rows_in, counts.rows_out) for name, counts in summary.rows.items()]
    width = max((len(name) for name, *_ in rows), default=0)
    lines += [f"  {name:{width}}  {rows_in:>12,} in  {rows_out:>12,} out" for name, rows_in, rows_out in rows]
    lines += [
        f"  new files of {name} contain columns that it does not declare: {', '.join(c)}"
        for name, c in summary.undeclared.items()
    ]
    lines += [f"  restated files of {name}: {', '.join(items)}" for name, items in summary.restated.items()]
    lines += [
        f"  unreadable records of {name}: {n:,}, stored in {rejects_name(name)}" for name, n in summary.rejected.items()
    ]
    lines += [
        f"  removed from {rejects_name(name)}: {n:,} unreadable records of files that were read again"
        for name, n in summary.withdrawn.items()
    ]
    lines += [
        f"  {name} has been held since epoch {hold.since}{reason_text(hold.reason)}"
        for name, holds in summary.held.items()
        for hold in holds
    ]
    lines += [f"  {summary.moment}"] if summary.moment else []
    lines += [f"  {note}" for note in summary.notes if note not in {f"paused {view}" for view in summary.paused}]
    lines += [
        f"  {shown_name(name)} is paused from this epoch on{reason_text(reason)}"
        for name, reason in summary.paused.items()
    ]
    return "\n".join(lines)


class PartTimer:
    """Adds the wall seconds of a block to `into[part]`."""

    def __init__(self, into: dict[str, float], part: str) -> None:
        self.into, self.part = into, part

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.into[self.part] = self.into.get(self.part, 0.0) + time.perf_counter() - self.start
