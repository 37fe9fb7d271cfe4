"""Facts about a store: what its epochs, versions, SSTs, tables, sources and open barrier are, apart from how anybody prints them.

`tussock inspect` and `tussock barrier show` print these structs; pages and tests read them. All are plain data and encode as JSON.
Times are UTC. Functions take the MetaStore where they read the store, and say what that costs; nothing here changes a store.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from jobs.catalog.reader import open_table
from jobs.catalog.rejected import rejected
from jobs.catalog.statement_log import logged_statements
from jobs.plan.definition import source_of
from jobs.sources.describe import place_text
from jobs.sources.registry import reader_of
from jobs.sql.statements import CreateSource
from statestore.errors import InputError, RetryableError
from statestore.meta.barrier import Barrier, Mutation
from statestore.meta.catalog import Catalog, Relation, RelationKind
from statestore.meta.epoch import epoch_ms
from statestore.meta.manifest import SealedManifest, StepSeconds
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion, SstInfo


class NoSuchTableError(InputError):
    """No state table of this number or relation of this name."""

    def __init__(self, found: str, known: tuple[str, ...]) -> None:
        super().__init__(found, known)
        self.found, self.known = found, known

    def __str__(self) -> str:
        return f"no state table {self.found!r}; give a number or a relation's name: {', '.join(self.known) or 'the store has none yet'}"


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


class SstFacts(msgspec.Struct, frozen=True):
    """One SST of a version."""

    level: int
    name: str
    bytes: int
    rows: int
    min_epoch: int
    max_epoch: int
    tables: tuple[str, ...]  # `relation.role#number` of the state tables with rows in it


class TableFacts(msgspec.Struct, frozen=True):
    """One state table of a relation that is in use."""

    table_id: int
    relation: str
    kind: str  # of the relation: source, table or view
    role: str  # what the relation keeps in it
    columns: tuple[str, ...]  # `name type`
    rows: int  # in all SSTs: old versions and deletes count until compaction drops them
    bytes: int  # encoded, likewise


class FileFacts(msgspec.Struct, frozen=True):
    """One file of a source."""

    source: str
    path: str
    bytes: int


class BarrierFacts(msgspec.Struct, frozen=True):
    """The open barrier: what its epoch takes in, changes and leaves out."""

    epoch: int
    at: datetime
    prev_epoch: int
    attempt: int
    writer: str
    sealed: bool  # its epoch ran to the end, and only the commit is left to do
    entries: tuple[tuple[int, str], ...]  # (position in the log, statement in few words)
    files: tuple[FileFacts, ...]
    mutation: Mutation
    changed: tuple[str, ...]  # names of the relations that the mutation is about
    units: int  # parallel units that the epoch runs on
    skipped: tuple[str, ...]


class SourceFacts(msgspec.Struct, frozen=True):
    """One source: what it has taken, and what waits for the next epochs."""

    source: str
    format: str
    path: str
    taken_files: int
    taken_bytes: int
    waiting_files: int
    waiting_bytes: int
    trouble: str  # why what waits could not be looked up; empty: it could
    held: tuple[str, ...] = ()  # why what waits was not taken in, with the epoch that first went on without it
    rejects: int | None = None  # records that could not be read, in the source's table of them; None where it has none


def moment(epoch: int) -> datetime:
    """When the barrier of an epoch was injected, by the clock of its driver."""
    return datetime.fromtimestamp(epoch_ms(epoch) / 1000, UTC)


def epochs(meta: MetaStore, last: int) -> tuple[EpochFacts, ...]:
    """The newest `last` committed epochs that readers may name, oldest first. Cost: one GET each, and one for the version."""
    version = meta.latest()
    found = (meta.sealed(epoch) for epoch in version.epochs[-last:] if epoch and last > 0)
    return tuple(_epoch(sealed, version) for sealed in found if sealed is not None)


def versions(meta: MetaStore, last: int) -> tuple[VersionFacts, ...]:
    """The newest `last` versions, oldest first. Cost: the log's deltas from the snapshot before the oldest of them."""
    newest = meta.latest().id
    return tuple(_version(meta.version(number)) for number in range(max(0, newest - last + 1), newest + 1))


def ssts(version: HummockVersion) -> tuple[SstFacts, ...]:
    """The SSTs of a version, level by level, newest first on level 0."""
    names = {t.table_id: f"{r.name}.{_role(r, t.name)}#{t.table_id}" for r in version.catalog.relations for t in r.state_tables}
    return tuple(
        SstFacts(
            level, s.name, s.size, s.rows, s.min_epoch, s.max_epoch, tuple(names.get(x.table_id, f"?#{x.table_id}") for x in s.sections)
        )
        for level, found in enumerate(version.levels)
        for s in found
    )


def tables(version: HummockVersion) -> tuple[TableFacts, ...]:
    """The state tables of live relations, by number."""
    rows: dict[int, int] = {}
    size: dict[int, int] = {}
    for section in (x for s in _all_ssts(version) for x in s.sections):
        rows[section.table_id] = rows.get(section.table_id, 0) + section.rows
        size[section.table_id] = size.get(section.table_id, 0) + section.bytes
    found = (
        TableFacts(
            t.table_id,
            r.name,
            r.kind,
            _role(r, t.name),
            tuple(f"{c.name} {c.type}" for c in t.columns),
            rows.get(t.table_id, 0),
            size.get(t.table_id, 0),
        )
        for r in version.catalog.live()
        for t in r.state_tables
    )
    return tuple(sorted(found, key=lambda table: table.table_id))


def table_rows(meta: MetaStore, table: str, limit: int, epoch: int | None = None) -> pa.Table:
    """The first rows of a state table, in key order.

    Args:
        table: its number, or a relation's name, which stands for the table of the relation's own rows, with the relation's columns named.
        epoch: the committed one when None.

    Raises: NoSuchTableError; EpochNotCommittedError, EpochExpiredError.
    """
    version = meta.latest()
    known = {t.table_id: (r, t) for r in version.catalog.live() for t in r.state_tables}
    wanted = [(r, t) for number, (r, t) in known.items() if table in (str(number), r.name)]
    if not wanted:
        raise NoSuchTableError(table, (*map(str, known), *(r.name for r in version.catalog.live())))
    relation, schema = wanted[-1]
    names = [c.name for c in (relation.columns if table == relation.name and relation.kind is not RelationKind.SOURCE else ())]
    epoch = version.epoch if epoch is None else epoch
    parts: list[pa.Table] = []
    left = limit
    with meta.reading(epoch) as pinned:
        for part in open_table(meta.objects, pinned, schema, epoch).scan():
            parts.append(part.slice(0, left).rename_columns([*names, *part.column_names[len(names) :]]))
            left -= parts[-1].num_rows
            if left <= 0:
                break
    return pa.concat_tables(parts) if parts else pa.table({})


def barrier(meta: MetaStore) -> BarrierFacts | None:
    """The open barrier; None where there is none. Cost: a GET for each log entry that it takes, and one for the manifest."""
    if (found := meta.open_barrier()) is None:
        return None
    catalog = found.catalog if found.catalog is not None else meta.latest().catalog
    names = {r.id: r.name for r in (*meta.latest().catalog.relations, *catalog.relations)}
    return BarrierFacts(
        found.epoch,
        moment(found.epoch),
        found.prev_epoch,
        found.attempt,
        found.writer,
        meta.sealed(found.epoch) is not None,
        tuple(logged_statements(meta, found)),
        tuple(_files(found, catalog)),
        found.mutation,
        tuple(names.get(relation, f"relation {relation}") for relation in found.mutation.relations),
        len(set(found.mapping.units)),
        found.skipped,
    )


def sources(meta: MetaStore) -> tuple[SourceFacts, ...]:
    """The sources, in order of creation. Cost: one listing each, one scan of the files it has taken, and one of its rejects."""
    version = meta.latest()
    rejects = rejected(meta.objects, version)
    found = ((relation, source_of(relation)) for relation in version.catalog.live())
    both = ((relation, statement) for relation, statement in found if statement is not None)
    return tuple(_source(meta, version, relation, statement, rejects.get(relation.name)) for relation, statement in both)


# --- one of each -----------------------------------------------------------------------------------------------------------------


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


def _version(version: HummockVersion) -> VersionFacts:
    found = _all_ssts(version)
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


def _all_ssts(version: HummockVersion) -> list[SstInfo]:
    return [s for level in version.levels for s in level]


def _role(relation: Relation, table: str) -> str:
    """A state table's name without its relation's, which many begin with."""
    return table.removeprefix(f"{relation.name}.")


def _files(barrier: Barrier, catalog: Catalog) -> Iterator[FileFacts]:
    for relation in catalog.live():
        if (statement := source_of(relation)) is not None:
            for item in reader_of(statement).items(barrier.splits.get(relation.id)):
                yield FileFacts(relation.name, item.name, item.nbytes)


def _source(meta: MetaStore, version: HummockVersion, relation: Relation, statement: CreateSource, rejects: int | None) -> SourceFacts:
    reader, table = reader_of(statement), open_table(meta.objects, version, relation.state_tables[0])
    taken, trouble = reader.taken_items(table), ""
    try:
        waiting = reader.waiting(statement, table)
    except (InputError, RetryableError) as err:
        waiting, trouble = (), str(err)
    return SourceFacts(
        relation.name,
        statement.format,
        place_text(statement),
        len(taken),
        sum(item.nbytes for item in taken),
        len(waiting),
        sum(item.nbytes for item in waiting),
        trouble,
        tuple(f"held since epoch {h.since}: {h.reason}" for h in relation.holds),
        rejects,
    )
