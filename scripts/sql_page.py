"""Make the generated blocks of docs/sql.md: grammar, types, formats, options and refusals.

They come from the grammar's docstring, from the readers of sources, and from the case files of the tests.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import yaml

from scripts.page_lines import wrapped
from tussock.jobs.sources import delta, files, kafka, legacy_calendar, parquet, spark_files, text_files
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sql import grammar
from tussock.statestore import types

_CASES = Path(__file__).resolve().parents[1] / "tests/jobs/sql/cases"
_PLAIN_MISTAKES = (
    "expected ",
    "[PARSE_",
    "[UNRESOLVED_",
    "the statement is empty",
)  # omitted: simple mistakes that users do not look up


def blocks() -> dict[str, str]:
    """The text of each block, by name."""
    return {
        "grammar": "\n".join(["```", *_grammar(), "```"]),
        "types": _types(),
        "formats": "\n".join(_formats()),
        "options": "\n".join(_options()),
        "view refusals": "\n".join(_cases("refusals.yaml", lambda kind, reason: kind == "UnsupportedQueryError")),
        "statement refusals": "\n".join(
            _cases("statement_errors.yaml", lambda kind, reason: not reason.startswith(_PLAIN_MISTAKES))
        ),
    }


def _grammar() -> Iterator[str]:
    for line in (grammar.__doc__ or "").split("\n\n", 1)[1].rstrip().splitlines():
        yield from wrapped(line, rest="    ")


def _types() -> str:
    found = re.search(r"Supported types: (.+?), and (array<.+)\. Cast", str(types.UnsupportedTypeError("void")))
    if found is None:
        raise ValueError("the message of UnsupportedTypeError has another form: expected 'Supported types: …'")
    return "\n".join(wrapped(f"{_codes(found[1].split(', '))}; and {found[2]}."))


def _formats() -> Iterator[str]:
    for name, reader in READERS.items():
        if isinstance(reader, delta.DeltaTables):
            options = _codes(o for o in delta.OPTIONS if o != "path")
            yield from _format(name, "the engine, split at row groups", "declared, or those of the table", options)
            continue
        if isinstance(reader, kafka.KafkaTopics):
            yield from _format(name, "Spark", "those of Spark's reader", f"{_codes(kafka.OPTIONS)}, `kafka.…`")
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
        yield from _format(name, by, columns, options)


def _format(name: str, by: str, columns: str, options: str) -> list[str]:
    return wrapped(f"`{name}`: read by {by}. Columns: {columns}. Options: {options}", "- ", "  ")


def _options() -> Iterator[str]:
    own = _codes(o for o in files.OWN_OPTIONS if o != "path")
    yield from wrapped(f"Every format of files also accepts {own}.")
    yield ""
    yield "No format that Spark reads accepts these options:"
    yield ""
    by_reason: dict[str, list[str]] = {}
    for option, reason in spark_files._REFUSED.items():
        by_reason.setdefault(reason, []).append(option)
    for reason, names in by_reason.items():
        yield from wrapped(f"{_codes(names)}: {reason}", "- ", "  ")


def _cases(file: str, shown: Callable[[str, str], bool]) -> Iterator[str]:
    """The cases that `shown` selects: a list of names and examples, each with its reason, without the place."""
    for case in yaml.safe_load((_CASES / file).read_text()):
        kind, _, reason = re.sub(r" \(line \d+, column \d+\)$", "", case["error"].splitlines()[0]).partition(": ")
        if shown(kind, reason):
            why = re.sub(r"^.* is not supported in [^:]+: ", "", reason)
            example = " ".join(case["sql"].split())
            yield from wrapped(f"{case['name']}: {_code(example)}. Reason: {why}", "- ", "  ")


def _code(text: str) -> str:
    """A code span; it has two backticks on each side if the text contains one."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
