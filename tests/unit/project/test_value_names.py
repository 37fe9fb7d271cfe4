"""Names of values tell what they hold. `found` tells only how a value came."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("jobs", "statestore", "plugins", "dags")
#: The most bindings of this name. A field of `tussock status --json` has it, and it is in the format of that command.
MOST_NAMED_FOUND = 28


def bound_names(text: str) -> Iterator[str]:
    """Each name that a module binds: a variable, a parameter, a field, an attribute or a caught error."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def test_few_values_are_named_found() -> None:
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    counts = Counter({str(file.relative_to(ROOT)): [*bound_names(file.read_text())].count("found") for file in files})
    assert counts.total() <= MOST_NAMED_FOUND, {file: count for file, count in counts.items() if count}


def test_every_kind_of_binding_is_seen() -> None:
    source = """
class Answer:
    found: int

def look(found, *, other=lambda found: found):
    self.found = [found for found in other]
    try:
        if (found := 1):
            match found:
                case [found] | {"a": found}:
                    pass
    except ValueError as found:
        pass
"""
    assert [*bound_names(source)].count("found") == 9
