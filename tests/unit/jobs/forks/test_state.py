"""A forked child of a process that uses the engine: its own names, pins, locks, threads and connections."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support import process_state

ROOT = Path(__file__).parents[4]
ROOMS = ("jobs", "statestore", "plugins")

#: Calls whose result belongs to the process that made it: threads, locks, connections, folders, its number.
_BOUND = frozenset(
    [
        "Condition",
        "Connection",
        "Event",
        "Lock",
        "NamedTemporaryFile",
        "Popen",
        "ProcessPoolExecutor",
        "RLock",
        "Semaphore",
        "TemporaryDirectory",
        "TemporaryFile",
        "Thread",
        "ThreadPoolExecutor",
        "Timer",
        "create_connection",
        "create_pair",
        "create_server",
        "duckdb.connect",
        "finalize",
        "getpid",
        "memfd_create",
        "mkdtemp",
        "process_id",
        "register_at_fork",
        "socketpair",
        "start_process",
    ]
)


def bound_in(tree: ast.Module) -> Iterator[str]:
    """The calls in a module that make something of this process. The object of a `with` block ends with the block."""
    blocks = {id(item.context_expr) for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in blocks:
            name = ast.unparse(node.func)
            for bound in (name, name.rpartition(".")[2]):
                if bound in _BOUND:
                    yield bound


def test_all_that_is_bound_to_a_process_is_listed_with_its_part_in_a_forked_child() -> None:
    listed = process_state.inherited_calls()
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        for name in bound_in(ast.parse(file.read_text()))
    }
    assert sorted(found - listed) == [], f"add it to {process_state.PATH}, and use statestore/forks.py"
    assert sorted(listed - found) == [], f"entries of {process_state.PATH} without a call"
