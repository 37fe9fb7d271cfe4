"""What readers see of each view, how fresh it is, what it keeps, and what was found of its quality."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.moment import moment
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.tables import TableFacts, tables
from tussock.jobs.gate.record import ViewQuality, read_record
from tussock.jobs.plan.fed_tables import fed_by
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class ViewState(StrEnum):
    """How a view stands."""

    READY = "ready"  # each epoch brings it up to date
    PAUSED = "paused"  # it keeps its rows, until it is resumed
    HELD_BACK = (
        "held back"  # its rows, or those of one that it reads, failed their suite: readers go on seeing earlier ones
    )
    BUILDING = "being built"  # the open barrier creates it, or builds it anew, or several epochs do
    NOT_PUBLISHED = "not published"  # it has rows, and readers see none yet


class Quality(StrEnum):
    """What the view's own suite found."""

    PASSED = "passed"
    WARNING = "warning"  # only expectations that report did not hold
    FAILED = "failed"
    NOT_CHECKED = "not checked"  # it has no suite, or nobody has run it on the epoch


class QualityFacts(msgspec.Struct, frozen=True):
    """What the gate found of one view at the newest epoch that it looked at."""

    verdict: Quality = Quality.NOT_CHECKED
    epoch: int | None = None  # that was looked at
    at: datetime | None = None
    expectations: int = 0
    failures: tuple[str, ...] = ()  # `expectation: found …` of those that keep the rows from readers
    warnings: tuple[str, ...] = ()  # of those that only report


class ViewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One view, or one table.

    `freshness_s` is the age of the oldest change that readers do not see: a file that waits in a source which the view reads, directly or
    not, since it was written; an epoch that is not published, or that the view was paused or held back in, since its barrier. 0 where
    there is none. So it does not grow while nothing comes, and does while a run is late. None where it is not known: a source could not be
    listed, what waits there has no time (Kafka, Delta), or nobody looked. Statements that wait in the log have no time, and do not count.
    """

    view: str
    kind: str  # view or table
    state: ViewState
    reason: str  # why it is not ready; empty: a person paused it, or it is
    since: datetime | None  # it is not ready; None: it is
    published_epoch: int | None  # as of which readers see it; None: not at all
    published_at: datetime | None
    committed_epoch: (
        int | None
    )  # as of which it has rows; behind the store's where it is paused. None: it is being built
    committed_at: datetime | None
    freshness_s: float | None
    rows: (
        int | None
    )  # at the committed epoch; None where an earlier release's epochs did not count: then at most `rows_stored`
    rows_stored: int  # that SSTs hold of its own rows: old versions and deletes count until compaction drops them
    changed_rows: int | None  # changes that it put out in the newest epoch; None: unknown
    tables: tuple[TableFacts, ...]  # what its operators keep, its own rows included
    quality: QualityFacts
    reads: tuple[str, ...]  # sources that its rows come from
    wanted_s: float | None = None  # how old the pipeline wants it to be at most; None: it says nothing

    @property
    def stale(self) -> bool:
        """Whether it is known to be older than the pipeline wants it."""
        return None not in (self.wanted_s, self.freshness_s) and (self.freshness_s or 0.0) > (self.wanted_s or 0.0)

    @property
    def state_bytes(self) -> int:
        """Of all its tables, encoded; old versions included."""
        return sum(table.bytes for table in self.tables)


def views(
    meta: MetaStore,
    now: datetime,
    version: HummockVersion | None = None,
    *,
    sources: Sequence[SourceFacts] | None = None,
    newest: EpochFacts | None = None,
    barrier: Barrier | None = None,
    wanted: Mapping[str, int] | None = None,
) -> tuple[ViewFacts, ...]:
    """The views and tables, in order of creation; tables that sources feed are their sources'.

    Args:
        now: that freshness is counted to.
        version: one that was looked up before; else the newest.
        sources: of the same version; None: nobody has looked what waits, so of no view freshness is 0.
        newest: the version's epoch, for the changed rows; None: unknown.
        barrier: the open one, for views that are being built.
        wanted: how old the pipeline wants views to be at most, ms by name.

    Cost: a GET for the quality of the newest epoch, one for that of the published one where nobody has judged the newest, and one for each
    other epoch as of which a view is seen, 8 at most. Nothing of it grows with the number of views or epochs.
    """
    version = meta.latest() if version is None else version
    catalog = version.catalog if barrier is None or barrier.catalog is None else barrier.catalog
    look = _Look(meta, version, now, sources, newest, sources_by_relation(catalog), wanted or {})
    live = [r for r in version.catalog.live() if not r.internal]
    shown = [r for r in live if r.kind in (RelationKind.VIEW, RelationKind.TABLE) and fed_by(r) is None]
    building = {
        r.name: r for build in catalog.builds for r in build.relations if r.kind is RelationKind.VIEW and not r.internal
    }
    building |= {} if barrier is None or barrier.catalog is None else _built_by(barrier, version.catalog)
    known = [look.facts(relation, building.pop(relation.name, None)) for relation in shown]
    return (*known, *(look.facts(relation, relation) for relation in building.values()))


def sources_by_relation(catalog: Catalog) -> dict[int, frozenset[str]]:
    """By relation's id the names of the sources that its rows come from, directly or not."""
    found: dict[int, frozenset[str]] = {}
    for relation in catalog.relations:  # readers always come after what they read
        above = [found.get(i, frozenset[str]()) for i in relation.depends_on]
        found[relation.id] = (
            frozenset((relation.name,)) if relation.kind is RelationKind.SOURCE else frozenset[str]().union(*above)
        )
    return found


def _built_by(barrier: Barrier, before: Catalog) -> dict[str, Relation]:
    """What a barrier builds, or builds anew, by name."""
    known = {r.id for r in before.relations}
    live = barrier.catalog.live() if barrier.catalog is not None else ()
    return {r.name: r for r in live if r.id not in known and r.kind is RelationKind.VIEW and not r.internal}


class _Look:
    """What is looked up once for all views."""

    def __init__(
        self,
        meta: MetaStore,
        version: HummockVersion,
        now: datetime,
        sources: Sequence[SourceFacts] | None,
        newest: EpochFacts | None,
        reads: Mapping[int, frozenset[str]],
        wanted: Mapping[str, int],
    ) -> None:
        self.version, self.now, self.reads, self.wanted = version, now, reads, wanted
        self.sight = published_sight(version)
        self.progress = {r.id: build.progress for build in version.catalog.builds for r in build.relations}
        self.sources = None if sources is None else {s.source: s for s in sources}
        self.changed = (
            None if newest is None or newest.epoch != version.epoch else {r.relation: r.rows_out for r in newest.rows}
        )
        self.tables: dict[str, list[TableFacts]] = {}
        for table in tables(version):
            self.tables.setdefault(table.relation, []).append(table)
        self.quality = dict(_judged(meta, version))

    def facts(self, relation: Relation, building: Relation | None) -> ViewFacts:
        """Of one relation; `building`: the one that is built in its place."""
        new = building is relation
        seen = 0 if new or not self._is_seen(relation) else self._seen_epoch(relation)
        committed = None if new else self._committed_epoch(relation)
        state, reason, since = self._state(relation, building, seen)
        kept = tuple(self.tables.get(relation.name, ()))
        reads = tuple(sorted(self.reads.get(relation.id, ())))
        return ViewFacts(
            view=relation.name,
            kind=relation.kind,
            state=state,
            reason=reason,
            since=since,
            published_epoch=seen or None,
            published_at=moment(seen) if seen else None,
            committed_epoch=committed,
            committed_at=None if committed is None else moment(committed),
            freshness_s=self._freshness(relation, seen, reads),
            rows=self.version.rows.get(relation.id),
            rows_stored=next((t.rows for t in kept if t.role == "rows"), 0),
            changed_rows=None if self.changed is None else 0 if new else self.changed.get(relation.name, 0),
            tables=kept,
            quality=self.quality.get(relation.name, QualityFacts()),
            reads=reads,
            wanted_s=self.wanted[relation.name] / 1000 if relation.name in self.wanted else None,
        )

    def _is_seen(self, relation: Relation) -> bool:
        return bool(self.sight.epoch_of(relation.name)) and self.version.published >= relation.created

    def _seen_epoch(self, relation: Relation) -> int:
        """The newest epoch whose changes of the view readers see."""
        seen = self.sight.epoch_of(relation.name)
        return min(seen, self._committed_epoch(relation)) if relation.paused_at(seen) else seen

    def _committed_epoch(self, relation: Relation) -> int:
        if relation.paused is None:
            return self.version.epoch
        before = [epoch for epoch in self.version.epochs if epoch < relation.paused]
        return before[-1] if before else relation.paused  # the one before it is not on record any more

    def _state(
        self, relation: Relation, building: Relation | None, seen: int
    ) -> tuple[ViewState, str, datetime | None]:
        if building is not None:
            return ViewState.BUILDING, self.progress.get(building.id, ""), moment(building.created)
        if relation.paused is not None:
            return ViewState.PAUSED, relation.paused_for, moment(relation.paused)
        if (epoch := self.sight.held.get(relation.name)) is not None:
            after = next(
                (e for e in self.version.epochs if e > max(epoch, relation.created - 1)), self.version.published
            )
            return ViewState.HELD_BACK, "its suite failed, or that of a view that it reads", moment(after)
        if not seen:
            return ViewState.NOT_PUBLISHED, "", moment(relation.created)
        return ViewState.READY, "", None

    def _freshness(self, relation: Relation, seen: int, reads: Iterable[str]) -> float | None:
        if relation.paused is not None:
            unseen = [moment(relation.paused)]
        else:
            unseen = [moment(epoch) for epoch in self.version.epochs if epoch > max(seen, relation.created - 1)][:1]
        waiting: list[datetime] = []
        known = self.sources is not None
        for source in (
            (self.sources[name] for name in reads if name in self.sources) if self.sources is not None else ()
        ):
            waiting += [] if source.oldest is None else [source.oldest]
            known = known and not source.trouble and (source.oldest is not None or not source.waiting_files)
        if oldest := [*unseen, *waiting]:
            return max(0.0, (self.now - min(oldest)).total_seconds())
        return 0.0 if known else None


def _judged(meta: MetaStore, version: HummockVersion) -> Iterator[tuple[str, QualityFacts]]:
    """The newest that the gate knows of each view, by name."""
    held = sorted({h.epoch for h in version.held if h.epoch}, reverse=True)
    found: dict[str, QualityFacts] = {}
    for epoch in dict.fromkeys((version.epoch, version.published, *held[:6])):
        record = read_record(meta.objects, epoch) if epoch else None
        for view in () if record is None else record.views:
            found.setdefault(view.view, _quality(view, epoch))
    yield from found.items()


def _quality(view: ViewQuality, epoch: int) -> QualityFacts:
    verdict = Quality.FAILED if view.failures else Quality.WARNING if view.warnings else Quality.PASSED
    failures, warnings = (
        tuple(f"{f.expectation}: found {f.observed}" for f in found) for found in (view.failures, view.warnings)
    )
    return QualityFacts(verdict, epoch, moment(epoch), view.expectations, failures, warnings)
