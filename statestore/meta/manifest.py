"""Sealed manifests: all that an epoch wants to commit. Written once, after every SST it names is in the bucket."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tussock.statestore.meta.barrier import Barrier, Mutation
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.requests import Requests


class RowCounts(NamedTuple):
    """One relation's rows in one epoch. Stored as `[rows_in, rows_out, net]`; by an earlier release without the last."""

    rows_in: int  # that came into its fragments
    rows_out: int  # changes that it put out
    net: int | None = None  # by which its rows became more, or fewer; None: nobody counted


class StepSeconds(msgspec.Struct, frozen=True):
    """Wall seconds of the driver that sealed an epoch, by step. The commit comes after the manifest, so it is not in here."""

    plan: float  # the schedule, and what epochs in flight hold
    run: float  # the levels
    flush: float  # the merge and upload of what actors sealed, where they did not upload it themselves


class HotKey(msgspec.Struct, frozen=True):
    """The key with the most rows among those that one fragment took in on one unit, as a sample of them says (jobs/task/hot_key.py)."""

    relation: str  # whose fragment it is
    columns: tuple[str, ...]  # what the key is made of: a relation's columns, or expressions
    key: str  # its values, for a person; cut where they are long
    vnode: int
    share: float  # of those rows, 0 to 1
    rows: int  # that the fragment took in on the unit


class UnitWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one parallel unit did in an epoch. Rows, bytes and the hot key are the same for every driver of a barrier; seconds are not."""

    unit: int
    rows: int  # that came into its fragments
    bytes: int  # of these, as Arrow arrays
    seconds: float = (
        0.0  # wall seconds in which its fragments worked, over all levels; waiting for input is not in here
    )
    hot: HotKey | None = None  # of its fragments' the one with most rows; None: too few came in, or none by a key


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
    units: tuple[
        UnitWork, ...
    ] = ()  # those that had something to do, in order; empty where an earlier release sealed it, too
    requests: Requests | None = (
        None  # of driver and workers to the bucket, since the manifest before; None: nobody counted
    )


def manifest_of(
    barrier: Barrier,
    writer: str,
    ssts: tuple[SstInfo, ...],
    rows: Mapping[str, RowCounts] | None = None,
    seconds: StepSeconds | None = None,
    units: tuple[UnitWork, ...] = (),
    requests: Requests | None = None,
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
        units=units,
        requests=requests,
    )


def net_by_relation(manifest: SealedManifest, catalog: Catalog) -> dict[int, int] | None:
    """By relation's id, how many rows it has more than before the epoch, where any; None where nobody counted.

    Args:
        catalog: that of the epoch.
    """
    if manifest.rows is None or any(counts.net is None for counts in manifest.rows.values()):
        return None
    relations = catalog.called()
    return {
        relations[name].id: counts.net for name, counts in manifest.rows.items() if counts.net and name in relations
    }
