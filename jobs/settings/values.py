"""Types of values in pipeline.toml, and their conversion with errors that name the key.

Errors print a type's description as the expected value.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

from tussock.jobs.settings.retention import BadDurationError, duration_ms
from tussock.statestore.decoding import convert_value
from tussock.statestore.errors import InputError

_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
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
_PLACE = re.compile(r" - at `\$\.?([\w.]*)[^`]*`$")  # the end of msgspec's messages


class PipelineError(InputError, hides_row_values=True):
    """A pipeline's definition is invalid."""

    file: str
    key: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: found {self.finding}, expected {self.expected}."


def whole_number(least: int, most: int) -> Meta:
    return Meta(ge=least, le=most, description=f"a whole number from {least} to {most}")


def byte_count(least: int) -> Meta:
    """A number without a unit, so that no reader has to know whether a kilobyte has 1,000 or 1,024 bytes."""
    return Meta(ge=least, le=2**63 - 1, description=f"a whole number of bytes from {least} (512 MB are {512 << 20})")


class Span(int):
    """Milliseconds of a time span."""


SPAN = Meta(description="a time span: a number and a unit, as in 90s, 15m, 36h or 7d, and at most 999999d")


class CronOrNone(str):
    """A cron expression, or the empty string for "none" in the file."""


_CRON_FIELDS = 5
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_CRON = f"a cron expression of five fields that some day matches, or one of {', '.join(_PRESETS)}"
CRON_OR_NONE = Meta(description=f'{_CRON}, or "none"')
TABLE = Meta(description="a table")
Text = Annotated[str, Meta(pattern=r"\S", description="a string that is not empty")]
Texts = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, description="a list of strings, at least one")
]
YES = Meta(description="true or false")


def _convert_value(kind: type, value: Any) -> Any:
    """Convert a value to one of this module's own types, or to a time zone, for msgspec. Raises ValueError."""
    if kind is CronOrNone and value == "none":
        return CronOrNone()
    try:
        if isinstance(value, str) and (kind is not CronOrNone or _is_cron(value)):
            return Span(duration_ms(value)) if kind is Span else kind(value)
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


def converted_value(value: Any, kind: Any, file: str, key: str = "") -> Any:
    """Convert `value` to `kind`. Raises PipelineError with the key, the value, and the description of its type."""
    try:
        return convert_value(value, kind, dec_hook=_convert_value)
    except msgspec.ValidationError as err:
        place = _PLACE.search(str(err))
    (type_, expected), keys = describe_key(inspect.type_info(kind)), [key] if key else []
    for name in place[1].split(".") if place else ():
        type_, expected = next(describe_key(field.type) for field in type_.fields if field.name == name)
        value, keys = value[name], [*keys, name]
    if isinstance(type_, inspect.StructType) and isinstance(value, dict):
        name, problem, expected = _wrong_key(type_, value)
        raise PipelineError(file, ".".join([*keys, name]), problem, expected)
    raise PipelineError(file, ".".join(keys), describe_value(value), expected)


def _wrong_key(table: inspect.StructType, values: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a key that `table` does not define, or a required key that `values` lacks; found and expected text."""
    known = [field.name for field in table.fields] + ([table.tag_field] if table.tag_field else [])
    if (unknown := next((name for name in values if name not in known), None)) is not None:
        near = get_close_matches(unknown, known, n=1)
        return (
            unknown,
            "an unknown key",
            f"{near[0]!r}, the nearest known key" if near else f"one of {', '.join(known)}",
        )
    missing = next(field.name for field in table.fields if field.required and field.name not in values)
    return missing, "nothing", "a value: the key is required"


def describe_key(kind: inspect.Type) -> tuple[Any, str]:
    """Return the type of a key, without None, and its description."""
    if isinstance(kind, inspect.UnionType):
        kind = next(t for t in kind.types if not isinstance(t, inspect.NoneType))
    return (
        (kind.type, (kind.extra_json_schema or {})["description"]) if isinstance(kind, inspect.Metadata) else (kind, "")
    )


def describe_value(value: Any) -> str:
    kind = _KINDS.get(type(value), type(value).__name__)
    return f"{kind} {value.isoformat() if isinstance(value, date) else repr(value)}"
