"""What each committed epoch took in, put out and cost, as its manifest says."""

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import moment
from tussock.statestore.meta.barrier import Mutation
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.manifest import SealedManifest, StepSeconds, UnitWork
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.requests import Requests

_PARALLEL = 8  # manifests read at once


class RelationRows(msgspec.Struct, frozen=True):
    """One relation's rows in one epoch."""

    relation: str
    kind: str  # source, table or view; empty where the relation is no longer in the catalog
    rows_in: int  # that came into its fragments
    rows_out: int  # changes that it put out
    net: int | None = (
        None  # by which its rows became more, or fewer; None: a release that did not count sealed the epoch
    )


class EpochFacts(msgspec.Struct, frozen=True):
    """One committed epoch, as its manifest reports it."""

    epoch: int
    at: datetime  # when its barrier was injected
    prev_epoch: int
    attempt: int  # of its barrier: 0 unless it superseded another
    writer: str  # the driver that sealed it
    published: bool
    rows: tuple[RelationRows, ...]  # by relation's name; empty where no fragment ran
    seconds: StepSeconds | None  # None: a release that did not keep them sealed it
    mutation: Mutation | None  # None: likewise
    skipped: tuple[str, ...]  # what `tussock barrier abandon` left out
    ssts: int
    bytes: int
    units: tuple[UnitWork, ...] = ()  # what each parallel unit did; empty: likewise, or nothing was to do
    requests: Requests | None = None  # to the bucket, of driver and workers, since the manifest before; None: likewise

    @property
    def rows_in(self) -> int:
        """Changes of sources and tables: what views were given."""
        return sum(rows.rows_out for rows in self.rows if rows.kind in (RelationKind.SOURCE, RelationKind.TABLE))

    @property
    def rows_out(self) -> int:
        """Changes of views."""
        return sum(rows.rows_out for rows in self.rows if rows.kind == RelationKind.VIEW)


def epochs(
    meta: MetaStore, last: int, before: int | None = None, version: HummockVersion | None = None
) -> tuple[EpochFacts, ...]:
    """A page of committed epochs, oldest first: the newest `last` ones, or those before an epoch.

    Args:
        before: the first epoch of the page that was shown last; None: begin with the newest.
        version: one that was looked up before; else the newest.

    What vacuum has removed the manifest of is not there any more: the pages end.

    Cost: a GET an epoch of the page, eight at once; of those that readers may no longer name, one after the other.
    """
    version = meta.latest() if version is None else version
    known = version.epochs[: len(version.epochs) if before is None else bisect_left(version.epochs, before)]
    named = [epoch for epoch in known[-last:] if epoch] if last > 0 else []
    with ThreadPoolExecutor(_PARALLEL) as pool:
        found = [sealed for sealed in pool.map(meta.sealed, named) if sealed is not None]
    if len(found) == len(named) < last:
        oldest = found[0] if found else None if before is None else meta.sealed(before)
        found = [*reversed([*_older(meta, oldest, last - len(found))]), *found]
    return tuple(epoch_facts(sealed, version) for sealed in found)


def _older(meta: MetaStore, sealed: SealedManifest | None, most: int) -> Iterator[SealedManifest]:
    """The epochs before one, newest first, as far as their manifests are there."""
    for _ in range(most):
        if sealed is None or not sealed.prev_epoch or (sealed := meta.sealed(sealed.prev_epoch)) is None:
            return
        yield sealed


def epoch_facts(sealed: SealedManifest, version: HummockVersion) -> EpochFacts:
    """A committed epoch, by its manifest. `version`: the newest."""
    kinds = {r.name: r.kind for r in version.catalog.relations}
    return EpochFacts(
        sealed.epoch,
        moment(sealed.epoch),
        sealed.prev_epoch,
        sealed.attempt,
        sealed.writer,
        sealed.epoch <= version.published,
        tuple(RelationRows(name, kinds.get(name, ""), *counts) for name, counts in (sealed.rows or {}).items()),
        sealed.seconds,
        sealed.mutation,
        sealed.skipped,
        len(sealed.ssts),
        sum(s.size for s in sealed.ssts),
        sealed.units,
        sealed.requests,
    )
