"""Turn SQL texts into statements of the log, which are bound over a catalog and have their rows computed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.catalog.builds import find_planned
from tussock.jobs.catalog.checks import admit_statement
from tussock.jobs.catalog.create import hidden_of
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.catalog.fed_tables import require_not_fed
from tussock.jobs.catalog.schemas import require_schema
from tussock.jobs.catalog.statement_log import WaitingLog
from tussock.jobs.kernels.registry import may_raise
from tussock.jobs.kernels.render import has_kernel
from tussock.jobs.logical.script import ScriptStatement
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    Bound,
    BoundChange,
    BoundCreateTableAs,
    BoundInsert,
    BoundInsertSelect,
    BoundSourceOptions,
    Change,
    CreateFunction,
    CreateSource,
    CreateTableAs,
    CreateView,
    Delete,
    Explain,
    Insert,
    Query,
    RecordZone,
    Show,
    Single,
    Statement,
    Transaction,
    Update,
    UseSchema,
)
from tussock.jobs.reading.epochs import EpochsOf
from tussock.jobs.reading.pending_rows import PendingRows, PendingTables
from tussock.jobs.reading.reader import RowsInFlight
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.zone_errors import UnknownZoneError, ZoneRulesDifferError
from tussock.jobs.sources.describe import describe_source, place_source
from tussock.jobs.sources.other_store import refuse_own_store
from tussock.jobs.sources.registry import READERS, WITHOUT_PATH
from tussock.jobs.sources.spark_files import TIME_ZONE
from tussock.jobs.sql.grammar import read_schema_statement
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.zones import RuledZone, digest_of, name_of, rules_of

if TYPE_CHECKING:  # imported on use, because only SQL needs Spark
    from pyspark.sql import DataFrame, SparkSession

    from tussock.jobs.sql.binder import Binder
    from tussock.jobs.statements.transaction import DraftTransaction


class ReservedNameError(InputError):
    """A user's name starts with the prefix of the views that the project creates for itself."""

    name: str

    def __str__(self) -> str:
        return (
            f"the name {self.name!r} starts with {INTERNAL!r}. This prefix is reserved for the measures of quality "
            "suites, which lists do not show. Nothing was changed. Choose another name."
        )


def require_free_name(view: str) -> None:
    """Raises ReservedNameError for a materialized view that lists would hide from its user."""
    if view.startswith(INTERNAL):
        raise ReservedNameError(view)


def _is_taken(catalog: Catalog, name: str) -> bool:
    """Whether a relation has the name, or one that is being built."""
    return find_planned(catalog, name) is not None or any(r.name == name for r in catalog.live_relations())


@dataclass(frozen=True, slots=True)
class ToLog:
    """A statement to log.

    Args:
        reads: the relations from whose rows its rows were computed.
        waiting: the waiting statements that it read through; None if it reads no rows.
        notes: for the user.
    """

    statement: Single
    reads: tuple[str, ...] = ()
    waiting: WaitingLog | None = None
    notes: tuple[str, ...] = ()


class StatementMaker:
    """Turns texts into statements of the log, for one session. Not thread-safe."""

    def __init__(
        self, meta: MetaStore, stored: StoredRows, writer: StatementWriter, spark: "Callable[[], SparkSession]"
    ) -> None:
        """`spark` starts the Spark session when it is first needed."""
        self._meta, self._stored, self._writer, self._spark = meta, stored, writer, spark
        self._tables = PendingTables(meta)
        self._binder: Binder | None = None

    @property
    def spark(self) -> "Callable[[], SparkSession]":
        """Starts the Spark session when it is first called."""
        return self._spark

    def binder_over(self, catalog: Catalog, relations: tuple[Relation, ...] | None = None) -> "Binder":
        """The binder over a catalog, by the rules of its time zone.

        `relations`: those to which names may refer; None: the live ones.

        Raises: ZoneRulesDifferError, UnknownZoneError.
        """
        relations, zone = catalog.live_relations() if relations is None else relations, self._zone_in(catalog)
        if self._binder is None or digest_of(zone) not in ("", digest_of(self._binder.sandbox.time_zone)):
            from tussock.jobs.sql.binder import Binder

            self._binder = Binder(self._spark(), relations, zone, tuple(READERS), has_kernel, WITHOUT_PATH, hidden_of)
        else:
            self._binder.set_relations(relations)
        return self._binder

    def _zone_in(self, catalog: Catalog) -> RuledZone:
        return catalog.resolve_zone(self._meta.settings.time_zone)

    def record_zones(self, draft: "DraftTransaction") -> None:
        """Add the statements that record the time zones of the statements that were bound. Raises as `with_zones`."""
        for zone in self._unrecorded_zones(draft.catalog):
            draft.add_statement(zone)

    def with_zones(self, catalog: Catalog, statement: Single) -> Statement:
        """A statement for the log of a catalog, together with those that record the time zones that it was bound by.

        Raises: ZoneRulesDifferError if the catalog has other rules of a zone that it names.
        """
        zones = self._unrecorded_zones(catalog)
        return Transaction((statement, *zones)) if zones else statement

    def _unrecorded_zones(self, catalog: Catalog) -> tuple[RecordZone, ...]:
        """The statements that record the time zones of the statements that were bound, if a catalog lacks them.

        Raises: ZoneRulesDifferError if it has other rules of a zone that they name.
        """
        if self._binder is None:
            return ()
        sandbox = self._binder.sandbox
        used = [zone for zone in (sandbox.time_zone, *sorted(sandbox.named_zones)) if digest_of(zone)]
        for zone in used:
            recorded = catalog.resolve_zone(name_of(zone))
            if digest_of(recorded) not in ("", digest_of(zone)):
                raise ZoneRulesDifferError.of_rules(rules_of(recorded), rules_of(zone))
        return tuple(RecordZone(rules_of(zone)) for zone in used if not digest_of(catalog.resolve_zone(name_of(zone))))

    def bind_statement(
        self, catalog: Catalog, version: HummockVersion, statement: ScriptStatement, *, own: bool = False
    ) -> tuple[Bound, tuple[str, ...]]:
        """The statement bound over a catalog, and notes for the user.

        A CREATE TABLE AS over an existing relation becomes a CREATE TABLE, because its query need not run.

        Args:
            own: the project derived this statement, which may use reserved names.

        Raises: as Binder.bind; ReservedNameError; UnknownSchemaError.
        """
        if (on_schemas := read_schema_statement(statement.source)) is not None:
            if isinstance(on_schemas, UseSchema):
                require_schema(catalog, on_schemas.name)
            return on_schemas, ()
        binder = self.binder_over(catalog)
        bound = binder.bind(statement.source, EpochsOf(self._stored, version, Sight(version.epoch)))
        if isinstance(bound, CreateSource | BoundSourceOptions):
            for name, value in bound.options.items():
                if name.lower() == TIME_ZONE.lower():
                    with suppress(UnknownZoneError):  # a source that names no zone is refused with its option later
                        binder.sandbox.zone_by_jvm(value)
        if isinstance(bound, CreateView) and not own:
            require_free_name(bound.name)
        if isinstance(bound, BoundCreateTableAs) and _is_taken(catalog, bound.table.name.lower()):
            bound = bound.table
        return bound, tuple(binder.notes)

    def to_log(self, catalog: Catalog, bound: Bound, base: Path, waiting: Callable[[], WaitingLog]) -> ToLog:
        """The statement to log for a bound statement. Computes and stores its rows.

        Args:
            catalog: the catalog over which it was bound.
            base: the folder that relative paths of sources, and the folder of functions, start from.
            waiting: returns the waiting statements, with the same catalog. Called if the statement reads rows.

        Raises: WaitingStatementsError, WaitingStatementFailsError, EpochMovedError; errors of its input and of its
            computation.
        """
        match bound:
            case BoundInsert(table, rows):
                return ToLog(self._writer.store_insert(table, rows))
            case BoundInsertSelect():
                return self._insert_of_select(waiting(), bound)
            case BoundCreateTableAs(table, rows):
                admit_statement(catalog, table, 0)  # before the query of a table that cannot be stored runs
                if isinstance(rows, BoundInsert):
                    insert = self._writer.store_insert(rows.table, rows.rows)
                    return ToLog(CreateTableAs(table, insert.rows, insert.object))
                insert_to_log = self._insert_of_select(waiting(), rows)
                selected = insert_to_log.statement
                assert isinstance(selected, Insert)
                return replace(
                    insert_to_log, statement=CreateTableAs(table, selected.rows, selected.object, selected.after)
                )
            case BoundChange():
                word = bound.statement.split(maxsplit=1)[0].upper()
                if word != "DELETE":
                    require_not_fed(catalog, find_relation(catalog, bound.table.name), word)
                return self._rows_to_change(waiting(), bound)
            case CreateSource():
                source = place_source(bound, base, self._meta.objects)
                refuse_own_store(source, self._meta.objects)
                if all(
                    r.name != source.name for r in catalog.live_relations()
                ):  # IF NOT EXISTS must not need the files
                    source = describe_source(source, self._spark)
                return ToLog(source)
            case BoundSourceOptions():
                from tussock.jobs.statements.source_changes import set_options

                return ToLog(set_options(catalog, bound, base, self._meta.objects, self._spark))
            case CreateFunction():
                from tussock.jobs.statements.function_code import with_code

                return ToLog(with_code(bound, base))
            case Query() | Show() | Explain() | UseSchema():
                raise AssertionError(f"{type(bound).__name__} only reads")
            case _:
                return ToLog(bound)

    def settle_views(self, draft: "DraftTransaction", *, last: bool = True) -> tuple[Relation, ...]:
        """Bind the views again that read changed relations, until all are settled.

        Args:
            last: no later statement of the draft can settle a view. Otherwise the ones that cannot follow are left.

        Returns: the views that were bound again, as they were, in that order.

        Raises: CannotFollowError.
        """
        from tussock.jobs.statements.transaction import CannotFollowError

        bound = list[Relation]()
        while views := draft.unsettled_relations:
            failed = list[CannotFollowError]()
            for view in views:
                try:
                    self.bind_again(draft, view)
                    bound.append(view)
                except CannotFollowError as err:
                    failed.append(err)
            if len(failed) == len(views):
                if last:
                    first, *rest = failed
                    raise CannotFollowError(first.view, first.reason, tuple(err.view for err in rest)) from first
                break
        return tuple(bound)

    def bind_again(self, draft: "DraftTransaction", view: Relation, *, rebuilt: bool = False) -> None:
        """Bind an existing view's SELECT over the draft's catalog, and add it to the draft.

        `rebuilt`: the view does not keep its state.

        Raises: CannotFollowError.
        """
        from tussock.jobs.statements.transaction import CannotFollowError, query_of

        sql, columns = query_of(view)
        try:
            binder = self.binder_over(draft.catalog)
            bound = binder.bind_again(view.name, sql, columns, materialized=view.kind is RelationKind.VIEW)
            draft.add_statement(
                msgspec.structs.replace(bound, rebuilt=True) if rebuilt and isinstance(bound, CreateView) else bound
            )
        except InputError as err:
            raise CannotFollowError(view.name, str(err)) from err

    @contextmanager
    def read_pending_rows(self, waiting: WaitingLog, names: Sequence[str]) -> Iterator[PendingRows]:
        """Yield the rows that a statement reads: tables after the waiting statements, the others committed.

        Args:
            names: the relations that it reads.

        Raises: WaitingStatementsError, WaitingStatementFailsError, EpochMovedError.
        """
        waiting.require_readable(names)
        with self._meta.open_for_reading(waiting.version.epoch) as pinned:
            yield self._tables.read_tables(waiting, pinned, waiting.tables_among(names))

    def forget_rows(self) -> None:
        """Release the memory of the rows that waiting statements have changed. Correct at any time."""
        self._tables = PendingTables(self._meta)

    def require_replayable(self, waiting: WaitingLog, changed: Update | Delete) -> None:
        """Raise WaitingStatementFailsError if the last statement raises on a row of its table.

        Cost: none if its expressions cannot raise, otherwise its replay.
        """
        assigned = [] if isinstance(changed, Delete) else [value for _, value in changed.assignments]
        if any(may_raise(e) for e in [*assigned, *([] if changed.where is None else [changed.where])]):
            with self.read_pending_rows(waiting, [changed.table.lower()]):
                pass

    def make_frame(
        self,
        sql: str,
        bound: Query | BoundInsertSelect,
        version: HummockVersion,
        sight: Sight,
        in_flight: RowsInFlight,
    ) -> "DataFrame":
        """The rows of a SELECT over a sight."""
        from tussock.jobs.reading.ordered_query import ordered_parts
        from tussock.jobs.reading.query import QueryInput, query_frame, relations_read

        assert self._binder is not None, "it has bound the SELECT"
        sandbox = self._binder.sandbox
        ordered = {r.name: r for r in relations_read(version, sight, bound.relations)}
        ordered |= {other.name: other.relation for other in bound.at if other.since is None}
        read = QueryInput(
            self._meta.objects.uri,
            version,
            sight,
            bound.relations,
            sandbox.time_zone,
            bound.at,
            self._stored.version_of,
            in_flight,
            ordered_parts(sandbox, SourceText(sql), ordered, version.mapping.vnode_count),
        )
        return query_frame(self._spark(), sql, read)

    def _insert_of_select(self, waiting: WaitingLog, bound: BoundInsertSelect) -> ToLog:
        """The INSERT of a SELECT's rows."""
        from tussock.jobs.sql.dml import rows_to_insert
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours

        with spark_errors_as_ours(SourceText(bound.select)), self.read_pending_rows(waiting, bound.reads) as seen:
            selected = self.make_frame(bound.select, bound, seen.version, seen.sight, seen.rows)
            insert = self._writer.store_insert(bound.table.name, rows_to_insert(selected, bound))
        return _read_through(insert, waiting, bound.reads)

    def _rows_to_change(self, waiting: WaitingLog, bound: BoundChange) -> ToLog:
        """The rows that a statement changes."""
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours
        from tussock.jobs.statements.change import computed_change

        sandbox = self.binder_over(waiting.catalog).sandbox
        with (
            spark_errors_as_ours(SourceText(bound.statement, bound.start)),
            self.read_pending_rows(waiting, bound.reads) as seen,
        ):
            rows = computed_change(self._spark(), self._meta.objects, seen, sandbox, bound, self._stored.version_of)
        return _read_through(self._writer.store_change(bound.table.name, rows), waiting, bound.reads)


def _read_through(statement: Insert | Change, waiting: WaitingLog, reads: Sequence[str]) -> ToLog:
    """A statement whose rows were computed after the waiting statements."""
    through = sorted(
        {position for position, _ in waiting.statements_on(waiting.tables_among(reads)) if position < waiting.end}
    )
    if through:
        statement = msgspec.structs.replace(statement, after=tuple(through))
    return ToLog(statement, tuple(reads), waiting, waiting.describe_waiting(reads))
