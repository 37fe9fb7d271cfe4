"""Publish: make a committed epoch visible to readers."""

from collections.abc import Collection

from tussock.jobs.driver.publish import publish as let_see
from tussock.jobs.gate.record import QualityRecord, require_judged, require_passed
from tussock.jobs.operations.alerts import let_go
from tussock.jobs.operations.publication import Publication, publication_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import GateScope


def publish(at: PipelineStore, epoch: int) -> Publication:
    """Publish `epoch`, as far as its quality record passed. Never goes back; a repetition returns the same result.

    Raises:
        QualityGateError: a suite failed and the gate judges the whole pipeline; readers keep seeing the previous epoch.
        MissingRecordError: the pipeline has suites that have not run on this epoch.
    """
    record = _passed_record(at, epoch)
    failed = () if record is None else record.failed
    _publish(at, epoch, [r.id for r in at.meta.latest().catalog.at(epoch) if r.name in failed])
    return publication_of(at.meta, epoch, record)


def publish_newest(at: PipelineStore) -> int | None:
    """Publish the newest committed epoch without the gate. Views that are held back stay held back.

    Returns the epoch, or None if it was already published.
    """
    version = at.meta.latest()
    if version.epoch == version.published:
        return None
    _publish(at, version.epoch, None)
    return version.epoch


def _publish(at: PipelineStore, epoch: int, refused: Collection[int] | None) -> None:
    let_see(at.meta, epoch, refused)
    let_go(at)


def _passed_record(at: PipelineStore, epoch: int) -> QualityRecord | None:
    """Return the record of an epoch that passed the gate; None if the pipeline has no suites. Raises as `publish`."""
    quality = at.pipeline.quality
    if quality is None or not quality.suites():
        return None
    return (require_judged if quality.scope is GateScope.VIEW else require_passed)(at.meta.objects, epoch)
