"""The processes of an epoch reach time, sockets, threads and processes through jobs/outside/world.py only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline

JOBS = Path(__file__).parents[4] / "jobs"
FILES = [
    *sorted((JOBS / "exchange").glob("*.py")),
    *sorted((JOBS / "workers").glob("*.py")),
    JOBS / "task" / "stage.py",
    JOBS / "driver" / "one_stage.py",
    JOBS / "driver" / "slots.py",
    JOBS / "driver" / "spark_runner.py",
]
#: By module: the names that go around `world`. None: all of them.
AROUND: dict[str, set[str] | None] = {
    "time": None,
    "secrets": None,
    "random": None,
    "subprocess": {"Popen", "run", "call", "check_call", "check_output"},
    "threading": {"Thread", "Timer", "Lock", "RLock", "Condition", "Event", "Semaphore"},
    "selectors": {"DefaultSelector", "SelectSelector", "PollSelector", "EpollSelector"},
    "socket": {"create_server", "create_connection", "socketpair"},
    "os": {"kill", "killpg", "getpid"},
}


def goes_around(text: str) -> Iterator[str]:
    """The names in a module's text that reach the world without `world`."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                names = [name]
            case ast.ImportFrom(module=str(module)):
                names = [alias.name for alias in node.names]
            case _:
                continue
        if module in AROUND:
            around = AROUND[module]
            yield from (f"{module}.{name}" for name in names if around is None or name in around)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(JOBS)))
def test_a_module_reaches_the_world_through_one_module(file: Path) -> None:
    assert list(goes_around(file.read_text())) == []


def test_other_ways_are_noticed() -> None:
    text = "import time, socket\nfrom threading import Thread\ntime.time()\nsocket.create_server(('', 0))"
    assert list(goes_around(text)) == ["threading.Thread", "time.time", "socket.create_server"]


def test_a_deadline_is_counted_once_and_again_after_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(world, "now_s", lambda: now)
    ends = Deadline(5)
    now = 103.0
    assert (ends.left_s, ends.has_passed, str(ends)) == (2.0, False, "5 s")
    now = 105.0
    assert (ends.left_s, ends.has_passed) == (0.0, True)
    ends.renew()
    assert (ends.left_s, ends.has_passed) == (5.0, False)
