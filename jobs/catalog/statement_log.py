"""The statement log as a catalog: what the relations will be once the log is taken, and the row changes on the way."""

from collections.abc import Collection

import msgspec

from jobs.plan.definition import Replayed, apply_log
from jobs.sql.statements import Delete, Insert, Statement, Update
from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion

_statement = msgspec.json.Decoder(Statement)


def replay(meta: MetaStore, version: HummockVersion, start: int, end: int, skipped: Collection[int], epoch: int) -> Replayed:
    """The log's entries from `start` to before `end` applied to the version's catalog, but for the skipped positions."""
    kept = [e for e in meta.read_log(start, end) if e.position not in skipped]
    replayed = apply_log(version.catalog, [_statement.decode(e.statement) for e in kept], epoch)
    changes = {r: [(kept[i].position, s) for i, s in rows] for r, rows in replayed.changes.items()}
    return Replayed(replayed.catalog, changes, tuple((kept[i].position, why) for i, why in replayed.rejected))


def logged_statements(meta: MetaStore, barrier: Barrier) -> list[tuple[int, str]]:
    """The log entries that a barrier takes: position and, in few words, what each does."""
    entries = meta.read_log(barrier.log_start, barrier.log_end)
    return [(e.position, statement_text(_statement.decode(e.statement))) for e in entries if e.position not in barrier.skipped_entries]


def statement_text(statement: Statement) -> str:
    """A statement of the log in few words, e.g. `insert orders, 3 rows`."""
    kind = type(statement).__name__
    words = {"CreateSource": "create source", "CreateTable": "create table", "CreateView": "create view"}.get(kind, kind.lower())
    name = statement.table if isinstance(statement, Insert | Update | Delete) else statement.name
    return f"{words} {name}" + (f", {statement.rows} rows" if isinstance(statement, Insert) else "")


def pending_catalog(meta: MetaStore, version: HummockVersion) -> Catalog:
    """The catalog as it will be once all that is in the log has been taken; statements are bound and checked against it. What the open
    barrier drops or skips is gone already."""
    return PendingCatalog(meta).at(version)


class PendingCatalog:
    """The pending catalog of a session that asks again and again: the log's new entries alone are read each time."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._base: tuple[int, int] | None = None  # (epoch committed, epoch of the open barrier) that `_catalog` builds on
        self._catalog = Catalog()
        self._end = 0  # entries of the log that are in `_catalog`

    def at(self, version: HummockVersion) -> Catalog:
        """Cost: a probe for an open barrier, a probe for the log's end, and a read of each entry that is new since the last call."""
        held = self._meta.open_barrier()
        if held is not None and held.prev_epoch != version.epoch:
            held = None
        base = (version.epoch, 0 if held is None else held.epoch)
        if base != self._base:
            self._base, self._catalog = base, version.catalog if held is None or held.catalog is None else held.catalog
            self._end = version.log_end if held is None else held.log_end
        end = self._meta.log_end()
        if end > self._end:
            at = msgspec.structs.replace(version, catalog=self._catalog)
            self._catalog = replay(self._meta, at, self._end, end, (), max(base) + 1).catalog
            self._end = end
        return self._catalog
