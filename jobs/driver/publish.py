"""Publishing: the one place where the epoch that readers see moves."""

import logging
from collections.abc import Collection

from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


def publish(meta: MetaStore, epoch: int, refused: Collection[int] | None = None) -> HummockVersion:
    """Let every reader see a committed epoch, but for what is held back. Never goes back: without effect when it or a later one is
    published.

    Args:
        refused: relations that the quality gate refused, where it judges view by view; see `MetaStore.publish`. None: nobody asked it.

    A sink hooks in here, after the pointer has moved: what it owes is the net change between the epoch that was published before
    and `epoch`. A publish may be cut off and repeated, so a sink writes keyed by epoch, and is called again for an epoch that is published.

    Requires: the quality gate passed the rest of `epoch`, where the pipeline has suites (tussock.jobs.gate).
    Raises: EpochNotCommittedError.
    """
    before = meta.latest()
    version = meta.publish(epoch, refused)
    if version.published > before.published:
        log.info(
            "published epoch %d, version %d; readers saw epoch %d before",
            version.published,
            version.id,
            before.published,
        )
    if version.held != before.held:
        held = published_sight(version).held
        log.info(
            "held back: %s", ", ".join(f"{name} as of epoch {at}" for name, at in held.items()) or "nothing any more"
        )
    return version
