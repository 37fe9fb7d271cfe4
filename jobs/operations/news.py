"""News for a scheduler: what changed in sources and views since it was last told of them, however long ago that is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tussock.jobs.facts.intake import Intakes, SourceIntake, intakes
from tussock.jobs.gate.record import read_record
from tussock.jobs.operations.publication import Publication, around_publish, changed_rows, published_views
from tussock.jobs.operations.quality import has_suites
from tussock.jobs.operations.store import PipelineStore
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_LAST_EPOCHS = 10  # in which a run looks for its own


@dataclass(frozen=True, slots=True)
class Told:
    """What the scheduler was told of a relation so far. `epoch`: of its newest event, 0 if there is none; `again`: an event of that epoch
    is wanted even so."""

    epoch: int = 0
    again: bool = False


Asked = Callable[[str], Told]
"""Of a relation's name."""


@dataclass(frozen=True, slots=True)
class SourceNews:
    """What was taken in of a source since the scheduler was last told of it.

    Args:
        epoch: the committed one, with all that was taken in.
        since: nothing is new up to here; 0: unknown.
        files: that came; of a topic or a Delta table, its ranges. None: there were too many epochs to look at.
        rows: that came, less those that were taken back; None: they were not counted, or no view reads the source.
        own: one run took in all of it, the one that asks.
    """

    name: str
    epoch: int
    version: int
    since: int
    files: int | None
    bytes: int | None
    rows: int | None
    own: bool


def source_news(at: PipelineStore, told: Asked, run: Mapping[str, str]) -> tuple[SourceNews, ...]:
    """The sources of which committed epochs took something in since the scheduler was told of any of them: whoever reports one source looks
    at all of them, at the same epoch.

    Args:
        run: the one that asks.

    After more epochs than one look goes through, each source may have news, without numbers. Cost: that of
    tussock.jobs.facts.intake.intakes, and one call of `told` per source.
    """
    meta, version = at.meta, at.meta.latest()
    live = version.catalog.live()
    sources = [(r, told(r.name)) for r in live if r.kind is RelationKind.SOURCE]
    since = max((one.epoch for _, one in sources), default=version.epoch)
    known = since == version.epoch or meta.has_epoch(since)  # else the store was restored from a copy
    read = frozenset(id for r in live for id in r.depends_on)
    found = _SourceIntakes(
        version, since if known else 0, intakes(meta, version.catalog, since, version.epoch), run, read
    )
    of_run = _of_run(meta, version, run) if any(one.again for _, one in sources) else frozenset[int]()
    return tuple(found.news(r) for r, one in sources if found.may_have(r) or (one.again and r.id in of_run))


def _of_run(meta: MetaStore, version: HummockVersion, run: Mapping[str, str]) -> frozenset[int]:
    """The sources of which the run took something in, even if another run has reported it."""
    return frozenset(
        taken.source
        for taken in intakes(meta, version.catalog, 0, version.epoch, _LAST_EPOCHS).found
        if taken.run == run
    )


@dataclass(frozen=True, slots=True)
class _SourceIntakes:
    """What the epochs since the newest event took in.

    Args:
        since: the epoch of that event; 0: unknown.
        run: the one that asks.
        read: relations that something reads. Files of other sources are taken, and not opened.
    """

    version: HummockVersion
    since: int
    intakes: Intakes
    run: Mapping[str, str]
    read: frozenset[int]

    def may_have(self, source: Relation) -> bool:
        """Whether a source may have news."""
        return bool(self._of(source)) or not self.intakes.whole

    def news(self, source: Relation) -> SourceNews:
        """What is new of a source."""
        mine, version, since = self._of(source), self.version, self.since
        own = bool(mine) and all(taken.run == self.run for taken in mine)
        if not self.intakes.whole:
            return SourceNews(source.name, version.epoch, version.id, since, files=None, bytes=None, rows=None, own=own)
        items = [item for taken in mine for item in taken.items if not item.goes]
        counted = [taken.rows for taken in mine if taken.rows is not None]
        rows = sum(counted) if source.id in self.read and len(counted) == len(mine) else None
        return SourceNews(
            source.name, version.epoch, version.id, since, len(items), sum(item.nbytes for item in items), rows, own
        )

    def _of(self, source: Relation) -> tuple[SourceIntake, ...]:
        return tuple(taken for taken in self.intakes.found if taken.source == source.id)


def view_news(at: PipelineStore, told: Asked) -> Publication:
    """The views of which readers see other rows than when the scheduler was last told of them, as readers see them now. None before the
    first publish.

    A view that is held back has none, nor one that is paused at rows that were reported. If the store does not have the reported epoch,
    the view is new as a whole.

    Cost: one call of `told` per view; a GET for each epoch that is news, MOST_EPOCHS of tussock.jobs.facts.intake at most.
    """
    meta, version = at.meta, at.meta.latest()
    epoch, held = version.published, published_sight(version).held
    views = (
        [r for r in version.catalog.at(epoch) if r.kind is RelationKind.VIEW and r.name not in held] if epoch else []
    )
    since = {r.name: at_ for r in views if (at_ := _news_since(meta, version, r, told(r.name))) is not None}
    if not since:
        return Publication(epoch, version.id, (), dict(held))
    created = {r.name: r.created for r in version.catalog.at(epoch)}
    changed = changed_rows(meta, {view: at_ or max(0, created[view] - 1) for view, at_ in since.items()}, epoch)
    record = read_record(meta.objects, epoch) if has_suites(at) else None
    _, shown = around_publish(meta, epoch)
    return Publication(epoch, shown.id, tuple(published_views(record, since, changed)), dict(held))


def _news_since(meta: MetaStore, version: HummockVersion, view: Relation, told: Told) -> int | None:
    """From which epoch on the view has news, 0 if it is new as a whole; None: it has none."""
    lost = told.epoch > 0 and not meta.has_epoch(told.epoch)  # the store was restored from a copy
    if not (lost or told.again or (told.epoch < version.published and not _rests(version, view, told.epoch))):
        return None
    # a view that took this name after an event of another view is new as a whole
    return told.epoch if told.epoch >= view.created and not lost else 0


def _rests(version: HummockVersion, view: Relation, since: int) -> bool:
    """Whether a view is paused, and no epoch between `since` and its pause can have changed it. An epoch that is no longer listed may
    have."""
    if view.paused is None or not view.paused_at(version.published):
        return False
    listed = version.epochs[0] <= since if version.epochs else False
    return since >= view.paused or (listed and not any(since < epoch < view.paused for epoch in version.epochs))
