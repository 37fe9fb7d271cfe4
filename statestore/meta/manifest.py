"""Sealed manifests: all that an epoch wants to commit. Written once, after every SST it names is in the bucket."""

import msgspec

from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.document import checked_json
from statestore.meta.version import SstInfo


class SealedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the run of one barrier produced. Two drivers of one barrier produce the same rows, so either's manifest may be the one."""

    prev_epoch: int
    epoch: int
    attempt: int
    writer: str  # who sealed it
    ssts: tuple[SstInfo, ...]  # new L0 runs
    log_end: int
    catalog: Catalog | None = None  # None: unchanged
    reports: msgspec.Raw = msgspec.Raw(b"null")  # JSON of jobs/: row counts and the like; opaque here


def manifest_of(barrier: Barrier, writer: str, ssts: tuple[SstInfo, ...], reports: bytes = b"null") -> SealedManifest:
    """The manifest of a barrier whose actors wrote `ssts`. `reports` is one JSON value. Raises SettingError if it is not."""
    return SealedManifest(
        prev_epoch=barrier.prev_epoch,
        epoch=barrier.epoch,
        attempt=barrier.attempt,
        writer=writer,
        ssts=ssts,
        log_end=barrier.log_end,
        catalog=barrier.catalog,
        reports=checked_json("the reports of an epoch", reports),
    )
