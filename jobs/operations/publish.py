"""Publish: make a committed epoch visible to readers."""

from collections.abc import Collection

from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.operations.alerts import end_past_alerts
from tussock.jobs.operations.publication import Publication, publication_of
from tussock.jobs.operations.quality import check_once, has_suites, record_news, record_unchecked, require_passed
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.record import HeldViewsError, MissingRecordError, QualityRecord, require_judged
from tussock.statestore.progress import Progress


def publish_checked_epoch(store: PipelineStore, epoch: int) -> Publication:
    """Publish `epoch`, as far as its quality record passed. Never goes back; a repetition returns the same result.

    Raises:
        QualityCheckError: a suite failed, and the check judges the whole pipeline; readers keep seeing the previous
            epoch.
        MissingRecordError: the pipeline has suites that have not run on this epoch, and readers do not see all of it.
    """
    try:
        record = _passed_record(store, epoch)
    except MissingRecordError:
        version = store.meta.read_latest()
        if epoch > version.published or version.held:
            raise
        return publication_of(store.meta, epoch, None)
    refused = frozenset[str]() if record is None else record.refused
    _move_readers(
        store, epoch, [r.id for r in store.meta.read_latest().catalog.relations_at(epoch) if r.name in refused]
    )
    return publication_of(store.meta, epoch, record)


def publish_newest(store: PipelineStore, progress: Progress, *, unchecked: str = "") -> int | None:
    """Publish the newest committed epoch to readers as far as it passes the quality check, and to published tables.

    The quality check judges it first, unless the current suites have done so.

    Args:
        unchecked: the command that publishes without the quality check, for the record; empty: the check decides.
            Views that are held back stay held back without the check.

    Returns: the epoch; None if readers already see all of it.
    Raises: QualityCheckError: suites failed, and nothing was published. HeldViewsError: suites failed, and everything
        but their views was published. QualitySuiteError.
    """
    version = store.meta.read_latest()
    epoch, record = version.epoch, None
    if epoch == version.published and not version.held:
        return None
    if not has_suites(store) or unchecked:
        if epoch == version.published:
            return None
        if unchecked and has_suites(store):
            record_unchecked(store, epoch, unchecked)
        _move_readers(store, epoch, None)
    else:
        record = check_once(store, epoch, progress)
        for line in record_news(store, record):
            progress(line)
        require_passed(store, record)
        publish_checked_epoch(store, epoch)
    after = store.meta.read_latest()
    news = (after.published, after.held) != (version.published, version.held)
    if news:
        progress(f"published epoch {epoch}")
        if store.pipeline.publish:
            from tussock.jobs.operations.tables import publish_tables  # importing the sinks takes long

            publish_tables(store, epoch, lambda line: progress(f"  {line}"))
    if record is not None and not record.passed:
        raise HeldViewsError(record)
    return epoch if news else None


def _move_readers(store: PipelineStore, epoch: int, refused: Collection[int] | None) -> None:
    publish_epoch(store.meta, epoch, refused)
    end_past_alerts(store)


def _passed_record(store: PipelineStore, epoch: int) -> QualityRecord | None:
    """Return the record of an epoch that passed the quality check; None if the pipeline has no suites.

    Raises as `publish_checked_epoch`.
    """
    if not has_suites(store):
        return None
    record = require_judged(store.meta.objects, epoch)
    require_passed(store, record)
    return record
