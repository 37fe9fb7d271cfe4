"""Changes of sources and views since their last asset event, however long ago that was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tussock.jobs.operations.publication import Publication, around_publish, changed_rows, published_views
from tussock.jobs.operations.quality import has_suites
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.record import read_record
from tussock.jobs.reading.intake import Intakes, SourceIntake, read_intakes
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_LAST_EPOCHS = 10  # number of epochs in which a run searches for its own


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last event of a relation. `epoch` is 0 without one; `again` requests a second event of the same epoch."""

    epoch: int = 0
    again: bool = False


FindLastEvent = Callable[[str], LastEvent]
"""Returns the last event of a relation, by name."""


@dataclass(frozen=True, slots=True)
class SourceNews:
    """The intake of a source since its last event.

    Args:
        epoch: the committed epoch that contains the intake.
        since: the epoch of the last event; 0 if unknown.
        files: number of new files, or of ranges of a topic or a Delta table. None if there were too many epochs.
        rows: new rows minus rows taken back. None if they were not counted, or if no view reads the source.
        own: the calling run took in all of it.
    """

    name: str
    epoch: int
    version: int
    since: int
    files: int | None
    bytes: int | None
    rows: int | None
    own: bool


def source_news(store: PipelineStore, last_told: FindLastEvent, run: Mapping[str, str]) -> tuple[SourceNews, ...]:
    """Return the sources with intake in the committed epochs since the newest event of any source.

    A caller that reports one source must report all of them, at the same epoch.

    Args:
        run: the calling run.

    If there are more epochs than one call examines, every source is returned, without numbers. Cost: as
    `read_intakes`, and one call of `last_told` per source.
    """
    meta, version = store.meta, store.meta.read_latest()
    live = version.catalog.live_relations()
    sources = [(r, last_told(r.name)) for r in live if r.kind is RelationKind.SOURCE]
    since = max((one.epoch for _, one in sources), default=version.epoch)
    known = since == version.epoch or meta.has_epoch(since)  # False if the store was restored from a backup
    read = frozenset(id for r in live for id in r.depends_on)
    intakes = _SourceIntakes(
        version, since if known else 0, read_intakes(meta, version.catalog, since, version.epoch), run, read
    )
    of_run = _of_run(meta, version, run) if any(one.again for _, one in sources) else frozenset[int]()
    return tuple(
        intakes.news_of_source(r) for r, one in sources if intakes.may_have(r) or (one.again and r.id in of_run)
    )


def _of_run(meta: MetaStore, version: HummockVersion, run: Mapping[str, str]) -> frozenset[int]:
    """Return the sources from which the run took something in, even if another run has reported it."""
    return frozenset(
        taken.source
        for taken in read_intakes(meta, version.catalog, 0, version.epoch, _LAST_EPOCHS).entries
        if taken.run == run
    )


@dataclass(frozen=True, slots=True)
class _SourceIntakes:
    """The intake of the epochs since the newest event.

    Args:
        since: the epoch of that event; 0 if unknown.
        run: the calling run.
        read: relations with a reader. Files of other sources are taken without being opened.
    """

    version: HummockVersion
    since: int
    intakes: Intakes
    run: Mapping[str, str]
    read: frozenset[int]

    def may_have(self, source: Relation) -> bool:
        """Return whether a source may have news."""
        return bool(self._intakes_of(source)) or not self.intakes.whole

    def news_of_source(self, source: Relation) -> SourceNews:
        """Return the news of a source."""
        mine, version, since = self._intakes_of(source), self.version, self.since
        own = bool(mine) and all(taken.run == self.run for taken in mine)
        if not self.intakes.whole:
            return SourceNews(source.name, version.epoch, version.id, since, files=None, bytes=None, rows=None, own=own)
        items = [item for taken in mine for item in taken.items if not item.goes]
        counted = [taken.rows for taken in mine if taken.rows is not None]
        rows = sum(counted) if source.id in self.read and len(counted) == len(mine) else None
        return SourceNews(
            source.name, version.epoch, version.id, since, len(items), sum(item.nbytes for item in items), rows, own
        )

    def _intakes_of(self, source: Relation) -> tuple[SourceIntake, ...]:
        return tuple(taken for taken in self.intakes.entries if taken.source == source.id)


def view_news(store: PipelineStore, last_told: FindLastEvent) -> Publication:
    """Return the views whose published rows differ from the rows of their last event. Empty before the first publish.

    Omits held-back views, and paused views whose rows were already reported. If the store does not contain the epoch
    of the event, the whole view counts as new.

    Cost: one call of `last_told` per view; a GET per new epoch, at most MOST_EPOCHS of tussock.jobs.reading.intake.
    """
    meta, version = store.meta, store.meta.read_latest()
    epoch, held_views = version.published, published_sight(version).held
    views = (
        [r for r in version.catalog.relations_at(epoch) if r.kind is RelationKind.VIEW and r.name not in held_views]
        if epoch
        else []
    )
    since = {r.name: at_ for r in views if (at_ := _news_since(meta, version, r, last_told(r.name))) is not None}
    if not since:
        return Publication(epoch, version.id, (), dict(held_views))
    created = {r.name: r.created for r in version.catalog.relations_at(epoch)}
    changed = changed_rows(meta, {view: at_ or max(0, created[view] - 1) for view, at_ in since.items()}, epoch)
    record = read_record(meta.objects, epoch) if has_suites(store) else None
    _, shown = around_publish(meta, epoch)
    return Publication(epoch, shown.id, tuple(published_views(record, since, changed)), dict(held_views))


def _news_since(meta: MetaStore, version: HummockVersion, view: Relation, last_event: LastEvent) -> int | None:
    """Return the epoch since which the view has news, 0 if the whole view is new, None without news."""
    lost = last_event.epoch > 0 and not meta.has_epoch(last_event.epoch)  # the store was restored from a backup
    if not (
        lost
        or last_event.again
        or (last_event.epoch < version.published and not _is_resting(version, view, last_event.epoch))
    ):
        return None
    # A view that replaced another view of this name after the event is new as a whole.
    return last_event.epoch if last_event.epoch >= view.created and not lost else 0


def _is_resting(version: HummockVersion, view: Relation, since: int) -> bool:
    """Return whether a view is paused and did not change between `since` and its pause.

    False if the epochs between them are no longer listed, because the view may have changed in one of them.
    """
    if view.paused is None or not view.paused_at(version.published):
        return False
    listed = version.epochs[0] <= since if version.epochs else False
    return since >= view.paused or (listed and not any(since < epoch < view.paused for epoch in version.epochs))
