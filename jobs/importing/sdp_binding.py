"""An empty store in which a declarative pipeline's queries are parsed, and bound if a DataFrame reads them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tussock.jobs.importing.project import Model
from tussock.jobs.importing.sdp_reads import DESCRIBED, SourceRead
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, resolve_name, schema_of
from tussock.jobs.logical.script import ScriptStatement
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreatePlainView, CreateSchema, CreateSource, CreateView
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import create_store, open_meta
from tussock.jobs.settings.variables import substituted_in_sql
from tussock.jobs.sources.describe import describe_source, place_source
from tussock.jobs.sources.kafka import COLUMNS as KAFKA_COLUMNS
from tussock.jobs.sources.listing import absolute_path, list_files
from tussock.jobs.sources.preview import preview_source
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sources.spark_files import SparkFiles
from tussock.jobs.spark.sql_errors import from_spark
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.qualified_names import under_own_name
from tussock.jobs.sql.sandbox import Sandbox, items
from tussock.jobs.sql.spark_text import NoTextError
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import Catalog, RelationKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.sql.binder import Binder

Bind = Callable[[str], None]
"""Binds a relation of the project by its name. Raises InputError."""


class NoColumnsError(InputError):
    """The columns of a source cannot be read from its files."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}."


class NoSelectError(InputError):
    """The query of a DataFrame cannot be written as a SELECT."""

    construct: str

    def __str__(self) -> str:
        return f"its DataFrame has no SELECT that this project can write ({self.construct}); write its query in SQL"


class ProjectBinding:
    """One store and one binder, for the time of an import."""

    def __init__(self, folder: str, spark: "Callable[[], SparkSession]") -> None:
        """`folder`: empty."""
        create_store(folder, units=1, time_zone="UTC")
        self._meta = open_meta(folder)
        self._maker = StatementMaker(self._meta, StoredRows(self._meta), StatementWriter(self._meta), spark)
        self._draft = DraftTransaction(Catalog(), 1)
        self._spark = spark
        self._known: set[str] = set()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox over the relations that were bound so far."""
        return self._binder.sandbox

    def knows(self, relation: str) -> bool:
        """Whether a relation was bound."""
        return relation in self._known

    def add(self, model: Model, root: Path) -> bool:
        """Bind a model's statement. False: the engine refuses it, and the judge of the import gives the reason."""
        try:
            self._draft.add_statement(self._bound_statement(model, root))
        except InputError:
            return False
        self._known.add(model.name)
        return True

    def objection_to(self, model: Model, root: Path) -> InputError | None:
        """The error with which the engine refuses a model's statement, or None. The model does not become known."""
        try:
            self._bound_statement(model, root)
        except InputError as err:
            return err
        return None

    def _bound_statement(self, model: Model, root: Path) -> CreateSource | CreateView | CreatePlainView:
        text = substituted_in_sql(model.statement, {"data": str(root)}, model.place.file)
        if (schema := schema_of(model.name)) != DEFAULT_SCHEMA:
            self._draft.add_statement(CreateSchema(schema, if_not_exists=True))
        bound, _ = self._maker.bind_statement(self._draft.catalog, self._meta.read_latest(), ScriptStatement(text))
        match bound:
            case CreateSource(format="kafka"):
                return msgspec.structs.replace(bound, fields=KAFKA_COLUMNS)
            case CreateSource():
                bound = place_source(bound, root)
                return bound if bound.fields else describe_source(bound, self._spark)
            case CreateView() | CreatePlainView():
                return bound
            case _:
                raise AssertionError(f"{type(bound).__name__} is no statement of an import")

    # --- queries ------------------------------------------------------------------------------------------------------

    def columns_of(self, text: str, bind: Bind) -> list[tuple[str, str]]:
        """The columns of a query over relations of the project, with their types. Raises SqlError."""
        return [(a.name(), name_of_type(a.dataType())) for a in items(self._analyzed(text, bind).output())]

    def frame_of_sql(self, text: str, bind: Bind) -> DataFrame:
        """The DataFrame of a query over relations of the project. Raises SqlError."""
        source = SourceText(text)
        with self._bound_relations(source, bind) as sandbox:
            return DataFrame(sandbox.analyze(source, sandbox.parse_query(source)), sandbox.session)

    def frame_of(self, relation: str) -> DataFrame:
        """The DataFrame of a relation that was bound."""
        sandbox = self.sandbox
        with sandbox.active():
            known = sandbox.relations[relation]
            dataset = sandbox.exposed_dataset if known.kind is RelationKind.SOURCE else sandbox.dataset_of
            return DataFrame(under_own_name(sandbox.session, dataset(known), relation), sandbox.session)

    def select_of_frame(self, frame: DataFrame) -> str:
        """The SELECT of a DataFrame over relations. Raises NoSelectError."""
        try:
            return self._binder.select_of_frame(frame._jdf.queryExecution().analyzed())
        except NoTextError as err:
            raise NoSelectError(str(err)) from err

    @property
    def _binder(self) -> "Binder":
        return self._maker.binder_over(self._draft.catalog)

    def _analyzed(self, text: str, bind: Bind) -> JavaObject:
        return self.frame_of_sql(text, bind)._jdf.queryExecution().analyzed()

    @contextmanager
    def _bound_relations(self, source: SourceText, bind: Bind) -> Iterator[Sandbox]:
        """The sandbox with the relations that a text names."""
        from tussock.jobs.importing.sdp_queries import find_references

        for reference in find_references(self.sandbox, source):
            bind(resolve_name(reference.parts))
        sandbox = self.sandbox
        with sandbox.active():
            yield sandbox

    # --- files --------------------------------------------------------------------------------------------------------

    def without_unknown_options(self, read: SourceRead) -> SourceRead:
        """The read without the options that Spark's reader ignores, with a note on each."""
        reader = READERS.get(read.format)
        if not read.options or not isinstance(reader, SparkFiles):
            return read
        ignored = reader.ignored_options((name for name, _ in read.options), self._spark())
        notes = (
            f"{name} is dropped: format {read.format} has no such option, and Spark ignores it" for name in ignored
        )
        options = tuple((name, value) for name, value in read.options if name not in ignored)
        return replace(read, options=options, notes=(*read.notes, *notes))

    def format_at(self, path: str, root: Path) -> str:
        """The format of the files at a path that names none. Raises InputError."""
        place = absolute_path(path, root)
        return "delta" if Path(place, "_delta_log").is_dir() else preview_source(place).source.format

    def columns_at(self, read: SourceRead, path: str, root: Path) -> str | None:
        """The columns of a source's files as DDL. None: CREATE SOURCE without columns finds them.

        Raises: NoColumnsError.
        """
        place = absolute_path(path, root)
        options = {k: v for k, v in dict(read.options).items() if k in ("endpoint", "region", "path_style", "account")}
        if read.format == "delta":
            if not Path(place, "_delta_log").is_dir() and "://" not in place:
                raise NoColumnsError(place, "no Delta table is there")
            return None
        try:
            has_files = any(file.size for file in list_files(place, options))
        except (TussockError, OSError):  # a bucket that this process cannot read is no error of the import
            has_files = False
        if not has_files:
            raise NoColumnsError(place, "no file can be read there")
        if read.format in DESCRIBED:
            return None
        return self._inferred_columns(read, place)

    def _inferred_columns(self, read: SourceRead, place: str) -> str:
        """The columns that Spark's reader finds in text files."""
        reader = self._spark().read.format(read.format).options(**dict(_reader_options(read)))
        try:
            fields = reader.load(place)._jdf.schema().fields()
        except PySparkException as err:
            raise NoColumnsError(place, from_spark(err, SourceText("")).reason) from err
        hinted = _hinted_types(self.sandbox, read.hints)
        return ", ".join(
            f"{quote_name(f.name())} {hinted.get(f.name().lower(), name_of_type(f.dataType()))}" for f in fields
        )


def _reader_options(read: SourceRead) -> Iterator[tuple[str, str]]:
    yield from ((k, v) for k, v in read.options if k != "on_error")
    if read.format == "json":
        yield "primitivesAsString", str(not read.inferred_types).lower()
    else:
        yield "inferSchema", str(read.inferred_types).lower()


def _hinted_types(sandbox: Sandbox, hints: str) -> dict[str, str]:
    if not hints:
        return {}
    with sandbox.active():
        try:
            fields = sandbox.parser().parseTableSchema(hints).fields()
        except PySparkException as err:
            raise SqlError(from_spark(err, SourceText(hints)).reason) from err
    return {f.name().lower(): name_of_type(f.dataType()) for f in fields}


@contextmanager
def opened_binding(spark: "Callable[[], SparkSession]") -> Iterator[ProjectBinding]:
    """Yield a binding over a temporary store."""
    with ExitStack() as stack:
        yield ProjectBinding(stack.enter_context(TemporaryFolder("import")), spark)
