"""Tests of views for `tussock test` and the plugin of pytest. They need neither the pipeline's store nor its data."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tussock import __version__
from tussock.jobs.barriers.barrier import time_zones
from tussock.jobs.catalog.definition import created_by, find_relation, follows_moment, source_of
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.driver.runner import AutoRunner, LevelRunner
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore, open_pipeline
from tussock.jobs.reading.reader import open_table
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.user_files import errors_of_writing, write_text
from tussock.jobs.sources.base import Division
from tussock.jobs.sources.file_facts import file_of_part, with_hidden
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.viewtests.bound import BoundFiles
from tussock.jobs.viewtests.comparison import Row
from tussock.jobs.viewtests.document import ViewTest, read_tests
from tussock.jobs.viewtests.first_test import columns_read, first_test_text, sample_rows
from tussock.jobs.viewtests.stand_in import columns_of_input, over_stand_ins, reachable_columns
from tussock.jobs.viewtests.trial import Trial, rows_of_view, try_test
from tussock.jobs.viewtests.values import plain_rows
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.progress import Progress, no_progress
from tussock.statestore.zones import RuledZone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "tests"  # in the folder of a pipeline
_MOST_READ = 10_000  # rows of each input that `first_test` selects from


class NoViewTestsError(InputError, hides_row_values=True):
    """A pipeline has no tests, or none with a name that contains a text."""

    def __init__(self, pipeline: str, folder: str, selected: str, names: Sequence[str], view: str) -> None:
        """`view`: one without a test, for the remedy."""
        super().__init__(pipeline, folder, selected, list(names), view)
        self.pipeline, self.folder, self.selected, self.names, self.view = pipeline, folder, selected, names, view

    def __str__(self) -> str:
        if self.names:
            return (
                f"no test of {self.pipeline!r} has {self.selected!r} in its view, name or file. The tests are: "
                f"{'; '.join(self.names)}."
            )
        return (
            f"pipeline {self.pipeline!r} has no tests: {self.folder} contains no *.yaml file. To write a first test, "
            f"run `tussock test {self.pipeline} --make {self.view}`."
        )


class ViewTestThereError(InputError):
    """The file of a first test exists."""

    path: str

    def __str__(self) -> str:
        return f"{self.path} exists and was not changed. Add a test to it, or rename it and repeat the command."


@dataclass(frozen=True, slots=True)
class Trials:
    """The tests of a pipeline that ran.

    Args:
        untested: the materialized views without any test, selected or not.
        missing: SQL files that do not exist, such as files that a loader writes. Their statements are unknown.
        spark: Spark was started, to bind changed statements or to compute expressions.
    """

    pipeline: str
    time_zone: str
    trials: tuple[Trial, ...]
    untested: tuple[str, ...]
    missing: tuple[Path, ...]
    spark: bool


@dataclass(slots=True)
class ViewTests:
    """Runs tests of one pipeline's views. A context: it stops Spark at the end if it started it."""

    pipeline: Pipeline
    progress: Progress = no_progress
    started_spark: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _catalog: Catalog | None = None
    _spark: "SparkSession | None" = None

    def __enter__(self) -> "ViewTests":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def missing(self) -> tuple[Path, ...]:
        """SQL files of the pipeline that do not exist."""
        return tuple(path for path in self.pipeline.sql if not path.exists())

    @property
    def catalog(self) -> Catalog:
        """The relations that the pipeline's files define, bound on first use.

        Raises: InputError branches with the place. Cost: starts Spark if a statement was never bound on this host.
        """
        if self._catalog is None:
            there = replace(self.pipeline, sql=tuple(path for path in self.pipeline.sql if path.exists()))
            cache_file = self.pipeline.folder.parent.parent / ".tussock" / self.pipeline.name / "tests.json"
            files = BoundFiles(
                self.pipeline.time_zone, __version__, cache_file, self._start_spark, self.pipeline.schema
            )
            self._catalog = files.bind_catalog(there.read_scripts())
        return self._catalog

    @property
    def time_zone(self) -> RuledZone:
        """The pipeline's time zone, by the rules of the Java that bound the files."""
        return self.catalog.resolve_zone(self.pipeline.time_zone)

    @property
    def views(self) -> tuple[str, ...]:
        """The materialized views, in the order of the files."""
        return tuple(r.name for r in self.catalog.live_relations() if r.kind is RelationKind.VIEW and not r.is_internal)

    def run(self, test: ViewTest) -> Trial:
        """Run one test. Raises InputError branches if the pipeline's files cannot be bound."""
        return try_test(test, self.catalog, self.time_zone, self._runner())

    def first_test(self, view: str) -> Path:
        """Write `tests/<view>.yaml` from rows of the pipeline's store and files. Returns its path.

        Raises: UnknownRelationError, ViewTestThereError; errors of the store and of the files. Cost: reads up to
            10,000 rows of each input, by Spark if the format needs it.
        """
        relation = find_relation(self.catalog, view, RelationKind.VIEW)
        path = self.pipeline.folder / FOLDER / f"{relation.name}.yaml"
        if path.exists():
            raise ViewTestThereError(str(path))
        statement = created_by(relation)
        assert isinstance(statement, CreateView)
        store = open_pipeline(self.pipeline)
        plan = over_stand_ins(statement.plan, self.catalog)
        read = columns_read(plan)
        inputs = {name: find_relation(self.catalog, name) for name in read}
        rows = sample_rows(plan, {name: self._rows_now(store, name) for name in inputs})
        rows_by_relation = {
            name: (
                [columns_of_input(inputs[name])[i][0] for i in sorted(read[name])],
                [tuple(row[i] for i in sorted(read[name])) for row in rows[name]],
            )
            for name in inputs
        }
        now = None
        if follows_moment(relation):
            now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=store.meta.read_latest().moment)
        zone = self.time_zone
        with errors_of_writing(path):
            path.parent.mkdir(exist_ok=True)
        write_text(path, first_test_text(relation.name, now, rows_by_relation, None, zone))
        try:
            (test,) = read_tests(path)
            expected = rows_of_view(test, self.catalog, zone, self._runner())
            text = first_test_text(
                relation.name, now, rows_by_relation, ([c.name for c in relation.columns], expected), zone
            )
        except BaseException:
            path.unlink()
            raise
        write_text(path, text)
        return path

    # --- Spark --------------------------------------------------------------------------------------------------------

    def _runner(self) -> LevelRunner:
        def on_spark() -> LevelRunner:
            from tussock.jobs.driver.spark_runner import SparkRunner

            return SparkRunner(self._start_spark())

        return AutoRunner(on_spark, lambda: False, workers=1)

    def _start_spark(self) -> "SparkSession":
        if self._spark is None:
            self.progress("starting Spark")
            self._spark = self._stack.enter_context(spark_of(self.pipeline, "test"))
            self.started_spark = True
        return self._spark

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows_now(self, store: PipelineStore, name: str) -> list[Row]:
        """Up to 10,000 rows of a relation as published."""
        version = store.meta.read_latest()
        relation = find_relation(version.catalog, name)
        if source_of(relation) is not None:
            return self._taken_rows(store, relation)
        with StoredRows(store.meta).reader(name) as batches:
            rows = (row for batch in batches for row in plain_rows(pa.Table.from_batches([batch])))
            return list(islice(rows, _MOST_READ))

    def _taken_rows(self, store: PipelineStore, relation: Relation) -> list[Row]:
        """Up to 10,000 rows of the files that a source has taken."""
        version, source = store.meta.read_latest(), source_of(relation)
        assert source is not None
        reader, hidden = reader_of(source), reachable_columns(relation)
        document = reader.taken_document(open_table(store.meta.objects, version, relation.state_tables[0]))
        if document is None:
            return []
        located = reader.locate_input(source, document, Keeper(store.meta.objects, version.epoch))
        engine = reader.engine
        divided = (
            None
            if engine is None
            else engine.divide(source, located, Division(1, time_zones(store.meta, version.catalog)))
        )
        if engine is None or divided is None or divided.rest is not None:
            from tussock.jobs.spark.collected import collect_rows
            from tussock.jobs.spark.session import sql_session

            session = sql_session(self._start_spark(), store_zone(store.meta))
            return plain_rows(collect_rows(reader.by_spark(session, source, located, hidden).limit(_MOST_READ)))

        def rows() -> Iterator[Row]:
            columns = range(len(source.fields))
            for part in divided.parts:
                read = engine.read(source, part, columns).rows
                wide = with_hidden(read, file_of_part(part), hidden) if hidden else read
                yield from plain_rows(wide.select(list(range(len(columns) + len(hidden)))))

        return list(islice(rows(), _MOST_READ))


def pipeline_tests(pipeline: Pipeline) -> tuple[ViewTest, ...]:
    """All tests of a pipeline: the tests of `tests/*.yaml` in its folder, by name of the file. Raises ViewTestError."""
    return tuple(test for path in sorted((pipeline.folder / FOLDER).glob("[!.]*.yaml")) for test in read_tests(path))


def run_tests(pipeline: Pipeline, selected: str = "", progress: Progress = no_progress) -> Trials:
    """Run the tests of a pipeline whose view, name or file contains the text `selected`.

    Args:
        progress: receives one line if Spark starts.

    Raises: NoViewTestsError; ViewTestError for an invalid file; InputError branches with the place if the pipeline's
        files cannot be bound.
    """
    every = pipeline_tests(pipeline)
    with ViewTests(pipeline, progress) as running:
        views = running.views
        chosen = [test for test in every if selected.lower() in f"{test.path.name} {test.view} {test.name}".lower()]
        if not chosen:
            names = tuple(f"{test.view}: {test.name}" for test in every)
            folder = str(pipeline.folder / FOLDER)
            raise NoViewTestsError(pipeline.name, folder, selected, names, next(iter(views), "VIEW"))
        trials = tuple(map(running.run, chosen))
        untested = tuple(view for view in views if view not in {test.view for test in every})
        return Trials(pipeline.name, pipeline.time_zone, trials, untested, running.missing, running.started_spark)
