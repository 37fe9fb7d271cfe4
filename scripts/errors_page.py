"""docs/errors.md: every error class of the code, what its message looks like, and the way out, which docs/errors.yaml says.

Read from the source text alone: a class that descends from TussockError is found wherever it stands.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("jobs", "statestore", "plugins")
BRANCHES = {
    "InputError": "What was given cannot be taken. Correct it; a retry meets it again. Nothing half done is visible.",
    "RetryableError": "The same call may succeed later. Airflow's tasks are retried by themselves.",
    "MustStopError": "Another writer was first. Nothing of this run is visible, and nothing is lost: look at what the other one did.",
    "DamagedError": "Stored bytes are not what was written, or the engine contradicts itself. `tussock scrub` reads the whole store and "
    "names what is damaged or missing; bring those objects back from the bucket's versions or a copy.",
    "TussockError": "The engine, or the machine it runs on, is at fault.",
}


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """One error: its branch, its docstring, and its messages with `…` for what differs."""

    name: str
    bases: tuple[str, ...]
    meaning: str
    messages: tuple[str, ...]


def errors_page() -> str:
    """The page."""
    ways = ways_out()
    lines = [
        "# Errors",
        "",
        "Every error that Tussock raises on purpose, with its way out. `tussock` prints the message; Airflow's logs show its name, too.",
        "Search this page for a few words of it: `…` stands for what differs from case to case. Made by `make docs` from the code and",
        "`errors.yaml`.",
    ]
    for branch, advice in BRANCHES.items():
        lines += ["", f"## {branch}", "", advice]
        for error in sorted(user_errors(), key=lambda e: e.name):
            if branch_of(error) == branch:
                lines += ["", f"### {error.name}", "", error.meaning]
                lines += ["", *(f"> {message}  " for message in error.messages)] if error.messages else []
                lines += ["", f"**Way out:** {ways.get(error.name, '')}"]
    return "\n".join([*lines, ""])


def ways_out() -> dict[str, str]:
    """The way out of each error, by class."""
    ways: dict[str, str] = yaml.safe_load((ROOT / "docs/errors.yaml").read_text())
    return ways


def user_errors() -> tuple[ErrorClass, ...]:
    """The error classes of the code, in name order, but for the branches themselves."""
    return tuple(
        error for name, error in sorted(_classes().items()) if name not in BRANCHES and branch_of(error) is not None
    )


def branch_of(error: ErrorClass) -> str | None:
    """The branch of errors that a class belongs to; None: it is no error of ours."""
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
                    if sum(character.isalpha() for character in text) > 8:  # not `…: …`
                        yield text


def _shape(value: ast.expr) -> str:
    """A message with `…` for what is filled in."""
    match value:
        case ast.Constant(value=str(text)):
            return " ".join(text.replace("\n", " ").split(" "))
        case ast.JoinedStr():
            return "".join(_shape(part) for part in value.values)
        case ast.BinOp(op=ast.Add()):
            return _shape(value.left) + _shape(value.right)
        case _:
            return "…"
