"""Sealed manifests: all that an epoch wants to commit. Written once, after every SST it names is in the bucket."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from statestore.meta.barrier import Barrier, Mutation
from statestore.meta.catalog import Catalog
from statestore.meta.version import SstInfo


class RowCounts(NamedTuple):
    """One relation's rows in one epoch. Stored as `[rows_in, rows_out]`."""

    rows_in: int  # that came into its fragments
    rows_out: int  # changes that it put out


class StepSeconds(msgspec.Struct, frozen=True):
    """Wall seconds of the driver that sealed an epoch, by step. The commit comes after the manifest, so it is not in here."""

    plan: float  # the schedule, and what epochs in flight hold
    run: float  # the levels
    flush: float  # the merge and upload of what actors sealed, where they did not upload it themselves


class SealedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the run of one barrier produced. Two drivers of one barrier produce the same rows and SSTs, so either's manifest may be the one.

    Writer and seconds are the sealing driver's own: manifests of two drivers differ in them, and `seal` lets the first one count.
    """

    prev_epoch: int
    epoch: int
    attempt: int
    writer: str  # who sealed it
    ssts: tuple[SstInfo, ...]  # new L0 runs
    log_end: int
    catalog: Catalog | None = None  # None: unchanged
    rows: dict[str, RowCounts] | None = msgspec.field(default=None, name="reports")  # by relation; None: nobody counted
    seconds: StepSeconds | None = None  # None: sealed by a release that did not keep them; so for the mutation
    mutation: Mutation | None = None  # the barrier's
    moment: int = 0  # the barrier's
    skipped: tuple[str, ...] = ()  # the barrier's: what `tussock barrier abandon` left out, as text for a person


def manifest_of(
    barrier: Barrier,
    writer: str,
    ssts: tuple[SstInfo, ...],
    rows: Mapping[str, RowCounts] | None = None,
    seconds: StepSeconds | None = None,
) -> SealedManifest:
    """The manifest of a barrier whose actors wrote `ssts`."""
    return SealedManifest(
        prev_epoch=barrier.prev_epoch,
        epoch=barrier.epoch,
        attempt=barrier.attempt,
        writer=writer,
        ssts=ssts,
        log_end=barrier.log_end,
        catalog=barrier.catalog,
        rows=None if rows is None else dict(rows),
        seconds=seconds,
        mutation=barrier.mutation,
        moment=barrier.moment,
        skipped=barrier.skipped,
    )
