"""The rows of tables after the waiting statements of the log, for statements that read what others have written.

The waiting statements of a table are replayed over its committed rows by the executor that an epoch runs
(jobs/executors/table_replay.py). The result is sealed like the MemTables of an epoch in flight, and readers merge it
with the stored rows as the next epoch of a train does. So a statement reads exactly the rows that the epoch will store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tussock.jobs.catalog.definition import TableDefinition, definition_of
from tussock.jobs.catalog.statement_log import WaitingLog, skip_arguments
from tussock.jobs.executors.operator import Actor, Entry
from tussock.jobs.executors.table_replay import StatementRowError, TableReplay
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.reading.reader import RowsInFlight
from tussock.jobs.schedule.lineage import NamedColumn, in_names
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.statement_log import read_payload
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.table.state_table import StateTable


class WaitingStatementFailsError(InputError):
    """An UPDATE or DELETE that no epoch has applied raises on a row, so the rows after it do not exist.

    Args:
        statement: such as `UPDATE at log entry 5`.
        key: of the row.
        entry: its position in the log; None for a statement of the open transaction.
        take_log: a barrier is open, and the entry is newer.
    """

    table: str
    statement: str
    key: str
    reason: str
    entry: int | None
    take_log: bool = False

    def __str__(self) -> str:
        remedy = (
            "Correct that statement of the transaction."
            if self.entry is None
            else "To continue without that entry, run "
            f"`tussock barrier abandon {skip_arguments([self.entry], self.take_log)}`, and give this statement again."
        )
        return (
            f"table {self.table!r} cannot be read after {self.statement}, which no epoch has applied yet and which "
            f"fails on the row with key {self.key}: {self.reason} Nothing was changed. {remedy}"
        )


class EpochMovedError(RetryableError):
    """Another process committed an epoch while a statement read rows of the epoch before."""

    epoch: int
    newer_epoch: int

    def __str__(self) -> str:
        return (
            f"epoch {self.newer_epoch} was committed while this statement read the rows of epoch {self.epoch}. Nothing "
            "was changed. Run the statement again."
        )


@dataclass(frozen=True, slots=True)
class PendingRows:
    """The rows that a statement reads: tables as the waiting statements leave them, views as of the committed epoch.

    Args:
        version: the committed version with the waiting statements as an epoch in flight. Its catalog has the tables of
            the pending catalog, and the views of the committed one.
        rows: the changes of that epoch.
    """

    version: HummockVersion
    rows: RowsInFlight

    @property
    def sight(self) -> Sight:
        """How its relations are read."""
        return Sight(self.version.epoch)


@dataclass(slots=True)
class _Replayed:
    """A table; some of its entries are replayed."""

    relation: Relation
    entries: list[Entry]
    table: StateTable


class PendingTables:
    """Replays waiting statements for one session. It keeps the changes, so each call replays only new entries.

    Memory: the changed rows of the tables that were read. Not thread-safe.
    """

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._epoch = 0  # the committed epoch under the replayed tables
        self._barrier = 0  # and the open barrier after it
        self._replayed: dict[int, _Replayed] = {}  # by relation id

    def read_tables(self, waiting: WaitingLog, pinned: HummockVersion, names: Collection[str]) -> PendingRows:
        """The rows of the tables with these names.

        Args:
            pinned: a version whose SSTs stay while the rows are read.
            names: tables without waiting statements cost nothing.

        Raises: EpochMovedError if `pinned` has another epoch; WaitingStatementFailsError.
        Cost: as in an epoch (`TableReplayExecutor.apply`), in this process: a waiting UPDATE or DELETE that names no
            key scans its table.
        """
        if pinned.epoch != waiting.version.epoch:
            raise EpochMovedError(waiting.version.epoch, pinned.epoch)
        if (self._epoch, self._barrier) != (pinned.epoch, waiting.barrier):
            self._epoch, self._barrier, self._replayed = pinned.epoch, waiting.barrier, {}
        store = HummockStore(self._meta.objects, pinned, process_cache())
        sealed: dict[int, pa.Table] = {}
        for relation in waiting.catalog.live_relations():
            entries = waiting.changes.get(relation.id, ())
            if entries and relation.name in names and relation.kind is RelationKind.TABLE:
                table = self._table_after(relation, entries, store, waiting)
                if (batch := table.sealed_so_far()) is not None:
                    sealed[batch.table_id] = batch.rows
        epoch = waiting.epoch
        version = msgspec.structs.replace(
            pinned,
            epoch=epoch,
            epochs=(*pinned.epochs, epoch),
            catalog=_visible_catalog(pinned.catalog, waiting.catalog),
        )
        return PendingRows(version, RowsInFlight.of(epoch, sealed))

    def _table_after(
        self, relation: Relation, entries: Sequence[Entry], store: HummockStore, waiting: WaitingLog
    ) -> StateTable:
        """The table after the entries."""
        version = waiting.version
        (schema,) = relation.state_tables
        known = self._replayed.pop(relation.id, None)
        if known is not None and known.relation == relation and known.entries == list(entries[: len(known.entries)]):
            table, done = known.table.with_store(store), len(known.entries)
        else:
            table, done = StateTable(schema, store, version.epoch, version.mapping.vnode_count), 0
        definition = definition_of(relation)
        assert isinstance(definition, TableDefinition), f"{relation.name} is not a table"
        node = definition.fragments[0].operators[0].node
        assert isinstance(node, TableReplay)
        vnodes = range(version.mapping.vnode_count)
        actor = Actor(thread_kernel(), vnodes, len(vnodes), entries[done:], self._read_payload)
        try:
            node.make_executor([table], actor).apply()
        except StatementRowError as err:
            raise _error_of_entry(err, relation, waiting) from err
        self._replayed[relation.id] = _Replayed(relation, list(entries), table)
        return table

    def _read_payload(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(read_payload(self._meta.objects, name)).read_all()


def _error_of_entry(err: StatementRowError, table: Relation, waiting: WaitingLog) -> WaitingStatementFailsError:
    """The error of an entry, with names of columns. The open transaction comes after the end of the log."""
    names = [NamedColumn(c.name) for c in table.columns]
    entry = int(err.statement.rpartition(" ")[2])
    reason = in_names(err.reason, names)
    if entry >= waiting.end:
        return WaitingStatementFailsError(table.name, err.statement.partition(" ")[0], err.key, reason, None)
    take_log = waiting.barrier != 0 and entry >= waiting.barrier_end
    return WaitingStatementFailsError(table.name, err.statement, err.key, reason, entry, take_log)


def _visible_catalog(committed: Catalog, pending: Catalog) -> Catalog:
    """The pending catalog, in which every view has its committed form. Views without stored rows are left out."""
    stored = {r.id: r for r in committed.relations}
    seen = (stored.get(r.id) if r.kind is RelationKind.VIEW and r.dropped is None else r for r in pending.relations)
    return msgspec.structs.replace(pending, relations=tuple(r for r in seen if r is not None))
