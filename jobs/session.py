"""The embedded session: SQL or Arrow in, Arrow out.

    with Session(store="my-store") as session:
        session.execute("CREATE TABLE orders (id bigint, shop int, amount double, PRIMARY KEY (id))")
        query = "SELECT shop, sum(amount) AS total FROM orders GROUP BY shop"
        session.execute(f"CREATE MATERIALIZED VIEW by_shop AS {query}")
        session.execute("INSERT INTO orders VALUES (1, 7, 9.5)")
        session.flush()
        print(session.query("SELECT * FROM by_shop"))

Statements are durable when `execute` returns. They take effect with the next epoch, which `flush` runs.

Spark binds SQL, so the first statement or query starts a JVM. `insert` and `read` need no SQL, and `flush` runs an
epoch on this host unless the epoch needs Spark. A session that only uses these starts no JVM, and does not even import
Spark.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tussock.jobs.barriers.columns import wider_columns
from tussock.jobs.barriers.moment import ALL_INPUT, Clock, InputRequest, micros_of
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.barriers.source_holds import warn_of_held
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.compare.compare import SAMPLES, ComparisonOptions, StoreAt, compare_stores
from tussock.jobs.compare.record import StoreDifference
from tussock.jobs.driver.epoch import epochs_of_call
from tussock.jobs.driver.pauses import warn_of_paused
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.run_record import recorded_run
from tussock.jobs.driver.runner import AutoRunner, LevelRunner, LocalRunner, RunnerOnDemand, count_cores
from tussock.jobs.driver.summary import EpochSummary, holds_of
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA
from tussock.jobs.logical.script import ScriptStatement, schema_of_use, split_script
from tussock.jobs.reading.moment import BadMomentError
from tussock.jobs.reading.pending_rows import EpochMovedError
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.catalogs import without_catalogs
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import create_store, open_meta, store_exists
from tussock.jobs.settings.tables import EpochSettings, OnError
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.jdbc import storing_dumps
from tussock.jobs.sources.listing import Interval
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.jobs.statements.open_transaction import OpenTransaction, ended_within_transaction
from tussock.jobs.statements.selects import Selects
from tussock.jobs.statements.statement_maker import StatementMaker, require_free_name
from tussock.jobs.statements.statement_runner import StatementRunner, add_notes
from tussock.jobs.statements.statement_writer import Answer, StatementWriter
from tussock.jobs.trouble.restate import Restatement, Restating
from tussock.statestore.errors import InputError
from tussock.statestore.extras import extras_named
from tussock.statestore.forks import OPEN_SESSION, USED_SPARK, OwnProcess
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import AccessDeniedError
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:  # imported on use: only SQL needs Spark
    from pyspark.sql import DataFrame, SparkSession

    from tussock.jobs.quality.record import QualityRecord
    from tussock.jobs.reading.frames import Frames
    from tussock.jobs.statements.deployment import Deployment, DeployOptions
    from tussock.jobs.verify.record import Verification


log = logging.getLogger(__name__)

__all__ = ["Answer", "Session", "TwoThreadsError", "widen_columns"]


class TwoThreadsError(InputError, hides_row_values=True):
    """Two threads called a session at the same time."""

    def __str__(self) -> str:
        return (
            "this session is in use by another thread, and serves one thread at a time. Nothing was done. Open a "
            "session for each thread (Session(store, spark=session.spark) shares its Spark), or call again when the "
            "other call has ended. In a process that was forked during the call, open another session."
        )


class Session:
    """One process's access to one store.

    Only one thread may use a session at a time; a concurrent call raises TwoThreadsError.
    """

    def __init__(
        self,
        store: str,
        spark: "SparkSession | Callable[[], SparkSession] | None" = None,
        *,
        create: bool = True,
        units: int = 2,
        time_zone: str = "UTC",
        runner: Literal["auto", "spark", "local"] | LevelRunner = "auto",
        workers: int | None = None,
        on_error: Literal["stop", "pause"] = "stop",
        catalogs: Mapping[str, str] | None = None,
        schema: str = DEFAULT_SCHEMA,
    ) -> None:
        """Open a store.

        Args:
            store: a directory or `s3://bucket/prefix?endpoint=…`.
            spark: a classic Spark session, or a function that returns one on first use. None starts a local session on
                first use, unless this process has one. Sessions share it, and the last one to close stops it.
            create: create the store if it does not exist.
            units, time_zone: of a new store.
            runner: where epochs run. `spark`: always on Spark. `local`: on this host without Spark, and without files
                that only Spark reads. `auto`: on Spark if the epoch needs it (only Spark reads its files or computes
                its expressions, or it is large and Spark has other machines), and on this host otherwise.
            workers: processes on this host that may run an epoch's units at once. They start with the first epoch that
                is large enough, and the sessions of a process share them. 1: units run in this process. None: one per
                core.
            on_error: the reaction of `flush` to a view whose rows raise: `stop` the epoch, or `pause` the view and the
                views that read it.
            catalogs: for names of three parts in SQL: by catalog, the schema of each of its schemas, as `[catalogs]` of
                pipeline.toml: `{"main": "{schema}"}`.
            schema: of names without one in SQL, before the first USE.

        Raises: ValueError for fewer than one worker; NotInitialisedError if the store does not exist and `create` is
            False; errors of the object store.
        """
        if create and not store_exists(store):
            create_store(store, units=units, time_zone=time_zone)
        self.meta = open_meta(store)
        self.time_zone = self.meta.settings.time_zone
        self._on_error = OnError(on_error)
        self._catalogs = {catalog.lower(): pattern for catalog, pattern in (catalogs or {}).items()}
        self._used_schema = schema  # by the last USE
        self._spark: SparkSession | None = None if callable(spark) else spark
        self._spark_process = OwnProcess()  # the process that has started it
        self._start_spark = spark if callable(spark) else None
        self._leaves_spark = self._spark is not None and self._joined_spark()
        if workers is not None and workers < 1:
            raise ValueError(f"expected at least one worker, found {workers}")
        self._runner = self._runner_of(runner, count_cores() if workers is None else workers)
        self._frames: Frames | None = None
        self._writer = StatementWriter(self.meta)
        self._pending = PendingCatalog(self.meta)
        self._stored = StoredRows(self.meta, self._pending)
        self._statements = StatementMaker(self.meta, self._stored, self._writer, lambda: self.spark)
        self._selects = Selects(self.meta, self._stored, self._statements)
        self._statement_runner = StatementRunner(
            self.meta, self._pending, self._statements, self._writer, self._selects
        )
        self._working = RLock()  # held during a call

    @property
    def spark(self) -> "SparkSession":
        """The Spark session, started on first use."""
        if self._spark is not None:
            self._spark_process.require_here(USED_SPARK, OPEN_SESSION)
        else:
            if self._start_spark is not None:
                self._spark = self._classic(self._start_spark())
            else:
                self._leaves_spark = self._joined_spark()
            self._spark_process = OwnProcess()
        assert self._spark is not None
        return self._spark

    def _classic(self, started: "SparkSession") -> "SparkSession":
        from tussock.jobs.spark.session import require_classic

        return require_classic(started)

    def _joined_spark(self) -> bool:
        """Use the given Spark session, or this process's. Return whether the session must leave it on close."""
        with extras_named():
            from tussock.jobs.spark.session import join_spark

        self._spark, leaves = join_spark(self._spark)
        return leaves

    def execute(self, sql: str, *, base: Path | None = None) -> list[Answer]:
        """Run a script, statement by statement. Each statement is durable before the next is read.

        A USE holds until the next one, also for later calls of `execute`, `run` and `query`.

        A statement that reads tables sees the result of all earlier statements, also of statements that wait for an
        epoch. Statements between BEGIN and COMMIT are durable together with COMMIT, and take effect together or not at
        all.

        Args:
            sql: statements separated by `;`.
            base: the folder for relative paths of sources; None: the working directory.

        Raises: InputError branches with the place; statements before the failing one stay in the log, except statements
        of an open transaction. TransactionError.
        """
        return list(self.run(sql, base=base))

    def run(self, sql: str, *, base: Path | None = None) -> Iterator[Answer]:
        """Like `execute`, but an iterator: each statement runs when its answer is requested.

        An error ends a transaction that the script has begun, except if COMMIT breaks off: see `transaction`.
        """
        began: OpenTransaction | None = None  # by this script, and not by another thread's
        for statement in split_script(without_catalogs(sql, self._catalogs), self._used_schema):
            try:
                with self._at_work():
                    before = self._statement_runner.transaction
                    answer = self._statement_runner.execute(statement, base or Path.cwd())
                    if before is None:
                        began = self._statement_runner.transaction
            except BaseException:
                self._statement_runner.end_transaction(began)
                raise
            self._used_schema = schema_of_use(statement.text) or self._used_schema
            yield answer

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. `close` rolls it back."""
        return self._statement_runner.transaction is not None

    def require_committed(self) -> None:
        """Raise TransactionError if a transaction is open, with the number of statements that `close` rolls back.

        A transaction whose COMMIT broke off counts as committed if it is in the log. Cost: a few GETs in that case.
        """
        transaction = self._statement_runner.transaction
        if transaction is not None and transaction.logged_position is None:
            raise ended_within_transaction(transaction.statement_count)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Log the statements and inserts of the block as one entry: BEGIN before it, COMMIT after it.

        If the block raises, nothing is logged. If COMMIT breaks off because the store does not answer, the entry may be
        in the log or not, and the transaction stays open: `execute("COMMIT")` logs it at most once.

        Raises: TransactionError; as `execute`.
        """
        self.execute("BEGIN")
        began = self._statement_runner.transaction
        try:
            yield
        except BaseException:
            self._statement_runner.transaction = None
            raise
        try:
            self.execute("COMMIT")
        except BaseException:
            self._statement_runner.end_transaction(began)
            raise

    def plan(self, scripts: Sequence[tuple[Path, str]], options: "DeployOptions | None" = None) -> "Deployment":
        """Return the changes that `apply` would make with these files.

        Writes nothing; without changes, starts no Spark.
        """
        with self._at_work():
            return self._deployment(scripts, options, stores_rows=False)

    def apply(
        self,
        scripts: Sequence[tuple[Path, str]],
        options: "DeployOptions | None" = None,
        *,
        require: "Callable[[Deployment], None] | None" = None,
    ) -> "Deployment":
        """Apply a pipeline's files, all of them as one entry of the log, or nothing.

        A changed view is replaced. Statements on rows run once in the life of the store. Unchanged relations are left
        alone.

        Args:
            scripts: the files with their text, in order.
            options: None: the default ones.
            require: called with the deployment before it is logged. If it raises, nothing is logged.

        Raises: InputError branches with the place, and the file in a note; nothing is logged then.
        """
        with self._at_work(), self._statement_runner.require_no_transaction("apply"):
            while True:
                try:
                    deployment = self._deployment(scripts, options, stores_rows=True)
                except EpochMovedError:
                    continue
                if require is not None:
                    require(deployment)
                if deployment.statement is None:
                    return deployment
                with suppress(LogMovedError):  # the log or a skipped entry has changed; bind all statements again
                    position = self._writer.log_statement(deployment.statement, deployment.log_end, deployment.waiting)
                    return replace(deployment, position=position)

    def _deployment(
        self, scripts: Sequence[tuple[Path, str]], options: "DeployOptions | None", *, stores_rows: bool
    ) -> "Deployment":
        from tussock.jobs.statements.deployment import DeploymentBuilder, DeployOptions

        version = self.meta.read_latest()
        catalog = self._pending.read_catalog(version)
        deploying = DeploymentBuilder(
            self.meta, self._statements, version, catalog, self._pending.log_end, stores_rows, self._pending.waiting_log
        )
        return deploying.make_deployment(scripts, options or DeployOptions())

    def flush(
        self,
        interval: Interval | None = None,
        *,
        moment: datetime | Literal["now"] | None = None,
        max_epoch_bytes: int | None = None,
        progress: Progress = no_progress,
    ) -> EpochSummary:
        """Run one epoch over all new input, commit it and publish it.

        Without new input, it publishes an epoch that another run committed, unless suites must judge it.

        All statements that were logged before the call are committed after it. So if another run left a barrier open,
        this finishes its epoch first. If a view compares with now(), a later clock counts as new input.

        Args:
            interval: take only this data interval's files from sources with a path template.
            moment: the value of now() in views, with a time zone; or "now", the clock. None: the interval's end.
                Without an interval, None means the clock, or in a store that runs by intervals its last moment. now()
                never goes back.
            max_epoch_bytes: limit on source files; the rest waits for the next epoch. None: no limit.
            progress: receives one line per step.

        Raises: IntervalsNotRunError if the interval is not the next one, and no `moment` allows to leave out others.
        Warns: HeldSourceWarning for each failing source: its new files wait, and everything else was taken.
            PausedViewWarning for each view that this epoch paused.
        """
        with self._at_work(), self._statement_runner.require_no_transaction("flush"):
            at = Clock.NOW if moment == "now" else None if moment is None else micros_of(moment)
            settings = EpochSettings(max_bytes=max_epoch_bytes, on_error=self._on_error)
            request = InputRequest(interval, at)
            return self._publish_epochs(
                lambda: epochs_of_call(self._runner, self.meta, request, settings, progress), interval
            )

    def _widen_columns(self, interval: Interval | None) -> None:
        """See `widen_columns`."""
        for change in wider_columns(self.meta, interval):
            try:
                self._statement_runner.set_columns(change)
            except InputError as err:
                log.warning("source %s keeps its types: %s", change.name, err)

    def _publish_epochs(
        self, begin: Callable[[], Iterator[EpochSummary]], interval: Interval | None = None
    ) -> EpochSummary:
        """Run epochs and publish each, or the latest version if none ran. Returns the summary of the last one."""
        summary, proven = None, False
        while not proven:
            with (
                recorded_run(self.meta, "epoch", interval=interval),
                self.meta.glances() as glances,
                storing_dumps(lambda: nullcontext(self.spark)),
            ):
                self._widen_columns(interval)
                for summary in begin():
                    version = publish_epoch(self.meta, summary.epoch)
                    self._statements.forget_rows()
                    warn_of_paused(version.catalog, summary)
                if proven := summary is not None:  # by its commit
                    continue
                version = self.meta.read_latest(proven=True)
                proven = glances.are_proven_by(version)
        if summary is None:
            version = self._publish_rest(version)
        release_taken_input(self.meta, version)
        if summary is None:
            summary = EpochSummary(version.epoch, version.id, {}, 0, 0, {}, held=holds_of(version.catalog))
        warn_of_held(version.catalog, interval)
        return summary

    def _publish_rest(self, version: HummockVersion) -> HummockVersion:
        """Publish the epoch of another run that has not done so, unless suites must judge it.

        That run may have taken statements of this session, whose rows a read after the flush must contain; it may also
        have died.
        """
        if version.published == version.epoch or any(r.is_internal for r in version.catalog.live_relations()):
            return version
        return publish_epoch(self.meta, version.epoch)

    def branch(
        self, name: str, *, epoch: int | None = None, keep: timedelta = timedelta(days=7), follow: bool = True
    ) -> "Session":
        """Return a session on a branch of this store, which begins now unless it is open.

        A branch copies no row. It runs epochs and changes views without any effect on this store; docs/branches.md.
        The session shares Spark with this one, which must be closed last.

        Args:
            epoch: a readable epoch that a new branch begins with; None: the newest one.
            keep: the age after which retention of this store ends a new branch.
            follow: a new branch takes the epochs of this store, and its statements can only change views and functions.
                False: it takes input itself.

        Raises: EpochNotCommittedError, EpochExpiredError, EpochMergedError; BranchedBranchError; SettingError.
        """
        with self._at_work():
            meta = self.meta.branch_or_new(name, keep // timedelta(milliseconds=1), epoch, follows=follow)
        session = Session(
            meta.objects.uri,
            lambda: self.spark,
            create=False,
            runner=self._runner,
            catalogs=self._catalogs,
            schema=self._used_schema,
        )
        session._on_error = self._on_error
        return session

    def restate(self, source: str, restated: Restated, progress: Progress = no_progress) -> Restatement:
        """Correct the data of a source in its own epoch, and publish it: replace taken rows with the current ones.

        Args:
            restated: a file, `Restated("/data/2026-01-02.csv")`, also with `by="/data/other.csv"` or `gone=True`; a
                folder or a glob, `Restated("/data/2026-01-*.csv")`; several of these, `Restated("/data/a.csv",
                more=("/data/b.csv",))`; or an interval, `Restated(interval=Interval(start, end))`.

        Returns: the files whose rows were removed and added, and the affected views; empty if no file has changed.
        Warns: as `flush`. An unreadable file leaves everything unchanged.
        Raises: UnknownRelationError; CannotRestateError; EpochUnderWayError: `flush` first.
        """
        with self._at_work(), self._statement_runner.require_no_transaction("restate"):
            restating = Restating(self.meta, source, restated)
            if restating.begin_restating() is None:
                return restating.restatement
            settings = EpochSettings(on_error=self._on_error)
            epochs = partial(epochs_of_call, self._runner, self.meta, ALL_INPUT, settings, progress)
            self._publish_epochs(lambda: islice(epochs(), 1))  # the restatement's: new input waits
            return restating.restatement

    def verify(
        self,
        *views: str,
        percent: int = 100,
        epoch: int | None = None,
        repair: bool = False,
        progress: Progress = no_progress,
    ) -> "Verification":
        """Compare views with Spark's result over the tables and the taken files of the sources, at one epoch.

        The store keeps the result (tussock.jobs.verify.record.read_last).

        Args:
            views: verify these and the views that they read; default: all views.
            percent: percentage of each view's keys to compare.
            epoch: a readable epoch; None: the published one.
            repair: log a statement that rebuilds the views that differ, and the views that read them, with the next
                `flush`.
            progress: receives one line per view.

        Raises: UnknownRelationError, NothingToVerifyError, BadShareError; EpochNotCommittedError, EpochExpiredError;
            CannotFollowError.
        Cost: each SELECT over all its rows, and a scan of each view.
        """
        with self._at_work(), self._statement_runner.require_no_transaction("verify") if repair else nullcontext():
            from tussock.jobs.verify.record import write_last
            from tussock.jobs.verify.repair import repair_views
            from tussock.jobs.verify.verify import verify

            verification = verify(
                self.spark,
                self.meta,
                lambda relations: self._statements.binder_over(self.meta.read_latest().catalog, relations).sandbox,
                views,
                percent=percent,
                epoch=epoch,
                progress=progress,
            )
            if repair:
                verification = repair_views(self.meta, self._pending, self._statements, self._writer, verification)
            with suppress(AccessDeniedError):  # without write permission, the result is only returned
                write_last(
                    self.meta.objects, verification, [r.name for r in self.meta.read_latest().catalog.live_relations()]
                )
            return verification

    def check(
        self, pipeline: str | Path, *views: str, epoch: int | None = None, progress: Progress = no_progress
    ) -> "QualityRecord":
        """Run the quality suites of a pipeline on this store, as `tussock check` does. Writes nothing.

        Args:
            pipeline: its folder, with `pipeline.toml` and the folder of suites.
            views: run only the suites of these views; default: all.
            epoch: a readable epoch; None: the newest one, published or not.
            progress: receives the cost of each part of a suite, and the reasons why suites run on Spark.

        Returns: the result per view. Its `passed` is False if an expectation failed that keeps rows from readers.
        Raises: NoSuiteError, QualitySuiteError, NoEpochYetError; PipelineError; EpochNotCommittedError,
            EpochExpiredError.
        """
        with self._at_work():
            from tussock.jobs.quality.epoch_check import check_suites

            def start(reasons: Sequence[str]) -> "SparkSession":
                progress("\n  ".join(["suites run on Spark, because of:", *reasons]))
                return self.spark

            settings = load_pipeline(Path(pipeline))
            return check_suites(start, self.meta, settings, views, epoch, again=True, costs=progress)

    def query(
        self, sql: str, epoch: int | None = None, *, at: datetime | None = None, pending: bool = False
    ) -> pa.Table:
        """Run a SELECT over tables and views.

        Args:
            sql: any SELECT that Spark can run.
            epoch: None means the published one.
            at: read the epoch that was published at this time; without an offset, in the store's time zone.
            pending: read the rows that a statement reads: tables with the effect of all waiting statements, and of the
            open transaction; views as of the last committed epoch.

        Warns: PausedViewWarning for each paused view, whose rows are as of the pause; HeldViewWarning for each
            held-back view; with `pending`, WaitingChangesWarning for each view that waiting statements will change.
        Raises: SqlError; NeverPassedError; EpochNotCommittedError, EpochExpiredError; BadMomentError; with `pending`,
            WaitingStatementsError, WaitingStatementFailsError.
        """
        with self._at_work():
            if at is not None and epoch is not None:
                raise BadMomentError(str(at), f"epoch {epoch} is given as well", "an epoch or a time, not both")
            written = ScriptStatement(without_catalogs(sql, self._catalogs), schema=self._used_schema)
            if pending:
                self._require_now(epoch if at is None else at)
                return self._statement_runner.over_waiting(partial(self._selects.select_pending, written))
            return self._selects.select_rows(written, epoch if at is None else self._stored.seen_at(at))

    def insert(self, table: str, rows: pa.Table) -> Answer:
        """Insert rows like INSERT: a row whose key exists replaces it.

        The rows are durable when this returns, and take effect with the next epoch.

        Args:
            rows: columns by case-insensitive name; missing columns become NULL. Types must be the table's, or
                cast to them without loss.

        Raises: UnknownRelationError; UnfitRowsError, NullKeyError: nothing was inserted.
        """
        with self._at_work():
            return self._statement_runner.insert_rows(table, rows)

    def read(
        self,
        relation: str,
        columns: Sequence[str] | None = None,
        epoch: int | None = None,
        *,
        pending: bool = False,
    ) -> pa.Table:
        """Read the rows of a view or table without SQL; see `StoredRows.read`.

        `pending`: as for `query`, also without Spark. Raises BadMomentError if an epoch is given too.
        """
        with self._at_work():
            if not pending:
                return self._stored.read(relation, columns, epoch)
            self._require_now(epoch)
            return self._statement_runner.over_waiting(partial(self._selects.read_pending, relation, columns))

    @staticmethod
    def _require_now(epoch: int | datetime | None) -> None:
        """Raise BadMomentError if an epoch or time is given for rows that belong to no epoch yet."""
        if epoch is not None:
            raise BadMomentError(str(epoch), "waiting statements belong to no epoch yet", "no epoch and no time")

    def reader(
        self, relation: str, columns: Sequence[str] | None = None, epoch: int | None = None
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """Read rows batch by batch, for results larger than memory; see `StoredRows.reader`."""
        return self._stored.reader(relation, columns, epoch)

    def changes(
        self, relation: str, since: int, until: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the changes of a view or table between two epochs, at their cost; see `StoredRows.changes`."""
        with self._at_work():
            return self._stored.changes(relation, since, until, columns)

    def diff(
        self,
        *views: str,
        since: int | None = None,
        until: int | None = None,
        other: str | None = None,
        tolerance: float = 0.0,
        samples: int = SAMPLES,
    ) -> StoreDifference:
        """Compare the rows of views and tables at two epochs, or with those of another store.

        Args:
            views: names; none given: all views and tables.
            since, until: epochs of this store, or `until` of the other one; None: the published one.
            other: the address of the other store; None: this one.
            tolerance: numbers are equal if they differ by at most this share of the larger one.
            samples: rows to return of each kind of difference and view.

        Raises, warns, cost: as `compare_stores`.
        """
        with self._at_work():
            after = self.meta if other is None else open_meta(other)
            sides = StoreAt(self.meta, self.meta.objects.uri, since), StoreAt(after, after.objects.uri, until)
            return compare_stores(*sides, ComparisonOptions(views, tolerance, samples))

    def table(self, name: str, epoch: int | None = None) -> "DataFrame":
        """Return a relation's rows as a Spark DataFrame. Rows of a small one are read now, others by each action.

        Args:
            epoch: None means the currently published one. The rows stay at this epoch after later publishes.

        The DataFrame belongs to a Spark session with this store's time zone, in ANSI mode. Its epoch stays pinned until
        `close`, so compaction and vacuum keep its objects. A session that keeps requesting new epochs should therefore
        be closed now and then. After `close`, or without write permission on the store, vacuum may remove objects that
        an action reads: the action then raises MissingSstError, and never returns a wrong row.

        The DataFrame of a source is only for `create_view`. The store has no rows of a source, so an action on it
        raises.

        Raises: as `read`.
        """
        with self._at_work():
            return self._opened_frames().table(name, epoch)

    def create_view(self, name: str, dataframe: "DataFrame", *, if_not_exists: bool = False) -> Answer:
        """Create a materialized view from a DataFrame's query, as CREATE MATERIALIZED VIEW does from a SELECT.

        The view is durable when this returns, and takes effect with the next epoch.

        Args:
            dataframe: built on DataFrames of `table` without an epoch, with functions of Spark only. Its columns become
                the view's columns.

        SHOW CREATE prints a SELECT with the same plan, or the plan itself if there is no such SELECT.

        Raises: UnsupportedQueryError for a query that cannot be maintained: other data, Python functions, random
            values, now(); FrameOfAnEpochError; OutdatedFrameError; SqlError for an invalid name or column;
            ReservedNameError.
        """
        with self._at_work(), self._statement_runner.require_no_transaction("create_view"):
            catalog = self._pending.read_catalog(self.meta.read_latest())
            binder = self._statements.binder_over(catalog)
            view = self._opened_frames().view(binder, catalog, name, dataframe, if_not_exists)
            require_free_name(view.name)
            statement = self._statements.with_zones(catalog, view)
            return add_notes(self._writer.check_and_append(catalog, view.sql, statement), binder.notes)

    def _opened_frames(self) -> "Frames":
        if self._frames is None:
            from tussock.jobs.reading.frames import Frames

            self._frames = Frames(self.meta, self._stored, self.spark, store_zone(self.meta))
        return self._frames

    def _runner_of(self, runner: Literal["auto", "spark", "local"] | LevelRunner, workers: int) -> LevelRunner:
        def on_spark() -> LevelRunner:
            from tussock.jobs.driver.spark_runner import SparkRunner

            return SparkRunner(self.spark)

        match runner:
            case "auto":
                return AutoRunner(on_spark, self._spark_has_machines, workers=workers)
            case "spark":
                return RunnerOnDemand(on_spark)
            case "local":
                return LocalRunner(workers=workers)
            case _:
                return runner

    def _spark_has_machines(self) -> bool:
        """Whether Spark has other machines than this one. It probably has if the caller starts it."""
        spark = self._spark or _active_spark()
        if spark is None:
            return self._start_spark is not None
        from tussock.jobs.driver.one_stage import is_local

        return not is_local(spark.sparkContext)

    def close(self) -> None:
        """Release the epochs of `table`. The last session to close stops Spark, if a session started it."""
        frames, self._frames = self._frames, None
        try:
            if frames is not None:
                frames.close()
        finally:
            if self._leaves_spark and self._spark is not None and self._spark_process.is_here:
                from tussock.jobs.spark.session import leave_spark

                leave_spark(self._spark)
                self._spark, self._leaves_spark = None, False

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Guard a call: reject calls of other threads, and translate errors of the JVM."""
        if not self._working.acquire(blocking=False):
            raise TwoThreadsError
        try:
            with jvm_errors_as_ours(), extras_named():
                yield
        finally:
            self._working.release()


def _active_spark() -> "SparkSession | None":
    """Return the active Spark session; None if pyspark is not imported."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def widen_columns(session: Session, interval: Interval | None = None) -> None:
    """Give sources with the option `columns 'evolve'` the wider types of waiting files; bind their views again.

    A source whose views cannot follow stays as it is, and its file holds it. No effect while an epoch is open. Starts
    Spark if a view reads a source that changes. Cost: `wider_columns`.
    """
    with session._at_work():
        session._widen_columns(interval)
