"""Seeds of the simulation, and what makes their results true: equal histories, and no way around the simulation."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import process_state

ROOT = Path(__file__).parents[3]
SEEDS, DEEP_SEEDS = 2_000, 200_000
PARTS, DEEP_PARTS = 4, 40  # processes, one after another or side by side

#: The rooms that run inside the simulation.
ROOMS = ("statestore", "jobs/exchange", "jobs/workers", "jobs/outside", "jobs/task", "jobs/driver", "jobs/upkeep")
#: Modules of the standard library that reach the clock, the disk, other processes, threads or chance.
OUTSIDE = frozenset(
    """os io time socket select selectors threading _thread queue subprocess multiprocessing signal fcntl random secrets
    uuid tempfile shutil pathlib concurrent asyncio socketserver http urllib ssl mmap gc sched ctypes resource
    """.split()  # noqa: SIM905
)
TEXT_ONLY = {"urllib.parse"}  # in a package of OUTSIDE, and reaches nothing
#: Those that the simulation does not have, by module of the engine, with the reason.
EXCUSED = {
    "statestore/allocator.py: ctypes": "memory of the C library",
    "statestore/hummock/cache_file.py: mmap": "the disk cache, which no simulated process configures",
    "statestore/hummock/block_source.py: mmap": "memory without a file",
    "statestore/objectstore/hdfs.py: http.client": "a store that no simulated process opens",
    "statestore/table/memory_file.py: mmap": "rows in shared memory between Spark's workers; switched off",
    "jobs/exchange/channel.py: ssl": "encryption in memory (MemoryBIO)",
    "jobs/exchange/tls.py: ssl": "encryption in memory (MemoryBIO)",
}


def run(*arguments: str) -> str:
    """The output of the command. Fails if a seed does."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.simulation", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def run_seeds(part: int, parts: int, seeds: int) -> None:
    """Run a part of the first `seeds` seeds."""
    run("--known", "--seeds", str(seeds // parts), "--first", str(part * seeds // parts))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_promise(part: int) -> None:
    run_seeds(part, PARTS, SEEDS)


@pytest.mark.deep
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("part", range(DEEP_PARTS))
def test_no_history_of_many_breaks_a_promise(part: int) -> None:
    run_seeds(part, DEEP_PARTS, DEEP_SEEDS)


def test_a_seed_has_the_same_history_in_every_process() -> None:
    def digests(first: int, seeds: int) -> dict[str, str]:
        output = run("--known", "--digests", "--first", str(first), "--seeds", str(seeds))
        return dict(re.findall(r"^(\d+) ([0-9a-f]{24})$", output, re.MULTILINE))

    together = digests(0, 24)
    assert len(set(together.values())) == 24
    assert digests(12, 12) == {seed: digest for seed, digest in together.items() if int(seed) >= 12}


#: A seed that finds the fault of each fix, without it.
FOUND_BY = {"slots": 19, "send": 2, "silence": 1, "folders": 67, "names": 2, "connections": 0}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fix", FOUND_BY)
def test_a_seed_finds_a_fault_again_if_its_fix_is_taken_back(fix: str) -> None:
    seed = ("--seed", str(FOUND_BY[fix]))
    with pytest.raises(AssertionError, match=rf"seeds?, 1 failed|again: .* --without {fix}"):
        run(*seed, "--without", fix)


def outside_modules(text: str) -> Iterator[str]:
    """The modules of OUTSIDE that a module imports."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                found = [module]
            case _:
                continue
        yield from (name for name in found if name.partition(".")[0] in OUTSIDE and name not in TEXT_ONLY)


def test_the_engine_reaches_the_outside_through_simulated_modules_only() -> None:
    simulated = set(run("--list-modules").split())
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.py"))
        for name in outside_modules(file.read_text())
        if name not in simulated
    }
    assert found - EXCUSED.keys() == set()


#: State of modules that simulated processes may share, by the guard that tests/support/process_state.yaml gives it.
SHARED = re.compile(
    r"function of|frozen|constant|never changed|filled by imports|per thread|stateless|no state|a lock, held"
    r"|only grows|keeps nothing between calls|never written|always the same"
)
#: Other state that they may share, with the reason.
SHARED_BY_REASON = {
    "jobs/kernels/kernel.py: _of_parent": "one kernel serves all processes: no thread waits within a query",
    "jobs/kernels/kernel.py: finalize": "as above",
    "jobs/kernels/python_function.py: _load_installed": "the stores have no Python functions",
    "jobs/kernels/python_function.py: sys.modules": "the stores have no Python functions",
    "jobs/workers/worker.py: os.environ.update": "each process has its own os.environ",
    "jobs/workers/fork_server.py: os.environ": "each process has its own os.environ",
    "jobs/task/python_daemon.py: gc.freeze": "Spark's daemon is not simulated",
    "jobs/task/collector.py: gc.freeze": "there is no collector",
    "jobs/task/collector.py: gc.unfreeze": "there is no collector",
    "statestore/allocator.py: library.mallopt": "memory of the C library",
    "statestore/hummock/disk_cache.py: os.register_at_fork": "the hooks run in simulated children",
    "statestore/objectstore/s3.py: _client_of": "no simulated process uses S3",
    "statestore/objectstore/clouds.py: _client_of": "no simulated process uses such a store",
    "statestore/objectstore/clouds.py: _use": "no simulated process uses such a store",
    "statestore/memory.py: memory_limit": "set before each stage; the simulated pipelines set no limit",
    "statestore/objectstore/s3.py: _settled_digest_of": "no simulated process uses S3",
    "statestore/local_disk.py: finalize": "it runs in the process that made the folder",
    "statestore/forks.py: _locks": "a child frees its own state of them only",
    "statestore/forks.py: os.register_at_fork": "the hooks run in simulated children",
    "jobs/outside/world.py: create_connection": "a simulated function",
    "jobs/outside/world.py: create_server": "a simulated function",
    "statestore/decoding.py: _made": "decoders are functions of their type",
}


def test_the_memory_of_modules_is_divided_between_simulated_processes() -> None:
    divided = set(run("--list-memory").splitlines())
    entries = process_state.guards()
    rooms = tuple(f"{room}/" for room in ROOMS)
    assert len(entries) > 100
    shared = {
        name
        for name, guard in entries.items()
        if name.startswith(rooms) and name not in divided and name not in SHARED_BY_REASON and not SHARED.search(guard)
    }
    assert shared == set(), "add them to CACHED, OBJECTS or NAMES in simulation/engine.py, or give a reason here"
    assert divided - set(entries) == set()


def test_an_import_of_a_module_that_is_not_simulated_is_noticed() -> None:
    text = "import asyncio\nfrom http.server import HTTPServer\ndef f():\n    import sched, re"
    assert list(outside_modules(text)) == ["asyncio", "http.server", "sched"]
