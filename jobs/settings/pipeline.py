"""A pipeline: a folder with SQL files and a `pipeline.toml`, which configures its store and its schedule.

Airflow loads every pipeline whenever it parses the DAG files. This module therefore imports neither Spark nor Arrow,
and reads one small file per pipeline.

    name = "flights"                                   # the folder's name; must match [a-z][a-z0-9_]*
    description = "…"                                  # optional; shown in Airflow
    store = "${FLIGHTS_STORE:-.tussock/flights/store}" # a folder, or an address: s3://…, gs://…, az://…, hdfs://…
    data = "${FLIGHTS_DATA:-.tussock/flights/data}"    # optional; the value of `${data}` in the SQL files
    sql = ["sources.sql", "views.sql"]                 # applied in this order; `${data}/…` for a file below `data`
    schema = "default"                                 # optional; schema of the names without one in SQL
    time_zone = "UTC"                                  # optional; time zone of all SQL

    [schedule]                                         # optional; without it, the pipeline runs only when triggered
    cron = "@daily"                                    # a run per interval, {start:…} to {end:…} in paths; or "none"
    start = 2013-01-01                                 # start of the first interval; required with cron
    end = 2013-12-31                                   # optional; start of the last interval
    catchup = true                                     # optional; also run the intervals that have already passed
    partitions = false                                 # optional; true: asset events contain the interval's day
    every = "5m"                                       # instead of cron: a run per time span, for all waiting files
    assets = ["orders", "lake.customers"]              # optional; events of these assets start a run too
    needs = "any"                                      # an event of "any" of the assets starts a run, or one of "all"

    [watch.orders]                                     # optional; emits the event of a source in the assets
    trigger = "airflow.providers.common.messaging.triggers.msg_queue.MessageQueueTrigger" # a class
    arguments = { scheme = "sqs", sqs_queue = "https://sqs.eu-central-1.amazonaws.com/1/new" } # of the trigger

    [epoch]                                            # optional
    units = 2                                          # parallel units, from the next barrier on
    vnodes = 256                                       # a power of two; permanent once the store exists
    max_bytes = 268_435_456                            # maximum bytes of decoded source rows per epoch
    memory = 536_870_912                               # maximum bytes of rows in the processes of an epoch on one host
    in_flight = 3                                      # concurrent epochs of a backlog; 1: commit each before the next
    runner = "spark"                                   # "auto": without a JVM if the epoch does not need Spark
    workers = 2                                        # processes of "auto" on the task's host; default: one per core
    on_error = "stop"                                  # if rows of a view raise, "stop" the epoch or "pause" the view
    limit = "1d"                                       # maximum time per task; Airflow then stops and retries it

    [spark]                                            # optional; settings of the Spark jobs, as strings
    "spark.driver.memory" = "1g"                       # any Spark setting

    [upkeep]                                           # optional; compaction, vacuum and retention
    schedule = "@hourly"                               # in the pipeline's time zone; "none": only when triggered
    keep = "1d"                                        # time span in which all epochs stay readable
    keep_epochs = 1                                    # this many of the last published epochs also stay readable

    [verify]                                           # optional; comparison of views with Spark's results
    schedule = "none"                                  # in the pipeline's time zone; "none": only when triggered
    percent = 100                                      # percentage of each view's keys to compare

    [deploy]                                           # optional; the DAG that applies changed SQL files to the store
    approve = false                                    # true: a person must approve the plan

    [limits]                                           # optional; `tussock apply` refuses what would cost more
    rows_read = 1_000_000_000                          # rows that the first epoch after the deployment reads
    dollars_per_month = 50.0                           # of the schedule's epochs and the stored bytes, by [prices]

    [prices]                                           # optional; in dollars, for `tussock status` and `plan`
    put = 0.005                                        # per 1,000 PUT and COPY requests; defaults: S3 in us-east-1
    get = 0.0004                                       # per 1,000 GET and HEAD requests
    list = 0.005                                       # per 1,000 LIST requests
    delete = 0.0                                       # per 1,000 DELETE requests
    gb_month = 0.023                                   # per gigabyte (10^9 bytes) stored for a month
    unit_hour = 0.0                                    # per hour of work of a parallel unit; 0: not counted

    [rebalance]                                        # optional; the DAG that moves vnodes between units
    target = 1.25                                      # maximum load of a unit, as a multiple of the mean
    approve = false                                    # true: a person must approve the moves

    [freshness]                                        # optional; maximum age of an unpublished change, per view
    daily_sales = "2h"                                 # limit for a view; also Airflow's deadline after interval end

    [arrival.orders]                                   # optional; rules on the files of a source
    expect_files = 1                                   # files per interval; [1, 3]: from 1 to 3
    deadline = "2h"                                    # time after the interval's end at which they must be there
    reject_limit = 0.01                                # share of unreadable records; 1 or more: their number
    min_rows = 100                                     # readable rows per interval
    severity = "error"                                 # "warning": report only; "error" holds rows back, like a suite

    [alerts]                                           # optional
    call = "company.pages.stale"                       # Python function (pipeline, view, text), called per stale view

    [airflow]                                          # optional; arguments of the pipeline's DAGs and tasks
    owner = "sales"                                    # default: Airflow's
    tags = ["sales"]                                   # in addition to "tussock"
    pool = "spark"                                     # must exist; default: Airflow's
    queue = "large"                                    # queue of Airflow's executor; default: Airflow's
    priority = 10                                      # priority_weight of the tasks; default: 1
    retries = 2                                        # how often Airflow runs a failed task again
    retry_delay = "15s"                                # time before Airflow runs it again
    run_limit = "6h"                                   # maximum time of a run of epochs; default: none
    max_active_runs = 1                                # runs of the epoch DAG; they wait for each other in any case
    default_args = { depends_on_past = true }          # other arguments of Airflow's operators

    [notify.team]                                      # optional; a message, by a notifier of Airflow or your own
    notifier = "airflow.providers.smtp.notifications.smtp.SmtpNotifier" # a class, by its module and name
    on = ["failed", "held", "paused", "late", "evolved"] # the events to report
    arguments = { to = "a@b.org", subject = "{{ tussock.title }}", html_content = "{{ tussock.text }}" } # of the class

    [pages]                                            # optional; the pages in Airflow's UI
    rows = "editors"                                   # who sees rows: "editors" of the DAG, its "readers", or "nobody"

    [quality]                                          # optional; without it, no suite and no assertion runs
    folder = "quality"                                 # <view>.json: Great Expectations suites; <name>.sql: assertions
    docs = ".airflow/data_docs/flights"                # folder for Data Docs, outside of the store; default: as shown
    scope = "pipeline"                                 # a failed suite holds back all views; "view": its view, readers

    [publish]                                          # optional; copies of views elsewhere; [[publish]] for several
    kind = "delta"                                     # of the sink; publishing.md describes each kind
    name = "lake"                                      # unique in the pipeline; default: the kind
    to = ".tussock/flights/tables"                     # a folder, or an address, for this pipeline only
    relations = ["carrier_delays"]                     # views and tables; default: all materialized views
    upkeep = "@daily"                                  # schedule of the upkeep of this sink; default: the pipeline's
    keep = "7d"                                        # files: time span in which all states of a table stay readable
    engine = "deltalake"                               # permanent writer of Delta tables; or "spark", which needs a JVM
    deletion_vectors = true                            # of new Delta tables: mark old rows instead of rewriting files
    schema = "public"                                  # of a Postgres database; it is created if it is missing
    namespace = "tussock"                              # Iceberg: the namespace of the tables in the catalog
    catalog = { name = "lake", uri = "https://c/api" } # Iceberg: pyiceberg's properties; default: a file in `to`
    partition_by = { sales = "days(at)" }              # Iceberg: partitions by relation
    sort_by = { sales = "shop, at DESC" }              # Iceberg: the order of the rows in each new file
    format_version = 2                                 # Iceberg: of new tables; 3: deletion vectors
    format = "upsert"                                  # of Kafka's messages; or "debezium", with rows before and after
    topic_prefix = "shop."                             # a topic has this prefix and the name of its relation
    client = { "security.protocol" = "SSL" }           # other properties of Kafka's client
    registry = "https://r:8081"                        # Kafka: of schemas; messages are Avro
    registry_client = { "timeout" = 30 }               # Kafka: other properties of Confluent's client for it

    [variables]                                        # optional; values of `${NAME}` in this file and the SQL files
    bucket = "${BUCKET:-lake}"                         # takes precedence over an environment variable `bucket`

    [catalogs]                                         # optional; for names of three parts in the SQL files
    main = "{schema}"                                  # the schema of `main.staging.orders`; or, say, "main_{schema}"

    [env.prod]                                         # optional; settings that differ in the environment `prod`
    store = "s3://lake/flights"                        # any key except `name`; "branch:prod": a branch of prod's store
    schedule.cron = "@hourly"                          # a key of a table; other keys of the table stay as they are

A string may contain `${NAME}` or `${NAME:-default}`, from `[variables]` or from environment variables. Relative paths
start at the folder that contains `pipelines/`. `--env prod` or TUSSOCK_ENV=prod chooses an environment.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, inspect

from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, PART
from tussock.jobs.settings.catalogs import SchemaPattern, without_catalogs
from tussock.jobs.settings.environments import SAME_EVERYWHERE, VARIABLE, chosen_environment, has_key, overlay_settings
from tussock.jobs.settings.prices import Prices
from tussock.jobs.settings.printed_commands import in_commands
from tussock.jobs.settings.publishing import (
    DEFAULT_KIND,
    KINDS,
    PublishSettings,
    expected_kinds,
    publish_entries,
    read_publish,
    writes_with_spark,
)
from tussock.jobs.settings.schedule import (
    NO_TRIGGERS,
    RunSchedule,
    RunTriggers,
    ScheduleTable,
    WatchSettings,
    read_schedule,
)
from tussock.jobs.settings.tables import (
    FILES,
    OTHER_PLACES,
    QUALITY_FOLDER,
    AirflowSettings,
    AlertSettings,
    ArrivalRule,
    DeploySettings,
    EpochSettings,
    LimitSettings,
    NotifierSettings,
    PagesSettings,
    QualityScope,
    QualitySettings,
    RebalanceSettings,
    UpkeepSettings,
    VerifySettings,
)
from tussock.jobs.settings.user_files import ENCODING, UserFileError, text_of
from tussock.jobs.settings.values import (
    SPAN,
    TABLE,
    PipelineError,
    Span,
    Text,
    Texts,
    converted_value,
    describe_key,
    describe_value,
)
from tussock.jobs.settings.variables import VARIABLE_NAME, substitute_variables, substituted_in_sql, variables_in
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.objectstore.branch import SCHEME as BRANCH_OF

FILE = "pipeline.toml"
_MAX_KEPT_TABLES = 30 * 86_400_000  # ms
NAME = re.compile(r"[a-z][a-z0-9_]*")
_Class = TypeVar("_Class", NotifierSettings, WatchSettings)


class UnknownPipelineError(InputError, hides_row_values=True):
    """No folder with this name contains a pipeline.toml."""

    name: str
    folder: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        folder = Path(self.name).name  # a path to the pipeline was given
        new = folder if NAME.fullmatch(folder) else "NAME"
        expected = "" if self.name == new else " Give the name of its folder in pipelines/, without a path."
        if not self.known:
            return (
                f"unknown pipeline {self.name!r}: {self.folder} contains no pipeline.{expected} Change to the folder "
                "that contains pipelines/ or to a folder below it, or set TUSSOCK_PIPELINES to pipelines/ itself. "
                f"`tussock new {new}` creates {'this' if new == self.name else 'a'} pipeline from an example."
            )
        return (
            f"unknown pipeline {self.name!r}: {self.folder} contains "
            f"{', '.join(self.known)}.{expected}{did_you_mean(folder, self.known)}"
        )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline.toml. `store` and `data` are absolute paths or `s3://` addresses.

    `environment` is the chosen table of `[env]`; empty if none was chosen. If its store is a branch of another
    environment, `store` is not an address until `at_its_store` (tussock.jobs.settings.branches) has found the branch.
    """

    name: str
    folder: Path
    store: str
    sql: tuple[Path, ...]
    description: str = ""
    data: str | None = None
    schema: str = DEFAULT_SCHEMA  # of the names without one in SQL
    time_zone: str = "UTC"
    schedule: RunSchedule | None = None
    triggers: RunTriggers = NO_TRIGGERS
    watch: Mapping[str, WatchSettings] = field(default_factory=dict)  # by source
    epoch: EpochSettings = field(default_factory=EpochSettings)
    spark: Mapping[str, str] = field(default_factory=dict)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)
    deploy: DeploySettings = field(default_factory=DeploySettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    rebalance: RebalanceSettings = field(default_factory=RebalanceSettings)
    freshness: Mapping[str, int] = field(default_factory=dict)  # ms, by view
    arrival: Mapping[str, ArrivalRule] = field(default_factory=dict)  # by source
    alerts: AlertSettings = field(default_factory=AlertSettings)
    airflow: AirflowSettings = field(default_factory=AirflowSettings)
    pages: PagesSettings = field(default_factory=PagesSettings)
    notify: Mapping[str, NotifierSettings] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)
    quality: QualitySettings | None = None
    publish: tuple[PublishSettings, ...] = ()
    environment: str = ""
    branch: str = ""  # of the store; empty: the store itself
    own_variables: Mapping[str, str] = field(default_factory=dict)  # [variables]
    catalogs: Mapping[str, str] = field(default_factory=dict)  # the schema of a name of three parts, by its first one
    used_variables: Mapping[str, str] = field(default_factory=dict)  # of pipeline.toml; see find_variables

    @property
    def title(self) -> str:
        """The name for people: `shop`, or `shop (prod, branch pr-142)` in an environment and on a branch."""
        where = [self.environment] if self.environment else []
        where += [f"branch {self.branch}"] if self.branch else []
        return f"{self.name} ({', '.join(where)})" if where else self.name

    @property
    def argument(self) -> str:
        """The name in a printed command: `shop`, or `shop --env prod --branch pr-142`."""
        return in_commands(self.name, self.environment, self.branch)

    def read_scripts(self) -> tuple[tuple[Path, str], ...]:
        """Return the SQL files and their texts in order, with all `${…}` substituted. `schema` holds in each of them.

        The first text creates `schema`, unless it is the default one, so that the files need not.

        Raises:
            PipelineError: a file is missing or no text in UTF-8, or uses a variable without a value.
        """
        files = self._substitute_variables((path, _listed_text(path, self.folder)) for path in self.sql)
        if self.schema == DEFAULT_SCHEMA:
            return files
        return ((self.folder / FILE, f"CREATE SCHEMA IF NOT EXISTS {self.schema}"), *files)

    def read_assertions(self) -> tuple[tuple[Path, str], ...]:
        """Return the files of the assertions and their texts, like `read_scripts`.

        Raises UserFileError, PipelineError.
        """
        files = () if self.quality is None else self.quality.list_assertions()
        return self._substitute_variables((path, text_of(path)) for path in files)

    def _substitute_variables(self, texts: Iterable[tuple[Path, str]]) -> tuple[tuple[Path, str], ...]:
        values = os.environ | self.own_variables | ({"data": self.data} if self.data else {})
        filled = ((path, substituted_in_sql(text, values, str(path))) for path, text in texts)
        return tuple((path, without_catalogs(text, self.catalogs)) for path, text in filled)

    def find_variables(self) -> dict[str, str]:
        """Return the variables that pipeline.toml and the SQL files use, with their values or defaults.

        Omits the variables of [spark], [notify] and [watch], and of [publish] except `to`, which may be secrets.
        Raises as `read_scripts`.
        """
        texts = [_listed_text(path, self.folder) for path in self.sql]
        values = os.environ | self.own_variables
        return dict(self.used_variables) | {
            k: v for text in texts for k, v in variables_in(text, values).items() if k != "data"
        }


def _listed_text(path: Path, folder: Path) -> str:
    """Return the text of a file that pipeline.toml lists. Raises PipelineError."""
    try:
        return text_of(path)
    except UserFileError as err:
        expected = "a text file in UTF-8 that this user may read"
        raise PipelineError(str(folder / FILE), "sql", f"{path.name} ({err.reason})", expected) from err


def load_pipeline(folder: Path, environment: str | None = None, home: Path | None = None) -> Pipeline:
    """Read and check `folder/pipeline.toml`.

    Args:
        home: the folder from which relative places of stores and files lead; None: two levels above `folder`.
        environment: a table of `[env]`. None: the one in TUSSOCK_ENV, or none if the variable is unset.

    Raises:
        UnknownPipelineError: the folder contains no pipeline.toml.
        UnknownEnvironmentError: `[env]` has no such table. A pipeline without `[env]` ignores TUSSOCK_ENV.
        PipelineError: a key is unknown or missing, or a value is invalid. Contains the file, the key, and the found
            and the expected value.
    """
    folder = folder.absolute()
    path = folder / FILE
    try:
        document = tomllib.loads(path.read_text(encoding=ENCODING))
    except (FileNotFoundError, NotADirectoryError):
        raise UnknownPipelineError(folder.name, str(folder.parent), pipeline_names(folder.parent)) from None
    except OSError as err:
        raise PipelineError(str(path), "the file", err.strerror or str(err), "a readable file") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise PipelineError(str(path), "the file", f"an error of syntax ({err})", "a valid TOML file") from err
    return _in_environment(document, folder, environment, home or folder.parent.parent)


def find_pipeline(name: str, pipelines: Path, environment: str | None = None) -> Pipeline:
    """Return the pipeline `name` in the folder `pipelines`. Checks the name before it becomes part of a path.

    Args and errors: as `load_pipeline`.
    """
    if NAME.fullmatch(name) is None:
        raise UnknownPipelineError(name, str(pipelines.absolute()), pipeline_names(pipelines))
    return load_pipeline(pipelines / name, environment)


def pipeline_names(pipelines: Path) -> tuple[str, ...]:
    """Return the sorted names of the folders in `pipelines` that contain a pipeline.toml."""
    return tuple(sorted(path.parent.name for path in pipelines.glob(f"*/{FILE}")))


# --- the tables of the file ----------------------------------------------------------------------------------------
# Errors print a type's description as the expected value.


class _Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: Text = QUALITY_FOLDER
    docs: Text | None = None
    scope: Annotated[QualityScope, Meta(description='"pipeline" or "view"')] = QualityScope.PIPELINE


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    store: Text
    sql: Texts
    description: Text = ""
    data: Text | None = None
    schema: Annotated[
        str, Meta(pattern=f"^{PART.pattern}$", description="a schema: lower-case letters, digits and _")
    ] = DEFAULT_SCHEMA
    time_zone: Annotated[ZoneInfo, Meta(description="the name of a time zone, e.g. UTC or Europe/Berlin")] = ZoneInfo(
        "UTC"
    )
    schedule: Annotated[ScheduleTable, TABLE] | None = None
    watch: Annotated[dict[str, Any], TABLE] = {}
    epoch: Annotated[EpochSettings, TABLE] = EpochSettings()
    spark: Annotated[dict[str, Any], TABLE] = {}
    upkeep: Annotated[UpkeepSettings, TABLE] = UpkeepSettings()
    verify: Annotated[VerifySettings, TABLE] = VerifySettings()
    deploy: Annotated[DeploySettings, TABLE] = DeploySettings()
    limits: Annotated[LimitSettings, TABLE] = LimitSettings()
    rebalance: Annotated[RebalanceSettings, TABLE] = RebalanceSettings()
    freshness: Annotated[dict[str, Any], TABLE] = {}
    arrival: Annotated[dict[str, Any], TABLE] = {}
    alerts: Annotated[AlertSettings, TABLE] = AlertSettings()
    airflow: Annotated[AirflowSettings, TABLE] = AirflowSettings()
    pages: Annotated[PagesSettings, TABLE] = PagesSettings()
    notify: Annotated[dict[str, Any], TABLE] = {}
    prices: Annotated[Prices, TABLE] = Prices()
    quality: Annotated[_Quality, TABLE] | None = None
    publish: Any = None  # a table or a list of tables, whose keys depend on their kind: see read_publish
    variables: Annotated[dict[str, Any], TABLE] = {}
    catalogs: Annotated[dict[str, Any], TABLE] = {}
    env: Annotated[dict[str, Any], TABLE] = {}


@cache  # most of the time of loading a file
def _fields_of(table: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    return cast(inspect.StructType, inspect.type_info(table)).fields


_VALUES_BY_NAME: Mapping[str, Any] = {
    "spark": Text,
    "freshness": Annotated[Span, SPAN],
    "arrival": ArrivalRule,
    "notify": NotifierSettings,
    "watch": WatchSettings,
    "variables": Text,
    "catalogs": SchemaPattern,
}
"""The values of tables whose keys are names: of Spark's settings, views, sources, teams, variables and catalogs."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of pipeline.toml: a description of the expected value, and the default; None if it has none."""

    expected: str
    required: bool
    default: Any


def known_keys() -> dict[str, KnownKey]:
    """Return each key of pipeline.toml, as `key`, `table.key` or, for any name, `table.*` and `table.*.key`."""
    key_by_name: dict[str, KnownKey] = {}
    a_date = "a date, or a date with a time"
    kinds: dict[type, str] = {inspect.StrType: "a string", inspect.BoolType: "true or false", inspect.AnyType: a_date}

    def add_keys(table: inspect.StructType, above: str) -> None:
        for key in table.fields:
            kind, expected = describe_key(key.type)
            if isinstance(kind, inspect.StructType):
                add_keys(kind, f"{above}{key.name}.")
            else:
                default = None if key.default is msgspec.NODEFAULT else key.default
                key_by_name[f"{above}{key.name}"] = KnownKey(expected or kinds[type(kind)], key.required, default)

    add_keys(cast(inspect.StructType, inspect.type_info(_Document)), "")
    del key_by_name["publish"]
    key_by_name["publish.kind"] = KnownKey(expected_kinds(), required=False, default=DEFAULT_KIND)
    for sink in KINDS.values():
        add_keys(cast(inspect.StructType, inspect.type_info(sink)), "publish.")
    for name, values in _VALUES_BY_NAME.items():
        kind, expected = describe_key(inspect.type_info(values))
        if isinstance(kind, inspect.StructType):
            add_keys(kind, f"{name}.*.")
        else:
            key_by_name[f"{name}.*"] = KnownKey(expected, required=False, default=None)
    return key_by_name


def _in_environment(values: dict[str, Any], folder: Path, asked: str | None, home: Path) -> Pipeline:
    """Check the file in each of its environments, and return the pipeline in the chosen one."""
    file = str(folder / FILE)
    tables = _check_environments(file, values.get("env", {}))
    if not tables:
        _check_document(values, file)  # before the choice, since the table of environments may be mistyped
    for name in tables:
        with _placed_in(name, values):
            _check_document(overlay_settings(values, tables[name]), file)
    if chosen := chosen_environment(file, tuple(tables), asked):
        with _placed_in(chosen, values):
            return _pipeline_of(overlay_settings(values, tables[chosen]), folder, chosen, home)
    required = (key.name for key in _fields_of(_Document) if key.required)
    if tables and (missing := next((key for key in required if key not in values), None)) is not None:
        raise PipelineError(
            file,
            missing,
            "a value only in [env]",
            f"an environment: pass --env NAME or set {VARIABLE}, with one of {', '.join(tables)}",
        )
    return _pipeline_of(values, folder, "", home)


def _check_document(values: dict[str, Any], file: str) -> _Document:
    document: _Document = converted_value(values, _Document, file)
    read_publish(document.publish, file)
    return document


def _check_environments(file: str, tables: Any) -> dict[str, dict[str, Any]]:
    """Check the names of environments and that they contain tables. Their values are not checked."""
    if not isinstance(tables, dict):
        raise PipelineError(file, "env", describe_value(tables), "a table with a table per environment")
    for name, table in tables.items():
        key = f"env.{name}"
        if NAME.fullmatch(name) is None:
            raise PipelineError(file, key, repr(name), "a lower-case letter, then lower-case letters, digits and _")
        if not isinstance(table, dict):
            raise PipelineError(file, key, describe_value(table), "a table with the settings of an environment")
        if (same := next((key for key in SAME_EVERYWHERE if key in table), None)) is not None:
            raise PipelineError(file, f"{key}.{same}", "a value", "none: it is the same in all environments")
    return tables


@contextmanager
def _placed_in(environment: str, values: Mapping[str, Any]) -> Iterator[None]:
    """Name the environment in the error of a key that it sets, or that is missing only in it."""
    try:
        yield
    except PipelineError as err:
        if err.key in SAME_EVERYWHERE or (
            has_key(values, err.key) and not has_key(values["env"][environment], err.key)
        ):
            raise
        raise PipelineError(err.file, f"env.{environment}.{err.key}", err.finding, err.expected) from None


def _pipeline_of(values: dict[str, Any], folder: Path, environment: str, home: Path) -> Pipeline:
    file = str(folder / FILE)
    document: _Document = converted_value(values, _Document, file)
    error = partial(PipelineError, file)
    variables = {name: _substitute_variable(file, name, value) for name, value in document.variables.items()}
    values_of_names = os.environ | variables

    used: dict[str, str] = {}

    def substitute_text(key: str, value: str) -> str:
        may_be_secret = key.startswith(("spark.", "notify.", "watch.", "publish.")) and not key.endswith(".to")
        if not may_be_secret:
            used.update(variables_in(value, values_of_names))
        return substitute_variables(value, values_of_names, file, key)

    name = substitute_text("name", document.name)
    data = None if document.data is None else _absolute_place(substitute_text("data", document.data), home)
    _check_place(name, folder, data, error)
    _check_values(document, error)
    watch = _notifiers_of("watch", document.watch, file, substitute_text)
    schedule, triggers = read_schedule(document.schedule, watch, document.time_zone, file)
    store = _absolute_place(substitute_text("store", document.store), home)
    is_branch = parent_environment(store) is not None
    if is_branch and not environment:
        raise error("store", repr(store), "a folder or an address. Only the store of an environment can be a branch")
    sinks = _publish_settings(document.publish, substitute_text, home, file)
    return Pipeline(
        name=name,
        folder=folder,
        description=substitute_text("description", document.description),
        store=store,
        data=data,
        sql=tuple(_script_path(file, folder, data, script) for script in document.sql),
        schema=document.schema,
        time_zone=document.time_zone.key,
        schedule=schedule,
        triggers=triggers,
        watch=watch,
        epoch=document.epoch,
        spark={k: substitute_text(f"spark.{k}", v) for k, v in _entries_of("spark", document.spark, file)},
        deploy=document.deploy,
        limits=document.limits,
        rebalance=document.rebalance,
        freshness={view: int(v) for view, v in _entries_of("freshness", document.freshness, file)},
        arrival=_arrival_rules(document.arrival, file),
        alerts=document.alerts,
        airflow=document.airflow,
        pages=document.pages,
        notify=_notifiers_of("notify", document.notify, file, substitute_text),
        prices=document.prices,
        upkeep=document.upkeep,
        verify=document.verify,
        quality=_quality_settings(document.quality, name, substitute_text, folder, home, file),
        publish=() if is_branch else sinks,
        environment=environment,
        branch=environment if is_branch else "",
        own_variables=variables,
        catalogs={name.lower(): pattern for name, pattern in _entries_of("catalogs", document.catalogs, file)},
        used_variables=used,
    )


def _check_place(name: str, folder: Path, data: str | None, error: Callable[[str, str, str], PipelineError]) -> None:
    """Reject a name that differs from the folder's, and a path that SQL cannot contain. Raises as `_check_values`."""
    if NAME.fullmatch(name) is None:
        raise error("name", repr(name), "a lower-case letter, then lower-case letters, digits and _")
    if name != folder.name:
        raise error("name", repr(name), f"{folder.name!r}, the folder's name")
    if data is not None and re.search(r"['\\]", data):  # SQL files contain it between quotes
        raise error("data", repr(data), "a path without quotes and backslashes")


def _quality_settings(
    quality: _Quality | None, name: str, text: Callable[[str, str], str], folder: Path, home: Path, file: str
) -> QualitySettings | None:
    """Return the folders of the suites and of the pages of results, with their variables substituted."""
    if quality is None:
        return None
    suites = _path_inside(file, "quality.folder", folder, text("quality.folder", quality.folder))
    docs = text("quality.docs", quality.docs or f".airflow/data_docs/{name}")
    return QualitySettings(suites, home / docs, quality.scope)


def _check_values(document: _Document, error: Callable[[str, str, str], PipelineError]) -> None:
    """Reject values that contradict each other. Raises what `error` makes of key, finding and expectation."""
    vnodes, units = document.epoch.vnodes, document.epoch.units
    if vnodes & (vnodes - 1):
        raise error("epoch.vnodes", str(vnodes), "a power of two")
    for argument in document.airflow.default_args:
        if argument in OTHER_PLACES:
            raise error(f"airflow.default_args.{argument}", "an argument that has its own key", OTHER_PLACES[argument])
    if units is not None and units > vnodes:
        raise error("epoch.units", str(units), f"at most vnodes, {vnodes}")


def _entries_of(table: str, entries: Mapping[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a table whose keys users choose, each with its checked value."""
    for name, value in entries.items():
        yield name, converted_value(value, _VALUES_BY_NAME[table], file, f"{table}.{name}")


def _arrival_rules(entries: Mapping[str, Any], file: str) -> dict[str, ArrivalRule]:
    rule_by_source: dict[str, ArrivalRule] = dict(_entries_of("arrival", entries, file))
    for source, rule in rule_by_source.items():
        least, most = rule.files
        if not 0 <= least <= most:
            finding = describe_value(entries[source]["expect_files"])
            raise PipelineError(file, f"arrival.{source}.expect_files", finding, str(FILES.description))
    return rule_by_source


def _notifiers_of(
    table: str, entries: Mapping[str, Any], file: str, substitute_text: Callable[[str, str], str]
) -> dict[str, Any]:
    """Return the notifiers or triggers of a table, by the names that users choose, with their variables substituted."""
    return {
        name: _substitute_arguments(value, partial(substitute_text, f"{table}.{name}"))
        for name, value in _entries_of(table, entries, file)
    }


def _substitute_variable(file: str, name: str, value: Any) -> str:
    """Return the value of an entry of `[variables]`. It may contain environment variables."""
    key = f"variables.{name}"
    if name == "data" or VARIABLE_NAME.fullmatch(name) is None:
        raise PipelineError(
            file, key, repr(name), "a letter or _, then letters, digits and _; not `data`, which is another key"
        )
    return substitute_variables(converted_value(value, _VALUES_BY_NAME["variables"], file, key), os.environ, file, key)


def _substitute_arguments(table: _Class, text: Callable[[str], str]) -> _Class:
    """Substitute the variables in the arguments of a notifier or a trigger."""
    return msgspec.structs.replace(table, arguments=_fill_value(table.arguments, text))


def _fill_value(value: Any, text: Callable[[str], str]) -> Any:
    """Substitute the variables in all strings of a value."""
    match value:
        case str():
            return text(value)
        case list():
            return [_fill_value(item, text) for item in value]
        case dict():
            return {key: _fill_value(item, text) for key, item in value.items()}
        case _:
            return value


def _publish_settings(
    value: Any, text: Callable[[str, str], str], home: Path, file: str
) -> tuple[PublishSettings, ...]:
    """Return the sinks with their variables substituted, and with absolute folders."""
    read_publish(value, file)
    filled = [
        {name: _fill_value(item, partial(text, f"{key}.{name}")) for name, item in entry.items()}
        for key, entry in publish_entries(value)
    ]
    keys = [key for key, _ in publish_entries(value)]
    sinks = read_publish(filled if isinstance(value, list) else next(iter(filled), None), file)
    return tuple(_placed_sink(sink, key, home, file) for key, sink in zip(keys, sinks, strict=True))


def _placed_sink(sink: PublishSettings, key: str, home: Path, file: str) -> PublishSettings:
    """Return a sink with an absolute folder. Raises PipelineError for values that contradict each other."""
    if writes_with_spark(sink) and "://" in sink.to:  # Spark's commits to a bucket are safe for one driver only
        raise PipelineError(
            file,
            f"{key}.engine",
            "'spark' with a bucket",
            "'deltalake', whose commits to a bucket are safe for two runs at once",
        )
    if sink.keep_ms > _MAX_KEPT_TABLES:  # Delta deletes older log entries
        period = f"{sink.keep_ms // 86_400_000} days"
        raise PipelineError(file, f"{key}.keep", period, f"at most {_MAX_KEPT_TABLES // 86_400_000}d")
    return msgspec.structs.replace(sink, to=_absolute_place(sink.to, home)) if sink.is_folder else sink


def parent_environment(store: str) -> str | None:
    """The environment in `store = "branch:prod"` of an environment; None for other stores."""
    name = store.removeprefix(BRANCH_OF)
    return name if name != store and name.isidentifier() else None


def _absolute_place(text: str, home: Path) -> str:
    """Make a relative path absolute, without `..`; leave addresses unchanged."""
    return text if "://" in text or text.startswith(BRANCH_OF) else os.path.normpath(home / text)


def _script_path(file: str, folder: Path, data: str | None, text: str) -> Path:
    """Return the path of a SQL file in the pipeline's folder, or below a local data root."""
    if not text.startswith("${data}/"):
        return _path_inside(file, "sql", folder, text)
    if data is None or "://" in data:
        raise PipelineError(file, "sql", repr(text), f"`data` to be a local folder; it is {data!r}")
    return _path_inside(file, "sql", Path(data), text.removeprefix("${data}/"))


def _path_inside(file: str, key: str, folder: Path, text: str) -> Path:
    """Return a path in the pipeline's folder. Raises PipelineError if it leads out of the folder."""
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise PipelineError(file, key, repr(text), f"a path within {folder}")
    return folder / path
