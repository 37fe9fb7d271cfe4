"""The embedded face: SQL or Arrow in, Arrow out.

    with Session(store="my-store") as session:
        session.execute("CREATE TABLE orders (id bigint, shop int, amount double, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW by_shop AS SELECT shop, sum(amount) AS total FROM orders GROUP BY shop")
        session.execute("INSERT INTO orders VALUES (1, 7, 9.5)")
        session.flush()
        print(session.query("SELECT * FROM by_shop"))

Statements are durable when `execute` returns and take effect with the next epoch; `flush` runs one.

Spark binds SQL, so the first statement or query starts a JVM. `insert` and `read` need no SQL, and `flush` runs an epoch that takes in
little in this process: a session that does no more than these starts no JVM, and does not even import Spark.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tussock.jobs.catalog.insert import rows_for_table
from tussock.jobs.catalog.show import explain, show
from tussock.jobs.catalog.statement_maker import StatementMaker, require_free_name
from tussock.jobs.catalog.statement_writer import Answer, StatementWriter
from tussock.jobs.driver.barrier import Wish, micros_of
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.pauses import warn_of_paused
from tussock.jobs.driver.publish import publish
from tussock.jobs.driver.restate import Restatement, Restating
from tussock.jobs.driver.runner import AutoRunner, LevelRunner, LocalRunner
from tussock.jobs.driver.source_holds import warn_of_held
from tussock.jobs.driver.summary import EpochSummary, holds_of
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.statements import (
    BoundCreateTableAs,
    Change,
    CreateFunction,
    CreatePlainView,
    CreateTable,
    CreateView,
    Explain,
    Query,
    Show,
    Single,
)
from tussock.jobs.plan.definition import find
from tussock.jobs.plan.fed_tables import require_not_fed
from tussock.jobs.plan.statement_log import PendingCatalog, statement_text
from tussock.jobs.reading.epochs import EpochsOf
from tussock.jobs.reading.moment import BadMomentError
from tussock.jobs.reading.read import refuse_unseen
from tussock.jobs.reading.rejected import rejected
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.pipeline import EpochSettings, OnError
from tussock.jobs.settings.process import create_store, open_meta
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.listing import Interval
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.statestore.errors import InputError
from tussock.statestore.extras import extras_named
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.meta.sight import Sight, published_sight
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows
from tussock.statestore.objectstore.base import AccessDeniedError
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:  # imported where it is needed: SQL alone needs Spark
    from pyspark.sql import DataFrame, SparkSession

    from tussock.jobs.catalog.deployment import Deployment, Derived
    from tussock.jobs.reading.frames import Frames
    from tussock.jobs.verify.record import Verification


__all__ = ["Answer", "Session", "TwoThreadsError"]


class TwoThreadsError(InputError):
    """A session was called while another thread's call was at work in it."""

    def __str__(self) -> str:
        return (
            "this session is at work in another thread, and serves one at a time. Nothing was done. Open a session for each thread "
            "(Session(store, spark=session.spark) shares its Spark), or call it again when the other call has ended."
        )


class Session:
    """One process's way into one store, for one thread at a time: a call while another thread's is at work raises TwoThreadsError."""

    def __init__(
        self,
        store: str,
        spark: "SparkSession | Callable[[], SparkSession] | None" = None,
        *,
        create: bool = True,
        units: int = 2,
        time_zone: str = "UTC",
        runner: Literal["auto", "spark", "local"] | LevelRunner = "auto",
        on_error: Literal["stop", "pause"] = "stop",
    ) -> None:
        """Open a store.

        Args:
            store: a directory or `s3://bucket/prefix?endpoint=…`.
            spark: a classic Spark session to use, or what gives one when it is first needed; None starts a local one then, unless this
                process has one. Sessions share it, and the last one that closes stops it.
            create: make the store where there is none yet.
            units, time_zone: of a store that is made.
            runner: where epochs run: `spark`; `local`, in this process, which can't take files that only Spark reads; `auto`, on Spark
                where this session has started it or an epoch needs it (files that only Spark reads, or much to take in), else here.
            on_error: what `flush` does where a view cannot take an epoch's rows: `stop`, or `pause` that view and those over it.

        Raises: NotInitialisedError without `create`; errors of the object store.
        """
        if create and not _exists(store):
            create_store(store, units=units, time_zone=time_zone)
        self.meta = open_meta(store)
        self.time_zone = self.meta.settings.time_zone
        self._on_error = OnError(on_error)
        self._spark: SparkSession | None = None if callable(spark) else spark
        self._start_spark = spark if callable(spark) else None
        self._leaves_spark = self._spark is not None and self._joined_spark()
        self._runner = self._runner_of(runner)
        self._frames: Frames | None = None
        self._writer = StatementWriter(self.meta)
        self._pending = PendingCatalog(self.meta)
        self._stored = StoredRows(self.meta, self._pending)
        self._statements = StatementMaker(self.meta, self._stored, self._writer, lambda: self.spark)
        self._working = RLock()  # held while a call is at work

    @property
    def spark(self) -> "SparkSession":
        """The Spark session."""
        if self._spark is None:
            if self._start_spark is not None:
                self._spark = self._start_spark()
            else:
                self._leaves_spark = self._joined_spark()
        assert self._spark is not None
        return self._spark

    def _joined_spark(self) -> bool:
        """Use the given Spark, or this process's. Returns whether the session has to leave it when it closes."""
        with extras_named():
            from tussock.jobs.spark.session import join_spark

        self._spark, leaves = join_spark(self._spark)
        return leaves

    def execute(self, sql: str, *, base: Path | None = None) -> list[Answer]:
        """Run a script, statement by statement; each is durable before the next is read.

        Args:
            sql: statements separated by `;`.
            base: what relative paths of sources start from; the working directory when None.

        Raises: InputError branches that name the place; statements before the failing one stay taken.
        """
        return list(self.run(sql, base=base))

    def run(self, sql: str, *, base: Path | None = None) -> Iterator[Answer]:
        """As `execute`, answer by answer: a statement runs when its answer is asked for."""
        for statement in split_script(sql):
            with self._at_work():
                answer = self._execute(statement.text, statement.place, base or Path.cwd())
            yield answer

    def plan(
        self,
        scripts: Sequence[tuple[Path, str]],
        *,
        prune: bool = False,
        resume: Sequence[str] = (),
        derived: "Derived | None" = None,
    ) -> "Deployment":
        """What `apply` would do with these files now. Nothing is written; where nothing has changed, Spark is not started."""
        with self._at_work():
            return self._deployment(scripts, prune, resume, derived, stores_rows=False)

    def apply(
        self,
        scripts: Sequence[tuple[Path, str]],
        *,
        prune: bool = False,
        resume: Sequence[str] = (),
        derived: "Derived | None" = None,
        require: "Callable[[Deployment], None] | None" = None,
    ) -> "Deployment":
        """Make a pipeline's files hold: all of them, as one entry of the log, or nothing.

        A changed view is replaced, statements on rows run once in the store's life, and what is there as the files say is left alone.

        Args:
            scripts: the files with their text, in order.
            prune: drop the views that the files do not name.
            resume: paused views that are to go on: they are built anew, and those that were paused with them.
            derived: what follows from the views of the files: the measures of a pipeline's quality suites; None: they stay as they are.
            require: called with the very deployment that is about to be logged; nothing is logged if it raises.

        Raises: InputError branches that name the place, with the file in a note; nothing is logged then.
        """
        with self._at_work():
            while True:
                deployment = self._deployment(scripts, prune, resume, derived, stores_rows=True)
                if require is not None:
                    require(deployment)
                if deployment.statement is None:
                    return deployment
                with suppress(LogMovedError):  # another session's statement came between, over which all is bound anew
                    position = self._writer.logged(deployment.statement, expected=deployment.log_end)
                    return replace(deployment, position=position)

    def _deployment(
        self,
        scripts: Sequence[tuple[Path, str]],
        prune: bool,
        resume: Sequence[str],
        derived: "Derived | None",
        *,
        stores_rows: bool,
    ) -> "Deployment":
        from tussock.jobs.catalog.deployment import Deploying

        version = self.meta.latest()
        catalog = self._pending.at(version)
        deploying = Deploying(self.meta, self._statements, version, catalog, self._pending.log_end, stores_rows)
        return deploying.of(scripts, prune, resume, derived)

    def flush(
        self,
        interval: Interval | None = None,
        *,
        moment: datetime | None = None,
        max_epoch_bytes: int | None = None,
        progress: Progress = no_progress,
    ) -> EpochSummary:
        """Run one epoch over everything that is new, commit and publish it; without effect when nothing is. An unfinished barrier is
        finished first, as that epoch. Where a view compares with now(), that the clock has moved on is new.

        Args:
            interval: take only this data interval's files from sources whose path is a template.
            moment: what now() means in views, with its time zone; None: the interval's end, without one the clock. It never goes back.
            max_epoch_bytes: of source files; the rest waits for the next epoch. None: all of them, however many.
            progress: called with one line per step.

        Warns: HeldSourceWarning for each source in trouble: its new files wait, and everything else was taken in. PausedViewWarning for
            each view that this epoch paused.
        """
        with self._at_work():
            at = None if moment is None else micros_of(moment)
            settings = EpochSettings(max_bytes=max_epoch_bytes, on_error=self._on_error)
            summary = next_epoch(self._runner, self.meta, Wish(interval, at), settings, progress)
            if summary is None:
                version = self.meta.latest()
                summary = EpochSummary(version.epoch, version.id, {}, 0, 0, {}, held=holds_of(version.catalog))
            else:
                version = publish(self.meta, summary.epoch)
                warn_of_paused(version.catalog, summary)
            warn_of_held(version.catalog, interval)
            return summary

    def restate(self, source: str, restated: Restated, progress: Progress = no_progress) -> Restatement:
        """Correct what a source has taken, in an epoch of its own, which is published: rows that were taken go, those of now come.

        Args:
            restated: a file, `Restated("/data/2026-01-02.csv")`, also with `by="/data/other.csv"` or `gone=True`; or an interval,
                `Restated(interval=Interval(start, end))`.

        Returns: the files whose rows went and came, and the views that followed; nothing of them where all is as it was taken.
        Warns: as `flush`; a file that cannot be read leaves everything as it was.
        Raises: UnknownRelationError; CannotRestateError; EpochUnderWayError: `flush` first.
        """
        with self._at_work():
            restating = Restating(self.meta, source, restated)
            if restating.begin() is None:
                return restating.found
        self.flush(progress=progress)
        return restating.found

    def verify(
        self,
        *views: str,
        percent: int = 100,
        epoch: int | None = None,
        repair: bool = False,
        progress: Progress = no_progress,
    ) -> "Verification":
        """Compute views anew by Spark, over the tables and the taken bytes of the sources as of one epoch, and compare. The store keeps the
        result (tussock.jobs.verify.record.read_last).

        Args:
            views: these, and the views that they read; all views if none is named.
            percent: share of the keys of each view that is compared.
            epoch: a readable epoch; the published one when None.
            repair: log a statement that builds the views that differ anew, and the views over them; the next `flush` does it.
            progress: called with a line per view.

        Raises: UnknownRelationError, NothingToVerifyError, BadShareError; EpochNotCommittedError, EpochExpiredError; CannotFollowError.
        Cost: that of each SELECT over all its rows, and a scan of each view.
        """
        with self._at_work():
            from tussock.jobs.verify.record import write_last
            from tussock.jobs.verify.repair import repaired
            from tussock.jobs.verify.verify import verify

            found = verify(
                self.spark,
                self.meta,
                lambda relations: self._statements.binder(relations).sandbox,
                views,
                percent=percent,
                epoch=epoch,
                progress=progress,
            )
            if repair:
                found = repaired(self.meta, self._pending, self._statements, self._writer, found)
            with suppress(AccessDeniedError):  # whoever may only read the store has the result alone
                write_last(self.meta.objects, found, [r.name for r in self.meta.latest().catalog.live()])
            return found

    def query(self, sql: str, epoch: int | None = None, *, at: datetime | None = None) -> pa.Table:
        """Answer a SELECT over tables and views.

        Args:
            sql: anything Spark can run.
            epoch: what is published when None.
            at: read the epoch that was the newest published one then, instead of naming it; without an offset, local time of the store.

        Warns: PausedViewWarning for each view that stays at the rows it had when it was paused; HeldViewWarning for each that is held back.
        Raises: SqlError; NeverPassedError; EpochNotCommittedError, EpochExpiredError; BadMomentError.
        """
        with self._at_work():
            if at is not None and epoch is not None:
                raise BadMomentError(str(at), f"epoch {epoch} is named as well", "an epoch or a moment, not both")
            return self._select(sql, Place(1, 1), epoch if at is None else self._stored.seen_at(at))

    def insert(self, table: str, rows: pa.Table) -> Answer:
        """Insert rows, as INSERT would: a row whose key exists replaces it. Durable when it returns; takes effect with the next epoch.

        Args:
            rows: columns by name, whatever their letters' case; those of the table that are missing become NULL. Types are the table's, or
                ones that are cast to them without loss.

        Raises: UnknownRelationError; UnfitRowsError, NullKeyError, and nothing was inserted.
        """
        with self._at_work():
            catalog = self._pending.at(self.meta.latest())
            relation = find(catalog, table, RelationKind.TABLE)
            require_not_fed(catalog, relation, "INSERT INTO")
            statement = self._writer.insert(relation.name, rows_for_table(relation, rows))
            return self._writer.log(f"insert into {relation.name}", statement)

    def read(self, relation: str, columns: Sequence[str] | None = None, epoch: int | None = None) -> pa.Table:
        """The rows of a view or table, without SQL: see `StoredRows.read`."""
        with self._at_work():
            return self._stored.read(relation, columns, epoch)

    def reader(
        self, relation: str, columns: Sequence[str] | None = None, epoch: int | None = None
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """The same batch by batch, for what is larger than memory: see `StoredRows.reader`."""
        return self._stored.reader(relation, columns, epoch)

    def changes(
        self, relation: str, since: int, until: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """What changed in a view or table between two epochs, at the cost of the change: see `StoredRows.changes`."""
        with self._at_work():
            return self._stored.changes(relation, since, until, columns)

    def table(self, name: str, epoch: int | None = None) -> "DataFrame":
        """A view's or table's rows as a Spark DataFrame, to build on as on any other; each action reads the store.

        Args:
            epoch: the published one, as of now, when None. The rows stay those of that epoch, whatever is published later.

        It runs in a Spark session of this store's time zone, in ANSI mode. Its epoch stays pinned until `close`: compaction and vacuum keep
        what it reads meanwhile, so a session that asks for ever new epochs and is never closed has ever more kept. After `close`, and where
        the store may only be read, a vacuum may take what an action would read: MissingSstError, never a wrong row.

        That of a source is to build views on; no rows of it are stored, and an action on it says so.

        Raises: as `read`.
        """
        with self._at_work():
            return self._opened_frames().table(name, epoch)

    def create_view(self, name: str, dataframe: "DataFrame", *, if_not_exists: bool = False) -> Answer:
        """Keep a DataFrame's query as a materialized view, as CREATE MATERIALIZED VIEW keeps a SELECT's. Durable when it returns; takes
        effect with the next epoch.

        Args:
            dataframe: built on DataFrames of `table`, without an epoch, by whatever Spark itself computes; its columns are the view's.

        SHOW CREATE shows it as the SELECT that makes the same plan, or as that plan where none is found.

        Raises: UnsupportedQueryError for what cannot be kept: other data, Python functions, chance, now(); FrameOfAnEpochError;
            OutdatedFrameError; SqlError for a name or column that cannot be one; ReservedNameError.
        """
        with self._at_work():
            catalog = self._pending.at(self.meta.latest())
            binder = self._statements.binder(catalog.live())
            view = self._opened_frames().view(binder, catalog, name, dataframe, if_not_exists)
            require_free_name(view.name)
            return _noted(self._writer.append(catalog, view.sql, view), binder.notes)

    def _opened_frames(self) -> "Frames":
        if self._frames is None:
            from tussock.jobs.reading.frames import Frames

            self._frames = Frames(self.meta, self._stored, self.spark, self.time_zone)
        return self._frames

    def _runner_of(self, runner: Literal["auto", "spark", "local"] | LevelRunner) -> LevelRunner:
        def on_spark() -> LevelRunner:
            from tussock.jobs.driver.spark_runner import SparkRunner

            return SparkRunner(self.spark)

        match runner:
            case "auto":
                return AutoRunner(on_spark, lambda: self._spark is not None or _active_spark() is not None)
            case "spark":
                return AutoRunner(on_spark, lambda: True)
            case "local":
                return LocalRunner()
            case _:
                return runner

    def close(self) -> None:
        """Let go of the epochs of `table`. Spark stops with the last session that uses it, if a session started it."""
        frames, self._frames = self._frames, None
        try:
            if frames is not None:
                frames.close()
        finally:
            if self._leaves_spark and self._spark is not None:
                from tussock.jobs.spark.session import leave_spark

                leave_spark(self._spark)
                self._spark, self._leaves_spark = None, False

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """One call's time in the session: another thread's is refused, and what the JVM raises becomes an error of ours."""
        if not self._working.acquire(blocking=False):
            raise TwoThreadsError
        try:
            with jvm_errors_as_ours(), extras_named():
                yield
        finally:
            self._working.release()

    # --- statements --------------------------------------------------------------------------------------------------------------

    def _execute(self, text: str, place: Place, base: Path) -> Answer:
        while True:
            with suppress(LogMovedError):  # another session's statement came between, over which this one is bound anew
                return self._execute_at_end(text, place, base)

    def _execute_at_end(self, text: str, place: Place, base: Path) -> Answer:
        version = self.meta.latest()
        catalog, end = self._pending.at(version), self._pending.log_end
        bound, notes = self._statements.bound(catalog, version, text, place)
        match bound:
            case Query():
                table = self._select(text, place, None)
                return Answer(text, f"{table.num_rows} rows", table)
            case Show():
                states = rejected(self.meta.objects, version), published_sight(version).held
                table = pa.table(dict(show(catalog, bound, *states)))
                return Answer(text, f"{table.num_rows} rows", table)
            case Explain():
                explained = explain(catalog, bound, version.epoch + 1)
                return Answer(text, "explained", pa.table({"plan": explained.splitlines()}))
            case BoundCreateTableAs() if self._is_there(catalog, version, bound.table):  # so the query need not run
                return Answer(text, f"nothing to do: {statement_text(bound.table)}")
        statement, reads = self._statements.to_log(catalog, version, bound, base)
        if isinstance(statement, Change) and statement.rows == 0:
            return Answer(text, f"nothing to do: no row of {statement.table} changes")
        if isinstance(statement, CreateView | CreatePlainView | CreateFunction) and statement.or_replace:
            return _noted(self._replace(version, catalog, text, statement, end), notes)
        if reads:
            return self._writer.append_next(version, catalog, text, statement, reads)
        return _noted(self._writer.append(catalog, text, statement), notes)

    @staticmethod
    def _is_there(catalog: Catalog, version: HummockVersion, table: CreateTable) -> bool:
        from tussock.jobs.plan.checks import admitted

        return admitted(catalog, table, version.epoch + 1) == catalog

    def _replace(self, version: HummockVersion, catalog: Catalog, text: str, created: Single, end: int) -> Answer:
        """Log what a CREATE OR REPLACE comes to for the views, too, that read what it replaces. Raises LogMovedError."""
        from tussock.jobs.catalog.transaction import DraftTransaction

        draft = DraftTransaction(catalog, version.epoch + 1)
        if not draft.add(created):
            return Answer(text, f"nothing to do: {statement_text(created)}")
        self._statements.settle(draft)
        return self._writer.log(text, draft.statement(), expected=end)

    def _select(self, text: str, place: Place, epoch: int | Sight | None) -> pa.Table:
        with self._stored.seeing(epoch) as (
            version,
            sight,
        ):  # what is read stays, however compaction and vacuum go on meanwhile
            return self._answer(text, place, version, sight)

    def _answer(self, text: str, place: Place, version: HummockVersion, sight: Sight) -> pa.Table:
        from tussock.jobs.logical.errors import NoRelationError, SqlError
        from tussock.jobs.spark.collected import collected
        from tussock.jobs.sql.spark_errors import spark_errors_as_ours

        try:
            bound = self._statements.binder(sight.relations(version.catalog)).bind(
                text, place, EpochsOf(self._stored, version, sight)
            )
        except NoRelationError as err:
            refuse_unseen(version, sight, err.name.strip("`"))
            self._stored.refuse_if_late(err.name.strip("`"), sight.epoch, version, err)
            raise
        if not isinstance(bound, Query):
            raise SqlError("expected a SELECT; give other statements to execute, without an epoch")
        with spark_errors_as_ours(bound.source):
            return given_rows(collected(self._statements.frame(bound.source.text, bound, version, sight)))


def _noted(answer: Answer, notes: Sequence[str]) -> Answer:
    """The answer with what the user should know of the view that was bound."""
    return replace(answer, message=answer.message + "".join(f"\n  note: {note}" for note in notes))


def _active_spark() -> "SparkSession | None":
    """The active Spark session; none where nobody has imported Spark."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _exists(store: str) -> bool:
    try:
        _ = open_meta(store).settings
    except NotInitialisedError:
        return False
    return True
