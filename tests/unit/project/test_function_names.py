"""Names of functions tell what they do: a verb and a noun. Properties and protocols may have short names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("jobs", "statestore", "plugins", "dags")
PARTICIPLES = frozenset(
    [
        "kept",
        "held",
        "met",
        "shown",
        "found",
        "made",
        "taken",
        "written",
        "given",
        "known",
        "begun",
        "done",
        "gone",
        "lost",
        "built",
        "sent",
        "told",
        "thrown",
        "seen",
    ]
)
#: The largest shares of all functions, in percent.
MOST_LONE_PARTICIPLES = 0.6
MOST_OF_ONE_WORD = 15.0


def function_names(text: str) -> list[str]:
    """The names of the functions of a module, without leading and trailing underscores."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [function.name.strip("_") for function in functions if not function.name.startswith("__")]


def is_participle(name: str) -> bool:
    """Whether a name is a lone participle, which does not tell of what."""
    return name in PARTICIPLES or re.fullmatch(r"[a-z]{3,}ed", name) is not None


@pytest.fixture(scope="module")
def names() -> list[str]:
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return [name for file in files for name in function_names(file.read_text())]


def test_few_functions_are_named_by_a_lone_participle(names: list[str]) -> None:
    participles = [name for name in names if is_participle(name)]
    assert 100 * len(participles) / len(names) <= MOST_LONE_PARTICIPLES, sorted(participles)


def test_few_functions_have_a_name_of_one_word(names: list[str]) -> None:
    short = [name for name in names if "_" not in name]
    assert 100 * len(short) / len(names) <= MOST_OF_ONE_WORD, sorted(short)


def test_a_participle_is_known_by_its_form() -> None:
    source = "def _parted(): pass\ndef kept(): pass\ndef keep_rows(): pass\ndef __init__(self): pass\n"
    assert [name for name in function_names(source) if is_participle(name)] == ["parted", "kept"]
