"""The bytes of a store by cause, and by state table."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from tussock.jobs.facts.tables import role_of
from tussock.jobs.upkeep.vacuum import sweep_store
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.hummock.sst_bytes import TableBytes, table_bytes
from tussock.statestore.meta.names import (
    BARRIERS,
    CLAIMS,
    DATA,
    ENTRIES,
    MANIFESTS,
    PAGES,
    PAYLOADS,
    PINS,
    ROOTS,
    SNAPSHOTS,
    SOURCES,
    STATEMENT_PACKS,
    VERSION_PACKS,
    VERSIONS,
)
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo

ROWS = "rows"  # the role of the state table that holds a relation's own rows

_DOCUMENTS = {
    "copies of source files": (SOURCES,),
    "version log": (VERSIONS, VERSION_PACKS),
    "snapshots of versions": (SNAPSHOTS, ROOTS, PAGES),
    "barriers": (BARRIERS,),
    "manifests": (MANIFESTS,),
    "statements and their data": (ENTRIES, STATEMENT_PACKS, CLAIMS, PAYLOADS),
    "pins": (PINS,),
}


class CauseFacts(msgspec.Struct, frozen=True):
    """One cause of stored bytes."""

    cause: str
    bytes: int
    objects: int | None = None  # None: parts of the SSTs in use


class TableSize(msgspec.Struct, frozen=True):
    """The bytes of one state table in the SSTs of the newest version."""

    table_id: int
    relation: str  # `?` if the relation is dropped and forgotten
    role: str
    rows: int  # stored, including old versions and deletes
    old_rows: int  # known number of old versions and deletes among them, at least
    bytes: int  # the sum of the parts below
    keys: int
    epochs: int  # of the columns epoch and op
    values: int
    heads: int  # of blocks and streams
    filters: int
    index: int

    @property
    def old_bytes(self) -> int:
        """The share of the old rows in the bytes."""
        return self.bytes * self.old_rows // self.rows if self.rows else 0


class SizeFacts(msgspec.Struct, frozen=True):
    """The bytes of a store."""

    version: int
    bytes: int  # of all objects
    objects: int
    old_bytes: int  # of old versions and deletes in the SSTs in use, at least; compaction drops them after the floor
    removable_bytes: int  # that vacuum would remove at the current floor
    causes: tuple[CauseFacts, ...]  # their bytes sum up to `bytes`; most bytes first
    tables: tuple[TableSize, ...]  # most bytes first


def measure_size(meta: MetaStore) -> SizeFacts:
    """Return the bytes of the store by cause, and by state table.

    The parts of blocks are estimated from a sample for tables with many blocks (`sst_bytes.SAMPLE`). All sums are
    exact, for the objects at the time of the listing.

    Begins again if compaction and vacuum remove an SST meanwhile.

    Raises: MissingSstError if an SST is lost.
    Cost: a listing of the store; a vacuum's dry run; one range read per SST, and one per sampled block.
    """
    return on_newest(meta, lambda version: _measure_version(meta, version))


def _measure_version(meta: MetaStore, version: HummockVersion) -> SizeFacts:
    ssts = {sst.name: sst for level in version.levels for sst in level}
    parts = table_bytes(BlockSource(meta.objects, process_cache()), list(ssts.values()))
    tables = sorted(_table_sizes(version, ssts.values(), parts), key=lambda table: -table.bytes)
    removable = sweep_store(meta, dry_run=True)
    causes = [
        *_of_ssts(tables),
        *_of_objects(meta, ssts, frozenset(g.name for g in removable.vacuumed.garbage)),
    ]
    return SizeFacts(
        version.id,
        sum(cause.bytes for cause in causes),
        len(ssts) + sum(cause.objects or 0 for cause in causes),
        sum(table.old_bytes for table in tables),
        sum(g.size for g in (*removable.vacuumed.garbage, *removable.copies)),
        tuple(sorted((cause for cause in causes if cause.bytes), key=lambda cause: -cause.bytes)),
        tuple(tables),
    )


def _of_ssts(tables: list[TableSize]) -> Iterator[CauseFacts]:
    for cause, part in (
        ("values of rows", "values"),
        ("keys", "keys"),
        ("epochs and kinds of rows", "epochs"),
        ("heads of blocks", "heads"),
        ("filters", "filters"),
        ("indexes", "index"),
    ):
        yield CauseFacts(cause, sum(getattr(table, part) for table in tables))


def _of_objects(meta: MetaStore, used: Mapping[str, SstInfo], garbage: frozenset[str]) -> Iterator[CauseFacts]:
    """The objects that are not SSTs of the newest version."""
    sizes_by_cause: dict[str, list[int]] = {}
    for one in meta.objects.list(""):
        if one.name in used:
            continue
        if one.name.startswith(DATA):
            cause = "SSTs that vacuum would remove" if one.name in garbage else "SSTs of other versions and open tasks"
        else:
            cause = next((c for c, prefixes in _DOCUMENTS.items() if one.name.startswith(prefixes)), "other objects")
        sizes_by_cause.setdefault(cause, []).append(one.size)
    return (CauseFacts(cause, sum(sizes), len(sizes)) for cause, sizes in sizes_by_cause.items())


def _table_sizes(
    version: HummockVersion, ssts: Collection[SstInfo], parts: Mapping[int, TableBytes]
) -> Iterator[TableSize]:
    rows: dict[int, int] = {}
    dead: dict[int, int] = {}
    for section in (section for sst in ssts for section in sst.sections):
        rows[section.table_id] = rows.get(section.table_id, 0) + section.rows
        dead[section.table_id] = dead.get(section.table_id, 0) + section.dead
    owners = {t.table_id: (r, role_of(r, t.name)) for r in version.catalog.stored_relations() for t in r.state_tables}
    for table_id, part in parts.items():
        relation, role = owners.get(table_id, (None, ""))
        stored, old = rows[table_id], dead[table_id]
        if relation is not None and role == ROWS and relation.id in version.rows:
            old = max(old, stored - version.rows[relation.id])
        yield TableSize(
            table_id,
            "?" if relation is None else relation.name,
            role,
            stored,
            old,
            part.total,
            part.keys,
            part.epochs,
            part.values,
            part.heads,
            part.filters,
            part.index,
        )
