"""The operations room: it prints nothing and imports no entry point. Entry points change a store only through it."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.statestore.meta.store import MetaStore

ROOT = Path(__file__).resolve().parents[4]
OPERATIONS = sorted(file for room in ("operations", "viewtests") for file in (ROOT / "jobs" / room).glob("*.py"))
ENTRY_POINTS = sorted(
    [ROOT / "jobs/submitted.py", *(file for room in ("jobs/shell", "plugins") for file in (ROOT / room).rglob("*.py"))]
)
STRANGERS = (
    "airflow",
    "argparse",
    "fastapi",
    "html",
    "jinja2",
    "starlette",
    "tussock_",
    "tussock.jobs.shell",
    "tussock.jobs.submitted",
)
CHANGING_ROOMS = tuple(f"tussock.jobs.{room}" for room in ("driver", "trouble", "barriers", "upkeep"))
READING = {
    "tussock.jobs.barriers.detour": {"Detour"},
    "tussock.jobs.driver.summary": {"show_summary"},
    "tussock.jobs.upkeep.rebalance": {
        "measure_loads",
        "plan_rebalance",
    },  # for the page that shows moves before the rebalance
}
"""Names that entry points import from rooms that change a store, without errors."""
CHANGING = {
    *(
        "append_log",
        "close_compaction",
        "close_lapsed_compactions",
        "commit_compaction",
        "commit_epoch",
        "inject_barrier",
    ),
    *(
        "move_ssts",
        "move_vnodes",
        "open_compaction",
        "pin_epoch",
        "publish",
        "put_in_force",
        "put_payload",
        "raise_floor",
        "renew_lease",
        "renew_compactions",
    ),
    *("rescale", "apply_retention", "seal_epoch", "supersede_barrier", "unpin"),
}
"""Methods of MetaStore that write."""


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of each import, including lazy ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def faults_of_operation(source: str) -> list[str]:
    tree = ast.parse(source)
    faults = [f"imports {module}" for module, name in imports(tree) if f"{module}.{name}".startswith(STRANGERS)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "print":
            faults.append(f"prints in line {node.lineno}")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
            faults.append(f"writes to {ast.unparse(node)} in line {node.lineno}")
    return faults


def faults_of_entry_point(source: str) -> list[str]:
    tree = ast.parse(source)
    faults = []
    for module, name in imports(tree):
        if module.startswith(CHANGING_ROOMS) and not (name.endswith("Error") or name in READING.get(module, ())):
            faults.append(f"imports {name} from {module}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            receiver = ast.unparse(node.func.value).split("(")[0]
            if receiver.endswith("meta") or receiver == "MetaStore":
                faults.append(f"calls {receiver}.{node.func.attr} in line {node.lineno}")
    return faults


@pytest.mark.parametrize("file", OPERATIONS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_operations_print_nothing_and_import_no_entry_point(file: Path) -> None:
    assert faults_of_operation(file.read_text()) == []


@pytest.mark.parametrize("file", ENTRY_POINTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_entry_points_change_a_store_only_through_operations(file: Path) -> None:
    assert faults_of_entry_point(file.read_text()) == []


def test_the_rules_find_forbidden_code() -> None:
    assert faults_of_operation("import airflow.sdk\ndef f() -> None:\n    print(1)\n    sys.stdout.write('')") == [
        "imports airflow.sdk",
        "prints in line 3",
        "writes to sys.stdout in line 4",
    ]
    assert faults_of_operation("from tussock.jobs import shell\nfrom tussock_steps import opened") == [
        "imports tussock.jobs",
        "imports tussock_steps",
    ]
    entry = (
        "from tussock.jobs.trouble.supersede import "
        "abandon_barrier\nat.meta.unpin(1)\nchosen_meta(a).publish(2)\nat.meta.read_latest()"
    )
    assert faults_of_entry_point(entry) == [
        "imports abandon_barrier from tussock.jobs.trouble.supersede",
        "calls at.meta.unpin in line 2",
        "calls chosen_meta.publish in line 3",
    ]


def test_the_methods_that_change_a_store_are_methods_of_the_meta_store() -> None:
    there = {name for name, _ in inspect.getmembers(MetaStore, inspect.isfunction)}
    assert there >= CHANGING
