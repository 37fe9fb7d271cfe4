"""Committed epochs: the input, output and cost of each, from its manifest."""

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import msgspec

from tussock.jobs.barriers.moment import time_of_micros
from tussock.jobs.facts.moment import epoch_moment
from tussock.statestore.meta.barrier import Mutation
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.manifest import SealedManifest, StepSeconds, UnitWork
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.requests import Requests

_PARALLEL = 8  # manifests read in parallel


class RelationRows(msgspec.Struct, frozen=True):
    """One relation's rows in one epoch."""

    relation: str
    kind: str  # source, table or view; empty if the catalog no longer contains the relation
    rows_in: int  # into its fragments
    rows_out: int  # changes in its output
    net: int | None = None  # growth of its rows, negative if they shrank; None: not counted


class EpochFacts(msgspec.Struct, frozen=True):
    """One committed epoch, as its manifest reports it."""

    epoch: int
    at: datetime  # when its barrier was injected
    prev_epoch: int
    attempt: int  # of its barrier: 0 unless it superseded another
    writer: str  # the driver that sealed it
    published: bool
    rows: tuple[RelationRows, ...]  # by relation's name; empty if no fragment ran
    seconds: StepSeconds | None  # None: not measured
    mutation: Mutation | None  # None: as for `seconds`
    skipped: tuple[str, ...]  # input that `tussock barrier abandon` skipped
    columns: tuple[str, ...]  # columns that files brought to their sources
    ssts: int
    bytes: int
    units: tuple[UnitWork, ...] = ()  # work per parallel unit; empty: as for `seconds`, or the epoch had no work
    requests: Requests | None = None  # to the bucket since the previous manifest; None: as for `seconds`
    ran: str = ""  # where its levels ran and why; empty: as for `units`
    now: datetime | None = None  # the value of now() in views; None: the epoch had none
    passed_over: tuple[datetime, datetime] | None = None  # the time before `now` whose intervals have not run

    @property
    def rows_in(self) -> int:
        """Changes of sources and tables, which are the input of views."""
        return sum(rows.rows_out for rows in self.rows if rows.kind in (RelationKind.SOURCE, RelationKind.TABLE))

    @property
    def rows_out(self) -> int:
        """Changes of views."""
        return sum(rows.rows_out for rows in self.rows if rows.kind == RelationKind.VIEW)


def list_epochs(
    meta: MetaStore, last: int, before: int | None = None, version: HummockVersion | None = None
) -> tuple[EpochFacts, ...]:
    """Return a page of committed epochs, oldest first: the newest `last` ones, or those before an epoch.

    The pages end at the first epoch whose manifest vacuum has removed.

    Args:
        before: the first epoch of the page that was shown last; None: start with the newest.
        version: a version that was already read; None: the newest.

    Cost: one GET per epoch of the page, eight in parallel. Epochs that are no longer readable are read one after the
    other.
    """
    version = meta.read_latest() if version is None else version
    known = version.epochs[: len(version.epochs) if before is None else bisect_left(version.epochs, before)]
    named = [epoch for epoch in known[-last:] if epoch] if last > 0 else []
    with ThreadPoolExecutor(_PARALLEL) as pool:
        manifests = [sealed for sealed in pool.map(meta.read_manifest, named) if sealed is not None]
    if len(manifests) == len(named) < last:
        oldest = manifests[0] if manifests else None if before is None else meta.read_manifest(before)
        manifests = [*reversed([*_iterate_older(meta, oldest, last - len(manifests))]), *manifests]
    return tuple(epoch_facts(sealed, version) for sealed in manifests)


def _iterate_older(meta: MetaStore, sealed: SealedManifest | None, most: int) -> Iterator[SealedManifest]:
    """Yield the epochs before one, newest first, until a manifest is missing."""
    for _ in range(most):
        if sealed is None or not sealed.prev_epoch or (sealed := meta.read_manifest(sealed.prev_epoch)) is None:
            return
        yield sealed


def epoch_facts(sealed: SealedManifest, version: HummockVersion) -> EpochFacts:
    """Return the facts in a committed epoch's manifest. `version`: the newest."""
    kinds = {r.name: r.kind for r in version.catalog.relations}
    return EpochFacts(
        epoch=sealed.epoch,
        at=epoch_moment(sealed.epoch),
        prev_epoch=sealed.prev_epoch,
        attempt=sealed.attempt,
        writer=sealed.writer,
        published=sealed.epoch <= version.published,
        rows=tuple(
            RelationRows(name, kinds.get(name, ""), counts.rows_in, counts.rows_out, counts.net)
            for name, counts in (sealed.rows or {}).items()
        ),
        seconds=sealed.seconds,
        mutation=sealed.mutation,
        skipped=sealed.skipped,
        columns=sealed.columns,
        ssts=len(sealed.ssts),
        bytes=sum(s.size for s in sealed.ssts),
        units=sealed.units,
        requests=sealed.requests,
        ran=sealed.ran or "",
        now=time_of_micros(sealed.moment) if sealed.moment else None,
        passed_over=(
            None if (span := sealed.passed_over) is None else (time_of_micros(span.start), time_of_micros(span.end))
        ),
    )
