"""public.txt holds the public names of `tussock` and the signatures of Session's methods; docs/python.md has each.

A change of public.txt is a change for users and belongs in changelog.d. `--update-cases` rewrites the file.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tussock

ROOT = Path(__file__).parents[3]
SURFACE = Path(__file__).with_name("public.txt")
PAGE = ROOT / "docs" / "python.md"


def surface() -> Iterator[str]:
    """A line for each public name, and for each public method of Session with its arguments."""
    for name in sorted(tussock.__all__):
        kind = getattr(tussock, name)
        yield (
            name
            if not isinstance(kind, type)
            else f"class {name}({', '.join(base.__name__ for base in kind.__bases__)})"
        )
    tree = ast.parse((ROOT / "jobs" / "session.py").read_text())
    (session,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Session")
    for method in session.body:
        if isinstance(method, ast.FunctionDef) and (method.name == "__init__" or not method.name.startswith("_")):
            returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
            yield f"Session.{method.name}({ast.unparse(method.args)}){returns}"


def test_the_public_surface_is_the_listed_one(pytestconfig: pytest.Config) -> None:
    found = "".join(f"{line}\n" for line in surface())
    if pytestconfig.getoption("--update-cases"):
        SURFACE.write_text(found)
    assert found == SURFACE.read_text(), "users rely on these names: see the docstring of this test"


def test_the_page_documents_every_public_name_and_every_argument_of_the_session() -> None:
    text = PAGE.read_text()
    names = [name for name in tussock.__all__ if f"`{name}" not in text]
    methods = [line for line in surface() if line.startswith("Session.") and "__init__" not in line]
    assert names + [line for line in methods if f"`{line.partition('(')[0]}`" not in text] == []
    (made,) = (line for line in surface() if line.startswith("Session.__init__"))
    arguments = set(re.findall(r"(\w+): ", made))
    assert arguments - set(re.findall(r"\w+", " ".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))) == set()


def test_every_public_name_is_listed_for_editors_and_imported_at_its_first_use() -> None:
    tree = ast.parse((ROOT / "tussock" / "__init__.py").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed | {"__version__"} == set(tussock.__all__)
    light = (
        "import sys, tussock; assert not [m for m in sys.modules if m.startswith(('tussock.', 'pyarrow', 'pyspark'))]"
    )
    subprocess.run([sys.executable, "-c", light], cwd=ROOT, check=True)
