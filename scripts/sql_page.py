"""Make the generated blocks of docs/sql.md: grammar, types, formats, options and refusals.

They come from the grammar's docstring, from the readers of sources, and from the case files of the tests.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from scripts.page_lines import wrapped
from tussock.jobs.sources import (
    delta,
    file_options,
    iceberg,
    jdbc,
    kafka,
    keyed,
    other_store,
    parquet,
    parquet_footer,
    postgres,
    postgres_slot,
    spark_files,
    text_files,
)
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sql import grammar
from tussock.statestore import types

_CASES = Path(__file__).resolve().parents[1] / "tests/support/jobs/sql/cases"
_ALL_TYPES = re.compile(r" Supported types: .*")  # the page lists them once
_NO_PLACE = re.compile(r" \(line \d+, column \d+\)$")


@dataclass(frozen=True, slots=True)
class _Group:
    """Refused statements with related reasons. `reason` matches each of their messages, with the class of the error."""

    title: str
    why: str
    reason: str


_OF_VIEWS = (
    _Group(
        "The present moment as a value",
        "A row that contains the time would change with every epoch. Comparisons of rows with `now()` work, in WHERE, "
        "HAVING and the ON of an inner join: the rows enter and leave the view as time passes.",
        r"\bmoment\b|time of day|ordered by a double",
    ),
    _Group(
        "Random values and generated numbers",
        "An epoch computes only the changes, so the same rows must give the same result again. Store such a value "
        "in a table or a file, and read it from there.",
        r"on every run|from run to run",
    ),
    _Group(
        "The user and the session",
        "A view has the same rows for all users.",
        r"depends on the user",
    ),
    _Group(
        "Aggregates and windows that cannot follow a change",
        "If a row changes or is deleted, the result must change with it. Sketches, merged schemas and results that "
        "depend on the order of reading cannot do this.",
        r"a sketch|shrink|order in which it reads|order by another column|sessions of the rows|UNBOUNDED"
        r"|compares the frequency",
    ),
    _Group(
        "Queries that read themselves",
        "One changed row could change any other row, in any number of rounds.",
        r"rounds",
    ),
    _Group(
        "Types and keys that cannot be stored",
        "A column of a view has one of these [types](#types). Strings under another collation cannot be stored, "
        "grouped or ordered.",
        r"type .* is not supported\.|not on the list of expressions|fields of one struct|adds intervals",
    ),
)
_OF_STATEMENTS = (
    _Group(
        "Statements on sources",
        "Other programs write the rows of a source, so no statement changes them. To correct them, change the files "
        "and [restate the source](operations.md#correct-data-that-was-already-processed).",
        r"is a source:|a source needs|MERGE cannot read source|^SqlError: option '",
    ),
    _Group(
        "Definitions of tables",
        "A table has columns, defaults and one PRIMARY KEY. Other properties would have no effect.",
        r"PRIMARY KEY|OR REPLACE|only columns|the default of column",
    ),
    _Group(
        "Random values in a change",
        "The statement must change the same rows in the same way if it runs again.",
        r"on every run",
    ),
    _Group(
        "Names",
        "A name has at most a schema, and a catalog that pipeline.toml maps. Two columns of a relation must differ in "
        "more than case.",
        r"has a catalog|there is no table|has no column|declared twice|named twice|named '|both named|are named|"
        r"is set twice|column names \(",
    ),
    _Group(
        "Types and values",
        "Assignments follow Spark's ANSI rules. If one value does not fit, the statement changes nothing.",
        r"cannot hold|does not accept|UNSUPPORTED_DATATYPE|is of type|values per row|gets no value|DIVIDE_BY_ZERO",
    ),
    _Group(
        "Mistakes in the text",
        "The message shows the place at which the parser stopped.",
        r"is not closed",
    ),
)
_PLAIN_MISTAKES = re.compile(
    r"\w+: (?:expected |\[[A-Z_]+|the statement is empty|there is no relation|columns 1 and 2 of the SELECT|"
    r"orders is not a temp view|_\w+ is a hidden column)"
)
"""Messages without a group that the page omits, since users do not look them up."""


def blocks() -> dict[str, str]:
    """The text of each block, by name."""
    return {
        "grammar": "\n".join(["```", *_grammar(), "```"]),
        "types": _types(),
        "formats": "\n".join(_formats()),
        "options": "\n".join(_options()),
        "view groups": "\n".join(_summary(_OF_VIEWS)),
        "statement groups": "\n".join(_summary(_OF_STATEMENTS)),
        "view refusals": "\n".join(_refusals("refusals.yaml", _OF_VIEWS)),
        "statement refusals": "\n".join(_refusals("statement_errors.yaml", _OF_STATEMENTS)),
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
            by = "the engine, split at row groups, or by Spark"
            yield from _format(name, by, "declared, or the table's", options)
            continue
        if isinstance(reader, iceberg.IcebergTables):
            options = _codes((*iceberg.OPTIONS, "catalog.…"))
            yield from _format(name, "the engine, split at row groups", "declared, or the table's", options)
            continue
        if isinstance(reader, kafka.KafkaTopics):
            yield from _format(name, "Spark", "as in Spark's reader", f"{_codes(kafka.OPTIONS)}, `kafka.…`")
            continue
        if isinstance(reader, jdbc.JdbcTables):
            options = _codes(("path", keyed.WATERMARK, jdbc.KEEP, *jdbc.OPTIONS))
            yield from _format(name, "Spark, into dumps", "declared, or the table's", options)
            continue
        if isinstance(reader, other_store.OtherStores):
            yield from _format(name, "the engine", "declared, or the relation's", _codes(other_store.OPTIONS))
            continue
        if isinstance(reader, postgres.PostgresTables):
            options = _codes(postgres_slot.OPTIONS)
            yield from _format(name, "the engine, from the server's log", "declared, with a PRIMARY KEY", options)
            continue
        own = isinstance(reader, parquet.ParquetFiles)
        by = "Spark" if reader.engine is None else "the engine if a file is plain, else by Spark"
        if own:
            by = "the engine, split at row groups, or by Spark"
        texts = isinstance(reader, spark_files.SparkFiles) and reader.corrupt_records
        columns = "declared" if texts else "declared, or the first file's"
        columns = "one string" if isinstance(reader, text_files.TextFiles) else columns
        spark_options = f"https://spark.apache.org/docs/latest/sql-data-sources-{name}.html"
        options = (
            _codes((*parquet_footer.OPTIONS.values(), "timeZone"))
            if own
            else f"[as in Spark's reader]({spark_options})"
        )
        yield from _format(name, by, columns, options)


def _format(name: str, by: str, columns: str, options: str) -> list[str]:
    return wrapped(f"`{name}`: read by {by}. Columns: {columns}. Options: {options}", "- ", "  ")


def _options() -> Iterator[str]:
    own = _codes(o for o in file_options.OWN_OPTIONS if o != "path")
    yield from wrapped(f"Every format of files also accepts {own}.")
    yield ""
    yield "No format that Spark reads accepts these options:"
    yield ""
    by_reason: dict[str, list[str]] = {}
    for option, reason in spark_files._REFUSED.items():
        by_reason.setdefault(reason, []).append(option)
    for reason, names in by_reason.items():
        yield from wrapped(f"{_codes(names)}: {reason}", "- ", "  ")


def _summary(groups: Iterable[_Group]) -> Iterator[str]:
    """A list of the groups, each with a link to its section."""
    for group in groups:
        anchor = re.sub(r"[^\w-]", "", group.title.lower().replace(" ", "-"))
        yield from wrapped(f"[{group.title}](#{anchor}). {group.why}", "- ", "  ")


def _refusals(file: str, groups: Iterable[_Group]) -> Iterator[str]:
    """A section per group: the cases of a file, by reason. Raises ValueError for a case without a group."""
    by_group: dict[_Group, dict[str, list[Mapping[str, str]]]] = {group: {} for group in groups}
    for case in yaml.safe_load((_CASES / file).read_text()):
        message = _NO_PLACE.sub("", case["error"].splitlines()[0])
        if (group := next((group for group in by_group if re.search(group.reason, message)), None)) is None:
            if _PLAIN_MISTAKES.match(message):
                continue
            raise ValueError(f"{file}: the case {case['name']!r} has no group in scripts/sql_page.py: {message}")
        reason = re.sub(r"^.* is not supported in [^:]+: ", "", _ALL_TYPES.sub("", message.partition(": ")[2]))
        by_group[group].setdefault(reason, []).append(case)
    for group, by_reason in by_group.items():
        yield from ("", f"#### {group.title}", "")
        for reason, found in by_reason.items():
            examples = [f"{case['name']}: {_code(' '.join(case['sql'].split()))}" for case in found]
            if len(examples) == 1:
                yield from wrapped(f"{examples[0]}. Reason: {reason}", "- ", "  ")
                continue
            yield from wrapped(f"Reason: {reason}", "- ", "  ")
            for example in examples:
                yield from wrapped(example, "  - ", "    ")
    yield ""


def _code(text: str) -> str:
    """A code span; it has two backticks on each side if the text contains one."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
