"""A pipeline: one folder of SQL files and the `pipeline.toml` that says where its store is and when it runs.

Airflow reads every pipeline whenever it parses the DAG files, so this module is light: no Spark, no Arrow, no I/O but one small file.

    name = "flights"                                   # [a-z][a-z0-9_]*, the folder's name
    description = "…"                                  # optional
    store = "${FLIGHTS_STORE:-.tussock/flights/store}" # a folder or s3://bucket/prefix?…
    data = "${FLIGHTS_DATA:-.tussock/flights/data}"    # optional: `${data}` in the SQL files
    sql = ["sources.sql", "views.sql"]                 # applied in this order; `${data}/…` for one that is made with the data
    time_zone = "UTC"                                  # optional

    [schedule]                                         # optional: without it the pipeline runs when triggered
    cron = "@daily"                                    # each run takes in one interval: {start:…} and {end:…} in a source's path
    start = 2013-01-01                                 # first interval
    end = 2013-12-31                                   # optional: last interval
    catchup = true                                     # optional: also run the intervals that passed before it was switched on

    [epoch]                                            # optional
    units = 2                                          # parallel units from the next barrier on; as they are if left out
    vnodes = 256                                       # power of two, fixed when the store is made
    max_bytes = 268_435_456                            # most source bytes an epoch takes in
    in_flight = 3                                      # epochs of a backlog under way at once; 1: each is committed before the next begins

    [spark]                                            # optional: settings of the jobs, as text
    "spark.driver.memory" = "1g"

    [upkeep]                                           # optional: when compaction and vacuum run, and what stays readable; the defaults:
    schedule = "@hourly"                               # a cron expression, in the pipeline's time zone; "none": only when triggered
    keep = "1d"                                        # every moment of so long ago stays readable
    keep_epochs = 1                                    # and the last so many published epochs

    [quality]                                          # optional
    folder = "quality"                                 # <view>.json: Great Expectations suites
    docs = ".airflow/data_docs/flights"                # Data Docs; outside the store, for people

A text may use `${NAME}` or `${NAME:-default}` from the environment. Relative paths start at the folder that holds `pipelines/`.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from jobs.settings.retention import BadDurationError, Retention, duration_ms
from statestore.errors import InputError

FILE = "pipeline.toml"
NEW_STORE_UNITS = 2  # of a store that is made where nobody says how many
MAX_KEPT_EPOCHS = 1024  # a version lists no more, however many retention asks for
NAME = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KINDS = {str: "text", bool: "boolean", int: "integer", float: "float", list: "array", dict: "table", date: "date", datetime: "moment"}
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_REQUIRED: Any = object()
T = TypeVar("T")


class PipelineError(InputError):
    """A pipeline's definition cannot be taken."""

    def __init__(self, file: str, key: str, found: str, expected: str) -> None:
        super().__init__(file, key, found, expected)
        self.file, self.key, self.found, self.expected = file, key, found, expected

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: found {self.found}, expected {self.expected}."


class UnknownPipelineError(InputError):
    """No folder of this name holds a pipeline.toml."""

    def __init__(self, name: str, folder: str, known: tuple[str, ...]) -> None:
        super().__init__(name, folder, known)
        self.name, self.folder, self.known = name, folder, known

    def __str__(self) -> str:
        near = get_close_matches(self.name, self.known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"unknown pipeline {self.name!r}: {self.folder} holds {', '.join(self.known) or 'no pipeline'}.{hint}"


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """When runs start. `start` and `end` bound the first and the last interval's start."""

    cron: str
    start: datetime
    end: datetime | None = None
    catchup: bool = False


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """How epochs are cut: parallel units, vnodes of the store, most source bytes an epoch takes in, and how many are under way at once."""

    units: int | None = None  # None: as many as the store has, NEW_STORE_UNITS where it is made
    vnodes: int = 256
    max_bytes: int = 256 * 1024 * 1024
    in_flight: int = 3


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """When the store is tidied (None: only when somebody asks), and what of its past stays readable."""

    schedule: str | None = "@hourly"
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """Where a pipeline's suites are (a folder, read-only) and where their Data Docs go."""

    folder: Path
    docs: Path

    def suites(self) -> tuple[Path, ...]:
        """The suite files, one a view, named after it; in name order. Cost: one directory listing."""
        return tuple(sorted(self.folder.glob("*.json")))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline.toml. `store` and `data` are absolute paths or `s3://` addresses."""

    name: str
    folder: Path
    store: str
    sql: tuple[Path, ...]
    description: str = ""
    data: str | None = None
    time_zone: str = "UTC"
    schedule: RunSchedule | None = None
    epoch: EpochSettings = EpochSettings()
    spark: Mapping[str, str] = field(default_factory=dict)
    upkeep: UpkeepSettings = UpkeepSettings()
    quality: QualitySettings | None = None

    def scripts(self) -> tuple[tuple[Path, str], ...]:
        """The SQL files with their text, in order, `${data}` and environment variables put in.

        Raises:
            PipelineError: a file is missing, or uses a variable that has no value.
        """
        scripts = []
        for path in self.sql:
            try:
                text = path.read_text()
            except OSError as err:
                raise PipelineError(str(self.folder / FILE), "sql", f"{path.name} ({err.strerror})", "a file that can be read") from err
            scripts.append((path, _substitute(text, os.environ | ({"data": self.data} if self.data else {}), str(path), "the script")))
        return tuple(scripts)


def load_pipeline(folder: Path) -> Pipeline:
    """Read and check `folder/pipeline.toml`.

    Raises:
        UnknownPipelineError: the folder holds no pipeline.toml.
        PipelineError: an unknown key, a missing one, a wrong type or value; names file, key, found and expected.
    """
    folder = folder.absolute()
    path = folder / FILE
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UnknownPipelineError(folder.name, str(folder.parent), pipeline_names(folder.parent)) from None
    except OSError as err:
        raise PipelineError(str(path), "the file", err.strerror or str(err), "a file that can be read") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise PipelineError(str(path), "the file", str(err), "TOML") from err
    return _pipeline_of(document, folder)


def find_pipeline(name: str, pipelines: Path) -> Pipeline:
    """The pipeline called `name` in the folder `pipelines`. Names from users never become paths unchecked.

    Raises: UnknownPipelineError; PipelineError.
    """
    if NAME.fullmatch(name) is None or not (pipelines / name / FILE).is_file():
        raise UnknownPipelineError(name, str(pipelines), pipeline_names(pipelines))
    return load_pipeline(pipelines / name)


def pipeline_names(pipelines: Path) -> tuple[str, ...]:
    """Names of the folders in `pipelines` that hold a pipeline.toml, sorted."""
    return tuple(sorted(path.parent.name for path in pipelines.glob(f"*/{FILE}")))


def _pipeline_of(document: dict[str, Any], folder: Path) -> Pipeline:
    root = _Table(document, str(folder / FILE))
    home = folder.parent.parent
    name = root.text("name")
    if NAME.fullmatch(name) is None:
        raise root.error("name", repr(name), "a lower-case letter, then lower-case letters, digits and _")
    if name != folder.name:
        raise root.error("name", repr(name), f"{folder.name!r}, the folder's name")
    time_zone = root.take("time_zone", _zone, "UTC")
    data = _place(data, home) if (data := root.text("data", None)) is not None else None
    pipeline = Pipeline(
        name=name,
        folder=folder,
        description=root.text("description", ""),
        store=_place(root.text("store"), home),
        data=data,
        sql=tuple(_script(root, folder, data, text) for text in root.take("sql", _texts)),
        time_zone=time_zone,
        schedule=_schedule_of(schedule, ZoneInfo(time_zone)) if (schedule := root.table("schedule")) is not None else None,
        epoch=_epoch_of(epoch) if (epoch := root.table("epoch")) is not None else EpochSettings(),
        spark=spark.all_texts() if (spark := root.table("spark")) is not None else {},
        upkeep=_upkeep_of(upkeep) if (upkeep := root.table("upkeep")) is not None else UpkeepSettings(),
        quality=_quality_of(quality, folder, home, name) if (quality := root.table("quality")) is not None else None,
    )
    if pipeline.data is not None and re.search(r"['\\]", pipeline.data):  # it is put between quotes in SQL
        raise root.error("data", repr(pipeline.data), "a path without quotes and backslashes")
    root.close()
    return pipeline


def _schedule_of(table: "_Table", zone: ZoneInfo) -> RunSchedule:
    schedule = RunSchedule(
        cron=table.take("cron", _cron),
        start=_moment(table.take("start", _day), zone),
        end=_moment(end, zone) if (end := table.take("end", _day, None)) is not None else None,
        catchup=table.take("catchup", _boolean, False),
    )
    if schedule.end is not None and schedule.end < schedule.start:
        raise table.error("end", schedule.end.isoformat(), f"not before start, {schedule.start.isoformat()}")
    table.close()
    return schedule


def _epoch_of(table: "_Table") -> EpochSettings:
    defaults = EpochSettings()
    settings = EpochSettings(
        units=table.take("units", _whole(1, 32768), defaults.units),
        vnodes=table.take("vnodes", _whole(1, 32768), defaults.vnodes),
        max_bytes=table.take("max_bytes", _whole(1, 2**63 - 1), defaults.max_bytes),
        in_flight=table.take("in_flight", _whole(1, 64), defaults.in_flight),
    )
    if settings.vnodes & (settings.vnodes - 1):
        raise table.error("vnodes", str(settings.vnodes), "a power of two")
    if settings.units is not None and settings.units > settings.vnodes:
        raise table.error("units", str(settings.units), f"at most vnodes, {settings.vnodes}")
    table.close()
    return settings


def _upkeep_of(table: "_Table") -> UpkeepSettings:
    defaults = UpkeepSettings()
    settings = UpkeepSettings(
        schedule=table.take("schedule", _cron_or_none, defaults.schedule),
        retention=Retention(
            keep_ms=table.take("keep", _span, defaults.retention.keep_ms),
            keep_epochs=table.take("keep_epochs", _whole(1, MAX_KEPT_EPOCHS), defaults.retention.keep_epochs),
        ),
    )
    table.close()
    return settings


def _quality_of(table: "_Table", folder: Path, home: Path, name: str) -> QualitySettings:
    settings = QualitySettings(
        folder=_inside(table, "folder", folder, table.text("folder", "quality")),
        docs=home / table.text("docs", f".airflow/data_docs/{name}"),
    )
    table.close()
    return settings


class _Table:
    """A TOML table being read: every key is taken once, and `close` refuses what nobody took."""

    def __init__(self, values: dict[str, Any], file: str, path: str = "") -> None:
        self._left = dict(values)
        self._file, self._path = file, path
        self._known: list[str] = []

    def error(self, key: str, found: str, expected: str) -> PipelineError:
        return PipelineError(self._file, self._path + key, found, expected)

    def take(self, key: str, read: Callable[[Any], T], default: Any = _REQUIRED) -> T:
        """The value of `key` as `read` gives it; `read` raises `_Expected` with what would have been right."""
        self._known.append(key)
        if key not in self._left:
            if default is _REQUIRED:
                raise self.error(key, "nothing", "a value: the key is required")
            return default  # type: ignore[no-any-return]
        value = self._left.pop(key)
        try:
            return read(value)
        except _Expected as err:
            raise self.error(key, _shown(value), str(err)) from None

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        """A text with its environment variables put in."""
        value = self.take(key, _text, default)
        return value if value is None else _substitute(value, os.environ, self._file, self._path + key)

    def table(self, key: str) -> "_Table | None":
        """The table `[key]`, or None where there is none."""
        values = self.take(key, _mapping, None)
        return None if values is None else _Table(values, self._file, f"{self._path}{key}.")

    def all_texts(self) -> dict[str, str]:
        """All keys of a table that is a map from text to text."""
        return {key: self.text(key) for key in list(self._left)}

    def close(self) -> None:
        """Requires: every known key has been asked for."""
        for key in self._left:
            near = get_close_matches(key, self._known, n=1)
            expected = f"{near[0]!r}, perhaps" if near else f"one of {', '.join(self._known)}"
            raise self.error(key, "an unknown key", expected)


class _Expected(Exception):
    """What a value should have been."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Expected("a text that is not empty")
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise _Expected("a list of texts, at least one")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Expected("a table")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Expected("true or false")
    return value


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _Expected(f"a whole number from {least} to {most}")
        return value

    return read


def _day(value: Any) -> datetime | date:
    if not isinstance(value, date):  # a datetime is a date
        raise _Expected("a date, e.g. 2013-01-01, or a date with a time")
    return value


def _zone(value: Any) -> str:
    try:
        return ZoneInfo(_text(value)).key
    except (ValueError, OSError, KeyError):
        raise _Expected("the name of a time zone, e.g. UTC or Europe/Berlin") from None


def _cron(value: Any) -> str:
    from croniter import croniter  # Airflow's own; kept out of Spark's workers

    if value in _PRESETS or (isinstance(value, str) and not value.startswith("@") and croniter.is_valid(value)):
        return str(value)
    raise _Expected(f"a cron expression of five fields, or one of {', '.join(_PRESETS)}")


def _cron_or_none(value: Any) -> str | None:
    if value == "none":
        return None
    try:
        return _cron(value)
    except _Expected as err:
        raise _Expected(f'{err}, or "none"') from None


def _span(value: Any) -> int:
    try:
        return duration_ms(_text(value))
    except BadDurationError:
        raise _Expected("a time span: a number and a unit, as in 90s, 15m, 36h or 7d") from None


def _moment(value: datetime | date, zone: ZoneInfo) -> datetime:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return (value if value.tzinfo is not None else value.replace(tzinfo=zone)).astimezone(UTC)


def _shown(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    return f"{kind} {value.isoformat() if isinstance(value, date) else repr(value)}"


def _substitute(text: str, variables: Mapping[str, str], file: str, key: str) -> str:
    def value_of(match: re.Match[str]) -> str:
        if (value := variables.get(match[1]) or match[2]) is None:
            raise PipelineError(file, key, match[0], f"a variable that has a value, or a default: ${{{match[1]}:-…}}")
        return value

    return _VARIABLE.sub(value_of, text)


def _place(text: str, home: Path) -> str:
    """A store's or a data root's address: made absolute where it is a relative path."""
    return text if "://" in text else str(home / text)


def _script(table: _Table, folder: Path, data: str | None, text: str) -> Path:
    """A SQL file of the pipeline's folder, or one below a local data root."""
    if not text.startswith("${data}/"):
        return _inside(table, "sql", folder, text)
    if data is None or "://" in data:
        raise table.error("sql", repr(text), f"`data` to be a local folder; it is {data!r}")
    return _inside(table, "sql", Path(data), text.removeprefix("${data}/"))


def _inside(table: _Table, key: str, folder: Path, text: str) -> Path:
    """A path of the pipeline's own folder; it may not lead out of it."""
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise table.error(key, repr(text), f"a path within {folder}")
    return folder / path
