"""The open barrier."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.statement_log import logged_statements
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.barrier import Barrier, Mutation
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class FileFacts(msgspec.Struct, frozen=True):
    """One file of a source."""

    source: str
    path: str
    bytes: int


class BarrierFacts(msgspec.Struct, frozen=True):
    """The open barrier: the input, changes and omissions of its epoch."""

    epoch: int
    at: datetime
    prev_epoch: int
    attempt: int
    writer: str
    sealed: bool  # its epoch has run; only the commit is missing
    entries: tuple[tuple[int, str], ...]  # (position in the log, short form of the statement)
    files: tuple[FileFacts, ...]
    mutation: Mutation
    changed: tuple[str, ...]  # names of the relations that the mutation changes
    units: int  # parallel units that the epoch runs on
    skipped: tuple[str, ...]
    run: dict[str, str] = {}  # the scheduler's or the command's name of the run that began it; empty for a session

    @property
    def begun_by(self) -> str:
        """The process that began the epoch, with the name of its run if it has one."""
        name = self.run.get("run") or self.run.get("command")
        return f"process {self.writer}" + (f" (run {name})" if name else "")


def open_barrier_facts(meta: MetaStore) -> BarrierFacts | None:
    """Return the open barrier; None if no barrier is open. Cost: as `barrier_facts`, and the look-up."""
    version = meta.read_latest()
    return None if (barrier := meta.barrier_after(version.epoch)) is None else barrier_facts(meta, version, barrier)


def barrier_facts(meta: MetaStore, version: HummockVersion, barrier: Barrier) -> BarrierFacts:
    """Return the facts of a barrier in force on a version.

    Cost: one GET per log entry that it takes, and one for the manifest.
    """
    catalog = barrier.catalog if barrier.catalog is not None else version.catalog
    names = {r.id: r.name for r in (*version.catalog.stored_relations(), *catalog.stored_relations())}
    return BarrierFacts(
        barrier.epoch,
        epoch_moment(barrier.epoch),
        barrier.prev_epoch,
        barrier.attempt,
        barrier.writer,
        meta.read_manifest(barrier.epoch) is not None,
        tuple(logged_statements(meta, barrier)),
        tuple(files_of(barrier, catalog)),
        barrier.mutation,
        tuple(names.get(relation, f"relation {relation}") for relation in barrier.mutation.relations),
        len(set(barrier.mapping.unit_of_vnode)),
        (*barrier.skipped, *barrier.columns),
        dict(barrier.run),
    )


def files_of(barrier: Barrier, catalog: Catalog) -> Iterator[FileFacts]:
    """Yield the files that a barrier takes from the sources of a catalog, including files that it reads again."""
    for relation in catalog.live_relations():
        if (statement := source_of(relation)) is not None:
            for item in reader_of(statement).items(barrier.splits.get(relation.id)):
                yield FileFacts(relation.name, item.name, item.nbytes)
