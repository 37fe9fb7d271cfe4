"""Make the pages of docs/ that come from the code, and such blocks of sql.md and performance.md. `make docs` runs this.

A block begins with a line `<!-- made: NAME -->` and ends with `<!-- end -->`. tests/support/functions/registry.py makes
docs/functions.md.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from scripts import errors_page, performance_page, sql_page
from scripts.page_lines import wrapped
from tussock.jobs import cli
from tussock.jobs.executors.unbounded import UNBOUNDED
from tussock.jobs.settings import pipeline
from tussock.jobs.settings.retention import UNITS_MS
from tussock.jobs.settings.tables import NEW_STORE_UNITS
from tussock.jobs.settings.values import CronOrNone, Span
from tussock.jobs.shell.command import Command, build_parser

MAX_PLAIN_NUMBER = 100_000  # longer ones are shown in groups of digits
DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"(<!-- made: ([\w ]+) -->)\n.*?<!-- end -->", re.DOTALL)
_KEY = re.compile(r"^(?P<key>\"[\w.]+\"|[\w.]+) = (?P<example>.+?)\s+# (?P<meaning>.+)$")


def pages() -> dict[Path, str]:
    """The text of each page, by path."""
    return {
        DOCS / "commands.md": commands_page(),
        DOCS / "pipeline-toml.md": pipeline_page(),
        DOCS / "sql.md": _filled(DOCS / "sql.md", sql_page.blocks()),
        DOCS / "errors.md": errors_page.errors_page(),
        DOCS / "growing-costs.md": _filled(DOCS / "growing-costs.md", {"growing costs": "\n".join(_growing_costs())}),
        DOCS / "performance.md": _filled(DOCS / "performance.md", performance_page.blocks()),
    }


def _filled(page: Path, blocks: Mapping[str, str]) -> str:
    """A page's text with new blocks. Raises KeyError for a block that has no text."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{blocks[block[2]]}\n<!-- end -->", page.read_text())


def _growing_costs() -> Iterator[str]:
    """A section for each cost of an epoch that grows with the stored rows."""
    for cost in UNBOUNDED:
        yield from ("", f"## {cost.title[0].upper()}{cost.title[1:]}", "")
        yield from wrapped(f"Where: {cost.parts}.", "- ", "  ")
        yield from wrapped(f"Cost: an epoch {cost.cost}.", "- ", "  ")
        yield from wrapped(f"Instead: {cost.remedy}", "- ", "  ")
    yield ""


def commands_page() -> str:
    """Return the text of docs/commands.md: the help of each command."""
    parser = build_parser("", "", cli.COMMANDS)
    lines = [
        "# Look up a command",
        "",
        *wrapped(
            "`tussock --help` and `tussock COMMAND --help` show the same texts. [Words](design/words.md) explains the "
            "terms, such as barrier, unit, vnode and SST. `make docs` makes this page from the help texts."
        ),
        "",
        *wrapped(
            "`plan`, `apply`, `publish`, `status`, `check`, `branch`, `diff`, `undo` and `test` take the pipeline as a "
            "word: `tussock apply shop`. `new`, `preview`, `airflow-files` and `import` need none. All other commands "
            "take `--pipeline shop`, or `--store URI` for a store without a pipeline. `tussock --version` prints the "
            "versions of Tussock and of packages that it depends on."
        ),
        "",
    ]
    lines += ["## Exit codes", "", *_exit_codes(), "", "## Commands", ""]
    for command in cli.COMMANDS:
        link = f"[`{command.name}`](#tussock-{command.name.replace(' ', '-')})"
        lines += wrapped(f"{link}: {command.first}", "- ", "  ")
    for command in cli.COMMANDS:
        lines += [
            "",
            f"## tussock {command.name}",
            "",
            *wrapped(f"{command.first[0].upper()}{command.first[1:]}. {command.more}"),
            "",
        ]
        lines += ["```bash", *command.examples, "```"]
        if command.run is not None:
            lines += ["", *_arguments(_parser_of(parser, command))]
    return "\n".join([*lines, ""])


def _exit_codes() -> Iterator[str]:
    """The items of a list: each code with its meanings."""
    meanings: dict[str, list[str]] = {}
    code = ""
    for line in cli.EXIT_CODES.splitlines():
        first, _, rest = line.strip().partition(" ")
        code, meaning = (first, rest.strip()) if first.isdigit() else (code, line.strip())
        meanings.setdefault(code, []).append(meaning)
    for code, found in meanings.items():
        yield from wrapped(f"`{code}`: {'; '.join(found)}", "- ", "  ")


def _parser_of(parser: argparse.ArgumentParser, command: Command) -> argparse.ArgumentParser:
    """The parser of one command, complete with its arguments."""
    for word in command.name.split():
        choices = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = choices[word]
    parser.arguments(parser)  # type: ignore[attr-defined]
    return parser


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if "-h" in action.option_strings:
            continue
        names = [action.metavar] if isinstance(action.metavar, str) else list(action.metavar or ())
        values = " ".join(names) if names else "" if action.nargs == 0 else "|".join(action.choices or [action.dest])
        shown = " ".join([*action.option_strings, values]).strip()
        yield from wrapped(f"`{shown}`: {action.help}", "- ", "  ")


def pipeline_page() -> str:
    """Return the text of docs/pipeline-toml.md: each key with its meaning, its values and an example."""
    lines = ["# Configure a pipeline: pipeline.toml", "", *_introduction(), "", "## Top level", ""]
    table = ""
    for line in textwrap.dedent(pipeline.__doc__ or "").splitlines():
        line = line.strip()
        if line.startswith("[") and "]" in line:
            table = line[1 : line.index("]")] + "."
            about = line.partition("#")[2].strip()
            lines += ["", f"## [{table[:-1]}]", "", *wrapped(f"{about[0].upper()}{about[1:]}." if about else ""), ""]
        elif (found := _KEY.match(line)) is not None:
            lines += wrapped(_about(f"{table}{found['key']}", found["meaning"], found["example"]), "- ", "  ")
    return "\n".join([*lines, ""])


def _about(key: str, meaning: str, example: str) -> str:
    """The line of a key."""
    known = pipeline.known_keys()
    is_of_environment = key.startswith("env.")
    of = known.get(key.split(".", 2)[2] if is_of_environment else key) or next(
        one for name, one in known.items() if fnmatchcase(key, name)
    )
    parts = [f"`{key}`: {meaning}", f"Expected: {of.expected}"]
    default = "" if is_of_environment else _default(key, of)
    if default:
        parts.append(default)
    if f"`{example}`" not in default:
        parts.append(f"Example: `{example}`")
    return ". ".join(parts)


def _default(key: str, of: pipeline.KnownKey) -> str:
    """The default of a key as a sentence; empty for an optional key without one."""
    if of.required:
        return "Required in this table" if "." in key else "Required"
    if key == "epoch.units":
        return f"Default: unchanged; {NEW_STORE_UNITS} in a new store"
    return (
        f"Default: `{_toml(of.default)}`" if of.default not in (None, "") or isinstance(of.default, CronOrNone) else ""
    )


def _toml(value: object) -> str:
    """A default as it is written in pipeline.toml."""
    match value:
        case CronOrNone():
            return f'"{value or "none"}"'
        case Span():
            unit, size = next((unit, size) for unit, size in UNITS_MS.items() if value % size == 0)
            return f'"{value // size}{unit}"'
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= MAX_PLAIN_NUMBER else f"{value}"
        case float():
            return f"{value}"
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return f'"{value}"'


def _introduction() -> list[str]:
    return [
        *wrapped(
            "`tussock new NAME` creates a pipeline with a `pipeline.toml`. A pipeline is a folder below `pipelines/`. "
            "It contains SQL files, `pipeline.toml`, and in `quality/` one Great Expectations suite per view."
        ),
        "",
        *wrapped(
            "A string may contain `${NAME}` or `${NAME:-default}`, from `[variables]` or from environment variables. "
            "Relative paths start at the folder that contains `pipelines/`. A table `[env.prod]` changes settings in "
            "one [environment](operations.md#use-one-pipeline-in-several-environments). An unknown key is an error, "
            "and the message names the most similar known key. [Words](design/words.md) explains the terms, such as "
            "unit and vnode. `make docs` makes this page from the code that reads the file."
        ),
    ]


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
