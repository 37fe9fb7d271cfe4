"""A pipeline: a folder with SQL files and a `pipeline.toml`, which configures its store and its schedule.

Airflow loads every pipeline whenever it parses the DAG files. This module therefore imports neither Spark nor Arrow,
and reads one small file per pipeline.

    name = "flights"                                   # the folder's name; must match [a-z][a-z0-9_]*
    description = "…"                                  # optional; shown in Airflow
    store = "${FLIGHTS_STORE:-.tussock/flights/store}" # a folder, or s3://bucket/prefix?…
    data = "${FLIGHTS_DATA:-.tussock/flights/data}"    # optional; the value of `${data}` in the SQL files
    sql = ["sources.sql", "views.sql"]                 # applied in this order; `${data}/…` for a file below `data`
    time_zone = "UTC"                                  # optional; time zone of all SQL

    [schedule]                                         # optional; without it, the pipeline runs only when triggered
    cron = "@daily"                                    # a run per interval, {start:…} to {end:…} in paths; or "none"
    start = 2013-01-01                                 # start of the first interval
    end = 2013-12-31                                   # optional; start of the last interval
    catchup = true                                     # optional; also run the intervals that have already passed
    partitions = false                                 # optional; true: asset events contain the interval's day

    [epoch]                                            # optional
    units = 2                                          # parallel units, from the next barrier on; default: unchanged
    vnodes = 256                                       # a power of two; permanent once the store exists
    max_bytes = 268_435_456                            # maximum bytes of source files per epoch
    in_flight = 3                                      # concurrent epochs of a backlog; 1: commit each before the next
    runner = "spark"                                   # "auto": without a JVM if the epoch does not need Spark
    workers = 2                                        # processes of "auto" on the task's host; default: one per core
    on_error = "stop"                                  # if rows of a view raise, "stop" the epoch or "pause" the view
    limit = "1d"                                       # maximum time per task; Airflow then stops and retries it

    [spark]                                            # optional; settings of the Spark jobs, as strings
    "spark.driver.memory" = "1g"                       # any Spark setting

    [upkeep]                                           # optional; compaction, vacuum and retention (defaults shown)
    schedule = "@hourly"                               # in the pipeline's time zone; "none": only when triggered
    keep = "1d"                                        # time span in which all epochs stay readable
    keep_epochs = 1                                    # this many of the last published epochs also stay readable
    compression = "lz4"                                # of compacted rows; "zstd": 40 % fewer bytes, slower cold reads

    [verify]                                           # optional; comparison of views with Spark's results
    schedule = "none"                                  # in the pipeline's time zone; "none": only when triggered
    percent = 100                                      # percentage of each view's keys to compare

    [deploy]                                           # optional; the DAG that applies changed SQL files to the store
    approve = false                                    # true: a person must approve the plan

    [prices]                                           # optional; prices in dollars, for `tussock status`
    put = 0.005                                        # per 1,000 PUT and COPY requests; default: S3 in us-east-1
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
    queue = "large"                                    # of the executor; default: Airflow's
    priority = 10                                      # priority_weight of the tasks; default: 1
    retries = 2                                        # of a task that failed
    retry_delay = "15s"                                # before a retry
    run_limit = "6h"                                   # maximum time of a run of epochs; default: none
    max_active_runs = 1                                # of the epoch DAG; runs wait for each other in any case
    default_args = { depends_on_past = true }          # other arguments of Airflow's operators

    [notify.team]                                      # optional; a message, by a notifier of Airflow or your own
    notifier = "airflow.providers.smtp.notifications.smtp.SmtpNotifier" # a class, by its module and name
    on = ["failed", "held", "paused", "late"]          # default: all of these
    arguments = { to = "a@b.org", subject = "{{ tussock.title }}", html_content = "{{ tussock.text }}" } # of the class

    [pages]                                            # optional; the pages in Airflow's UI
    rows = "editors"                                   # who sees rows: "editors" of the DAG, its "readers", or "nobody"

    [quality]                                          # optional
    folder = "quality"                                 # <view>.json: Great Expectations suites
    docs = ".airflow/data_docs/flights"                # folder for Data Docs, outside of the store
    scope = "pipeline"                                 # a failed suite holds back all views; "view": its view, readers

    [publish]                                          # optional; copies of the views outside of the store
    to = ".tussock/flights/tables"                     # a folder, or s3://bucket/prefix?…, for this pipeline only
    relations = ["carrier_delays"]                     # views and tables; default: all materialized views
    kind = "delta"                                     # Delta tables; "parquet": one file per epoch
    engine = "deltalake"                               # permanent writer of Delta tables; or "spark", which needs a JVM
    keep = "7d"                                        # time span in which all states of a table stay readable

    [variables]                                        # optional; values of `${NAME}` in this file and the SQL files
    bucket = "${BUCKET:-lake}"                         # takes precedence over an environment variable `bucket`

    [env.prod]                                         # optional; settings that differ in the environment `prod`
    store = "s3://lake/flights"                        # any key of the top level except `name`
    schedule.cron = "@hourly"                          # a key of a table; other keys of the table stay as they are

A string may contain `${NAME}` or `${NAME:-default}`, from `[variables]` or from environment variables. Relative paths
start at the folder that contains `pipelines/`. `--env prod` or TUSSOCK_ENV=prod chooses an environment.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, inspect

from tussock.jobs.settings.environments import SAME_EVERYWHERE, VARIABLE, chosen_environment, has_key, overlaid
from tussock.jobs.settings.prices import Prices
from tussock.jobs.settings.printed_commands import in_commands
from tussock.jobs.settings.retention import BadDurationError, Retention, duration_ms
from tussock.statestore.decoding import converted
from tussock.statestore.errors import InputError, did_you_mean

FILE = "pipeline.toml"
EPOCH_BYTES = 256 << 20  # default for max_bytes: source bytes per epoch
NEW_STORE_UNITS = 2  # default number of units of a new store
MAX_KEPT_EPOCHS = 1024  # a version lists at most this many readable epochs
NAME = re.compile(r"[a-z][a-z0-9_]*")
_MAX_KEPT_TABLES = 30 * 86_400_000  # ms
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KINDS = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "float",
    list: "array",
    dict: "table",
    date: "date",
    datetime: "date-time",
}
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_PLACE = re.compile(r" - at `\$\.?([\w.]*)[^`]*`$")  # the end of msgspec's messages


class PipelineError(InputError):
    """A pipeline's definition is invalid."""

    def __init__(self, file: str, key: str, found: str, expected: str) -> None:
        super().__init__(file, key, found, expected)
        self.file, self.key, self.found, self.expected = file, key, found, expected

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: found {self.found}, expected {self.expected}."


class UnknownPipelineError(InputError):
    """No folder with this name contains a pipeline.toml."""

    def __init__(self, name: str, folder: str, known: tuple[str, ...]) -> None:
        super().__init__(name, folder, known)
        self.name, self.folder, self.known = name, folder, known

    def __str__(self) -> str:
        if not self.known:
            return (
                f"unknown pipeline {self.name!r}: {self.folder} contains no pipeline. Change to the folder that "
                "contains pipelines/ or to a folder below it, or set TUSSOCK_PIPELINES to pipelines/ itself. "
                f"`tussock new {self.name}` creates this pipeline from an example."
            )
        return (
            f"unknown pipeline {self.name!r}: {self.folder} contains "
            f"{', '.join(self.known)}.{did_you_mean(self.name, self.known)}"
        )


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """The schedule of runs.

    `start` and `end` are the starts of the first and the last interval. If `partitions`, asset events contain the day
    of a run's interval.
    """

    cron: str
    start: datetime
    end: datetime | None = None
    catchup: bool = False
    partitions: bool = False


def _whole(least: int, most: int) -> Meta:
    return Meta(ge=least, le=most, description=f"a whole number from {least} to {most}")


class _Span(int):
    """Milliseconds of a time span."""


_SPAN = Meta(description="a time span: a number and a unit, as in 90s, 15m, 36h or 7d")


class _CronOrNone(str):
    """A cron expression, or the empty string for "none" in the file."""


_CRON_FIELDS = 5
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_CRON = f"a cron expression of five fields that some day matches, or one of {', '.join(_PRESETS)}"
_CRON_OR_NONE = Meta(description=f'{_CRON}, or "none"')
_TABLE = Meta(description="a table")
_Text = Annotated[str, Meta(pattern=r"\S", description="a string that is not empty")]
_Texts = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, description="a list of strings, at least one")
]
_YES = Meta(description="true or false")


class Runner(StrEnum):
    """The process in which a pipeline's epochs run."""

    SPARK = "spark"  # all epochs on Spark
    AUTO = "auto"  # on the caller's host without a JVM, unless an epoch needs Spark or its machines


def is_local_master(master: str) -> bool:
    """Whether a Spark master runs all tasks on the driver's host."""
    return master.startswith("local")


class OnError(StrEnum):
    """The reaction of a run to a view whose rows raise an error."""

    STOP = "stop"  # stop the epoch: nothing is committed until a person decides
    PAUSE = "pause"  # pause the view and the views that read it; commit everything else


class EpochSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of epochs (units, vnodes, source bytes, epochs in flight), their runner, and their error handling."""

    units: Annotated[int, _whole(1, 32768)] | None = (
        None  # None: as many as the store has; NEW_STORE_UNITS for a new store
    )
    vnodes: Annotated[int, _whole(1, 32768)] = 256
    max_bytes: Annotated[int, _whole(1, 2**63 - 1)] | None = EPOCH_BYTES  # None (not expressible in the file): no limit
    in_flight: Annotated[int, _whole(1, 64)] = 3
    runner: Annotated[Runner, Meta(description='"spark" or "auto"')] = Runner.SPARK
    workers: Annotated[int, _whole(1, 64)] | None = None  # None: one per core
    on_error: Annotated[OnError, Meta(description='"stop" or "pause"')] = OnError.STOP
    limit: Annotated[_Span, _SPAN] = _Span(86_400_000)  # ms; Airflow stops a task of the DAGs after this time


class DeploySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the DAG that applies the pipeline's files. If `approve`, a person must approve the plan."""

    approve: Annotated[bool, _YES] = False


class RebalanceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the DAG that moves vnodes: the load above which it does, and whether a person must approve."""

    target: Annotated[float, Meta(ge=1, description="a number, 1 or more")] = 1.25
    approve: Annotated[bool, _YES] = False


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that is called for each stale view, in addition to Airflow's log."""

    call: Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="a function, by its module and name")] | None = None


class RowsFor(StrEnum):
    """Who may see rows on the pages, among the users who may see the pipeline."""

    EDITORS = "editors"  # users who may edit its DAG in Airflow
    READERS = "readers"  # all of them
    NOBODY = "nobody"


class PagesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the pages in Airflow's UI."""

    rows: Annotated[RowsFor, Meta(description=f"one of {', '.join(RowsFor)}")] = RowsFor.EDITORS


class AirflowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the pipeline's DAGs and tasks. None: Airflow's default."""

    owner: _Text | None = None
    tags: _Texts | None = None
    pool: _Text | None = None
    queue: _Text | None = None
    priority: Annotated[int, _whole(1, 2**31 - 1)] | None = None
    retries: Annotated[int, _whole(0, 1000)] = 2
    retry_delay: Annotated[_Span, _SPAN] = _Span(15_000)
    run_limit: Annotated[_Span, _SPAN] | None = None
    max_active_runs: Annotated[int, _whole(1, 1000)] = 1
    default_args: Annotated[dict[str, Any], _TABLE] = {}


_OTHER_PLACES = {
    **{key: f"airflow.{key}" for key in ("owner", "tags", "pool", "queue", "retries", "retry_delay")},
    "priority_weight": "airflow.priority",
    "execution_timeout": "epoch.limit",
    "start_date": "schedule.start",
    "end_date": "schedule.end",
    "on_failure_callback": "a table [notify.NAME]",
}
"""Arguments of operators that a key of its own sets."""


class NoticeEvent(StrEnum):
    """An event of a pipeline in Airflow that people may want a message about."""

    FAILED = "failed"  # a task failed after its retries
    HELD = "held"  # a source is held, or a failed suite holds views back
    PAUSED = "paused"  # a run paused a view
    LATE = "late"  # a view is older than its freshness


class NotifierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notifier by its import path, the events that it reports, and the arguments of its class."""

    notifier: Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="a class, by its module and name")]
    on: Annotated[tuple[NoticeEvent, ...], Meta(description=f"a list of {', '.join(NoticeEvent)}")] = tuple(NoticeEvent)
    arguments: Annotated[dict[str, Any], _TABLE] = {}


class Compression(StrEnum):
    """The compression of SSTs that compaction writes. SSTs of epochs always use LZ4."""

    LZ4 = "lz4"  # fast
    ZSTD = "zstd"  # small; releases up to c560332 cannot read it


class ArrivalRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules about the files of one source. None: no such rule."""

    expect_files: Annotated[int | tuple[int, int], Meta(description="a number of files, or a list of two")] | None = (
        None
    )
    deadline: Annotated[_Span, _SPAN] = _Span(0)  # ms after the interval's end
    reject_limit: Annotated[float, Meta(ge=0, description="a share below 1, or a number of records")] | None = None
    min_rows: Annotated[int, _whole(0, 2**63 - 1)] | None = None
    severity: Annotated[str, Meta(pattern="^(error|warning)$", description='"error" or "warning"')] = "error"

    @property
    def files(self) -> tuple[int, int]:
        """The smallest and the largest expected number of files."""
        expected = self.expect_files or 0
        return (expected, expected) if isinstance(expected, int) else expected


class UpkeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of compaction and vacuum (empty: only when triggered), the retention, and the compression."""

    schedule: Annotated[_CronOrNone, _CRON_OR_NONE] = _CronOrNone("@hourly")
    keep: Annotated[_Span, _SPAN] = _Span(Retention().keep_ms)
    keep_epochs: Annotated[int, _whole(1, MAX_KEPT_EPOCHS)] = Retention().keep_epochs
    compression: Annotated[Compression, Meta(description='"lz4" or "zstd"')] = Compression.LZ4

    @property
    def retention(self) -> Retention:
        """Return the retention as one value."""
        return Retention(self.keep_epochs, int(self.keep))


class VerifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of verification (empty: only when triggered), and the percentage of keys that it compares."""

    schedule: Annotated[_CronOrNone, _CRON_OR_NONE] = _CronOrNone("")
    percent: Annotated[int, _whole(1, 100)] = 100


class GateScope(StrEnum):
    """The views that a failed suite holds back."""

    PIPELINE = "pipeline"  # the whole epoch: all views stay consistent with each other
    VIEW = "view"  # the suite's view and the views that read it; the others are published


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """The folder of a pipeline's suites (read-only), the folder of its Data Docs, and the scope of a failed suite."""

    folder: Path
    docs: Path
    scope: GateScope = GateScope.PIPELINE

    def suites(self) -> tuple[Path, ...]:
        """Return the suite files in name order. Each is named after its view. Cost: one directory listing."""
        return tuple(sorted(self.folder.glob("*.json")))

    def assertions(self) -> tuple[Path, ...]:
        """Return the files of the assertions in name order. Cost: one directory listing."""
        return tuple(sorted(self.folder.glob("*.sql")))


class TableKind(StrEnum):
    """The format of published tables."""

    DELTA = "delta"
    PARQUET = "parquet"


class TableEngine(StrEnum):
    """The writer of Delta tables."""

    DELTALAKE = "deltalake"  # the Python package, in the calling process
    SPARK = "spark"


class PublishSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The folder, the relations (None: all materialized views) and the format of published tables.

    In a loaded pipeline, `to` is an absolute path or an `s3://` address. `keep` is how long a state of a table stays
    readable after the next one.
    """

    to: _Text
    relations: _Texts | None = None
    kind: Annotated[TableKind, Meta(description='"delta" or "parquet"')] = TableKind.DELTA
    engine: Annotated[TableEngine, Meta(description='"deltalake" or "spark"')] = TableEngine.DELTALAKE
    keep: Annotated[_Span, _SPAN] = _Span(7 * 86_400_000)

    @property
    def keep_ms(self) -> int:
        """`keep` in milliseconds."""
        return int(self.keep)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline.toml. `store` and `data` are absolute paths or `s3://` addresses.

    `environment` is the chosen table of `[env]`; empty if none was chosen.
    """

    name: str
    folder: Path
    store: str
    sql: tuple[Path, ...]
    description: str = ""
    data: str | None = None
    time_zone: str = "UTC"
    schedule: RunSchedule | None = None
    epoch: EpochSettings = field(default_factory=EpochSettings)
    spark: Mapping[str, str] = field(default_factory=dict)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)
    deploy: DeploySettings = field(default_factory=DeploySettings)
    rebalance: RebalanceSettings = field(default_factory=RebalanceSettings)
    freshness: Mapping[str, int] = field(default_factory=dict)  # ms, by view
    arrival: Mapping[str, ArrivalRule] = field(default_factory=dict)  # by source
    alerts: AlertSettings = field(default_factory=AlertSettings)
    airflow: AirflowSettings = field(default_factory=AirflowSettings)
    pages: PagesSettings = field(default_factory=PagesSettings)
    notify: Mapping[str, NotifierSettings] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)
    quality: QualitySettings | None = None
    publish: PublishSettings | None = None
    environment: str = ""
    own_variables: Mapping[str, str] = field(default_factory=dict)  # [variables]
    used_variables: Mapping[str, str] = field(default_factory=dict)  # of pipeline.toml; not of [spark] and [notify]

    @property
    def title(self) -> str:
        """The name for people: `shop`, or `shop (prod)` in an environment."""
        return f"{self.name} ({self.environment})" if self.environment else self.name

    @property
    def argument(self) -> str:
        """The name in a printed command: `shop`, or `shop --env prod` in an environment."""
        return in_commands(self.name, self.environment)

    def scripts(self) -> tuple[tuple[Path, str], ...]:
        """Return the SQL files and their texts in order, with all `${…}` substituted.

        Raises:
            PipelineError: a file is missing, or uses a variable without a value.
        """
        return self._texts(self.sql)

    def assertions(self) -> tuple[tuple[Path, str], ...]:
        """Return the files of the assertions and their texts, like `scripts`. Raises as `scripts`."""
        return () if self.quality is None else self._texts(self.quality.assertions())

    def _texts(self, files: tuple[Path, ...]) -> tuple[tuple[Path, str], ...]:
        values = os.environ | self.own_variables | ({"data": self.data} if self.data else {})
        return tuple((path, _substitute_in_sql(_text_of(path, self.folder), values, str(path))) for path in files)

    def variables(self) -> dict[str, str]:
        """Return the variables that pipeline.toml and the SQL files use, with their values or defaults.

        Omits the variables of [spark] and [notify], which may be secrets. Raises as `scripts`.
        """
        texts = [_text_of(path, self.folder) for path in self.sql]
        values = os.environ | self.own_variables
        return dict(self.used_variables) | {
            k: v for text in texts for k, v in _variables_in(text, values).items() if k != "data"
        }


def _text_of(path: Path, folder: Path) -> str:
    try:
        return path.read_text()
    except OSError as err:
        raise PipelineError(str(folder / FILE), "sql", f"{path.name} ({err.strerror})", "a readable file") from err


def load_pipeline(folder: Path, environment: str | None = None) -> Pipeline:
    """Read and check `folder/pipeline.toml`.

    Args:
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
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UnknownPipelineError(folder.name, str(folder.parent), pipeline_names(folder.parent)) from None
    except OSError as err:
        raise PipelineError(str(path), "the file", err.strerror or str(err), "a readable file") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise PipelineError(str(path), "the file", f"an error of syntax ({err})", "a valid TOML file") from err
    return _in_environment(document, folder, environment)


def find_pipeline(name: str, pipelines: Path, environment: str | None = None) -> Pipeline:
    """Return the pipeline `name` in the folder `pipelines`. Checks the name before it becomes part of a path.

    Args and errors: as `load_pipeline`.
    """
    if NAME.fullmatch(name) is None or not (pipelines / name / FILE).is_file():
        raise UnknownPipelineError(name, str(pipelines.absolute()), pipeline_names(pipelines))
    return load_pipeline(pipelines / name, environment)


def pipeline_names(pipelines: Path) -> tuple[str, ...]:
    """Return the sorted names of the folders in `pipelines` that contain a pipeline.toml."""
    return tuple(sorted(path.parent.name for path in pipelines.glob(f"*/{FILE}")))


# --- the tables of the file ----------------------------------------------------------------------------------------
# Errors print a type's description as the expected value.


class _Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cron: Annotated[_CronOrNone, _CRON_OR_NONE]
    start: Any  # a date or a datetime; msgspec does not support their union
    end: Any = None
    catchup: Annotated[bool, _YES] = False
    partitions: Annotated[bool, _YES] = False


class _Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: _Text = "quality"
    docs: _Text | None = None
    scope: Annotated[GateScope, Meta(description='"pipeline" or "view"')] = GateScope.PIPELINE


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Text
    store: _Text
    sql: _Texts
    description: _Text = ""
    data: _Text | None = None
    time_zone: Annotated[ZoneInfo, Meta(description="the name of a time zone, e.g. UTC or Europe/Berlin")] = ZoneInfo(
        "UTC"
    )
    schedule: Annotated[_Schedule, _TABLE] | None = None
    epoch: Annotated[EpochSettings, _TABLE] = EpochSettings()
    spark: Annotated[dict[str, Any], _TABLE] = {}
    upkeep: Annotated[UpkeepSettings, _TABLE] = UpkeepSettings()
    verify: Annotated[VerifySettings, _TABLE] = VerifySettings()
    deploy: Annotated[DeploySettings, _TABLE] = DeploySettings()
    rebalance: Annotated[RebalanceSettings, _TABLE] = RebalanceSettings()
    freshness: Annotated[dict[str, Any], _TABLE] = {}
    arrival: Annotated[dict[str, Any], _TABLE] = {}
    alerts: Annotated[AlertSettings, _TABLE] = AlertSettings()
    airflow: Annotated[AirflowSettings, _TABLE] = AirflowSettings()
    pages: Annotated[PagesSettings, _TABLE] = PagesSettings()
    notify: Annotated[dict[str, Any], _TABLE] = {}
    prices: Annotated[Prices, _TABLE] = Prices()
    quality: Annotated[_Quality, _TABLE] | None = None
    publish: Annotated[PublishSettings, _TABLE] | None = None
    variables: Annotated[dict[str, Any], _TABLE] = {}
    env: Annotated[dict[str, Any], _TABLE] = {}


def known_keys() -> dict[str, str]:
    """Return each key of pipeline.toml, as `key` or `table.key`, with a description of the expected value."""
    found: dict[str, str] = {}
    a_date = "a date, or a date with a time"
    kinds: dict[type, str] = {inspect.StrType: "a string", inspect.BoolType: "true or false", inspect.AnyType: a_date}

    def add(table: inspect.StructType, above: str) -> None:
        for key in table.fields:
            kind, expected = _described(key.type)
            if isinstance(kind, inspect.StructType):
                add(kind, f"{above}{key.name}.")
            else:
                found[f"{above}{key.name}"] = expected or kinds[type(kind)]

    add(cast(inspect.StructType, inspect.type_info(_Document)), "")
    return found


def _fields_of(table: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    return cast(inspect.StructType, inspect.type_info(table)).fields


def _read(kind: type, value: Any) -> Any:
    """Convert a value to one of this module's own types, or to a time zone, for msgspec. Raises ValueError."""
    if kind is _CronOrNone and value == "none":
        return _CronOrNone()
    try:
        if isinstance(value, str) and (kind is not _CronOrNone or _is_cron(value)):
            return _Span(duration_ms(value)) if kind is _Span else kind(value)
    except (BadDurationError, OSError, KeyError) as err:
        raise ValueError from err
    raise ValueError


def _is_cron(text: str) -> bool:
    from croniter import CroniterBadDateError, croniter  # a dependency of Airflow that Spark's workers do not need

    if text in _PRESETS or text.startswith("@"):
        return text in _PRESETS
    if len(text.split()) != _CRON_FIELDS or not croniter.is_valid(text):
        return False  # a sixth field would be seconds
    try:
        croniter(text, _SOME_DAY).get_next()
    except CroniterBadDateError:  # such as the 31st of February
        return False
    return True


def _converted(value: Any, kind: Any, file: str, key: str = "") -> Any:
    """Convert `value` to `kind`. Raises PipelineError with the key, the value, and the description of its type."""
    try:
        return converted(value, kind, dec_hook=_read)
    except msgspec.ValidationError as err:
        place = _PLACE.search(str(err))
    (type_, expected), keys = _described(inspect.type_info(kind)), [key] if key else []
    for name in place[1].split(".") if place else ():
        type_, expected = next(_described(field.type) for field in type_.fields if field.name == name)
        value, keys = value[name], [*keys, name]
    if isinstance(type_, inspect.StructType) and isinstance(value, dict):
        name, found, expected = _wrong_key(type_, value)
        raise PipelineError(file, ".".join([*keys, name]), found, expected)
    raise PipelineError(file, ".".join(keys), _shown(value), expected)


def _wrong_key(table: inspect.StructType, values: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a key that `table` does not define, or a required key that `values` lacks; found and expected text."""
    known = [field.name for field in table.fields]
    if (unknown := next((name for name in values if name not in known), None)) is not None:
        near = get_close_matches(unknown, known, n=1)
        return (
            unknown,
            "an unknown key",
            f"{near[0]!r}, the nearest known key" if near else f"one of {', '.join(known)}",
        )
    missing = next(field.name for field in table.fields if field.required and field.name not in values)
    return missing, "nothing", "a value: the key is required"


def _described(kind: inspect.Type) -> tuple[Any, str]:
    """Return the type of a key, without None, and its description."""
    if isinstance(kind, inspect.UnionType):
        kind = next(t for t in kind.types if not isinstance(t, inspect.NoneType))
    return (
        (kind.type, (kind.extra_json_schema or {})["description"]) if isinstance(kind, inspect.Metadata) else (kind, "")
    )


def _in_environment(values: dict[str, Any], folder: Path, asked: str | None) -> Pipeline:
    """Check the file in each of its environments, and return the pipeline in the chosen one."""
    file = str(folder / FILE)
    tables = _environments(file, values.get("env", {}))
    if not tables:
        _converted(values, _Document, file)  # before the choice, since the table of environments may be mistyped
    for name in tables:
        with _placed_in(name, values):
            _converted(overlaid(values, tables[name]), _Document, file)
    if chosen := chosen_environment(file, tuple(tables), asked):
        with _placed_in(chosen, values):
            return _pipeline_of(overlaid(values, tables[chosen]), folder, chosen)
    required = (key.name for key in _fields_of(_Document) if key.required)
    if tables and (missing := next((key for key in required if key not in values), None)) is not None:
        raise PipelineError(
            file,
            missing,
            "a value only in [env]",
            f"an environment: pass --env NAME or set {VARIABLE}, with one of {', '.join(tables)}",
        )
    return _pipeline_of(values, folder, "")


def _environments(file: str, tables: Any) -> dict[str, dict[str, Any]]:
    """Check the names of environments and that they contain tables. Their values are not checked."""
    if not isinstance(tables, dict):
        raise PipelineError(file, "env", _shown(tables), "a table with a table per environment")
    for name, table in tables.items():
        key = f"env.{name}"
        if NAME.fullmatch(name) is None:
            raise PipelineError(file, key, repr(name), "a lower-case letter, then lower-case letters, digits and _")
        if not isinstance(table, dict):
            raise PipelineError(file, key, _shown(table), "a table with the settings of an environment")
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
        raise PipelineError(err.file, f"env.{environment}.{err.key}", err.found, err.expected) from None


def _pipeline_of(values: dict[str, Any], folder: Path, environment: str) -> Pipeline:
    file, home = str(folder / FILE), folder.parent.parent
    document: _Document = _converted(values, _Document, file)
    error = partial(PipelineError, file)
    variables = {name: _variable(file, name, value) for name, value in document.variables.items()}
    values_of_names = os.environ | variables

    used: dict[str, str] = {}

    def text(key: str, value: str) -> str:
        if not key.startswith(("spark.", "notify.")):
            used.update(_variables_in(value, values_of_names))
        return _substitute(value, values_of_names, file, key)

    name = text("name", document.name)
    if NAME.fullmatch(name) is None:
        raise error("name", repr(name), "a lower-case letter, then lower-case letters, digits and _")
    if name != folder.name:
        raise error("name", repr(name), f"{folder.name!r}, the folder's name")
    data = None if document.data is None else _place(text("data", document.data), home)
    if data is not None and re.search(r"['\\]", data):  # SQL files contain it between quotes
        raise error("data", repr(data), "a path without quotes and backslashes")
    epoch, quality = document.epoch, document.quality or _Quality()
    suites, docs = (
        text("quality.folder", quality.folder),
        text("quality.docs", quality.docs or f".airflow/data_docs/{name}"),
    )
    if epoch.vnodes & (epoch.vnodes - 1):
        raise error("epoch.vnodes", str(epoch.vnodes), "a power of two")
    for argument in document.airflow.default_args:
        if argument in _OTHER_PLACES:
            raise error(f"airflow.default_args.{argument}", "an argument that has its own key", _OTHER_PLACES[argument])
    if epoch.units is not None and epoch.units > epoch.vnodes:
        raise error("epoch.units", str(epoch.units), f"at most vnodes, {epoch.vnodes}")
    return Pipeline(
        name=name,
        folder=folder,
        description=text("description", document.description),
        store=_place(text("store", document.store), home),
        data=data,
        sql=tuple(_script(file, folder, data, script) for script in document.sql),
        time_zone=document.time_zone.key,
        schedule=None if document.schedule is None else _run_schedule(document.schedule, document.time_zone, file),
        epoch=epoch,
        spark={k: text(f"spark.{k}", _converted(v, _Text, file, f"spark.{k}")) for k, v in document.spark.items()},
        deploy=document.deploy,
        rebalance=document.rebalance,
        freshness={
            view: int(_converted(v, Annotated[_Span, _SPAN], file, f"freshness.{view}"))
            for view, v in document.freshness.items()
        },
        arrival={
            source: _converted(rule, ArrivalRule, file, f"arrival.{source}")
            for source, rule in document.arrival.items()
        },
        alerts=document.alerts,
        airflow=document.airflow,
        pages=document.pages,
        notify={
            of: _with_text(_converted(table, NotifierSettings, file, f"notify.{of}"), partial(text, f"notify.{of}"))
            for of, table in document.notify.items()
        },
        prices=document.prices,
        upkeep=document.upkeep,
        verify=document.verify,
        quality=None
        if document.quality is None
        else QualitySettings(_inside(file, "quality.folder", folder, suites), home / docs, quality.scope),
        publish=None if document.publish is None else _publish_settings(document.publish, text, home, error),
        environment=environment,
        own_variables=variables,
        used_variables=used,
    )


def _variable(file: str, name: str, value: Any) -> str:
    """Return the value of an entry of `[variables]`. It may contain environment variables."""
    key = f"variables.{name}"
    if name == "data" or _VARIABLE_NAME.fullmatch(name) is None:
        raise PipelineError(
            file, key, repr(name), "a letter or _, then letters, digits and _; not `data`, a key of its own"
        )
    return _substitute(_converted(value, _Text, file, key), os.environ, file, key)


def _with_text(table: NotifierSettings, text: Callable[[str], str]) -> NotifierSettings:
    """Substitute the variables in the arguments of a notifier."""

    def filled(value: Any) -> Any:
        match value:
            case str():
                return text(value)
            case list():
                return [filled(item) for item in value]
            case dict():
                return {key: filled(item) for key, item in value.items()}
            case _:
                return value

    return msgspec.structs.replace(table, arguments=filled(table.arguments))


def _publish_settings(
    table: PublishSettings, text: Callable[[str, str], str], home: Path, error: Callable[[str, str, str], PipelineError]
) -> PublishSettings:
    to = text("publish.to", table.to)
    if table.engine is TableEngine.SPARK and "://" in to:  # Spark's commits to a bucket are safe for one driver only
        raise error(
            "publish.engine",
            "'spark' with a bucket",
            "'deltalake', whose commits to a bucket are safe for two runs at once",
        )
    if table.engine is TableEngine.SPARK and table.kind is not TableKind.DELTA:
        raise error("publish.engine", f"'spark' with kind {table.kind.value!r}", "no engine: Parquet files need none")
    if table.keep > _MAX_KEPT_TABLES:  # Delta deletes older log entries
        raise error("publish.keep", f"{table.keep // 86_400_000} days", f"at most {_MAX_KEPT_TABLES // 86_400_000}d")
    return msgspec.structs.replace(table, to=_place(to, home))


def _run_schedule(table: _Schedule, zone: ZoneInfo, file: str) -> RunSchedule | None:
    start = _moment(table.start, zone, file, "schedule.start")
    end = None if table.end is None else _moment(table.end, zone, file, "schedule.end")
    if end is not None and end < start:
        raise PipelineError(file, "schedule.end", end.isoformat(), f"not before start, {start.isoformat()}")
    if not table.cron:
        return None
    return RunSchedule(str(table.cron), start, end, table.catchup, table.partitions)


def _moment(value: Any, zone: ZoneInfo, file: str, key: str) -> datetime:
    if not isinstance(value, date):  # datetime is a subclass of date
        raise PipelineError(file, key, _shown(value), "a date, e.g. 2013-01-01, or a date with a time")
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)


def _shown(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    return f"{kind} {value.isoformat() if isinstance(value, date) else repr(value)}"


def _substitute(
    text: str, variables: Mapping[str, str], file: str, key: str, written: Callable[[str], str] = str
) -> str:
    def value_of(match: re.Match[str]) -> str:
        if value := variables.get(match[1]):
            return written(value)
        if match[2] is None:
            raise PipelineError(
                file, key, f"{match[0]}, which is not set", f"a variable with a value, or a default: ${{{match[1]}:-…}}"
            )
        return match[2]

    return _VARIABLE.sub(value_of, text)


def _substitute_in_sql(text: str, variables: Mapping[str, str], file: str) -> str:
    """Substitute the variables of a script. Within a string constant, quotes and backslashes of a value are escaped."""
    from tussock.jobs.logical.quoting import within_string
    from tussock.jobs.logical.source_text import SourceText
    from tussock.jobs.logical.tokens import tokens_of

    if _VARIABLE.search(text) is None:
        return text
    try:
        tokens = tokens_of(SourceText(text))
    except InputError:  # an unterminated string; the parser of the script reports its place
        return _substitute(text, variables, file, "the script")
    filled, at = "", 0
    for token in tokens:
        if token.kind == "string" and token.text[0] in "'\"":
            filled += _substitute(text[at : token.start], variables, file, "the script")
            filled += _substitute(token.text, variables, file, "the script", within_string)
            at = token.end
    return filled + _substitute(text[at:], variables, file, "the script")


def _variables_in(text: str, values: Mapping[str, str]) -> dict[str, str]:
    return {match[1]: values.get(match[1]) or match[2] or "" for match in _VARIABLE.finditer(text)}


def _place(text: str, home: Path) -> str:
    """Make a relative path absolute; leave addresses unchanged."""
    return text if "://" in text else str(home / text)


def _script(file: str, folder: Path, data: str | None, text: str) -> Path:
    """Return the path of a SQL file in the pipeline's folder, or below a local data root."""
    if not text.startswith("${data}/"):
        return _inside(file, "sql", folder, text)
    if data is None or "://" in data:
        raise PipelineError(file, "sql", repr(text), f"`data` to be a local folder; it is {data!r}")
    return _inside(file, "sql", Path(data), text.removeprefix("${data}/"))


def _inside(file: str, key: str, folder: Path, text: str) -> Path:
    """Return a path in the pipeline's folder. Raises PipelineError if it leads out of the folder."""
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise PipelineError(file, key, repr(text), f"a path within {folder}")
    return folder / path
