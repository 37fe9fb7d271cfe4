"""Try an imported project over a sample: `tussock import … --try DATA`.

A temporary store takes 99 % of the rows of each source in its first epoch and 1 % in its second. `verify` then
compares every view with Spark's result, and Spark computes all views in full over the same rows, one after the other,
as a run of the project without incremental views would.

The sample is read by Spark with the format and the options of each source, and is written as Parquet. So a sample may
be files of CSV, JSON or Parquet, also for a source that is a Delta table or a topic.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.importing.judge import Verdicts, schemas_in
from tussock.jobs.importing.project import ForeignProject, Model, Script, models_in_order
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.relation_names import sql_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.session import Session
from tussock.jobs.settings.variables import substituted_in_sql
from tussock.jobs.sources.file_options import spark_options
from tussock.jobs.sources.keyed import records_of
from tussock.jobs.sources.listing import RECURSIVE, absolute_path
from tussock.statestore.errors import InputError
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_SHARE = 100  # one of so many rows comes in the second epoch


class NoSampleError(InputError):
    """A source has no rows for a trial."""

    source: str
    folder: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r} has no sample: {self.reason}. Nothing was tried. Put files of CSV, JSON or "
            f"Parquet with its columns into {self.folder}/{self.source}/."
        )


@dataclass(frozen=True, slots=True)
class TriedView:
    """A materialized view after the second epoch.

    Args:
        rows: of the view; changed: rows that the second epoch added or removed.
        spark_s: seconds in which Spark computed and wrote it in full; None if Spark cannot, with the reason.
        verdict: of `verify`.
    """

    name: str
    rows: int
    changed: int
    spark_s: float | None
    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProjectTrial:
    """The measured epochs. Rows are those of the sources."""

    rows: int
    changed_rows: int
    first_s: float
    epoch_s: float
    views: tuple[TriedView, ...]

    @property
    def spark_s(self) -> float:
        """Seconds of a full run by Spark."""
        return sum(view.spark_s or 0.0 for view in self.views)

    @property
    def all_equal(self) -> bool:
        """Whether `verify` found every view equal."""
        return all(view.verdict == "equal" for view in self.views)


def try_project(
    project: ForeignProject, verdicts: Verdicts, sample: Path, spark: "SparkSession", progress: Progress = no_progress
) -> ProjectTrial:
    """Run the accepted statements of a project over a sample.

    Args:
        sample: a folder with one folder or file per source, by its name. A source without one is read from its own
            place.

    Raises: NoSampleError; errors of the statements and of the sample's rows.
    Cost: twice the sample on the local disk, two epochs, a full run by Spark, and `verify`.
    """
    models = [model for model in models_in_order(project.models) if verdicts[model.name].accepted]
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryFolder("trial-data")))
        progress("reading the sample with Spark")
        sources = _write_samples(project, models, sample, data, spark)
        store = stack.enter_context(TemporaryFolder("trial"))
        session = stack.enter_context(Session(store, spark))
        for schema in schemas_in(project.models):
            session.execute(f"CREATE SCHEMA {schema}")
        for model in models:
            text = sources.get(model.name) or substituted_in_sql(model.statement, {"data": str(project.root)}, "")
            session.execute(text, base=project.root)
        progress("first epoch: 99 % of the rows")
        _, first_s = _timed_flush(session)
        _deliver_changes(data)
        progress("second epoch: 1 % of the rows")
        changed, epoch_s = _timed_flush(session)
        relations = session.meta.read_latest().catalog.live_relations()
        rows = {r.name: r for r in relations if r.kind is RelationKind.VIEW}
        progress("verify")
        checks = {check.view: check for check in session.verify(progress=progress).views} if rows else {}
        progress("full run by Spark")
        full = dict(_run_by_spark(session, relations, data, spark))
        views = tuple(
            TriedView(
                name,
                checks[name].rows,
                changed.get(name, 0),
                full[name][0],
                str(checks[name].verdict),
                checks[name].reason or full[name][1],
            )
            for name in rows
        )
        taken = [model.name for model in models if model.script is Script.SOURCES]
        return ProjectTrial(
            sum(_count_rows(spark, data / name) for name in taken),
            sum(changed.get(name, 0) for name in taken),
            first_s,
            epoch_s,
            views,
        )


def _timed_flush(session: Session) -> tuple[Mapping[str, int], float]:
    """Run an epoch. Returns the changes that each relation produced, and the seconds."""
    begun = time.perf_counter()
    summary = session.flush()
    seconds = time.perf_counter() - begun
    return {name: counts.rows_out for name, counts in summary.rows.items()}, seconds


# --- the sample -------------------------------------------------------------------------------------------------------


def _write_samples(
    project: ForeignProject, models: list[Model], sample: Path, data: Path, spark: "SparkSession"
) -> dict[str, str]:
    """Write the sample of each source as Parquet. Returns the statements of sources over these files."""
    statements = dict[str, str]()
    with _scratch_session(spark) as scratch:
        for schema in schemas_in(project.models):
            scratch.execute(f"CREATE SCHEMA {schema}")
        for model in models:
            if model.script is not Script.SOURCES:
                continue
            text = substituted_in_sql(model.statement, {"data": str(project.root)}, "")
            scratch.execute(text, base=project.root)
            scratch.flush()
            relation = next(r for r in scratch.meta.read_latest().catalog.live_relations() if r.name == model.name)
            source = source_of(relation)
            if source is None:  # a table with its rows, such as a seed
                continue
            _write_sample(source, relation, sample, data / model.name, spark)
            columns = ", ".join(f"{quote_name(c.name)} {c.type}" for c in relation.columns)
            place = string_text(str(data / model.name))
            statements[model.name] = (
                f"CREATE SOURCE {sql_name(model.name)} ({columns}) USING parquet OPTIONS (path {place})"
            )
    return statements


@contextmanager
def _scratch_session(spark: "SparkSession") -> Iterator[Session]:
    with TemporaryFolder("trial") as folder, Session(folder, spark) as session:
        yield session


def _write_sample(source: CreateSource, relation: Relation, sample: Path, place: Path, spark: "SparkSession") -> None:
    """Write 99 % of a source's rows into a folder, and the others into a hidden folder within it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    frame = _read_sample(source, relation, sample, spark)
    number = F.monotonically_increasing_id() % _SHARE  # counts within a partition, so each one gives its share
    try:
        numbered = frame.withColumn("__number", number)
        for folder, condition in ((place, "__number <> 0"), (place / ".change", "__number = 0")):
            numbered.where(condition).drop("__number").write.mode("append").parquet(str(folder))
    except PySparkException as err:
        raise NoSampleError(relation.name, str(sample), str(err).partition("\n")[0]) from err


def _read_sample(source: CreateSource, relation: Relation, sample: Path, spark: "SparkSession") -> "DataFrame":
    given = next((p for p in (sample / relation.name, *sorted(sample.glob(f"{relation.name}.*"))) if p.exists()), None)
    if given is None and not source.options.get("path"):
        raise NoSampleError(relation.name, str(sample), "it is a topic")
    place = str(given) if given is not None else absolute_path(source.options["path"], Path.cwd())
    format, options = source.format, spark_options(records_of(source))
    if given is not None:
        names = [p.suffix for p in (given.rglob("*") if given.is_dir() else (given,))]
        format = next((_FORMATS[name] for name in names if name in _FORMATS), format)
        if format != source.format:
            options = {"header": "true"} if format == "csv" else {}
    if format == "delta":
        return _read_delta(place, relation, spark)
    options |= {name: value for name, value in source.options.items() if name == RECURSIVE}
    schema = ", ".join(f"{quote_name(c.name)} {c.type}" for c in relation.columns)
    return spark.read.format(format).schema(schema).options(**options).load(place)


def _read_delta(place: str, relation: Relation, spark: "SparkSession") -> "DataFrame":
    from deltalake import DeltaTable

    rows = DeltaTable(place).to_pyarrow_table(columns=[c.name for c in relation.columns])
    return spark.createDataFrame(rows)


def _deliver_changes(data: Path) -> None:
    """Move the held-back rows to the sources."""
    for folder in data.iterdir():
        for file in sorted((folder / ".change").glob("*.parquet")):
            file.rename(folder / f"change-{file.name}")


def _count_rows(spark: "SparkSession", folder: Path) -> int:
    return spark.read.parquet(str(folder)).count() if folder.is_dir() else 0


# --- a full run by Spark ----------------------------------------------------------------------------------------------


def _run_by_spark(
    session: Session, relations: tuple[Relation, ...], data: Path, spark: "SparkSession"
) -> Iterator[tuple[str, tuple[float | None, str]]]:
    """Compute and write each view in Spark, over the sources and the views written before.

    Yields: the view, its seconds, and the reason if Spark cannot compute it there (it then continues with our rows).
    """
    from pyspark.errors import PySparkException

    from tussock.jobs.spark.session import sql_session
    from tussock.jobs.sql.plain_view import plain_view_of, register_view
    from tussock.jobs.sql.qualified_names import query_rows
    from tussock.jobs.statements.transaction import query_of

    sql = sql_session(spark, session.time_zone)
    for relation in relations:
        match relation.kind:
            case RelationKind.SOURCE:
                sql.read.parquet(str(data / relation.name)).createOrReplaceTempView(quote_name(relation.name))
            case RelationKind.PLAIN_VIEW:
                register_view(sql, plain_view_of(relation))
            case RelationKind.VIEW:
                query, names = query_of(relation)
                place, begun, reason = data / f".full-{relation.name}", time.perf_counter(), ""
                try:
                    frame = query_rows(sql, query)
                    (frame.toDF(*names) if names else frame).write.parquet(str(place))
                except PySparkException as err:  # a hidden column of sources, for example
                    reason = f"Spark alone cannot compute it: {str(err).partition(chr(10))[0]}"
                    session.table(relation.name).write.parquet(str(place))
                yield relation.name, (None if reason else time.perf_counter() - begun, reason)
                sql.read.parquet(str(place)).createOrReplaceTempView(quote_name(relation.name))
            case _:
                session.table(relation.name).createOrReplaceTempView(quote_name(relation.name))
