"""The versions of the log."""

from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.facts.tables import all_ssts
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class VersionFacts(msgspec.Struct, frozen=True):
    """One version of the log."""

    version: int
    epoch: int  # committed
    at: datetime | None  # of that epoch; None before the first epoch
    published: int
    floor: int  # the oldest readable epoch
    ssts: int
    bytes: int
    log_end: int  # number of statements taken so far


def list_versions(meta: MetaStore, last: int) -> tuple[VersionFacts, ...]:
    """Return the newest `last` versions, oldest first.

    Cost: the log's deltas since the snapshot before the oldest version.
    """
    newest = meta.read_latest().id
    return tuple(_version_facts(meta.read_version(number)) for number in range(max(0, newest - last + 1), newest + 1))


def _version_facts(version: HummockVersion) -> VersionFacts:
    ssts = all_ssts(version)
    return VersionFacts(
        version.id,
        version.epoch,
        epoch_moment(version.epoch) if version.epoch else None,
        version.published,
        version.min_readable_epoch,
        len(ssts),
        sum(s.size for s in ssts),
        version.log_end,
    )
