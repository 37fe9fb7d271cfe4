"""SELECTs over published and past epochs, and over rows with the effect of waiting statements."""

import warnings
from collections.abc import Sequence
from contextlib import closing

import pyarrow as pa

from tussock.jobs.catalog.statement_log import WaitingLog
from tussock.jobs.logical.errors import NoRelationError, SqlError
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.logical.script import ScriptStatement
from tussock.jobs.logical.statements import Query
from tussock.jobs.reading.epochs import EpochsOf
from tussock.jobs.reading.read import WaitingChangesWarning, refuse_unseen, relation_at
from tussock.jobs.reading.reader import NOTHING_IN_FLIGHT, RowsInFlight
from tussock.jobs.reading.stored_rows import StoredRows, rows_at
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows
from tussock.statestore.nested import copy_sliced


class Selects:
    """The reads of a session."""

    def __init__(self, meta: MetaStore, stored: StoredRows, statements: StatementMaker) -> None:
        self._meta, self._stored, self._statements = meta, stored, statements

    def select_rows(self, written: ScriptStatement, epoch: int | Sight | None) -> pa.Table:
        """Return the rows of a SELECT at an epoch; None: the published one."""
        with self._stored.open_sight(epoch) as (version, sight):  # the block pins the objects that it reads
            return self._answer_select(written, version, sight)

    def select_pending(self, written: ScriptStatement, waiting: WaitingLog) -> pa.Table:
        """Return the rows of a SELECT, in which tables include the waiting statements."""
        bound, _ = self._statements.bind_statement(waiting.catalog, waiting.version, written)
        if not isinstance(bound, Query):
            raise SqlError("expected a SELECT; pass other statements to execute")
        _warn_of_changes(waiting, bound.relations)
        with self._statements.read_pending_rows(waiting, bound.relations) as seen:
            return self._query_rows(bound, seen.version, seen.sight, seen.rows)

    def read_pending(self, relation: str, columns: Sequence[str] | None, waiting: WaitingLog) -> pa.Table:
        """Return the rows of a relation; a table's rows include the waiting statements."""
        _warn_of_changes(waiting, [relation_key(relation)])
        with self._statements.read_pending_rows(waiting, [relation_key(relation)]) as seen:
            visible_relation = relation_at(seen.version, seen.sight, relation)
            with closing(
                rows_at(self._meta.objects, seen.version, visible_relation, seen.sight.epoch, columns, seen.rows)
            ) as rows:
                return copy_sliced(rows.read_all())

    def _answer_select(self, written: ScriptStatement, version: HummockVersion, sight: Sight) -> pa.Table:
        try:
            bound = self._statements.binder_over(version.catalog, sight.visible_relations(version.catalog)).bind(
                written.source, EpochsOf(self._stored, version, sight)
            )
        except NoRelationError as err:
            refuse_unseen(version, sight, err.name.replace("`", ""))
            self._stored.refuse_if_late(err.name.replace("`", ""), sight.epoch, version, err)
            raise
        if not isinstance(bound, Query):
            raise SqlError("expected a SELECT; pass other statements to execute, without an epoch")
        return self._query_rows(bound, version, sight)

    def _query_rows(
        self, bound: Query, version: HummockVersion, sight: Sight, in_flight: RowsInFlight = NOTHING_IN_FLIGHT
    ) -> pa.Table:
        from tussock.jobs.spark.collected import collect_rows
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours

        with spark_errors_as_ours(bound.source):
            frame = self._statements.make_frame(bound.source.text, bound, version, sight, in_flight)
            return given_rows(collect_rows(frame))


def _warn_of_changes(waiting: WaitingLog, names: Sequence[str]) -> None:
    for note in waiting.describe_waiting(names):
        warnings.warn(WaitingChangesWarning(note), stacklevel=7)
