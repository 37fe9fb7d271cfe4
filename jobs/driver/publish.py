"""Publishing: the only place that changes the epoch that readers see."""

import logging
from collections.abc import Collection

from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


def publish_epoch(meta: MetaStore, epoch: int, refused: Collection[int] | None = None) -> HummockVersion:
    """Make a committed epoch visible to all readers, except for held-back views.

    Never goes back: no effect if this epoch or a later one is already published.

    Args:
        refused: relations that the quality check refused, if it judges view by view; see `MetaStore.publish`. None: the
            check did not run.

    Sinks run after this. A sink must apply the net change between the previously published epoch and `epoch`. A publish
    can be interrupted and repeated, so a sink writes by epoch, and is called again for a published epoch.

    Requires: if the pipeline has suites, the rest of `epoch` passed the quality check (jobs/quality/epoch_check.py).
    Raises: EpochNotCommittedError.
    """
    before = meta.read_latest()
    version = meta.publish(epoch, refused)
    if version.published > before.published:
        log.info(
            "published epoch %d, version %d; readers saw epoch %d before",
            version.published,
            version.id,
            before.published,
        )
    if version.held != before.held:
        held_views = published_sight(version).held
        log.info("held back: %s", ", ".join(f"{name} as of epoch {at}" for name, at in held_views.items()) or "no view")
    return version
