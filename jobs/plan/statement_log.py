"""The statement log as a catalog: the relations after the log is applied, and the row changes on the way."""

from collections.abc import Collection, Sequence

import msgspec

from tussock.jobs.logical.statements import (
    AddColumns,
    AlterTable,
    Change,
    CreateFunction,
    CreatePlainView,
    CreateTableAs,
    CreateView,
    Delete,
    Insert,
    Single,
    Statement,
    Transaction,
    Update,
)
from tussock.jobs.plan.apply import Replayed, apply_log
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_statement = decoder_of(Statement)
_SHOWN = 5  # statements listed in a message


class WaitingStatementsError(InputError):
    """A statement computes rows from stored rows while statements that change its input wait in the log.

    A database would show it their result. `waiting`: (position in the log, short text) of these statements.
    """

    def __init__(self, reads: Sequence[str], epoch: int, waiting: Sequence[Sequence[int | str]]) -> None:
        super().__init__(list(reads), epoch, [list(w) for w in waiting])
        self.reads, self.epoch = tuple(reads), epoch
        self.waiting = tuple((int(position), str(text)) for position, text in waiting)

    def __str__(self) -> str:
        named = ", ".join(f"{position} ({text})" for position, text in self.waiting[:_SHOWN])
        more = f" and {len(self.waiting) - _SHOWN} more" if len(self.waiting) > _SHOWN else ""
        return (
            f"this statement reads {', '.join(self.reads)} as of epoch {self.epoch}, but statements that change it "
            f"wait in the log: {named}{more}. "
            "Nothing was changed. Run an epoch (`tussock epoch`, Session.flush), then run this statement again."
        )


def replay(
    meta: MetaStore, version: HummockVersion, start: int, end: int, skipped: Collection[int], epoch: int
) -> Replayed:
    """Apply the log's entries from `start` to `end` (exclusive) to the version's catalog, without `skipped` ones."""
    kept = [e for e in meta.read_log(start, end) if e.position not in skipped]
    replayed = apply_log(version.catalog, [_statement.decode(e.statement) for e in kept], epoch)
    changes = {
        r: [msgspec.structs.replace(e, position=kept[e.position].position) for e in rows]
        for r, rows in replayed.changes.items()
    }
    return Replayed(replayed.catalog, changes, tuple((kept[i].position, why) for i, why in replayed.rejected))


def logged_statements(meta: MetaStore, barrier: Barrier) -> list[tuple[int, str]]:
    """The log entries that a barrier takes, as position and short text."""
    entries = meta.read_log(barrier.log_start, barrier.log_end)
    return [
        (e.position, statement_text(_statement.decode(e.statement)))
        for e in entries
        if e.position not in barrier.skipped_entries
    ]


def statement_text(statement: Statement) -> str:
    """A short text of a statement of the log, e.g. `insert orders, 3 rows`."""
    if isinstance(statement, Transaction):
        shown = [statement_text(s) for s in statement.statements[:_SHOWN]]
        more = len(statement.statements) - len(shown)
        return "; ".join([*shown, *([f"and {more} more"] if more else [])])
    kind = type(statement).__name__
    words = {
        "CreateSource": "create source",
        "CreateTable": "create table",
        "CreateTableAs": "create table",
        "AlterTable": "alter table",
        "AddColumns": "alter table",
        "AddSourceColumns": "alter source",
        "CreateView": "create view",
        "CreatePlainView": "create plain view",
        "CreateFunction": "create function",
    }.get(kind, kind.lower())
    if isinstance(statement, CreateView | CreatePlainView | CreateFunction) and statement.or_replace:
        words = words.replace("create", "replace")
    return f"{words} {_subject(statement)}" + (
        f", {statement.rows} rows" if isinstance(statement, Insert | Change | CreateTableAs) else ""
    )


def require_taken(meta: MetaStore, version: HummockVersion, catalog: Catalog, reads: Collection[str]) -> int:
    """The end of the log, if no waiting statement changes the relations in `reads`.

    Statements count from the committed epoch on, including those of an open barrier and those on relations that a
    view in `reads` is derived from. A paused view's rows no longer change.

    Args:
        catalog: the pending catalog.
        reads: names of relations.

    Raises: WaitingStatementsError if the log will change rows of `reads` at `version`.
    Cost: a probe for an open barrier, a probe for the log's end, and a read of each waiting statement.
    """
    if (end := meta.log_end()) <= version.log_end:
        return end
    held = meta.barrier_after(version.epoch)
    names = derived_from(catalog, reads)
    waiting = [
        (entry.position, statement_text(statement))
        for entry in meta.read_log(version.log_end, end)
        if (held is None or entry.position not in held.skipped_entries)
        and _subjects(statement := _statement.decode(entry.statement)) & names
    ]
    if waiting:
        raise WaitingStatementsError(sorted(reads), version.epoch, waiting)
    return end


def derived_from(catalog: Catalog, names: Collection[str]) -> set[str]:
    """The relations with these names and all relations that their rows come from."""
    by_id = {r.id: r for r in catalog.live()}
    found = {r.id for r in by_id.values() if r.name in names}
    for relation in reversed(by_id.values()):  # readers always come after their input
        if relation.id in found and relation.paused is None:
            found.update(relation.depends_on)
    return {by_id[i].name for i in found if i in by_id} | set(names)


def _subjects(statement: Statement) -> set[str]:
    return {_subject(s) for s in (statement.statements if isinstance(statement, Transaction) else (statement,))}


def _subject(statement: Single) -> str:
    match statement:
        case Insert(table) | Change(table) | Update(table) | Delete(table):
            return table.lower()
        case CreateTableAs(table) | AlterTable(table) | AddColumns(table):
            return table.name.lower()
        case _:
            return statement.name.lower()


def pending_catalog(meta: MetaStore, version: HummockVersion) -> Catalog:
    """The catalog after all entries of the log are applied, against which statements are bound and checked.

    Relations that the open barrier drops, and entries that it skips, are already excluded.
    """
    return PendingCatalog(meta).at(version)


class PendingCatalog:
    """The pending catalog for a session that needs it repeatedly: each call reads only new entries of the log."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._base: tuple[int, int] | None = None  # (committed epoch, epoch of the open barrier) under `_catalog`
        self._catalog = Catalog()
        self._end = 0  # the end of the log in `_catalog`

    @property
    def log_end(self) -> int:
        """The end of the log that the last returned catalog includes."""
        return self._end

    def at(self, version: HummockVersion) -> Catalog:
        """The pending catalog. Cost: a probe for an open barrier, a probe for the log's end, a read per new entry."""
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
