"""The shape of a store, the cost of its requests, and the space that vacuum would free."""

from collections.abc import Sequence

import msgspec

from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.settings.prices import Prices
from tussock.jobs.upkeep.vacuum import sweep_store
from tussock.statestore.hummock.amplification import read_amplification, space_amplification
from tussock.statestore.hummock.compaction_picker import CompactionOptions, dropped_tables, pick_compactions
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.requests import Requests


class LevelFacts(msgspec.Struct, frozen=True):
    """One level in use."""

    level: int
    ssts: int
    rows: int  # includes old versions and deletes
    bytes: int


class StoreFacts(msgspec.Struct, frozen=True):
    """The newest version's shape."""

    version: int
    levels: tuple[LevelFacts, ...]
    bytes: int  # of all SSTs
    rows: int  # of all SSTs
    read_amplification: int  # sorted runs that a read of one table touches, at most
    # Bytes of all SSTs / bytes of the largest level below L0; None: all SSTs are on L0.
    space_amplification: float | None
    compaction_due: tuple[str, ...]  # reasons, most urgent first; empty: nothing is due
    open_tasks: int  # of compaction
    readable_epochs: int  # number of epochs that readers may name


class CostFacts(msgspec.Struct, frozen=True):
    """The cost of epochs by a price table. Excludes requests of readers, compaction, vacuum and the commit itself."""

    epochs: int  # number of epochs included
    rows_in: int  # changes of sources and tables in these epochs
    requests: Requests
    busy_s: float  # of all units
    requests_dollars: float
    units_dollars: float  # of the busy seconds, if the table has a price for them
    dollars_per_million_rows: float | None  # both; None: no rows
    storage_dollars_per_month: float  # of the SSTs of the newest version


class VacuumFacts(msgspec.Struct, frozen=True):
    """The objects that vacuum would remove at the current floor."""

    objects: int
    bytes: int
    kept_bytes: int  # in data/, not removed


def store_shape(version: HummockVersion) -> StoreFacts:
    """Return the shape of a version. Cost: no request; O(tables x SSTs)."""
    used = [(level, ssts) for level, ssts in enumerate(version.levels) if ssts]
    levels = tuple(LevelFacts(n, len(ssts), sum(s.rows for s in ssts), sum(s.size for s in ssts)) for n, ssts in used)
    dropped = dropped_tables(version, version.epochs)
    due = pick_compactions(version, CompactionOptions(), dropped, oldest=version.epochs[0])
    return StoreFacts(
        version.id,
        levels,
        sum(level.bytes for level in levels),
        sum(level.rows for level in levels),
        read_amplification(version),
        space_amplification(version),
        tuple(pick.reason for pick in due),
        len(version.tasks),
        len([epoch for epoch in version.epochs if epoch]),
    )


def sum_cost(version: HummockVersion, done: Sequence[EpochFacts], prices: Prices) -> CostFacts:
    """Return the cost of epochs.

    Epochs that counted no requests are omitted. Cost: no request.
    """
    counted = [epoch for epoch in done if epoch.requests is not None]
    requests = sum((epoch.requests for epoch in counted if epoch.requests is not None), Requests())
    rows_in = sum(epoch.rows_in for epoch in counted)
    busy = sum(unit.seconds for epoch in counted for unit in epoch.units)
    asked = prices.dollars_of(requests)
    worked = busy / 3600 * prices.unit_hour
    per_million = (asked + worked) / rows_in * 1e6 if rows_in else None
    stored = prices.dollars_of_month(sum(sst.size for level in version.levels for sst in level))
    return CostFacts(len(counted), rows_in, requests, round(busy, 3), asked, worked, per_million, stored)


def vacuum_facts(meta: MetaStore) -> VacuumFacts:
    """Return what vacuum would free now.

    Cost: one LIST request per 1,000 objects of data/, manifests, snapshots, pins and the copies of sources' files.
    """
    sweep = sweep_store(meta, dry_run=True)
    sizes = [*(g.size for g in (*sweep.vacuumed.garbage, *sweep.copies)), *(o.size for o in sweep.temporary)]
    return VacuumFacts(len(sizes), sum(sizes), sweep.vacuumed.kept_bytes)
