"""The versions of the log."""

from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import moment
from tussock.jobs.facts.tables import all_ssts
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class VersionFacts(msgspec.Struct, frozen=True):
    """One version of the log."""

    version: int
    epoch: int  # committed
    at: datetime | None  # of that epoch; None before the first one
    published: int
    floor: int  # the oldest epoch that a reader may name
    ssts: int
    bytes: int
    log_end: int  # statements taken so far


def versions(meta: MetaStore, last: int) -> tuple[VersionFacts, ...]:
    """The newest `last` versions, oldest first. Cost: the log's deltas from the snapshot before the oldest of them."""
    newest = meta.latest().id
    return tuple(_version(meta.version(number)) for number in range(max(0, newest - last + 1), newest + 1))


def _version(version: HummockVersion) -> VersionFacts:
    found = all_ssts(version)
    return VersionFacts(
        version.id,
        version.epoch,
        moment(version.epoch) if version.epoch else None,
        version.published,
        version.min_readable_epoch,
        len(found),
        sum(s.size for s in found),
        version.log_end,
    )
