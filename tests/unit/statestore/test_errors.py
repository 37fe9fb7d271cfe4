"""Errors declare their facts, as dataclasses declare their fields."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.statestore.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


class RowFaultError(InputError):
    """An error with a default."""

    path: str
    row: int
    reason: str = "unknown"


class ColumnFaultError(RowFaultError):
    """An error that adds a fact to those of its base."""

    column: str = "?"


def test_an_error_has_its_facts_as_attributes_and_as_arguments() -> None:
    by_name = RowFaultError("/a.csv", reason="late", row=7)
    assert (by_name.path, by_name.row, by_name.reason) == by_name.args == ("/a.csv", 7, "late")
    assert RowFaultError("/a.csv", 7).args == ("/a.csv", 7, "unknown")
    assert ColumnFaultError("/a.csv", 7, column="k").args == ("/a.csv", 7, "unknown", "k")
    assert InputError("a sentence").args == ("a sentence",)


def test_an_error_survives_pickle_with_its_facts() -> None:
    error = pickle.loads(pickle.dumps(ColumnFaultError("/a.csv", row=7)))
    assert vars(error) == {"path": "/a.csv", "row": 7, "reason": "unknown", "column": "?"}
    assert error.args == ("/a.csv", 7, "unknown", "?")


@pytest.mark.parametrize(("args", "named"), [(("/a", 1, "x", "y"), {}), (("/a",), {}), (("/a", 1), {"path": "/b"})])
def test_an_error_refuses_other_facts_than_its_own(args: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="RowFaultError has the facts path, row, reason; given: "):
        RowFaultError(*args, **named)  # type: ignore[arg-type]


def only_storing(tree: ast.AST) -> Iterator[str]:
    """The error classes whose `__init__` only stores its arguments under their own names."""
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name.endswith("Error")):
        for method in (node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"):
            names = [argument.arg for argument in method.args.args[1:]]
            first, *others = (ast.unparse(node) for node in method.body if not isinstance(node, ast.Pass))
            stored = [ast.unparse(node.value).strip("()") for node in method.body if isinstance(node, ast.Assign)]
            plain = first == f"super().__init__({', '.join(names)})" and len(others) == len(stored)
            if plain and ", ".join(stored) == ", ".join(names):
                yield kind.name


def test_no_error_stores_its_facts_one_by_one() -> None:
    files = [file for room in ("jobs", "statestore") for file in (ROOT / room).rglob("*.py")]
    assert [name for file in files for name in only_storing(ast.parse(file.read_text()))] == []
    code = "class AError(E):\n def __init__(self, a, b):\n  super().__init__(a, b)\n  self.a, self.b = a, b"
    assert list(only_storing(ast.parse(code))) == ["AError"]
