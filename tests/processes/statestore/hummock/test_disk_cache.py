"""The disk cache: warm for the next process, bounded, and never the cause of an error or a wrong row."""

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.support.statestore.hummock import disk_cache as shared
from tests.support.statestore.hummock.disk_cache import ALL, ROWS, cache_path
from tests.support.statestore.hummock.remote_store import RemoteStore, make_store, reader, wrong_rows
from tussock.statestore.hummock.cache_file import MIN_BYTES
from tussock.statestore.hummock.disk_cache import CachedObject, DiskCache
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.local import LocalObjectStore

_no_warning_unless_expected = shared._no_warning_unless_expected
remote = shared.remote
version = shared.version
MODULE = "tests.support.statestore.hummock.remote_store"


@pytest.fixture
def on_disk(tmp_path: Path) -> tuple[RemoteStore, HummockVersion, Path]:
    """A store that other processes can open."""
    folder = tmp_path / "store"
    remote = RemoteStore(LocalObjectStore(folder))
    version = make_store(remote, 3 * ROWS)  # 7 MB: more than the smallest cache
    (folder / "version.json").write_bytes(msgspec.json.encode(version))
    return remote, version, folder


def start(store: Path, cache: Path, seed: int, rounds: int, capacity: int, *rest: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", MODULE, str(store), str(cache), *map(str, (seed, rounds, capacity, *rest))]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
    )


@pytest.mark.kill
@pytest.mark.deep
def test_other_processes_find_it_warm_and_share_one_bound(
    on_disk: tuple[RemoteStore, HummockVersion, Path], tmp_path: Path
) -> None:
    _, _, store = on_disk
    warm = start(store, tmp_path / "cache", 5, 3, 64 << 20)
    assert json.loads(warm.communicate()[0].splitlines()[-1])["gets"] > 0
    again = start(store, tmp_path / "cache", 5, 3, 64 << 20)
    found = json.loads(again.communicate()[0].splitlines()[-1])
    assert found["hits"] > 0
    assert (found["wrong"], found["gets"], found["damaged"]) == (0, 0, 0)
    small = MIN_BYTES
    four = [start(store, tmp_path / "small", seed, 60, small) for seed in range(4)]
    answers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in four]
    assert [answer["wrong"] for answer in answers] == [0] * 4
    assert all(answer["hits"] > 0 for answer in answers)
    assert cache_path(tmp_path / "small").stat().st_size <= small
    assert sum(file.stat().st_blocks * 512 for file in (tmp_path / "small").rglob("*")) <= small + 8192


@pytest.mark.kill
def test_processes_killed_while_they_write_leave_right_rows(
    on_disk: tuple[RemoteStore, HummockVersion, Path], tmp_path: Path
) -> None:
    remote, version, store = on_disk
    rng = random.Random(11)
    for attempt in range(6):
        two = [start(store, tmp_path / "cache", 100 * attempt + number, 0, MIN_BYTES) for number in range(2)]
        for process in two:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n"
        with suppress(subprocess.TimeoutExpired):  # killed at some moment of their work
            two[0].wait(rng.uniform(0.01, 0.2))
        for process in two:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for _ in range(5):
            assert (
                wrong_rows(reader(remote, version, DiskCache(tmp_path / "cache", MIN_BYTES)), rng.sample(ALL, 200))
                == []
            )


@pytest.mark.kill
def test_a_kernel_that_lets_the_file_grow_no_more_is_no_error(
    on_disk: tuple[RemoteStore, HummockVersion, Path], tmp_path: Path
) -> None:
    _, _, store = on_disk
    DiskCache(tmp_path / "cache", 8 << 20).write_pieces(
        CachedObject.of_object("s3://b", "x", 10), 0, b"0123456789"
    )  # made before the limit
    process = start(store, tmp_path / "cache", 1, 5, 8 << 20, 1 << 20)
    out, err = process.communicate()
    assert json.loads(out.splitlines()[-1])["wrong"] == 0
    assert err.count("RuntimeWarning") == 1
