"""The statement log as a catalog: what the relations will be once the log is taken, and the row changes on the way."""

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
_SHOWN = 5  # statements that a message names


class WaitingStatementsError(InputError):
    """A statement that makes rows of what is stored, while statements on what it reads wait in the log: a database would show them to it.

    `waiting` are those statements, (position in the log, in few words).
    """

    def __init__(self, reads: Sequence[str], epoch: int, waiting: Sequence[Sequence[int | str]]) -> None:
        super().__init__(list(reads), epoch, [list(w) for w in waiting])
        self.reads, self.epoch = tuple(reads), epoch
        self.waiting = tuple((int(position), str(text)) for position, text in waiting)

    def __str__(self) -> str:
        named = ", ".join(f"{position} ({text})" for position, text in self.waiting[:_SHOWN])
        more = f" and {len(self.waiting) - _SHOWN} more" if len(self.waiting) > _SHOWN else ""
        return (
            f"this statement reads {', '.join(self.reads)} as of epoch {self.epoch}, and statements that change it wait in the log: "
            f"{named}{more}. "
            "Nothing was changed. Run an epoch (`tussock epoch`, Session.flush), then give this statement again."
        )


def replay(
    meta: MetaStore, version: HummockVersion, start: int, end: int, skipped: Collection[int], epoch: int
) -> Replayed:
    """The log's entries from `start` to before `end` applied to the version's catalog, but for the skipped positions."""
    kept = [e for e in meta.read_log(start, end) if e.position not in skipped]
    replayed = apply_log(version.catalog, [_statement.decode(e.statement) for e in kept], epoch)
    changes = {
        r: [msgspec.structs.replace(e, position=kept[e.position].position) for e in rows]
        for r, rows in replayed.changes.items()
    }
    return Replayed(replayed.catalog, changes, tuple((kept[i].position, why) for i, why in replayed.rejected))


def logged_statements(meta: MetaStore, barrier: Barrier) -> list[tuple[int, str]]:
    """The log entries that a barrier takes: position and, in few words, what each does."""
    entries = meta.read_log(barrier.log_start, barrier.log_end)
    return [
        (e.position, statement_text(_statement.decode(e.statement)))
        for e in entries
        if e.position not in barrier.skipped_entries
    ]


def statement_text(statement: Statement) -> str:
    """A statement of the log in few words, e.g. `insert orders, 3 rows`."""
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
    """The log's end, up to which no statement waits that changes what is read.

    Raises WaitingStatementsError where rows of `reads` at `version` are not yet what the log before now makes of them.

    Statements count from the committed epoch on, those of an open barrier too, and those on whatever a view in `reads` is derived from;
    a paused view's rows change no more.

    Args:
        catalog: the pending one.
        reads: names of relations.

    Cost: a probe for an open barrier, a probe for the log's end, a read of each statement that waits.
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
    """The relations of these names and all that their rows come from."""
    by_id = {r.id: r for r in catalog.live()}
    found = {r.id for r in by_id.values() if r.name in names}
    for relation in reversed(by_id.values()):  # readers always come after what they read
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
    """The catalog as it will be once all that is in the log has been taken; statements are bound and checked against it. What the open
    barrier drops or skips is gone already."""
    return PendingCatalog(meta).at(version)


class PendingCatalog:
    """The pending catalog of a session that asks again and again: the log's new entries alone are read each time."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._base: tuple[int, int] | None = (
            None  # (epoch committed, epoch of the open barrier) that `_catalog` builds on
        )
        self._catalog = Catalog()
        self._end = 0  # entries of the log that are in `_catalog`

    @property
    def log_end(self) -> int:
        """How much of the log the catalog that was answered last holds."""
        return self._end

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
