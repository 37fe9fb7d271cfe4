"""What each committed epoch took in, put out and cost, as its manifest says."""

from datetime import datetime

import msgspec

from jobs.facts.moment import moment
from statestore.meta.barrier import Mutation
from statestore.meta.catalog import RelationKind
from statestore.meta.manifest import SealedManifest, StepSeconds
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion


class RelationRows(msgspec.Struct, frozen=True):
    """One relation's rows in one epoch."""

    relation: str
    kind: str  # source, table or view; empty where the relation is no longer in the catalog
    rows_in: int  # that came into its fragments
    rows_out: int  # changes that it put out


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

    @property
    def rows_in(self) -> int:
        """Changes of sources and tables: what views were given."""
        return sum(rows.rows_out for rows in self.rows if rows.kind in (RelationKind.SOURCE, RelationKind.TABLE))

    @property
    def rows_out(self) -> int:
        """Changes of views."""
        return sum(rows.rows_out for rows in self.rows if rows.kind == RelationKind.VIEW)


def epochs(meta: MetaStore, last: int) -> tuple[EpochFacts, ...]:
    """The newest `last` committed epochs that readers may name, oldest first. Cost: one GET each, and one for the version."""
    version = meta.latest()
    found = (meta.sealed(epoch) for epoch in version.epochs[-last:] if epoch and last > 0)
    return tuple(_epoch(sealed, version) for sealed in found if sealed is not None)


def _epoch(sealed: SealedManifest, version: HummockVersion) -> EpochFacts:
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
    )
