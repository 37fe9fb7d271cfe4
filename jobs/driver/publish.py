"""Publishing: the one place where the epoch that readers see moves."""

import logging

from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


def publish(meta: MetaStore, epoch: int) -> HummockVersion:
    """Let every reader see a committed epoch. Never goes back: without effect when it or a later one is published.

    A sink hooks in here, after the pointer has moved: what it owes is the net change between the epoch that was published before
    and `epoch`. A publish may be cut off and repeated, so a sink writes keyed by epoch, and is called again for an epoch that is published.

    Requires: the quality gate passed `epoch`, where the pipeline has suites (jobs.gate).
    Raises: EpochNotCommittedError.
    """
    before = meta.latest().published
    version = meta.publish(epoch)
    if version.published > before:
        log.info("published epoch %d, version %d; readers saw epoch %d before", version.published, version.id, before)
    return version
