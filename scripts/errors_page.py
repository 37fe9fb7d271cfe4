"""Make docs/errors.md: every error class of the code with its messages, and its remedy from docs/errors.yaml.

The classes are read from the source text, without importing it. A class is an error if it descends from TussockError.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from scripts.page_lines import wrapped

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("jobs", "statestore", "plugins")
BRANCHES = {
    "InputError": "The input, a statement or a setting is wrong. Correct it, because a retry fails in the same way. "
    "Readers see no partial result.",
    "RetryableError": "The same call may succeed later. Airflow retries its tasks automatically.",
    "MustStopError": "Another writer was first. This run changed nothing that readers see, and nothing is lost. "
    "Look at the changes of the other writer.",
    "DamagedError": "Stored bytes differ from the bytes that were written, or the engine contradicts itself. "
    "`tussock scrub` reads the whole store and lists damaged and missing objects. Restore them from the bucket's "
    "versions or from a copy.",
    "TussockError": "The cause is the engine, or the machine that it runs on.",
}


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """One error class: its bases, its docstring, and its messages with `…` for the variable parts."""

    name: str
    bases: tuple[str, ...]
    meaning: str
    messages: tuple[str, ...]


def errors_page() -> str:
    """Return the text of docs/errors.md."""
    ways = ways_out()
    lines = [
        "# Find the remedy for an error",
        "",
        *wrapped(
            "Search this page for the name of the error, or for a few words of its message. `tussock` prints the "
            "message, and Airflow's logs contain the name as well. `…` stands for the variable parts of a message. "
            "[Words](design/words.md) explains the terms, such as barrier, unit, vnode and SST."
        ),
        "",
        "`make docs` makes this page from the code and from `errors.yaml`.",
    ]
    for branch, advice in BRANCHES.items():
        lines += ["", f"## {branch}", "", *wrapped(advice)]
        for error in sorted(user_errors(), key=lambda e: e.name):
            if branch_of(error) == branch:
                lines += ["", f"### {error.name}", "", *wrapped(error.meaning)]
                for message in error.messages:
                    lines += ["", *wrapped(message, "> ", "> ")]
                lines += ["", *wrapped(f"**Remedy:** {ways.get(error.name, '')}")]
    return "\n".join([*lines, ""])


def ways_out() -> dict[str, str]:
    """Read docs/errors.yaml: the remedy of each error, by class."""
    ways: dict[str, str] = yaml.safe_load((ROOT / "docs/errors.yaml").read_text())
    return ways


def user_errors() -> tuple[ErrorClass, ...]:
    """The error classes of the code in name order, without the branches."""
    return tuple(
        error for name, error in sorted(_classes().items()) if name not in BRANCHES and branch_of(error) is not None
    )


def branch_of(error: ErrorClass) -> str | None:
    """The branch that an error class belongs to, or None if the class is not an error of Tussock."""
    for base in error.bases:
        if base in BRANCHES:
            return base
        if base in _classes() and (branch := branch_of(_classes()[base])) is not None:
            return branch
    return None


@cache
def _classes() -> dict[str, ErrorClass]:
    found = {}
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases:
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                meaning = " ".join((ast.get_docstring(node) or "").split())
                found[node.name] = ErrorClass(node.name, bases, meaning, tuple(dict.fromkeys(_messages(node))))
    return found


def _messages(node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__str__":
            for inner in ast.walk(method):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    text = re.sub("…+", "…", _shape(inner.value))
                    if sum(character.isalpha() for character in text) > 8:  # skips messages such as `…: …`
                        yield text


def _shape(value: ast.expr) -> str:
    """A message with `…` in place of each inserted value."""
    match value:
        case ast.Constant(value=str(text)):
            return " ".join(text.replace("\n", " ").split(" "))
        case ast.JoinedStr():
            return "".join(_shape(part) for part in value.values)
        case ast.BinOp(op=ast.Add()):
            return _shape(value.left) + _shape(value.right)
        case _:
            return "…"
