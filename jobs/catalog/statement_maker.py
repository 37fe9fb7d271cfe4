"""Turn SQL texts into statements of the log, which are bound over a catalog and have their rows computed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.catalog.statement_writer import StatementWriter
from tussock.jobs.kernels.render import has_kernel
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    Bound,
    BoundChange,
    BoundCreateTableAs,
    BoundInsert,
    BoundInsertSelect,
    Change,
    CreateFunction,
    CreateSource,
    CreateTableAs,
    CreateView,
    Explain,
    Insert,
    Query,
    Show,
    Single,
)
from tussock.jobs.plan.builds import planned
from tussock.jobs.plan.checks import admitted
from tussock.jobs.plan.definition import find
from tussock.jobs.plan.fed_tables import require_not_fed
from tussock.jobs.plan.statement_log import require_taken
from tussock.jobs.reading.epochs import EpochsOf
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.sources.describe import described, placed
from tussock.jobs.sources.registry import READERS, WITHOUT_PATH
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

if TYPE_CHECKING:  # imported on use, because only SQL needs Spark
    from pyspark.sql import DataFrame, SparkSession

    from tussock.jobs.catalog.transaction import DraftTransaction
    from tussock.jobs.sql.binder import Binder


class ReservedNameError(InputError):
    """A user's name starts with the prefix of the views that the project creates for itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

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
    return planned(catalog, name) is not None or any(r.name == name for r in catalog.live())


#: A statement to log, and the relations whose committed rows it was computed from.
ToLog = tuple[Single, Sequence[str]]


class StatementMaker:
    """Turns texts into statements of the log, for one session. Not thread-safe."""

    def __init__(
        self, meta: MetaStore, stored: StoredRows, writer: StatementWriter, spark: "Callable[[], SparkSession]"
    ) -> None:
        """`spark` starts the Spark session when it is first needed."""
        self._meta, self._stored, self._writer, self._spark = meta, stored, writer, spark
        self._time_zone = meta.settings.time_zone
        self._binder: Binder | None = None

    def binder(self, relations: tuple[Relation, ...]) -> "Binder":
        """The binder, over these relations."""
        if self._binder is None:
            from tussock.jobs.sql.binder import Binder

            self._binder = Binder(self._spark(), relations, self._time_zone, tuple(READERS), has_kernel, WITHOUT_PATH)
        else:
            self._binder.set_relations(relations)
        return self._binder

    def bound(
        self, catalog: Catalog, version: HummockVersion, text: str, place: Place, *, own: bool = False
    ) -> tuple[Bound, tuple[str, ...]]:
        """The statement bound over a catalog, and notes for the user.

        A CREATE TABLE AS over an existing relation becomes a CREATE TABLE, because its query need not run.

        Args:
            own: the project derived this statement, which may use reserved names.

        Raises: as Binder.bind; ReservedNameError.
        """
        binder = self.binder(catalog.live())
        bound = binder.bind(text, place, EpochsOf(self._stored, version, Sight(version.epoch)))
        if isinstance(bound, CreateView) and not own:
            require_free_name(bound.name)
        if isinstance(bound, BoundCreateTableAs) and _is_taken(catalog, bound.table.name.lower()):
            bound = bound.table
        return bound, tuple(binder.notes)

    def to_log(self, catalog: Catalog, version: HummockVersion, bound: Bound, base: Path) -> ToLog:
        """The statement to log for a bound statement. Computes and stores its rows.

        Args:
            catalog: the catalog over which it was bound.
            base: the folder that relative paths of sources, and the folder of functions, start from.

        Raises: WaitingStatementsError; errors of its input and of its computation.
        """
        match bound:
            case BoundInsert() | BoundInsertSelect():
                return self._rows(catalog, version, bound)
            case BoundCreateTableAs(table, rows):
                admitted(catalog, table, version.epoch + 1)  # before the query of a table that cannot be stored runs
                insert, reads = self._rows(catalog, version, rows)
                return CreateTableAs(table, insert.rows, insert.object), reads
            case BoundChange():
                word = bound.statement.split(maxsplit=1)[0].upper()
                if word != "DELETE":
                    require_not_fed(catalog, find(catalog, bound.table.name), word)
                return self._change(catalog, version, bound), bound.reads
            case CreateSource():
                source = placed(
                    bound, base
                )  # an existing source keeps its columns: IF NOT EXISTS must not need the files
                return source if any(r.name == source.name for r in catalog.live()) else described(
                    source, self._spark
                ), ()
            case CreateFunction():
                from tussock.jobs.catalog.function_code import with_code

                return with_code(bound, base), ()
            case Query() | Show() | Explain():
                raise AssertionError(f"{type(bound).__name__} only reads")
            case _:
                return bound, ()

    def settle(self, draft: "DraftTransaction") -> None:
        """Bind the views again that read replaced relations, until all are settled. Raises CannotFollowError."""
        while (view := draft.next_unsettled()) is not None:
            self.bind_again(draft, view)

    def bind_again(self, draft: "DraftTransaction", view: Relation, *, rebuilt: bool = False) -> None:
        """Bind an existing view's SELECT over the draft's catalog, and add it to the draft.

        `rebuilt`: the view does not keep its state.

        Raises: CannotFollowError.
        """
        from tussock.jobs.catalog.transaction import CannotFollowError, query_of

        sql, columns = query_of(view)
        try:
            binder = self.binder(draft.catalog.live())
            bound = binder.bind_again(view.name, sql, columns, materialized=view.kind is RelationKind.VIEW)
            draft.add(
                msgspec.structs.replace(bound, rebuilt=True) if rebuilt and isinstance(bound, CreateView) else bound
            )
        except InputError as err:
            raise CannotFollowError(view.name, str(err)) from err

    def frame(self, sql: str, bound: Query | BoundInsertSelect, version: HummockVersion, sight: Sight) -> "DataFrame":
        """The rows of a SELECT over a sight."""
        from tussock.jobs.reading.ordered_query import ordered_parts
        from tussock.jobs.reading.query import query_frame, relations_read

        uri, version_of = self._meta.objects.uri, self._stored.version_of
        read = {r.name: r for r in relations_read(version, sight, bound.relations)}
        read |= {other.name: other.relation for other in bound.at if other.since is None}
        assert self._binder is not None, "it has bound the SELECT"
        parts = ordered_parts(self._binder.sandbox, SourceText(sql), read, len(version.mapping.units))
        return query_frame(
            self._spark(), uri, version, sight, sql, bound.relations, self._time_zone, bound.at, version_of, parts
        )

    def _rows(
        self, catalog: Catalog, version: HummockVersion, bound: BoundInsert | BoundInsertSelect
    ) -> tuple[Insert, Sequence[str]]:
        """The INSERT of constants, or of a SELECT over the committed epoch."""
        if isinstance(bound, BoundInsert):
            return self._writer.insert(bound.table, bound.rows), ()
        from tussock.jobs.sql.dml import rows_to_insert
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours

        require_taken(self._meta, version, catalog, bound.reads)
        with spark_errors_as_ours(SourceText(bound.select)), self._meta.reading(version.epoch) as pinned:
            selected = self.frame(bound.select, bound, pinned, Sight(version.epoch))
            return self._writer.insert(bound.table.name, rows_to_insert(selected, bound)), bound.reads

    def _change(self, catalog: Catalog, version: HummockVersion, bound: BoundChange) -> Change:
        """The rows that a statement changes in the committed epoch."""
        from tussock.jobs.catalog.change import computed_change
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours

        require_taken(self._meta, version, catalog, bound.reads)
        sandbox = self.binder(catalog.live()).sandbox
        with (
            spark_errors_as_ours(SourceText(bound.statement, bound.start)),
            self._meta.reading(version.epoch) as pinned,
        ):
            rows = computed_change(
                self._spark(),
                self._meta.objects,
                pinned,
                version.epoch,
                sandbox,
                bound,
                self._time_zone,
                self._stored.version_of,
            )
        return self._writer.change(bound.table.name, rows)
