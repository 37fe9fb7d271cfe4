"""A declarative pipeline (SDP, DLT) as a `ForeignProject`: its datasets, flows and reads become statements.

    SQL files      sdp_words.py     statements, whose queries are texts
    Python files   sdp_recorder.py  datasets, whose queries are functions that return DataFrames
    queries        sdp_queries.py   names and reads in a text; sdp_frames.py: the text of a DataFrame
    reads          sdp_reads.py     read_files(…) and spark.read as CREATE SOURCE

A dataset is resolved when another one first reads it, so the order of the files does not matter.

    materialized view      CREATE MATERIALIZED VIEW
    streaming table        CREATE MATERIALIZED VIEW over the rows of all its flows
    temporary view         CREATE VIEW
    AUTO CDC               CREATE FLOW … AS AUTO CDC INTO target
    expectation            DROP ROW: a condition of the view. Otherwise an assertion, also of the dropped rows
    a table of a catalog   a source at the place of `--source name=path`, or refused with that remedy

Names of the project's catalog and schema (`catalog` and `database` of spark-pipeline.yml) belong to the default schema
of the pipeline, so equal files come from every target. Other schemas keep their names:

    silver.orders, main.silver.orders      silver.orders        with `catalog: main`
    lake.silver.orders                     lake_silver.orders   a schema of another catalog
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.importing.clock_columns import leave_out_clock
from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.judge import explain_reason
from tussock.jobs.importing.names import names_of_withs, relation_name, relation_text
from tussock.jobs.importing.project import (
    ForeignProject,
    LeftOut,
    Model,
    ProjectPlace,
    ProjectTest,
    Script,
    Severity,
    file_of,
    name_apart,
)
from tussock.jobs.importing.sdp_frames import ProjectFrames
from tussock.jobs.importing.sdp_queries import (
    Reference,
    find_clocks,
    find_qualifiers,
    find_references,
    name_in_query,
    replace_settings,
    unknown_setting,
)
from tussock.jobs.importing.sdp_reads import SourceRead, read_of_call, read_of_options
from tussock.jobs.importing.sdp_recorder import FrameQuery, PythonFileError, Recorder, recording
from tussock.jobs.importing.sdp_spec import SdpSpec, path_within, remedy_of_setting
from tussock.jobs.importing.sdp_words import (
    AppendWords,
    ChangesWords,
    DatasetKind,
    DatasetWords,
    Expectation,
    SettingWords,
    UnreadableWords,
    UseWords,
    Violation,
    WrittenQuery,
    read_file_words,
)
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, names_mentioned, split_name
from tussock.jobs.logical.source_text import SourceText, edit_source
from tussock.jobs.logical.tokens import enclose_condition, tokens_of
from tussock.jobs.settings.user_files import text_of
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.importing.sdp_binding import ProjectBinding

_STREAM = re.compile(r"STREAM[\s(]", re.IGNORECASE)
_FILE_CLOCK = "the clock in its query is the moment of the epoch that read the file (_ingested_at)"
Query = WrittenQuery | FrameQuery
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """`--source name=[format:]path`: where the rows of a table or of a read are."""

    path: str
    format: str = ""


class NotTakenError(InputError):
    """A DataFrame reads a relation that was not taken."""

    name: str

    def __str__(self) -> str:
        return f"it reads {self.name}, which was not taken"


class RefusedDatasetError(InputError):
    """A dataset that no statement expresses."""

    finding: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.finding}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Scope:
    """The defaults of a statement: its file, the settings, the catalog and the schema of names without one."""

    file: str
    settings: Mapping[str, str]
    catalog: str | None
    schema: str | None


@dataclass(slots=True)
class _Flow:
    query: Query
    scope: _Scope
    place: ProjectPlace
    by_name: bool = False
    once: bool = False


@dataclass(slots=True)
class _Dataset:
    """A dataset with its flows."""

    name: str
    words: DatasetWords
    scope: _Scope
    place: ProjectPlace
    flows: list[_Flow] = field(default_factory=list)
    changes: list[tuple[ChangesWords, _Scope, ProjectPlace]] = field(default_factory=list)
    begun: bool = False
    dropped: str = ""  # FROM and WHERE of the rows that its expectations drop, once it was resolved


def read_sdp_project(
    spec: SdpSpec,
    name: str,
    sources: Mapping[str, SourcePlace],
    binding: "ProjectBinding",
    *,
    leave_out_clock: bool = False,
) -> ForeignProject:
    """Read a declarative pipeline.

    Args:
        name: of the pipeline.
        sources: the places of tables and reads, by name.
        binding: an empty store in which queries are parsed, and bound if DataFrames read them.
        leave_out_clock: leave out columns that contain the clock (clock_columns.py).

    Raises: ProjectError.
    """
    return _Reading(spec, name, sources, binding, leaves_clocks_out=leave_out_clock).project()


class _Reading:
    def __init__(
        self,
        spec: SdpSpec,
        name: str,
        sources: Mapping[str, SourcePlace],
        binding: "ProjectBinding",
        *,
        leaves_clocks_out: bool,
    ) -> None:
        self._spec, self._name, self._binding = spec, name, binding
        self._leaves_clocks_out = leaves_clocks_out
        self._lost: dict[str, Sequence[str]] = {}  # the columns that were left out, by dataset
        self._datasets: dict[Name, _Dataset] = {}
        self._models: dict[str, Model] = {}
        self._assertions: list[ProjectTest] = []
        self._left_out: list[LeftOut] = []
        self._notes: list[str] = []
        self._by_read: dict[SourceRead, str] = {}
        self._read_outside: list[str] = []  # sources that Python files read outside of functions
        self._reading: list[list[str]] = []  # the relations that each unfinished dataset has read so far
        self._reading_notes: list[list[str]] = []
        self._of_files: set[str] = set()  # sources of files, which have hidden columns
        self._current: list[_Dataset] = []
        self._frames = ProjectFrames(
            binding,
            self._relation_of_table,
            self._relation_of_read,
            self._text_of_sql,
            self._use_in_python,
            self._bind,
            leaves_clocks_out=leaves_clocks_out,
        )
        self._recorder = Recorder(spec.root, self._frames.sql_of_column)
        self._python_scope = own = self._scope_of("")  # of the Python file that runs
        self._sources = {
            self._relation_name(self._full_name(_split_name(given), own)): place for given, place in sources.items()
        }

    def project(self) -> ForeignProject:
        folders = tuple(dict.fromkeys((self._spec.root, *(f.parent for f in self._spec.files if f.suffix == ".py"))))
        with ExitStack() as stack:
            if any(file.suffix == ".py" for file in self._spec.files):
                stack.enter_context(
                    recording(self._recorder, folders, self._frames.read_table, self._frames.read_stream)
                )
                stack.enter_context(self._frames.standing_in(self._spec.configuration))
                stack.enter_context(chdir(self._spec.root))  # as Spark runs them
            for key, value in self._spec.configuration.items():
                self._leave_out_setting(key, value, ProjectPlace(path_within(self._spec.inputs[0], self._spec.root)))
            self._read_files()
            for dataset in list(self._datasets.values()):
                self._resolve_dataset(dataset)
        unused = sorted(set(self._sources) - set(self._models))
        if unused:
            raise ProjectError(
                "--source",
                f"{', '.join(unused)}, which the project does not read",
                f"one of {', '.join(sorted(m.name for m in self._models.values() if m.script is Script.SOURCES))}",
            )
        return ForeignProject(
            "sdp",
            self._name,
            self._spec.root,
            (*self._spec.inputs, *sorted(self._recorder.helpers - set(self._spec.inputs))),
            models=tuple(self._models.values()),
            assertions=tuple(self._assertions),
            left_out=tuple(self._left_out),
            notes=tuple(self._notes),
        )

    # --- files --------------------------------------------------------------------------------------------------------

    def _read_files(self) -> None:
        late = list[tuple[AppendWords | ChangesWords, _Scope, ProjectPlace, Query | None]]()
        for path in self._spec.files:
            file = path_within(path, self._spec.root)
            if path.suffix == ".sql":
                self._read_sql_file(file, text_of(path), late)
            else:
                self._read_python_file(file, path, late)
        for words, scope, place, query in late:
            self._add_flow(words, scope, place, query)

    def _scope_of(self, file: str) -> _Scope:
        return _Scope(file, dict(self._spec.configuration), self._spec.catalog, self._spec.schema)

    def _read_sql_file(
        self, file: str, text: str, late: "list[tuple[AppendWords | ChangesWords, _Scope, ProjectPlace, Query | None]]"
    ) -> None:
        scope = self._scope_of(file)
        try:
            statements = read_file_words(text)
        except SqlError as err:
            self._left_out.append(LeftOut("file", file, ProjectPlace(file), str(err).partition("\n")[0], has_rows=True))
            return
        for words in statements:
            match words:
                case DatasetWords():
                    self._add_dataset(words, scope, ProjectPlace(file, words.place.line), words.query)
                case AppendWords():
                    late.append((words, scope, ProjectPlace(file, words.place.line), words.query))
                case ChangesWords():
                    late.append((words, scope, ProjectPlace(file, words.place.line), None))
                case SettingWords(key, value):
                    self._leave_out_setting(key, value, ProjectPlace(file))
                    scope = _Scope(file, {**scope.settings, key: value}, scope.catalog, scope.schema)
                case UseWords():
                    scope = self._scope_after(words, scope)
                case UnreadableWords(written, place, reason):
                    shown = " ".join(written.split()[:6])
                    at = ProjectPlace(file, place.line)
                    self._left_out.append(LeftOut("statement", shown, at, reason, has_rows=True))

    def _leave_out_setting(self, key: str, value: str, place: ProjectPlace) -> None:
        if remedy := remedy_of_setting(key, value):
            self._left_out.append(LeftOut("setting", f"{key}={value}", place, f"it has no effect here: {remedy}"))

    def _read_python_file(
        self,
        file: str,
        path: Path,
        late: "list[tuple[AppendWords | ChangesWords, _Scope, ProjectPlace, Query | None]]",
    ) -> None:
        self._python_scope, recorder = self._scope_of(file), self._recorder
        before = len(recorder.datasets), len(recorder.appends), len(recorder.changes), len(recorder.left_out)
        settings_before = len(recorder.settings)
        try:
            recorder.run_file(path, self._frames.file_variables(self._python_scope.settings))
        except PythonFileError as err:
            reason = f"{err.reason}. Datasets that it defines after this line are unknown"
            self._left_out.append(LeftOut("file", file, ProjectPlace(file, err.line), reason, has_rows=True))
        scope = self._python_scope
        for recorded in recorder.datasets[before[0] :]:
            self._add_dataset(recorded.words, scope, recorded.file, recorded.query)
        for append in recorder.appends[before[1] :]:
            words = AppendWords(
                append.target, Place(append.file.line, 1), WrittenQuery("", Place(1, 1)), True, append.once
            )
            late.append((words, scope, append.file, append.query))
        for changes in recorder.changes[before[2] :]:
            late.append((changes.words, scope, changes.file, None))
        self._left_out += recorder.left_out[before[3] :]
        for key, value, place in recorder.settings[settings_before:]:
            self._leave_out_setting(key, value, place)

    def _use_in_python(self, words: UseWords | SettingWords) -> None:
        scope = self._python_scope
        if isinstance(words, UseWords):
            self._python_scope = self._scope_after(words, scope)
            return
        self._leave_out_setting(words.key, words.value, ProjectPlace(scope.file))
        self._python_scope = replace(scope, settings={**scope.settings, words.key: words.value})

    def _scope_after(self, words: UseWords, scope: _Scope) -> _Scope:
        """A scope after USE. USE CATALOG alone means the project's schema in that catalog."""
        if words.catalog is None:
            return replace(scope, schema=words.schema)
        return replace(scope, catalog=words.catalog, schema=words.schema or self._spec.schema)

    def _add_dataset(self, words: DatasetWords, scope: _Scope, place: ProjectPlace, query: Query | None) -> None:
        is_view, full = words.kind is DatasetKind.TEMPORARY_VIEW, self._full_name(words.name, scope)
        key = (is_view and self._view_key(words.name)) or full
        if key in self._datasets:
            first = self._datasets[key].place
            reason = f"{first} defines it too, and its readers read that one; Spark refuses two of one name. Rename one"
            self._left_out.append(LeftOut(words.kind, ".".join(words.name), place, reason, has_rows=True))
            return
        name = self._relation_name(full)
        if (other := next((d for d in self._datasets.values() if d.name == name), None)) is not None:
            if is_view:  # Spark keeps temporary views in no schema, so a table may have the same name
                name = self._name_apart(name)
            elif other.words.kind is DatasetKind.TEMPORARY_VIEW and not other.begun:
                other.name = self._name_apart(name)
            else:
                reason = f"its name in the pipeline is {name}, as that of {'.'.join(other.words.name)} ({other.place})"
                self._left_out.append(LeftOut(words.kind, ".".join(words.name), place, reason, has_rows=True))
                return
        dataset = self._datasets[key] = _Dataset(name, words, scope, place)
        if query is not None:
            dataset.flows.append(_Flow(query, scope, place))

    def _add_flow(
        self, words: AppendWords | ChangesWords, scope: _Scope, place: ProjectPlace, query: Query | None
    ) -> None:
        dataset = self._datasets.get(self._full_name(words.target, scope))
        if dataset is None:
            reason = f"no statement creates its target {'.'.join(words.target)}"
            self._left_out.append(LeftOut("flow", ".".join(words.target), place, reason, has_rows=True))
        elif isinstance(words, ChangesWords):
            dataset.changes.append((words, scope, place))
        else:
            assert query is not None
            dataset.flows.append(_Flow(query, scope, place, words.by_name, words.once))

    # --- names --------------------------------------------------------------------------------------------------------

    def _full_name(self, parts: Sequence[str], scope: _Scope) -> Name:
        """Catalog, schema and name in lower case; "" for an unknown catalog."""
        given = [part.lower() for part in parts if part][-3:]
        if len(given) == 2 and given[0] == "live":
            return self._own_catalog, self._own_schema, given[1]
        defaults = ((scope.catalog or "").lower(), (scope.schema or DEFAULT_SCHEMA).lower())
        return (*defaults[: 3 - len(given)], *given)

    def _relation_name(self, key: Name) -> str:
        """The name of a relation: with its schema, unless that is the project's."""
        catalog, schema, name = key
        is_own = catalog in ("", "spark_catalog", self._own_catalog)
        if is_own and schema == self._own_schema:
            return relation_name("", name)
        if is_own and schema != DEFAULT_SCHEMA:
            return relation_name(schema, name)
        return relation_name(f"{catalog or 'spark'}_{schema}", name)

    @property
    def _own_catalog(self) -> str:
        return (self._spec.catalog or "").lower()

    @property
    def _own_schema(self) -> str:
        return (self._spec.schema or DEFAULT_SCHEMA).lower()

    def _name_apart(self, name: str) -> str:
        """A name in the pipeline for a temporary view, other than those of the other datasets."""
        taken = {dataset.name for dataset in self._datasets.values()}
        ends = chain([""], map("_{}".format, count(2)))
        return next(named for end in ends if (named := f"{name}_view{end}") not in taken)

    def _view_key(self, parts: Sequence[str]) -> Name | None:
        """The key of a temporary view, which belongs to no schema; None for a name with a schema."""
        *schema, name = (part.lower() for part in parts)
        return ("", "", name) if schema in ([], ["live"]) else None

    def _find_dataset(self, parts: Sequence[str], scope: _Scope) -> _Dataset | None:
        """The dataset that a name means. A temporary view hides a table of the same name, as in Spark."""
        key, view_key = self._full_name(parts, scope), self._view_key(parts)
        for possible in filter(None, (view_key, key)):
            if (dataset := self._datasets.get(possible)) is not None:
                return dataset
        for known, dataset in self._datasets.items():
            catalog, schema, name = known if known[1] else self._full_name(dataset.words.name, dataset.scope)
            if (schema, name) == key[1:] and (catalog == key[0] or "" in (catalog, key[0])):
                return dataset
        return None

    def _relation_of_table(self, name: str) -> str:
        """The relation that a DataFrame reads by name."""
        return self._relation_of_name(_split_name(name), self._current_scope())

    def _relation_of_name(self, parts: Sequence[str], scope: _Scope) -> str:
        if (dataset := self._find_dataset(parts, scope)) is not None:
            self._resolve_dataset(dataset)
            return self._note_read(dataset.name)
        relation = self._relation_name(self._full_name(parts, scope))
        if relation not in self._models:
            self._models[relation] = self._catalog_table(relation, ".".join(parts), ProjectPlace(scope.file))
        return self._note_read(relation)

    def _current_scope(self) -> _Scope:
        return self._current[-1].scope if self._current else self._scope_of("")

    def _note_read(self, relation: str) -> str:
        if self._reading and relation not in self._reading[-1]:
            self._reading[-1].append(relation)
        return relation

    # --- sources ------------------------------------------------------------------------------------------------------

    def _catalog_table(self, relation: str, written: str, place: ProjectPlace) -> Model:
        """The source of a table that the project reads and does not define."""
        kind = "table of the catalog"
        if (given := self._sources.get(relation)) is None:
            reason = (
                f"the project reads {written} and does not define it; add `--source {relation}=PATH` with the folder "
                "of its files (Delta, Parquet, CSV, JSON)"
            )
            return Model(relation, kind, place, "", Script.SOURCES, refusal=reason)
        format = given.format or self._binding.format_at(given.path, Path.cwd())
        options = (("header", "true"),) if format == "csv" else ()
        read = SourceRead(format, given.path, options=options, inferred_types=True)
        return self._source_model(relation, kind, place, read)

    def _relation_of_read(self, read: SourceRead) -> str:
        """The source of a read by location."""
        if read not in self._by_read:
            base = self._current[-1].name if self._current else relation_name("", Path(self._python_scope.file).stem)
            wanted = name = f"{base}_{'topic' if read.format == 'kafka' else 'files'}"
            number = 1
            while name in self._models or any(d.name == name for d in self._datasets.values()):
                number += 1
                name = f"{wanted}_{number}"
            self._by_read[read] = name
            place = self._current[-1].place if self._current else ProjectPlace(self._python_scope.file)
            self._read_outside += [] if self._current else [name]
            self._models[name] = self._source_model(name, f"{read.format or 'file'} source", place, read)
        return self._note_read(self._by_read[read])

    def _source_model(self, name: str, kind: str, place: ProjectPlace, read: SourceRead) -> Model:
        given = self._sources.get(name)
        path = given.path if given is not None else read.path
        columns, refusal = read.columns, ""
        try:
            read = self._with_format(read, path)
            if columns is None and read.format != "kafka":
                columns = self._binding.columns_at(read, path, self._spec.root)
        except InputError as err:
            refusal = (
                f"its columns are unknown: {' '.join(str(err).split())} Declare them in the read, or add "
                f"`--source {name}=PATH` with some of its files"
            )
        if read.format not in ("kafka", "delta"):
            self._of_files.add(name)
        statement = read.to_sql(name, self._placed(path), columns)
        return Model(name, kind, place, "" if refusal else statement, Script.SOURCES, notes=read.notes, refusal=refusal)

    def _with_format(self, read: SourceRead, path: str) -> SourceRead:
        """A read with the format of its files, if it names none. Raises InputError."""
        if read.format:
            return read
        format = self._binding.format_at(path, self._spec.root)
        header = (("header", "true"),) if format == "csv" else ()  # as in read_files
        return replace(read, format=format, options=(*header, *read.options))

    def _placed(self, path: str) -> str:
        """A path within the project, from `${data}`; an absolute one as it is."""
        if not path or "://" in path:
            return path
        absolute = (self._spec.root / path).resolve() if not Path(path).is_absolute() else Path(path)
        if absolute.is_relative_to(self._spec.root):
            return "${data}/" + absolute.relative_to(self._spec.root).as_posix()
        return str(absolute)

    # --- datasets -----------------------------------------------------------------------------------------------------

    def _resolve_dataset(self, dataset: _Dataset) -> None:
        """Make the model of a dataset, after those of the datasets that it reads."""
        if dataset.begun:
            return
        dataset.begun = True
        self._current.append(dataset)
        self._reading.append([])
        self._reading_notes.append(self._notes_of(dataset))
        try:
            statement, refusal = self._statement_of(dataset), ""
        except InputError as err:
            statement, refusal = "", explain_reason(" ".join(str(err).partition("\n")[0].split()))
        for source in self._read_outside:
            if source in names_mentioned(token.value() for token in tokens_of(SourceText(statement))):
                self._note_read(source)
        reads, notes = tuple(self._reading.pop()), self._reading_notes.pop()
        self._current.pop()
        joins = len(reads) > 1 and any(t.text.upper() == "JOIN" for t in tokens_of(SourceText(statement)))
        if joins and len(dataset.flows) == 1 and self._is_stream(dataset):
            notes.append(
                "Spark joins a row of a stream once, as it arrives; this view also follows later changes of "
                f"{', '.join(reads[1:])}"
            )
        words = dataset.words
        model = Model(
            dataset.name,
            words.kind,
            dataset.place,
            statement,
            reads=reads,
            description=words.comment,
            notes=tuple(notes),
            refusal=refusal,
        )
        self._models[dataset.name] = self._without_clock(model) if self._leaves_clocks_out else model
        self._add_assertions(dataset, reads)

    def _is_stream(self, dataset: _Dataset) -> bool:
        """Whether a stream fills a resolved dataset. `@dlt.table` is for queries without a stream too."""
        queries = [flow.query for flow in dataset.flows]
        streams = any(isinstance(q, WrittenQuery) or q in self._frames.stream_queries for q in queries)
        return dataset.words.kind is DatasetKind.STREAMING_TABLE and streams

    def _without_clock(self, model: Model) -> Model:
        if model.refusal:
            return model
        try:
            for read in model.reads:
                self._bind(read)
        except NotTakenError:
            return model
        model, self._lost[model.name] = leave_out_clock(model, self._binding, self._spec.root, self._lost)
        return model

    def _statement_of(self, dataset: _Dataset) -> str:
        """The statement of a dataset. Raises InputError with the reason for which it is not taken."""
        name, words = dataset.name, dataset.words
        if words.generated:
            raise RefusedDatasetError(f"its column {words.generated} is GENERATED", "compute it in the query")
        if dataset.changes:
            return self._changes_statement(dataset)
        if not dataset.flows:
            raise RefusedDatasetError("no flow fills it", "add CREATE FLOW … AS INSERT INTO, or AS AUTO CDC INTO")
        select = self._select_of_flows(dataset)
        drops = [
            _with_settings(e.condition, dataset.scope) for e in words.expectations if e.violation is Violation.DROP
        ]
        columns = "" if words.columns is None else f" ({', '.join(map(quote_name, words.columns))})"
        if drops:
            conditions = " AND ".join(map(enclose_condition, drops))
            rows = f"FROM (\n{select}\n) AS {quote_name(split_name(name)[1])}{columns}"
            select, columns = f"SELECT * {rows}\nWHERE {conditions}", ""
            dataset.dropped = f"{rows}\nWHERE NOT coalesce({conditions}, false)"
        kind = "VIEW" if words.kind is DatasetKind.TEMPORARY_VIEW else "MATERIALIZED VIEW"
        return f"CREATE {kind} {relation_text(name)}{columns} AS\n{select}"

    def _select_of_flows(self, dataset: _Dataset) -> str:
        """The rows of all flows. Spark matches the columns of flows by name."""
        texts = [self._select_of(flow.query, flow.scope) for flow in dataset.flows]
        if len(texts) == 1:
            return texts[0]
        columns = dict[str, str]()
        of_text = [self._binding.columns_of(text, self._bind) for text in texts]
        for fields in of_text:
            for column, kind in fields:
                columns.setdefault(column.lower(), f"CAST(NULL AS {kind}) AS {quote_name(column)}")
        parts = list[str]()
        for text, fields in zip(texts, of_text, strict=True):
            own = {column.lower(): quote_name(column) for column, _ in fields}
            parts.append(f"SELECT {', '.join(own.get(c, absent) for c, absent in columns.items())} FROM (\n{text}\n)")
        return "\nUNION ALL\n".join(parts)

    def _changes_statement(self, dataset: _Dataset) -> str:
        for words, _, place in dataset.changes:
            if words.refusal:
                raise RefusedDatasetError(f"its flow in {place} is not taken", words.refusal)
        if len(dataset.changes) > 1 or dataset.flows:
            raise RefusedDatasetError(
                f"{len(dataset.changes) + len(dataset.flows)} flows write into a target of AUTO CDC",
                "unite the changes in a temporary view, and let one flow read it",
            )
        ((words, scope, _),) = dataset.changes
        if any(e.violation is Violation.DROP for e in dataset.words.expectations):
            raise RefusedDatasetError(
                "an expectation drops rows of a target of AUTO CDC",
                "write it as WHERE of a temporary view of the changes, and let the flow read that view",
            )
        relation = self._relation_of_changes(dataset, words, scope)
        snapshot = "SNAPSHOT " if words.snapshots else ""
        clauses = _with_settings(words.clauses, scope)
        target, read = relation_text(dataset.name), relation_text(relation)
        flow = f"{dataset.name.replace('.', '_')}_changes"  # flows belong to no schema
        return f"CREATE FLOW {flow} AS AUTO CDC INTO {target} FROM {snapshot}{read}\n{clauses}"

    def _relation_of_changes(self, dataset: _Dataset, words: ChangesWords, scope: _Scope) -> str:
        """The relation that a flow of changes reads. A query becomes a view of its own."""
        if words.is_query:
            catalog, schema, name = self._full_name(dataset.words.name, dataset.scope)
            key, number = (catalog, schema, f"{name}_input"), 1
            while key in self._datasets or self._relation_name(key) in self._models:
                number += 1
                key = catalog, schema, f"{name}_input_{number}"
            view = DatasetWords(key[2:], DatasetKind.TEMPORARY_VIEW, words.place)
            flows = [_Flow(words.source, scope, dataset.place)]
            self._datasets[key] = _Dataset(self._relation_name(key), view, scope, dataset.place, flows)
            self._resolve_dataset(self._datasets[key])
            return self._note_read(self._datasets[key].name)
        head = "SELECT * FROM "
        place_before = Place(words.source.place.line, max(1, words.source.place.column - len(head)))
        source = SourceText(head + words.source.text, place_before)
        (reference,) = find_references(self._binding.sandbox, source)
        return self._relation_of_reference(reference, scope)

    def _select_of(self, query: Query, scope: _Scope) -> str:
        if isinstance(query, FrameQuery):
            return self._frames.select_of(query, self._bind, self._current[-1].words.kind)
        return self._rewrite(query, scope)

    def _text_of_sql(self, text: str) -> str:
        """The text of a query in a Python file, with names of relations."""
        return self._rewrite(WrittenQuery(text, Place(1, 1)), self._current_scope())

    def _rewrite(self, query: WrittenQuery, scope: _Scope) -> str:
        """The text of a query with names of relations in place of the project's names and reads."""
        source = SourceText(_with_settings(query.text, scope), query.place)
        parts: dict[tuple[int, int], str] = {}
        withs = names_of_withs(tokens_of(source))
        relations, is_stream = list[str](), self._current[-1].words.kind is DatasetKind.STREAMING_TABLE
        for reference in find_references(self._binding.sandbox, source):
            is_stream |= _STREAM.match(source.text, reference.begin) is not None
            relation = self._relation_of_reference(reference, scope)
            relations.append(relation)
            qualifiers = find_qualifiers(source, relation, reference)
            parts[reference.begin, reference.end] = name_in_query(
                relation, reference, withs, by_schema=bool(qualifiers)
            )
            parts |= qualifiers
        reads_files = len(relations) == 1 and relations[0] in self._of_files
        if is_stream and reads_files and (clocks := find_clocks(source)):
            parts |= clocks
            if _FILE_CLOCK not in self._reading_notes[-1]:  # a function of Python runs twice
                self._reading_notes[-1].append(_FILE_CLOCK)
        return edit_source(source, parts).text if parts else source.text

    def _relation_of_reference(self, reference: Reference, scope: _Scope) -> str:
        if reference.arguments is None:
            format, *path = reference.parts
            if len(path) == 1 and "/" in path[0]:  # FROM parquet.`/lake/orders`
                return self._relation_of_read(read_of_options(format, path[0], {}, None, infers=False))
            return self._relation_of_name(reference.parts, scope)
        return self._relation_of_read(read_of_call(reference.parts[-1].lower(), list(reference.arguments)))

    def _bind(self, relation: str) -> None:
        """Bind a relation in the store of this reading, after those that it reads. Raises NotTakenError."""
        model = self._models.get(relation)
        if model is None or model.refusal:
            raise NotTakenError(relation)
        if self._binding.knows(relation):
            return
        for read in model.reads:
            self._bind(read)
        if not self._binding.add(model, self._spec.root):
            raise NotTakenError(relation)

    def _notes_of(self, dataset: _Dataset) -> list[str]:
        notes = list(dataset.words.notes)
        if any(flow.once for flow in dataset.flows):
            notes.append("INSERT INTO ONCE: the view also follows later rows of that query")
        return notes

    def _add_assertions(self, dataset: _Dataset, reads: tuple[str, ...]) -> None:
        """Add the expectations of a resolved dataset that are no condition of its view."""
        columns = "*"
        if dataset.dropped and self._lost.get(dataset.name):
            columns = ", ".join(map(quote_name, self._binding.frame_of(dataset.name).columns))
        for expectation in dataset.words.expectations:
            if expectation.violation is not Violation.DROP:
                self._assertions.append(self._assertion_of(dataset, expectation, columns, reads))

    def _assertion_of(
        self, dataset: _Dataset, expectation: Expectation, columns: str, reads: tuple[str, ...]
    ) -> ProjectTest:
        """The rows that violate an expectation.

        Each expectation judges all rows of the query, also those that another expectation drops. A SELECT of the
        dataset and of its dropped rows has each of them once.
        """
        fails = expectation.violation is Violation.FAIL
        condition, refusal = expectation.condition, ""
        try:
            condition = _with_settings(condition, dataset.scope)
        except RefusedDatasetError as err:
            refusal = str(err)
        violates = f"NOT coalesce({enclose_condition(condition)}, false)"
        select = f"SELECT * FROM {relation_text(dataset.name)} WHERE {violates}"
        if dataset.dropped:
            select += f"\nUNION ALL\nSELECT {columns} {dataset.dropped}\n  AND {violates}"
        assertion = ProjectTest(
            f"{dataset.name}_{expectation.name}",
            "expectation",
            dataset.place,
            select,
            (dataset.name, *reads) if dataset.dropped else (dataset.name,),
            Severity.ERROR if fails else Severity.WARNING,
            refusal=refusal,
        )
        return name_apart(assertion, set(map(file_of, self._assertions)))


def _with_settings(text: str, scope: _Scope) -> str:
    """A text with the values of the settings. Raises RefusedDatasetError if one is unknown."""
    filled = replace_settings(text, scope.settings)
    if (unknown := unknown_setting(filled)) is not None:
        raise RefusedDatasetError(
            f"${{{unknown}}} has no value", f"add {unknown} to `configuration` of spark-pipeline.yml"
        )
    return filled


def _split_name(name: str) -> tuple[str, ...]:
    return tuple(part.replace("``", "`").strip("`") for part in re.findall(r"`(?:[^`]|``)*`|[^.`]+", name))
