"""Names of values tell what they hold. `found` and `kept` tell only how a value came. Names of classes are nouns."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("jobs", "statestore", "plugins", "dags")
#: The most bindings of each name. Some are fields of stored or printed forms, such as `kept` of a pinned file.
MOST_BINDINGS = {"found": 11, "kept": 18, "held": 19, "made": 14, "given": 25, "told": 3, "met": 7, "thing": 0}
#: The most public classes whose name is one participle, such as `Replayed`.
MOST_PARTICIPLES = 12


def bound_names(text: str) -> Iterator[str]:
    """Each name that a module binds: a variable, a parameter, a field, an attribute or a caught error."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def sources() -> Iterator[tuple[str, str]]:
    """File and text of each module."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), file.read_text()


def test_few_values_are_named_by_how_they_came() -> None:
    places = {name: Counter[str]() for name in MOST_BINDINGS}
    for file, text in sources():
        for name, count in Counter(bound_names(text)).items():
            if name in places:
                places[name][file] += count
    too_many = {name: found for name, found in places.items() if found.total() > MOST_BINDINGS[name]}
    assert too_many == {}, "give each value the name of what it is"


def participles(text: str) -> list[str]:
    """The public classes of a module whose name is one word that ends in -ed or -ing."""
    names = (node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    return [name for name in names if re.fullmatch(r"[A-Z][a-z]+(ed|ing)", name)]


def test_few_classes_are_named_by_a_participle() -> None:
    names = [f"{file}: {name}" for file, text in sources() for name in participles(text)]
    assert len(names) <= MOST_PARTICIPLES, names


def test_a_participle_is_known_by_its_form() -> None:
    assert participles("class Replayed: pass\nclass _Kept: pass\nclass ReplayResult: pass\n") == ["Replayed"]


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
