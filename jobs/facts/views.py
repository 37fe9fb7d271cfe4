"""Views: their visible rows, freshness, state and quality."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from tussock.jobs.catalog.fed_tables import fed_by
from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.tables import TableFacts, stored_bytes, tables_by_relation
from tussock.jobs.quality.record import ViewQuality, read_record
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_MOST_BEHIND = 32  # epochs whose growth is read


class ViewState(StrEnum):
    """The state of a view."""

    READY = "ready"  # each epoch updates it
    PAUSED = "paused"  # it keeps its rows until it is resumed
    HELD_BACK = "held back"  # its checks, or the checks of a relation that it reads, failed: readers see old rows
    BUILDING = "being built"  # the open barrier, or a build over several epochs, creates or replaces it
    NOT_PUBLISHED = "not published"  # it has rows, but readers see none yet


class Quality(StrEnum):
    """The result of a view's own suite."""

    PASSED = "passed"
    WARNING = "warning"  # only expectations that just report have failed
    FAILED = "failed"
    NOT_CHECKED = "not checked"  # it has no suite, or the suite did not run on the epoch


class QualityFacts(msgspec.Struct, frozen=True):
    """The quality check's result for one view at the newest epoch that it checked."""

    verdict: Quality = Quality.NOT_CHECKED
    epoch: int | None = None  # the checked epoch
    at: datetime | None = None
    expectations: int = 0
    failures: tuple[str, ...] = ()  # `expectation: found …` for each that withholds the rows from readers
    warnings: tuple[str, ...] = ()  # for each that only reports


class ViewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One view, or one table.

    `freshness_s` is the age of the oldest change that readers do not see: a file that waits in a source which the view
    reads directly or indirectly, since it was written; or an epoch that is not published, or during which the view was
    paused or held back, since its barrier. It is 0 without such a change. So it does not grow while no input arrives,
    but grows while a run is late. It is None if unknown: a source could not be listed, its waiting input has no time
    (Kafka, Delta), or the sources were not checked. Waiting statements in the log have no time and do not count.
    """

    view: str
    kind: str  # view or table
    state: ViewState
    reason: str  # why it is not ready; empty if it is ready, or a user paused it
    since: datetime | None  # since when it is not ready; None if it is ready
    published_epoch: int | None  # as of which readers see it; None if they do not
    published_at: datetime | None
    committed_epoch: int | None  # the epoch of its rows, before the store's if it is paused; None: it is being built
    committed_at: datetime | None
    freshness_s: float | None
    # At the committed epoch; None if an epoch did not count them: then at most `rows_stored`.
    rows: int | None
    # The rows that readers see; None if unknown: as `rows`, or readers are more than _MOST_BEHIND epochs behind.
    published_rows: int | None = None
    rows_stored: int  # its rows in SSTs, including old versions and deletes until compaction drops them
    changed_rows: int | None  # changes in its output in the newest epoch; None: unknown
    tables: tuple[TableFacts, ...]  # the tables of its operators, including its own rows
    quality: QualityFacts
    reads: tuple[str, ...]  # sources of its rows
    wanted_s: float | None = None  # the pipeline's maximum age of the view; None if unset

    @property
    def stale(self) -> bool:
        """Whether it is known to be older than the pipeline allows."""
        return None not in (self.wanted_s, self.freshness_s) and (self.freshness_s or 0.0) > (self.wanted_s or 0.0)

    @property
    def state_bytes(self) -> int:
        """Encoded bytes of all its tables, including old versions."""
        return stored_bytes(self.tables)


def list_views(
    meta: MetaStore,
    now: datetime,
    version: HummockVersion | None = None,
    *,
    sources: Sequence[SourceFacts] | None = None,
    newest: EpochFacts | None = None,
    barrier: Barrier | None = None,
    wanted: Mapping[str, int] | None = None,
) -> tuple[ViewFacts, ...]:
    """Return the views and tables, in order of creation. Tables that sources feed are omitted.

    Args:
        now: the time to which freshness is counted.
        version: a version that was already read; None: the newest.
        sources: of the same version; None: the sources were not checked, so no view has a freshness of 0.
        newest: the version's epoch, for the changed rows; None: unknown.
        barrier: the open barrier, for views that are being built.
        wanted: the pipeline's maximum age of views, ms by name.

    Cost: one GET for each epoch that readers do not see, _MOST_BEHIND at most. One GET for the quality of the newest
    epoch, one for the published epoch, and one for each other epoch that a view is seen at, 8 at most. The cost
    does not grow with the number of views or epochs.
    """
    version = meta.read_latest() if version is None else version
    catalog = version.catalog if barrier is None or barrier.catalog is None else barrier.catalog
    look = _Look(meta, version, now, sources, newest, sources_by_relation(catalog), wanted or {})
    live = [r for r in version.catalog.live_relations() if not r.is_internal]
    shown = [r for r in live if r.kind in (RelationKind.VIEW, RelationKind.TABLE) and fed_by(r) is None]
    building = {
        r.name: r
        for build in catalog.builds
        for r in build.relations
        if r.kind is RelationKind.VIEW and not r.is_internal
    }
    building |= {} if barrier is None or barrier.catalog is None else _built_by(barrier, version.catalog)
    known = [look.facts_of(relation, building.pop(relation.name, None)) for relation in shown]
    return (*known, *(look.facts_of(relation, relation) for relation in building.values()))


def sources_by_relation(catalog: Catalog) -> dict[int, frozenset[str]]:
    """Return, by relation id, the names of the sources that it reads directly or indirectly."""
    sources_by_id: dict[int, frozenset[str]] = {}
    for relation in catalog.relations:  # readers always come after their inputs
        above = [sources_by_id.get(i, frozenset[str]()) for i in relation.depends_on]
        sources_by_id[relation.id] = (
            frozenset((relation.name,)) if relation.kind is RelationKind.SOURCE else frozenset[str]().union(*above)
        )
    return sources_by_id


def inputs_by_relation(catalog: Catalog) -> dict[str, frozenset[str]]:
    """Return, by name, the relations that each live relation reads directly or indirectly."""
    names = {relation.id: relation.name for relation in catalog.relations}
    inputs_by_id: dict[int, frozenset[str]] = {}
    for relation in catalog.relations:  # readers always come after their inputs
        above = [inputs_by_id.get(i, frozenset[str]()) | {names[i]} for i in relation.depends_on if i in names]
        inputs_by_id[relation.id] = frozenset[str]().union(*above)
    return {relation.name: inputs_by_id[relation.id] for relation in catalog.live_relations()}


def _built_by(barrier: Barrier, before: Catalog) -> dict[str, Relation]:
    """Return the views that a barrier creates or rebuilds, by name."""
    known = {r.id for r in before.relations}
    live = barrier.catalog.live_relations() if barrier.catalog is not None else ()
    return {r.name: r for r in live if r.id not in known and r.kind is RelationKind.VIEW and not r.is_internal}


class _Look:
    """State that is read once for all views."""

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
        self.meta, self.version, self.now, self.reads, self.wanted = meta, version, now, reads, wanted
        self.growth: dict[int, Mapping[str, int | None] | None] = {}
        self.sight = published_sight(version)
        self.progress = {r.id: build.progress for build in version.catalog.builds for r in build.relations}
        self.sources = None if sources is None else {s.source: s for s in sources}
        self.changed = (
            None if newest is None or newest.epoch != version.epoch else {r.relation: r.rows_out for r in newest.rows}
        )
        self.tables = tables_by_relation(version)
        self.quality = dict(_newest_results(meta, version))

    def facts_of(self, relation: Relation, building: Relation | None) -> ViewFacts:
        """Return the facts of one relation. `building`: the relation that is being built to replace it."""
        new = building is relation
        seen = 0 if new or not self._is_seen(relation) else self._seen_epoch(relation)
        committed = None if new else self._committed_epoch(relation)
        state, reason, since = self._view_state(relation, building, seen)
        tables = tuple(self.tables.get(relation.name, ()))
        reads = tuple(sorted(self.reads.get(relation.id, ())))
        return ViewFacts(
            view=relation.name,
            kind=relation.kind,
            state=state,
            reason=reason,
            since=since,
            published_epoch=seen or None,
            published_at=epoch_moment(seen) if seen else None,
            committed_epoch=committed,
            committed_at=None if committed is None else epoch_moment(committed),
            freshness_s=self._freshness_s(relation, seen, reads),
            rows=self.version.rows.get(relation.id),
            published_rows=self._published_rows(relation, seen),
            rows_stored=next((t.rows for t in tables if t.role == "rows"), 0),
            changed_rows=None if self.changed is None else 0 if new else self.changed.get(relation.name, 0),
            tables=tables,
            quality=self.quality.get(relation.name, QualityFacts()),
            reads=reads,
            wanted_s=self.wanted[relation.name] / 1000 if relation.name in self.wanted else None,
        )

    def _published_rows(self, relation: Relation, seen: int) -> int | None:
        """Return the rows at an epoch: the committed rows without the growth since."""
        rows = self.version.rows.get(relation.id)
        if rows is None or not seen:
            return None
        for epoch in [epoch for epoch in self.version.epochs if epoch > seen]:
            if (grown := self._rows_growth(epoch)) is None or (net := grown.get(relation.name, 0)) is None:
                return None
            rows -= net
        return rows

    def _rows_growth(self, epoch: int) -> Mapping[str, int | None] | None:
        """Return the growth of the relations in an epoch, by name; None if it is unknown. Cost: a GET, once."""
        if epoch not in self.growth:
            sealed = self.meta.read_manifest(epoch) if len(self.growth) < _MOST_BEHIND else None
            counted = None if sealed is None or sealed.rows is None else sealed.rows
            self.growth[epoch] = None if counted is None else {name: rows.net for name, rows in counted.items()}
        return self.growth[epoch]

    def _is_seen(self, relation: Relation) -> bool:
        return bool(self.sight.epoch_of(relation.name)) and self.version.published >= relation.created

    def _seen_epoch(self, relation: Relation) -> int:
        """Return the newest epoch whose changes of the view readers see."""
        seen = self.sight.epoch_of(relation.name)
        return min(seen, self._committed_epoch(relation)) if relation.paused_at(seen) else seen

    def _committed_epoch(self, relation: Relation) -> int:
        if relation.paused is None:
            return self.version.epoch
        before = [epoch for epoch in self.version.epochs if epoch < relation.paused]
        return before[-1] if before else relation.paused  # the epoch before it is no longer recorded

    def _view_state(
        self, relation: Relation, building: Relation | None, seen: int
    ) -> tuple[ViewState, str, datetime | None]:
        if building is not None:
            return ViewState.BUILDING, self.progress.get(building.id, ""), epoch_moment(building.created)
        if relation.paused is not None:
            return ViewState.PAUSED, relation.paused_for, epoch_moment(relation.paused)
        if (epoch := self.sight.held.get(relation.name)) is not None:
            after = next(
                (e for e in self.version.epochs if e > max(epoch, relation.created - 1)), self.version.published
            )
            return (
                ViewState.HELD_BACK,
                "its own checks, or the checks of a relation that it reads, failed",
                epoch_moment(after),
            )
        if not seen:
            return ViewState.NOT_PUBLISHED, "", epoch_moment(relation.created)
        return ViewState.READY, "", None

    def _freshness_s(self, relation: Relation, seen: int, reads: Iterable[str]) -> float | None:
        if relation.paused is not None:
            unseen = [epoch_moment(relation.paused)]
        else:
            unseen = [epoch_moment(epoch) for epoch in self.version.epochs if epoch > max(seen, relation.created - 1)][
                :1
            ]
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


def _newest_results(meta: MetaStore, version: HummockVersion) -> Iterator[tuple[str, QualityFacts]]:
    """Yield the quality check's newest result for each view, by name."""
    held_epochs = sorted({h.epoch for h in version.held if h.epoch}, reverse=True)
    quality_by_view: dict[str, QualityFacts] = {}
    for epoch in dict.fromkeys((version.epoch, version.published, *held_epochs[:6])):
        record = read_record(meta.objects, epoch) if epoch else None
        for view in () if record is None else record.views:
            quality_by_view.setdefault(view.view, _quality_facts(view, epoch))
    yield from quality_by_view.items()


def _quality_facts(view: ViewQuality, epoch: int) -> QualityFacts:
    verdict = Quality.FAILED if view.failures else Quality.WARNING if view.warnings else Quality.PASSED
    failures, warnings = (
        tuple(f"{f.expectation}: found {f.observed}" for f in problems) for problems in (view.failures, view.warnings)
    )
    return QualityFacts(verdict, epoch, epoch_moment(epoch), view.expectations, failures, warnings)
