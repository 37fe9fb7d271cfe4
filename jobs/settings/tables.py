"""The tables of pipeline.toml, as checked values."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tussock.jobs.settings.retention import Retention
from tussock.jobs.settings.values import (
    CRON_OR_NONE,
    SPAN,
    TABLE,
    YES,
    CronOrNone,
    PipelineError,
    Span,
    Text,
    Texts,
    byte_count,
    whole_number,
)

EPOCH_BYTES = 256 << 20  # default for max_bytes: decoded bytes of source rows per epoch
NEW_STORE_UNITS = 2  # default number of units of a new store
QUALITY_FOLDER = "quality"  # default folder of suites and assertions, in the pipeline's folder
MAX_KEPT_EPOCHS = 1024  # a version lists at most this many readable epochs


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

    units: Annotated[int, whole_number(1, 32768)] | None = (
        None  # None: as many as the store has; NEW_STORE_UNITS for a new store
    )
    vnodes: Annotated[int, whole_number(1, 32768)] = 256
    max_bytes: Annotated[int, byte_count(1)] | None = EPOCH_BYTES  # None (not expressible in the file): no limit
    memory: Annotated[int, byte_count(64 << 20)] | None = None  # None: the limits of each cache
    in_flight: Annotated[int, whole_number(1, 64)] = 3
    runner: Annotated[Runner, Meta(description='"spark" or "auto"')] = Runner.SPARK
    workers: Annotated[int, whole_number(1, 64)] | None = None  # None: one per core
    on_error: Annotated[OnError, Meta(description='"stop" or "pause"')] = OnError.STOP
    limit: Annotated[Span, SPAN] = Span(86_400_000)  # ms; Airflow stops a task of the DAGs after this time


class DeploySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the DAG that applies the pipeline's files. If `approve`, a person must approve the plan."""

    approve: Annotated[bool, YES] = False


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on the estimated bill of a deployment: rows that its first epoch reads, and dollars per month."""

    rows_read: Annotated[int, whole_number(0, 2**63 - 1)] | None = None
    dollars_per_month: Annotated[float, Meta(ge=0, description="a number of dollars, 0 or more")] | None = None


class RebalanceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the DAG that moves vnodes: the load above which it does, and whether a person must approve."""

    target: Annotated[float, Meta(ge=1, description="a number, 1 or more")] = 1.25
    approve: Annotated[bool, YES] = False


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that is called for each stale view, in addition to Airflow's log."""

    call: Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="a function, by its module and name")] | None = None


class RowsFor(StrEnum):
    """Who may see values of rows, among the users of Airflow who may see the pipeline."""

    EDITORS = "editors"  # users who may edit its DAG in Airflow
    READERS = "readers"  # all of them
    NOBODY = "nobody"


class PagesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the pages in Airflow's UI."""

    rows: Annotated[RowsFor, Meta(description=f"one of {', '.join(RowsFor)}")] = RowsFor.EDITORS


class AirflowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the pipeline's DAGs and tasks. None: Airflow's default."""

    owner: Text | None = None
    tags: Texts | None = None
    pool: Text | None = None
    queue: Text | None = None
    priority: Annotated[int, whole_number(1, 2**31 - 1)] | None = None
    retries: Annotated[int, whole_number(0, 1000)] = 2
    retry_delay: Annotated[Span, SPAN] = Span(15_000)
    run_limit: Annotated[Span, SPAN] | None = None
    max_active_runs: Annotated[int, whole_number(1, 1000)] = 1
    default_args: Annotated[dict[str, Any], TABLE] = {}


OTHER_PLACES = {
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
    EVOLVED = "evolved"  # files brought columns or wider types to a source


class NotifierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notifier by its import path, the events that it reports, and the arguments of its class."""

    notifier: Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="a class, by its module and name")]
    on: Annotated[tuple[NoticeEvent, ...], Meta(description=f"a list of {', '.join(NoticeEvent)}")] = tuple(NoticeEvent)
    arguments: Annotated[dict[str, Any], TABLE] = {}


FILES = Meta(description="a number of files, or a list of least and most")


class ArrivalRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules about the files of one source. None: no such rule."""

    # Without bounds of the numbers: msgspec reads them from the wrong memory in a union with a tuple.
    expect_files: Annotated[int | tuple[int, int], FILES] | None = None
    deadline: Annotated[Span, SPAN] = Span(0)  # ms after the interval's end
    reject_limit: Annotated[float, Meta(ge=0, description="a share below 1, or a number of records")] | None = None
    min_rows: Annotated[int, whole_number(0, 2**63 - 1)] | None = None
    severity: Annotated[str, Meta(pattern="^(error|warning)$", description='"error" or "warning"')] = "error"

    @property
    def files(self) -> tuple[int, int]:
        """The smallest and the largest expected number of files."""
        expected = self.expect_files or 0
        return (expected, expected) if isinstance(expected, int) else expected


class UpkeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of compaction and vacuum (empty: only when triggered), and the retention."""

    schedule: Annotated[CronOrNone, CRON_OR_NONE] = CronOrNone("@hourly")
    keep: Annotated[Span, SPAN] = Span(Retention().keep_ms)
    keep_epochs: Annotated[int, whole_number(1, MAX_KEPT_EPOCHS)] = Retention().keep_epochs

    @property
    def retention(self) -> Retention:
        """Return the retention as one value."""
        return Retention(self.keep_epochs, int(self.keep))


class VerifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of verification (empty: only when triggered), and the percentage of keys that it compares."""

    schedule: Annotated[CronOrNone, CRON_OR_NONE] = CronOrNone("")
    percent: Annotated[int, whole_number(1, 100)] = 100


class QualityScope(StrEnum):
    """The views that a failed suite holds back."""

    PIPELINE = "pipeline"  # the whole epoch: all views stay consistent with each other
    VIEW = "view"  # the suite's view and the views that read it; the others are published


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """The folder of a pipeline's suites (read-only), the folder of its Data Docs, and the scope of a failed suite."""

    folder: Path
    docs: Path
    scope: QualityScope = QualityScope.PIPELINE

    def list_suites(self) -> tuple[Path, ...]:
        """Return the suite files in name order. Each is named after its view. Cost: one directory listing.

        Raises PipelineError if the folder cannot be read.
        """
        return self._list_files(".json")

    def list_assertions(self) -> tuple[Path, ...]:
        """Return the files of the assertions in name order. Cost and errors as `list_suites`."""
        return self._list_files(".sql")

    def _list_files(self, ending: str) -> tuple[Path, ...]:
        """Hidden files, such as those that macOS writes next to copied ones, are none."""
        try:
            return tuple(
                sorted(path for path in self.folder.iterdir() if path.suffix == ending and path.name[0] != ".")
            )
        except OSError as err:  # `glob` would return no files, and epochs would be published without checks
            raise PipelineError(
                str(self.folder),
                "[quality] folder",
                err.strerror or str(err),
                "a folder that this user can read. Create it, or remove the table [quality] to publish without checks",
            ) from err
