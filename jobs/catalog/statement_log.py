"""The statement log as a catalog: the relations after the log is applied, and the row changes on the way."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from tussock.jobs.catalog.apply import ReplayResult, apply_log
from tussock.jobs.executors.operator import Entry
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
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.statement_log import LogEntry
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

_statement = decoder_of(Statement)
_SHOWN = 5  # statements listed in a message


class WaitingStatementsError(InputError):
    """A statement reads a view that a waiting statement creates or replaces, so no stored rows belong to it.

    `waiting`: (position in the log, short text) of these statements.
    """

    def __init__(self, reads: Sequence[str], epoch: int, waiting: Sequence[Sequence[int | str]]) -> None:
        super().__init__(list(reads), epoch, [list(w) for w in waiting])
        self.reads, self.epoch = tuple(reads), epoch
        self.waiting = tuple((int(position), str(text)) for position, text in waiting)

    def __str__(self) -> str:
        return (
            f"this statement reads {', '.join(self.reads)} as of epoch {self.epoch}, but statements that create or "
            f"replace it wait in the log: {_list_statements(self.waiting)}. "
            "Nothing was changed. Run an epoch (`tussock epoch`, Session.flush), then run this statement again."
        )


def _list_statements(waiting: Sequence[tuple[int, str]]) -> str:
    """Statements of the log, with their positions."""
    more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
    return ", ".join(f"{position} ({text})" for position, text in waiting[:_SHOWN]) + more


def replay_log(
    meta: MetaStore, version: HummockVersion, start: int, end: int, skipped: Collection[int], epoch: int
) -> ReplayResult:
    """Apply the log's entries from `start` to `end` (exclusive) to the version's catalog, without `skipped` ones."""
    return _replay_statements(version.catalog, statements_of(meta, start, end, skipped), epoch)


def statements_of(meta: MetaStore, start: int, end: int, skipped: Collection[int] = ()) -> list[tuple[int, Statement]]:
    """Read the log's entries from `start` to `end` (exclusive), without `skipped` ones, with their positions."""
    entries = meta.read_log(start, end)
    return [(e.position, decoded_statement(e)) for e in entries if e.position not in skipped]


def decoded_statement(entry: LogEntry) -> Statement:
    """The statement of an entry."""
    statement: Statement = _statement.decode(entry.statement)
    return statement


def _replay_statements(catalog: Catalog, statements: Sequence[tuple[int, Statement]], epoch: int) -> ReplayResult:
    replayed = apply_log(catalog, [statement for _, statement in statements], epoch)
    changes = {
        r: [msgspec.structs.replace(e, position=statements[e.position][0]) for e in rows]
        for r, rows in replayed.changes.items()
    }
    return ReplayResult(replayed.catalog, changes, tuple((statements[i][0], why) for i, why in replayed.rejected))


def logged_statements(meta: MetaStore, barrier: Barrier) -> list[tuple[int, str]]:
    """The log entries that a barrier takes, as position and short text."""
    taken = statements_of(meta, barrier.log_start, barrier.log_end, barrier.skipped_entries)
    return [(position, statement_text(statement)) for position, statement in taken]


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
        "MoveSource": "move source",
        "SetSourceColumns": "alter source",
        "SetSourceOptions": "alter source",
        "CreateView": "create view",
        "CreatePlainView": "create plain view",
        "CreateFunction": "create function",
        "CreateSchema": "create schema",
        "DropSchema": "drop schema",
        "RecordZone": "record the rules of time zone",
    }.get(kind, kind.lower())
    if isinstance(statement, CreateView | CreatePlainView | CreateFunction) and statement.or_replace:
        words = words.replace("create", "replace")
    return f"{words} {_subject_of(statement)}" + (
        f", {statement.rows} rows" if isinstance(statement, Insert | Change | CreateTableAs) else ""
    )


def skip_arguments(entries: Iterable[int], take_log: bool) -> str:
    """The arguments of `tussock barrier abandon` that skip entries of the log.

    `take_log`: one of them is newer than what the open barrier takes.
    """
    return " ".join([*(f"--skip-entry {position}" for position in entries), *(["--take-log"] if take_log else [])])


def derived_from(catalog: Catalog, names: Collection[str]) -> set[str]:
    """The relations with these names and all relations that their rows come from."""
    by_id = {r.id: r for r in catalog.live_relations()}
    ids = {r.id for r in by_id.values() if r.name in names}
    for relation in reversed(by_id.values()):  # readers always come after their input
        if relation.id in ids and relation.paused is None:
            ids.update(relation.depends_on)
    return {by_id[i].name for i in ids if i in by_id} | set(names)


def _subjects_of(statement: Statement) -> set[str]:
    return {_subject_of(s) for s in (statement.statements if isinstance(statement, Transaction) else (statement,))}


def _subject_of(statement: Single) -> str:
    match statement:
        case Insert(table) | Change(table) | Update(table) | Delete(table):
            return table.lower()
        case CreateTableAs(table) | AlterTable(table) | AddColumns(table):
            return table.name.lower()
        case _:
            return statement.name.lower()


@dataclass(frozen=True, slots=True)
class WaitingLog:
    """The log after a committed epoch: the statements that no epoch has applied yet, and their effect.

    Args:
        version: the committed epoch.
        catalog: the pending catalog.
        end: the end of the log that is included.
        epoch: greater than the committed epoch and the open barrier's. All relations of `catalog` exist then.
        statements: with their positions, including the open barrier's, except for the ones that it skips.
        changes: the row changes of each table, by its relation id, in log order.
        barrier: the epoch of the open barrier, or 0.
        barrier_end: the end of the log that the open barrier takes, or 0.
    """

    version: HummockVersion
    catalog: Catalog
    end: int
    epoch: int
    statements: Sequence[tuple[int, Statement]] = ()
    changes: Mapping[int, Sequence[Entry]] = field(default_factory=dict)
    barrier: int = 0
    barrier_end: int = 0

    def with_draft(self, catalog: Catalog, statements: Sequence[Single], rows: Mapping[int, Sequence[Entry]]) -> Self:
        """Add the statements of a transaction that will be the next entry of the log.

        Args:
            catalog: the catalog after them.
            rows: their row changes by relation id.
        """
        live = {r.id for r in catalog.live_relations()}
        changes = {r: [*self.changes.get(r, ()), *rows.get(r, ())] for r in {*self.changes, *rows} if r in live}
        drafted = [*self.statements, *((self.end, statement) for statement in statements)]
        return replace(self, catalog=catalog, statements=drafted, changes=changes)

    def require_readable(self, names: Collection[str]) -> None:
        """Raise WaitingStatementsError if a view has no stored rows yet, or still the rows of its previous SELECT."""
        stored = {r.id for r in self.version.catalog.live_relations()}
        read = self._expand_names(names)
        late = {
            r.name for r in self.catalog.live_relations() if r.kind is RelationKind.VIEW and r.id not in stored
        } & read
        if late:
            raise WaitingStatementsError(sorted(late), self.version.epoch, self.statements_on(late))

    def statements_on(self, names: Collection[str]) -> list[tuple[int, str]]:
        """The waiting statements on relations of these names, under earlier names too: positions and short texts."""
        names, entries = set(names), []
        for position, statement in reversed(self.statements):
            if (_subjects_of(statement) | _new_names(statement)) & names:
                names |= _subjects_of(statement) if _new_names(statement) & names else set()
                entries.append((position, statement_text(statement)))
        return entries[::-1]

    def tables_among(self, names: Collection[str]) -> set[str]:
        """The tables among relations, and the tables that plain views among them read."""
        wanted = self._expand_names(names)
        return {r.name for r in self.catalog.live_relations() if r.name in wanted and r.kind is RelationKind.TABLE}

    def _expand_names(self, names: Collection[str]) -> set[str]:
        """The names, and the names of all relations that plain views among them read."""
        wanted, by_id = set(names), {r.id: r.name for r in self.catalog.live_relations()}
        for relation in reversed(self.catalog.live_relations()):  # readers always come after their input
            if relation.name in wanted and relation.kind is RelationKind.PLAIN_VIEW:
                wanted |= {by_id[i] for i in relation.depends_on if i in by_id}
        return wanted

    def describe_waiting(self, names: Collection[str]) -> tuple[str, ...]:
        """A note for each view among relations whose rows the waiting statements will probably change."""
        read = f"is read as of epoch {self.version.epoch}; waiting statements will change it"
        return tuple(
            f"view {view} {read}: {_list_statements(moving)}" for view, moving in self.moved_views(names).items()
        )

    def moved_views(self, names: Collection[str]) -> dict[str, list[tuple[int, str]]]:
        """The views among relations whose rows the waiting statements will probably change, with these statements."""
        read = self._views_among(names)
        moving = {view: self.statements_on(derived_from(self.catalog, [view])) for view in read}
        return {view: statements for view, statements in moving.items() if statements}

    def _views_among(self, names: Collection[str]) -> list[str]:
        """The running views among relations, and the ones that plain views among them read."""
        wanted = self._expand_names(names)
        return [
            r.name
            for r in self.catalog.live_relations()
            if r.name in wanted and r.kind is RelationKind.VIEW and not r.paused
        ]


def _new_names(statement: Statement) -> set[str]:
    """The new names that a statement gives to tables."""
    parts = statement.statements if isinstance(statement, Transaction) else (statement,)
    return {s.to.name.lower() for s in parts if isinstance(s, AlterTable)}


def pending_catalog(meta: MetaStore, version: HummockVersion) -> Catalog:
    """The catalog after all entries of the log are applied, against which statements are bound and checked.

    Relations that the open barrier drops, and entries that it skips, are already excluded.
    """
    return PendingCatalog(meta).read_catalog(version)


class PendingCatalog:
    """The pending catalog for a session that needs it repeatedly: each call reads only new entries of the log."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._base: tuple[int, int] | None = None  # (committed epoch, epoch of the open barrier) under `_catalog`
        self._version: HummockVersion | None = None  # the committed one
        self._barrier: Barrier | None = None  # the open one
        self._catalog = Catalog()
        self._end = 0  # the end of the log in `_catalog`
        self._statements: list[tuple[int, Statement]] = []  # the ones that no barrier has taken
        self._changes: dict[int, list[Entry]] = {}  # their row changes, by table
        self._taken: tuple[list[tuple[int, Statement]], Mapping[int, Sequence[Entry]]] | None = None  # by the barrier

    @property
    def log_end(self) -> int:
        """The end of the log that the last returned catalog includes."""
        return self._end

    def read_catalog(self, version: HummockVersion) -> Catalog:
        """The pending catalog. Cost: a probe for an open barrier, a probe for the log's end, a read per new entry."""
        open_barrier = self._meta.open_barrier()
        if open_barrier is not None and open_barrier.prev_epoch != version.epoch:
            open_barrier = None
        self._version = version
        base = (version.epoch, 0 if open_barrier is None else open_barrier.epoch)
        if base != self._base:
            self._base, self._catalog = (
                base,
                version.catalog if open_barrier is None or open_barrier.catalog is None else open_barrier.catalog,
            )
            self._end = version.log_end if open_barrier is None else open_barrier.log_end
            self._barrier, self._statements, self._changes, self._taken = open_barrier, [], {}, None
        end = self._meta.log_end()
        if end > self._end:
            new = statements_of(self._meta, self._end, end)
            replayed = _replay_statements(self._catalog, new, max(base) + 1)
            self._catalog, self._end = replayed.catalog, end
            self._statements += new
            for table, entries in replayed.changes.items():
                self._changes.setdefault(table, []).extend(entries)
        return self._catalog

    def waiting_log(self) -> WaitingLog:
        """The waiting statements that the last returned catalog includes.

        Requires: a call of `read_catalog`. Cost: once, a read per entry of the open barrier.
        """
        version = self._version
        assert version is not None, "`read_catalog` was called"
        assert self._base is not None, "`read_catalog` was called"
        if self._taken is None:
            statements: list[tuple[int, Statement]] = []
            changes: Mapping[int, Sequence[Entry]] = {}
            if (open_barrier := self._barrier) is not None:
                statements = statements_of(
                    self._meta, open_barrier.log_start, open_barrier.log_end, open_barrier.skipped_entries
                )
                changes = _replay_statements(version.catalog, statements, open_barrier.epoch).changes
            self._taken = statements, changes  # last: a failed read of the log must leave it unknown
        statements, changes = self._taken
        live = {r.id for r in self._catalog.live_relations()}
        merged = {
            table: [*changes.get(table, ()), *self._changes.get(table, ())]
            for table in {*changes, *self._changes}
            if table in live
        }
        everything = [*statements, *self._statements]
        barrier_end = 0 if self._barrier is None else self._barrier.log_end
        return WaitingLog(
            version, self._catalog, self._end, max(self._base) + 1, everything, merged, self._base[1], barrier_end
        )
