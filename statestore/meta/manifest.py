"""Sealed manifests: everything that an epoch commits. Written once, after all its SSTs are in the bucket."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tussock.statestore.meta.barrier import Barrier, Mutation, TimeSpan
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.delta import EpochCommitted
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.requests import Requests


class RowCounts(NamedTuple):
    """One relation's rows in one epoch. Stored as `[rows_in, rows_out, net, matched]`."""

    rows_in: int  # rows that entered its fragments
    rows_out: int  # changes that it produced
    net: int | None = None  # rows gained or lost; None: not counted
    matched: int = 0  # of a source: rows of its files that cancelled each other, so that no reader got them


class StepSeconds(msgspec.Struct, frozen=True):
    """Wall seconds of the driver that sealed an epoch, by step. Excludes the commit, which follows the manifest."""

    plan: float  # building the schedule, including the state of epochs in flight
    run: float  # running the levels
    flush: float  # merging and uploading sealed rows, except rows that actors uploaded themselves


class HotKey(msgspec.Struct, frozen=True):
    """The most frequent key in the input of a fragment on one unit, estimated from a sample (jobs/task/hot_key.py)."""

    relation: str  # the relation of the fragment
    columns: tuple[str, ...]  # the key's columns or expressions
    key: str  # its values as text for people, shortened if long
    vnode: int
    share: float  # of the rows, 0 to 1
    rows: int  # that the fragment received on this unit


class UnitWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of one parallel unit in an epoch. All drivers of a barrier agree, except on seconds."""

    unit: int
    rows: int  # that entered its fragments
    bytes: int  # of these rows as Arrow arrays
    seconds: float = 0.0  # wall seconds of work in its fragments over all levels, without waiting for input
    hot: HotKey | None = None  # the hot key with the most rows; None: too few rows, or no fragment with keys


class SealedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The result of running one barrier.

    Two drivers of one barrier produce the same rows and SSTs, so either manifest is valid.

    `writer`, `seconds`, `ran` and `hosts` belong to the sealing driver and differ between manifests.
    MetaStore.seal_epoch keeps the first manifest.
    """

    prev_epoch: int
    epoch: int
    attempt: int
    writer: str  # the driver that sealed it
    ssts: tuple[SstInfo, ...]  # new L0 runs
    log_end: int
    catalog: Catalog | None = None  # None: unchanged
    rows: dict[str, RowCounts] | None = msgspec.field(default=None, name="reports")  # by relation; None: not counted
    seconds: StepSeconds | None = None  # None: not measured
    mutation: Mutation | None = None  # the barrier's
    moment: int = 0  # the barrier's
    by_intervals: bool = False  # the barrier's
    follows: int = 0  # the barrier's
    passed_over: TimeSpan | None = None  # the barrier's
    skipped: tuple[str, ...] = ()  # the barrier's: inputs that `tussock barrier abandon` skipped, as text for people
    columns: tuple[str, ...] = ()  # the barrier's
    units: tuple[UnitWork, ...] = ()  # units that had work, in order
    # Requests of driver and workers to the bucket since the manifest before; None: not counted.
    requests: Requests | None = None
    # Where its levels ran and why, as text for people; empty if no fragment ran.
    ran: str = ""
    # Units by the host that ran them, whose disk cache has their rows. Empty without executors of a cluster.
    hosts: Mapping[str, tuple[int, ...]] = {}


def manifest_of(
    barrier: Barrier,
    writer: str,
    ssts: tuple[SstInfo, ...],
    rows: Mapping[str, RowCounts] | None = None,
    seconds: StepSeconds | None = None,
    units: tuple[UnitWork, ...] = (),
    requests: Requests | None = None,
    ran: str = "",
    hosts: Mapping[str, Sequence[int]] | None = None,
) -> SealedManifest:
    """Build the manifest of a barrier whose actors wrote `ssts`."""
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
        by_intervals=barrier.by_intervals,
        follows=barrier.follows,
        passed_over=barrier.passed_over,
        skipped=barrier.skipped,
        columns=barrier.columns,
        units=units,
        requests=requests,
        ran=ran,
        hosts={host: tuple(units) for host, units in sorted((hosts or {}).items())},
    )


def change_of_manifest(manifest: SealedManifest, catalog: Catalog) -> EpochCommitted:
    """Return the change of the version that commits an epoch. `catalog`: before the epoch."""
    return EpochCommitted(
        prev_epoch=manifest.prev_epoch,
        epoch=manifest.epoch,
        attempt=manifest.attempt,
        ssts=manifest.ssts,
        log_end=manifest.log_end,
        catalog=manifest.catalog,
        moment=manifest.moment,
        net=net_by_relation(manifest, catalog if manifest.catalog is None else manifest.catalog),
        by_intervals=manifest.by_intervals,
        follows=manifest.follows,
        undoes=manifest.mutation is not None and manifest.mutation.undo is not None,
    )


def net_by_relation(manifest: SealedManifest, catalog: Catalog) -> dict[int, int] | None:
    """Rows gained or lost in the epoch by relation id, without zeros; None if they were not counted.

    Args:
        catalog: the epoch's catalog.
    """
    if manifest.rows is None or any(counts.net is None for counts in manifest.rows.values()):
        return None
    relations = catalog.relations_by_name()
    return {
        relations[name].id: counts.net for name, counts in manifest.rows.items() if counts.net and name in relations
    }
