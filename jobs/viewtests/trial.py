"""Run one test of a view: a temporary store with the rows of the test, and one epoch per step.

The store contains the tested view and its inputs: other views as the files define them, tables and sources as
tables with the same columns. A source becomes a table because its rows come from the test; it is append-only if the
source is. A source with `files` stays a source that reads them. A view with rows in the test becomes a table too.
"""

import shutil
import textwrap
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tussock.jobs.barriers.moment import InputRequest, micros_of
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.catalog.definition import created_by, find_relation, follows_moment
from tussock.jobs.catalog.fed_tables import fed_by
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import (
    OP,
    CreateSchema,
    CreateSource,
    CreateTable,
    CreateView,
    RecordZone,
    Single,
    Transaction,
)
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import create_store, open_meta
from tussock.jobs.sources.file_options import ON_CHANGE, retains_files
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.jobs.statements.insert import rows_for_table
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.jobs.viewtests.comparison import Row, RowsDiffer, net_changes, row_differences, same_value
from tussock.jobs.viewtests.document import FilePlace, ViewStep, ViewTest, ViewTestError, WrittenRow
from tussock.jobs.viewtests.stand_in import columns_of_input, flat_test, over_stand_ins
from tussock.jobs.viewtests.values import Columns, moment_of_value, named_columns, plain_rows, typed_rows
from tussock.statestore.errors import InputError, TussockError, did_you_mean
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.months import given_rows
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import RuledZone, name_of

_VNODES = 16  # of a test's store: few rows, one unit


class TrialVerdict(StrEnum):
    """The result of a test."""

    PASSED = "passed"
    FAILED = "failed"  # the view has other rows than expected
    ERROR = "error"  # the test is invalid, or an epoch failed


@dataclass(frozen=True, slots=True)
class Trial:
    """A test that ran.

    `text`: the reason if it did not pass, with the differences as a table.
    """

    test: ViewTest
    verdict: TrialVerdict
    seconds: float
    text: str = ""


def try_test(
    test: ViewTest,
    catalog: Catalog,
    time_zone: RuledZone,
    runner: LevelRunner,
) -> Trial:
    """Run a test. Its errors become its verdict.

    Args:
        catalog: all relations of the pipeline (BoundFiles.bind_catalog).
        time_zone: the pipeline's, by the rules in `catalog`.
        runner: runs the epochs.
    """
    start = time.perf_counter()
    try:
        with TemporaryFolder("test") as folder:
            failures = _Running(test, catalog, time_zone, runner, Path(folder)).find_failures()
    except TussockError as err:
        text = "\n  ".join([str(err), *getattr(err, "__notes__", ())])
        return Trial(test, TrialVerdict.ERROR, time.perf_counter() - start, text)
    verdict = TrialVerdict.FAILED if failures else TrialVerdict.PASSED
    return Trial(test, verdict, time.perf_counter() - start, "\n".join(failures))


def rows_of_view(test: ViewTest, catalog: Catalog, time_zone: RuledZone, runner: LevelRunner) -> list[Row]:
    """The rows of the tested view after all steps, also if the test expects others. Raises InputError branches."""
    with TemporaryFolder("test") as folder:
        *_, (_, _, _, after) = _Running(test, catalog, time_zone, runner, Path(folder)).run_steps()
        return after


@dataclass(slots=True)
class _Running:
    test: ViewTest
    catalog: Catalog
    time_zone: RuledZone
    runner: LevelRunner
    folder: Path
    meta: MetaStore = field(init=False)
    stored: StoredRows = field(init=False)
    _writer: StatementWriter = field(init=False)
    _pending: PendingCatalog = field(init=False)
    _moment: int | None = None

    def __post_init__(self) -> None:
        self.test = flat_test(self.test, self.catalog)
        statements = (
            *map(RecordZone, self.catalog.zones),
            *map(CreateSchema, self.catalog.schemas),
            *self._make_statements(),
        )
        self._check_values()
        zone = name_of(self.time_zone)
        create_store(str(self.folder / "store"), units=1, vnode_count=_VNODES, time_zone=zone)
        self.meta = open_meta(str(self.folder / "store"))
        self._pending = PendingCatalog(self.meta)
        self.stored, self._writer = StoredRows(self.meta, self._pending), StatementWriter(self.meta)
        self._writer.log_statement(Transaction(statements))

    def find_failures(self) -> list[str]:
        """The differences of all steps up to the first step with a difference."""
        for number, step, before, after in self.run_steps():
            differences = [
                f"{_step_name(number, step)}, {differ.what}:\n{textwrap.indent(differ.to_text(self.time_zone), '  ')}"
                for differ in self._find_differences(step, before, after)
            ]
            if differences:
                return differences
        return []

    def run_steps(self) -> "Iterator[tuple[int, ViewStep, list[Row], list[Row]]]":
        """Run the steps. Yields each with its number, and all rows of the view before and after it."""
        before: list[Row] = []
        for number, step in enumerate(self.test.steps):
            self._run_step(step)
            after = plain_rows(self.stored.read(self.test.view))
            yield number, step, before, after
            before = after

    # --- relations ----------------------------------------------------------------------------------------------------

    def _make_statements(self) -> "Iterator[Single]":
        """The statements that create the view and the relations that it reads, in order."""
        view = self._tested_view()
        files_by_relation = {name: place for step in self.test.steps for name, place in step.relations.items()}
        files = {name for step in self.test.steps for name in step.files}
        by_id = {relation.id: relation for relation in self.catalog.live_relations()}
        wanted: dict[int, Single | None] = {view.id: self._make_definition(view, files)}
        pending = [view]
        while pending:
            for relation in (by_id[i] for i in pending.pop().depends_on if i in by_id):
                if relation.id in wanted:
                    continue
                feeder = fed_by(relation)
                if feeder is not None and by_id[feeder.source].name in files:
                    wanted[relation.id] = None  # its source creates it
                    relation = by_id[feeder.source]
                if relation.name in files_by_relation or relation.kind in (RelationKind.SOURCE, RelationKind.TABLE):
                    wanted[relation.id] = self._stand_in(
                        relation, files_by_relation.get(relation.name), relation.name in files
                    )
                else:
                    wanted[relation.id] = self._make_definition(relation, files)
                    pending.append(relation)
        self._require_read(view, files_by_relation, {by_id[i].name for i in wanted})
        for relation in self.catalog.live_relations():
            if (statement := wanted.get(relation.id)) is not None:
                yield statement

    def _make_definition(self, relation: Relation, files: Collection[str]) -> Single:
        """The statement of a view that the test computes. `files`: the sources that stay sources."""
        statement = created_by(relation)
        if not isinstance(statement, CreateView):
            return statement
        return msgspec.structs.replace(statement, plan=over_stand_ins(statement.plan, self.catalog, files))

    def _tested_view(self) -> Relation:
        views = {r.name: r for r in self.catalog.live_relations() if r.kind is RelationKind.VIEW and not r.is_internal}
        if (view := views.get(self.test.view)) is None:
            raise ViewTestError(
                self.test.view_place,
                f"the view {self.test.view!r}",
                f"a materialized view of the pipeline: {', '.join(views) or 'it has none'}",
                did_you_mean(self.test.view, views),
            )
        if self.test.steps[0].now is None and self._reads_now(view):
            raise ViewTestError(
                self.test.place,
                f"no value of now(), which {view.name} reads",
                "`now`, such as now: 2026-01-31 08:00:00",
            )
        return view

    def _reads_now(self, view: Relation) -> bool:
        by_id = {relation.id: relation for relation in self.catalog.live_relations()}
        return follows_moment(view) or any(self._reads_now(by_id[i]) for i in view.depends_on if i in by_id)

    def _require_read(self, view: Relation, files_by_relation: "dict[str, FilePlace]", read: set[str]) -> None:
        """Raises ViewTestError for rows of a relation that the view does not read."""
        for name, place in files_by_relation.items():
            if name not in read - {view.name}:
                known = [r.name for r in self.catalog.live_relations() if r.name in read and r.id != view.id]
                raise ViewTestError(
                    place,
                    f"rows for {name!r}, which {view.name} does not read",
                    f"one of {', '.join(known)}",
                    did_you_mean(name, known),
                )

    def _check_values(self) -> None:
        """Raises ViewTestError for an unknown column or a bad value in any step, before the first one runs."""
        view = _columns_of(self._tested_view())
        for step in self.test.steps:
            for part in (step.insert, step.delete):
                for name, rows in part.items():
                    typed_rows(rows, columns_of_input(find_relation(self.catalog, name)), self.time_zone)
            for name, rewrites in step.update.items():
                for rewrite in rewrites:
                    for row in (rewrite.where, rewrite.put):
                        typed_rows([row], columns_of_input(find_relation(self.catalog, name)), self.time_zone)
            changes = () if step.changes is None else (step.changes.deleted, step.changes.inserted)
            for rows in (() if step.expect is None else step.expect, *changes):
                typed_rows(rows, view, self.time_zone)

    def _stand_in(self, relation: Relation, place: "FilePlace | None", files: bool) -> Single:
        """The statement of a relation whose rows the test contains."""
        statement = created_by(relation)
        if files:
            return self._make_source(relation, statement, place or self.test.place)
        match statement:
            case CreateTable():
                return msgspec.structs.replace(statement, name=relation.name)
            case CreateSource():
                only = reader_of(statement).append_only(statement)
                fields = tuple(Field(name, kind) for name, kind in columns_of_input(relation))
                return CreateTable(relation.name, fields, (), append_only=only)
            case CreateView():
                return CreateTable(relation.name, statement.plan.fields, ())
            case _:
                raise ViewTestError(
                    place or self.test.place,
                    f"rows for the {relation.kind} {relation.name!r}",
                    "rows for the relations that it reads: its query is a part of each view that uses it",
                )

    def _make_source(self, relation: Relation, statement: Single, place: "FilePlace") -> CreateSource:
        """The source with its files in the folder of the test."""
        if any(relation.name in part for step in self.test.steps for part in (step.insert, step.update, step.delete)):
            raise ViewTestError(place, f"both files and rows for {relation.name!r}", "either of them")
        if not isinstance(statement, CreateSource) or not isinstance(READERS.get(statement.format), FileSource):
            raise ViewTestError(
                place, f"files for the {relation.kind} {relation.name!r}", "files for a source of files"
            )
        folder = self.folder / "files" / relation.name
        folder.mkdir(parents=True)
        options = statement.options | {"path": f"{folder}/*"}
        if retains_files(statement):
            options[ON_CHANGE] = "restate"  # a step may replace a file of an earlier step
        return msgspec.structs.replace(statement, options=options)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _run_step(self, step: ViewStep) -> None:
        """Log the statements of a step and run its epoch. Deletes and updates find the rows before the step."""
        for name, rows in step.delete.items():
            for row in rows:
                self._log_change(name, row, None)
        for name, rewrites in step.update.items():
            for rewrite in rewrites:
                self._log_change(name, rewrite.where, rewrite.put)
        for name, rows in step.insert.items():
            relation = self._find_relation(name)
            # One INSERT for consecutive rows with the same columns, because a missing column gets its DEFAULT.
            for _, alike in groupby(rows, lambda row: {column.lower() for column in row.names}):
                given = list(alike)
                with _errors_at(given[0].place):
                    typed = typed_rows(given, _columns_of(relation), self.time_zone)
                    table = rows_for_table(relation, given_rows(typed))
                self._writer.log_statement(self._writer.store_insert(relation.name, table))
        self._put_files(step)
        if step.now is not None:
            moment = micros_of(moment_of_value(step.now, self.time_zone))
            if self._moment is not None and moment < self._moment:
                raise ViewTestError(
                    step.now.place, step.now.describe_value(), "a later time than before: now() never goes back"
                )
            self._moment = moment
        if (summary := next_epoch(self.runner, self.meta, InputRequest(None, self._moment))) is not None:
            require_not_held(publish_epoch(self.meta, summary.epoch).catalog)

    def _find_relation(self, name: str) -> Relation:
        """The relation in the test's store; before its first epoch, as the log creates it."""
        return find_relation(self._pending.read_catalog(self.meta.read_latest()), name)

    def _log_change(self, name: str, where: WrittenRow, put: WrittenRow | None) -> None:
        """Log the deletion of the rows that have the values of `where`, or the change of these rows to `put`."""
        relation = self._find_relation(name)
        statement = created_by(relation)
        if not isinstance(statement, CreateTable) or statement.append_only:
            raise ViewTestError(
                where.place,
                f"a change of rows of {name!r}",
                "only `insert`, because the relation is append-only and its views keep no state for deleted rows",
            )
        stored = self._stored_rows(relation)
        matching_rows = _matching_rows(stored, where, _columns_of(relation), self.time_zone)
        if matching_rows.num_rows == 0:
            raise ViewTestError(
                where.place, "values that no row has", f"the values of a row of {name!r} before this step"
            )
        parts = [(-1, matching_rows)] if put is None or statement.key else []
        if put is not None:
            parts.append((1, _with_values(matching_rows, put, _columns_of(relation), self.time_zone)))
        ops = np.concatenate([np.full(rows.num_rows, op, np.int8) for op, rows in parts])
        changed = pa.concat_tables([rows for _, rows in parts]).add_column(0, OP, pa.array(ops))
        self._writer.log_statement(self._writer.store_change(relation.name, changed))

    def _stored_rows(self, relation: Relation) -> pa.Table:
        """The committed rows with all stored columns, so with the hidden row id of a table without a key."""
        version = self.meta.read_latest()
        schema = stored_table(relation)
        names = [f"c{i}" for i in range(len(schema.columns))]
        empty = pa.schema([(n, arrow_type(c.type)) for n, c in zip(names, schema.columns, strict=True)]).empty_table()
        if relation.created > version.epoch:
            return empty
        table = open_table(self.meta.objects, version, schema, version.epoch)
        return pa.concat_tables([empty, *(part.rename_columns(names) for part in table.scan())])

    def _put_files(self, step: ViewStep) -> None:
        for source, files in step.files.items():
            for file in files:
                to = self.folder / "files" / source / file.name
                if file.path is None:
                    to.write_text(file.text, encoding="utf-8")
                    continue
                place = self.test.path.parent / file.path
                try:
                    shutil.copyfile(place, to)
                except OSError as err:
                    raise ViewTestError(file.place, f"{file.path!r} ({err.strerror})", f"a file at {place}") from err

    # --- expectations -------------------------------------------------------------------------------------------------

    def _find_differences(self, step: ViewStep, before: Sequence[Row], after: Sequence[Row]) -> Iterator[RowsDiffer]:
        if step.expect is not None:
            yield from self._compare_rows(f"rows of {self.test.view}", step.expect, after)
        if step.changes is not None:
            gone, come = net_changes(before, after)
            yield from self._compare_rows(f"rows deleted from {self.test.view}", step.changes.deleted, gone)
            yield from self._compare_rows(f"rows inserted into {self.test.view}", step.changes.inserted, come)

    def _compare_rows(
        self, what: str, expected: Sequence[WrittenRow], actual_rows: Sequence[Row]
    ) -> Iterator[RowsDiffer]:
        """The differences in the columns that the expected rows name; in all columns if there are no expected rows."""
        columns = _columns_of(self._find_relation(self.test.view))
        wanted = typed_rows(expected, columns, self.time_zone)
        named = named_columns(expected, columns) or columns
        places = [columns.index(column) for column in named]
        rows = list(zip(plain_rows(wanted), (row.place.line for row in expected), strict=True))
        if differences := row_differences(rows, [tuple(row[i] for i in places) for row in actual_rows]):
            types = [arrow_type(kind) for _, kind in named]
            right = tuple(pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t) for t in types)
            yield RowsDiffer(what, tuple(name for name, _ in named), right, differences)


def _columns_of(relation: Relation) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in relation.columns]


def _matching_rows(stored: pa.Table, where: WrittenRow, columns: Columns, time_zone: str) -> pa.Table:
    """The stored rows that have the values of `where`."""
    wanted = typed_rows([where], columns, time_zone)
    places = [columns.index(column) for column in named_columns([where], columns)]
    (values,) = plain_rows(wanted)
    rows = plain_rows(stored.select(places).rename_columns(wanted.column_names))
    return stored.filter(pa.array([same_value(row, values) for row in rows], pa.bool_()))


def _with_values(rows: pa.Table, put: WrittenRow, columns: Columns, time_zone: str) -> pa.Table:
    """The rows with the values of `put` in its columns."""
    values = typed_rows([put], columns, time_zone)
    for name, value in zip(named_columns([put], columns), values.columns, strict=True):
        repeated = value.take(pa.array(np.zeros(rows.num_rows, np.int64)))
        rows = rows.set_column(columns.index(name), rows.schema.field(columns.index(name)), repeated)
    return rows


@contextmanager
def _errors_at(place: FilePlace) -> Iterator[None]:
    """Add the place in the file to errors raised inside the block."""
    try:
        yield
    except ViewTestError:
        raise
    except InputError as err:
        err.add_note(f"at {place}")
        raise


def _step_name(number: int, step: ViewStep) -> str:
    return f"at the start (line {step.place.line})" if number == 0 else f"after step {number} (line {step.place.line})"
