"""The changes that a publish makes visible, for later tasks and events."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tussock.jobs.quality.record import QualityRecord, QualityVerdict, stays_published
from tussock.jobs.reading.intake import MOST_EPOCHS
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class PublishedView:
    """The changes of one view that a publish makes visible.

    Args:
        rows: number of rows of the view; None if no suite read all of them.
        changed_rows: changes that the view's operators emitted in all epochs of this publish; None if a count is gone.
        quality: the verdict of the view's own suite on the published epoch; NONE without a suite.
        since: the epoch at which readers saw the view before; 0 if they did not see it.
        warnings: number of failed expectations that only warn.
    """

    name: str
    rows: int | None
    changed_rows: int | None
    quality: QualityVerdict
    since: int = 0
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of a publish.

    `views` are the views whose visible rows changed. `held` contains the held-back views by name, each with the epoch
    at which readers see it.
    """

    epoch: int
    version: int
    views: tuple[PublishedView, ...]
    held: Mapping[str, int] = field(default_factory=dict)


def publication_of(meta: MetaStore, epoch: int, record: QualityRecord | None) -> Publication:
    """Return the changes that the publish of `epoch` made visible, however long ago it was. Requires: it is published.

    Args:
        record: the quality check's record of this epoch; None if the pipeline has no suites.
    """
    before, version = around_publish(meta, epoch)
    mine = version.published == epoch  # otherwise it was published together with a later epoch
    seen_before, seen = published_sight(before), published_sight(version)
    views = [r for r in version.catalog.relations_at(epoch) if r.kind is RelationKind.VIEW and not r.is_internal]
    views = [r for r in views if not stays_published(before, r, epoch)]
    news = [r for r in views if r.name not in seen.held and (not mine or seen_before.epoch_of(r.name) < epoch)]
    since = {r.name: seen_before.epoch_of(r.name) or max(0, r.created - 1) for r in news}
    changed = changed_rows(meta, since, epoch) if mine else dict.fromkeys(since, 0)
    shown = {view: seen_before.epoch_of(view) if mine else 0 for view in since}
    return Publication(epoch, version.id, tuple(published_views(record, shown, changed)), dict(seen.held))


def published_views(
    record: QualityRecord | None, since: Mapping[str, int], changed: Mapping[str, int]
) -> Iterator[PublishedView]:
    """Yield the entry of each view in `since`, which contains the epochs at which readers saw the views before."""
    judged = {} if record is None else {view.view: view for view in record.views}
    for view, epoch in since.items():
        quality = judged.get(view)
        yield PublishedView(
            view,
            rows=None if quality is None else quality.rows,
            changed_rows=changed.get(view),
            quality=QualityVerdict.NONE if quality is None else quality.verdict,
            since=epoch,
            warnings=0 if quality is None else len(quality.warnings),
        )


def around_publish(meta: MetaStore, epoch: int) -> tuple[HummockVersion, HummockVersion]:
    """Return the versions directly before and after the publish of `epoch`. Requires: it is published.

    Cost: the newest version is tried first; an older publish is found by binary search.
    """
    newest = meta.read_latest()

    def is_visible(version: HummockVersion) -> bool:
        if version.published == epoch == newest.published:
            return version.held == newest.held  # the same epoch was published again after a suite was corrected
        return version.published >= epoch

    if newest.id > 0 and not is_visible(before := meta.read_version(newest.id - 1)):
        return before, newest
    first = bisect_left(range(newest.id + 1), True, key=lambda version_id: is_visible(meta.read_version(version_id)))
    return meta.read_version(max(0, first - 1)), meta.read_version(first)


def changed_rows(meta: MetaStore, since: Mapping[str, int], until: int) -> dict[str, int]:
    """Sum the changes of each view over the epochs after `since` up to `until`.

    Omits a view if the count of an epoch is gone, or too far back. Cost: one GET per epoch, at most MOST_EPOCHS.
    """
    changed, epoch = dict.fromkeys(since, 0), until
    open_, looked_at = set(since), 0
    while open_ := {view for view in open_ if since[view] < epoch}:
        looked_at += 1
        if looked_at > MOST_EPOCHS or (sealed := meta.read_manifest(epoch)) is None or sealed.rows is None:
            return {view: rows for view, rows in changed.items() if view not in open_}
        for view in open_ & sealed.rows.keys():
            changed[view] += sealed.rows[view].rows_out
        epoch = sealed.prev_epoch
    return changed
