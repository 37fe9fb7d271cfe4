"""The blocks of docs/sql.md that are made: from the readers of sources, the grammar, and the cases of refusals that the tests run."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import yaml

from tussock.jobs.sources import delta, files, kafka, legacy_calendar, parquet, spark_files, text_files
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sql import grammar
from tussock.statestore import types

_CASES = Path(__file__).resolve().parents[1] / "tests/jobs/sql/cases"
_PLAIN_MISTAKES = ("expected ", "[PARSE_", "[UNRESOLVED_", "the statement is empty")  # which nobody looks up


def blocks() -> dict[str, str]:
    """Each block's name and text."""
    return {
        "grammar": "\n".join(["```", *(grammar.__doc__ or "").split("\n\n", 1)[1].rstrip().splitlines(), "```"]),
        "types": _types(),
        "formats": "\n".join(_formats()),
        "options": "\n".join(_options()),
        "view refusals": "\n".join(_cases("refusals.yaml", lambda kind, reason: kind == "UnsupportedQueryError")),
        "statement refusals": "\n".join(
            _cases("statement_errors.yaml", lambda kind, reason: not reason.startswith(_PLAIN_MISTAKES))
        ),
    }


def _types() -> str:
    simple, _, nested = (
        str(types.UnsupportedTypeError("void"))
        .partition("supported are ")[2]
        .partition(". Cast")[0]
        .partition(", and ")
    )
    return f"{_codes(simple.split(', '))}; and {nested}."


def _formats() -> Iterator[str]:
    yield from ("| format | read by | columns | options beside the path |", "|---|---|---|---|")
    for name, reader in READERS.items():
        if isinstance(reader, delta.DeltaTables):
            options = _codes(o for o in delta.OPTIONS if o != "path")
            yield f"| `{name}` | the engine, split at row groups | declared, or the table's | {options} |"
            continue
        if isinstance(reader, kafka.KafkaTopics):
            yield f"| `{name}` | Spark | those of Spark's reader | {_codes(kafka.OPTIONS)}, `kafka.…` |"
            continue
        own = isinstance(reader, parquet.ParquetFiles)
        by = "Spark" if reader.needs_spark else "the engine, split at row groups"
        texts = isinstance(reader, spark_files.SparkFiles) and reader.corrupt_records
        columns = "declared" if texts else "declared, or those of the first file"
        columns = "one string" if isinstance(reader, text_files.TextFiles) else columns
        spark_options = f"https://spark.apache.org/docs/latest/sql-data-sources-{name}.html"
        options = (
            _codes((*legacy_calendar.OPTIONS.values(), "timeZone"))
            if own
            else f"[those of Spark's reader]({spark_options})"
        )
        yield f"| `{name}` | {by} | {columns} | {options} |"


def _options() -> Iterator[str]:
    own = _codes(o for o in files.OWN_OPTIONS if o != "path")
    yield f"Every format of files also takes {own}. Never taken, with any format that Spark reads:"
    yield ""
    by_reason: dict[str, list[str]] = {}
    for option, reason in spark_files._REFUSED.items():
        by_reason.setdefault(reason, []).append(option)
    yield from (f"* {_codes(names)}: {reason}" for reason, names in by_reason.items())


def _cases(file: str, shown: Callable[[str, str], bool]) -> Iterator[str]:
    """A table of the cases to be shown, each with its reason, without its place."""
    yield from ("| | example | refused, for |", "|---|---|---|")
    for case in yaml.safe_load((_CASES / file).read_text()):
        kind, _, reason = re.sub(r" \(line \d+, column \d+\)$", "", case["error"].splitlines()[0]).partition(": ")
        if shown(kind, reason):
            why = re.sub(r"^.* is not supported in [^:]+: ", "", reason)
            yield f"| {case['name']} | `{_cell(' '.join(case['sql'].split()))}` | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
