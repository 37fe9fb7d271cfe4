"""The pages of docs/ that are made from the code, or have blocks that are, so that they say what it does. `make docs` runs this.

A block begins with a line `<!-- made: NAME -->` and ends with `<!-- end -->`. docs/functions.md is made by tests/functions/registry.py.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts import errors_page, sql_page
from tussock.jobs import cli
from tussock.jobs.settings import pipeline
from tussock.jobs.shell.command import Command, build_parser

DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"(<!-- made: ([\w ]+) -->)\n.*?<!-- end -->", re.DOTALL)
_KEY = re.compile(r"^(?P<key>\"[\w.]+\"|\w+) = (?P<example>.+?)\s+# (?P<meaning>.+)$")


def pages() -> dict[Path, str]:
    """Each page and its text."""
    return {
        DOCS / "commands.md": commands_page(),
        DOCS / "pipeline-toml.md": pipeline_page(),
        DOCS / "sql.md": _filled(DOCS / "sql.md", sql_page.blocks()),
        DOCS / "errors.md": errors_page.errors_page(),
    }


def _filled(page: Path, blocks: Mapping[str, str]) -> str:
    """A page's text with its blocks made anew. Raises KeyError for a block that nothing makes."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{blocks[block[2]]}\n<!-- end -->", page.read_text())


def commands_page() -> str:
    """What `tussock --help` and the help of each command say."""
    parser = build_parser("", "", cli.COMMANDS)
    lines = [
        "# Commands",
        "",
        "What `tussock` does, command by command; made by `make docs` from the commands themselves.",
        "",
    ]
    lines += ["| command | |", "|---|---|"]
    lines += [f"| [`{c.name}`](#tussock-{c.name.replace(' ', '-')}) | {c.first} |" for c in cli.COMMANDS]
    for command in cli.COMMANDS:
        lines += [
            "",
            f"## tussock {command.name}",
            "",
            *textwrap.wrap(f"{command.first[0].upper()}{command.first[1:]}. {command.more}", 130),
            "",
        ]
        lines += ["```bash", *command.examples, "```"]
        if command.run is not None:
            lines += ["", "| argument | |", "|---|---|", *_arguments(_parser_of(parser, command))]
    return "\n".join([*lines, ""])


def _parser_of(parser: argparse.ArgumentParser, command: Command) -> argparse.ArgumentParser:
    """The parser of one command, with its arguments."""
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
        yield f"| `{shown.replace('|', chr(92) + '|')}` | {action.help} |"


def pipeline_page() -> str:
    """Every key of pipeline.toml: what it means, what is expected, an example."""
    lines = ["# pipeline.toml", "", *_introduction(), ""]
    expected, table = pipeline.known_keys(), ""
    lines += ["| key | | expected | example |", "|---|---|---|---|"]
    for line in textwrap.dedent(pipeline.__doc__ or "").splitlines():
        line = line.strip()
        if line.startswith("[") and "]" in line:
            table = line[1 : line.index("]")] + "."
        elif (found := _KEY.match(line)) is not None:
            key = f"{table}{found['key']}"
            wanted = expected.get(key, "a text")
            lines.append(f"| `{key}` | {found['meaning']} | {wanted} | `{found['example']}` |")
    return "\n".join([*lines, ""])


def _introduction() -> list[str]:
    said = (
        "A pipeline is a folder below `pipelines/`: SQL files, a `pipeline.toml`, and in `quality/` one Great Expectations suite a view. "
        "`tussock new NAME` makes one. A text may use `${NAME}` or `${NAME:-default}` from the environment; relative paths start at the "
        "folder that holds `pipelines/`. A key that is not listed here is an error, which names the nearest that is. Made by `make docs` "
        "from the code that reads the file."
    )
    return textwrap.wrap(said, 130)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
