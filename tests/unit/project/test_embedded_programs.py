"""Programs inside text constants, which other processes run, import only what exists. No type checker reads them."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from tests.support.front_pages import ROOT

IMPORT = re.compile(r"^[ \t]*(?:from|import) tussock\b", re.M)


def embedded_programs(text: str) -> Iterator[str]:
    """The programs in the text constants of a module; the gaps of an f-string are the name `x`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = [node.value]
        else:
            continue
        program = "".join(map(str, parts))
        if IMPORT.search(program):
            yield program


def missing_imports(program: str) -> list[str]:
    """The names that a program imports from the package and that do not exist. None of a text that is no program."""
    try:
        tree = ast.parse(program)
    except SyntaxError:
        return []
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tussock":
            for alias in node.names:
                try:
                    module = importlib.import_module(str(node.module))
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
                except ImportError:
                    missing.append(f"{node.module}.{alias.name}")
    return missing


@pytest.mark.parametrize("folder", ["benchmarks", "docker", "jobs", "plugins", "scripts", "tests"])
def test_programs_in_texts_import_what_exists(folder: str) -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if IMPORT.search(text := path.read_text())
        for program in embedded_programs(text)
        for name in missing_imports(program)
    ]
    assert missing == []


def test_a_renamed_function_is_found() -> None:
    text = (
        'A = """\nfrom tussock.jobs.driver.epoch import gone, run_epoch\nfrom tussock.jobs.driver import epoch\n"""\n'
    )
    assert [missing_imports(program) for program in embedded_programs(text)] == [["tussock.jobs.driver.epoch.gone"]]
