"""Runs that one process shares and another maps: found by name, complete or absent, and removed with their process."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore.hummock.sorted_keys import SortedKeys
from tussock.statestore.table import shared_runs
from tussock.statestore.table.known_run import KnownRun
from tussock.statestore.table.shared_runs import SharedRuns

# Another process: it shares two runs of "rows" as of epoch 7, reports that, obeys commands, and waits for its end.
SIBLING = """
import sys
from tests.unit.statestore.table.test_shared_runs import run_of
from tussock.statestore.table.shared_runs import SharedRuns
showing = SharedRuns(lambda: [1])
runs, sign = showing.share_runs("rows", 7, [run_of(range(0, 10, 2)), run_of(range(50_000))])
print("shown", flush=True)
for line in sys.stdin:
    if line == "forget\\n":
        sign = None
    if line == "replace\\n":
        sign = None
        later = showing.share_runs("rows", 8, [run_of(range(3))])  # its files get the numbers that are free
    print("done", flush=True)
"""


def run_of(numbers: range) -> KnownRun:
    """Keys b"00000", b"00001" …, each with a row of its number and some text; every third key has none."""
    live = np.arange(len(numbers)) % 3 != 1
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "s": [None if n % 5 == 0 else "x" * (n % 4) for n in numbers]})
    return KnownRun(
        SortedKeys(pa.array([b"%05d" % n for n in numbers], pa.binary())),
        live,
        rows,
        np.full(len(numbers), 3, np.uint64),
    )


@pytest.fixture
def sibling() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SIBLING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "shown\n"
        yield process
        process.kill()


def tell(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def assert_shown(runs: tuple[KnownRun, ...]) -> None:
    for found, expected in zip(runs, (run_of(range(0, 10, 2)), run_of(range(50_000))), strict=True):
        assert found.rows.equals(expected.rows)
        assert found.keys.array.equals(expected.keys.array)
        assert found.live.tolist() == expected.live.tolist()
        assert found.used.tolist() == expected.used.tolist()


def test_another_process_finds_shared_runs_and_keeps_them_after_their_writer_ends(
    sibling: subprocess.Popen[str],
) -> None:
    runs = SharedRuns(lambda: [sibling.pid]).find_shared("rows", 7)
    assert_shown(runs)
    sibling.kill()
    sibling.wait()
    assert_shown(runs)
    assert SharedRuns(lambda: [sibling.pid]).find_shared("rows", 7) == ()


def test_rows_of_another_epoch_or_name_are_not_found(sibling: subprocess.Popen[str]) -> None:
    looking = SharedRuns(lambda: [sibling.pid])
    assert looking.find_shared("rows", 6) == ()
    assert looking.find_shared("other rows", 7) == ()
    assert len(looking.find_shared("rows", 7)) == 2


def test_both_processes_see_the_use_of_a_run(sibling: subprocess.Popen[str]) -> None:
    once, again = (SharedRuns(lambda: [sibling.pid]).find_shared("rows", 7) for _ in range(2))
    once[0].used[2] = 9
    assert again[0].used.tolist() == [3, 3, 9, 3, 3]


@pytest.mark.parametrize("word", ["forget", "replace"])
def test_a_run_that_its_writer_dropped_is_not_found_although_its_name_was_seen(
    sibling: subprocess.Popen[str], word: str
) -> None:
    looking = SharedRuns(lambda: [sibling.pid])
    assert looking.find_shared("other rows", 7) == ()  # from here on it has read the names
    tell(sibling, word)
    assert looking.find_shared("rows", 7) == ()


def test_a_sign_of_a_reused_process_id_shows_nothing() -> None:
    """The kernel reuses a process id as soon as it is free."""
    shown, sign = SharedRuns(lambda: [1]).share_runs("rows", 7, [run_of(range(5))])
    assert sign is not None
    assert shown[0].file is not None
    looking = SharedRuns(lambda: [os.getpid()])
    assert len(looking.find_shared("rows", 7)) == 1
    other, _ = SharedRuns(lambda: [1]).share_runs("rows", 8, [run_of(range(3))])
    assert other[0].file is not None
    os.dup2(other[0].file.fd, shown[0].file.fd)
    assert looking.find_shared("rows", 7) == ()


def test_a_process_alone_shows_nothing_and_pays_nothing() -> None:
    run = run_of(range(5))
    shown, sign = SharedRuns(list).share_runs("rows", 7, [run])
    assert sign is None
    assert shown[0] is run


def test_no_more_files_are_open_than_a_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_runs, "MOST_FILES", 3)
    showing = SharedRuns(lambda: [1])
    held = [showing.share_runs(f"rows {n}", 7, [run_of(range(5))]) for n in range(5)]
    assert [sign is not None for _, sign in held] == [True, True, True, False, False]
    looking = SharedRuns(lambda: [os.getpid()])
    assert [len(looking.find_shared(f"rows {n}", 7)) for n in range(5)] == [int(sign is not None) for _, sign in held]


def test_without_memory_rows_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    run = run_of(range(5))
    shown, sign = SharedRuns(lambda: [1]).share_runs("rows", 7, [run])
    assert sign is None
    assert shown[0] is run


SEEING = """
import os
from tussock.statestore.table.shared_runs import _children_beside_this_one
input()
print(os.getpid(), *_children_beside_this_one(), flush=True)
input()
"""


def test_the_children_of_one_parent_see_each_other() -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", SEEING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    try:
        for process, other in (processes, processes[::-1]):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            own, *seen = process.stdout.readline().split()
            assert int(own) == process.pid
            assert str(other.pid) in seen
            assert own not in seen
    finally:
        for process in processes:
            with process:
                process.kill()
