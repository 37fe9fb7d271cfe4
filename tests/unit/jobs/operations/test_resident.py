"""A process that runs epochs again and again: its turn, its errors and its end. No JVM."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from tests.support.jobs.driver.embedded import insert, rows
from tests.support.waiting import eventually
from tests.unit.jobs.facts.test_status import files, shop, write
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.operations import resident
from tussock.jobs.operations.resident import Turn, TurnHolder, run_repeatedly
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.tables import EpochSettings, Runner
from tussock.jobs.shell.pipeline_commands import stop_on_signals
from tussock.jobs.sources.parquet_footer import _footers
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.errors import InputError, MustStopError, RetryableError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "RENEW_S", 0.02)
    monkeypatch.setattr(resident, "DEAD_S", 0.5)


@pytest.fixture
def two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this test do not know each other's end: only signs of life count."""
    monkeypatch.setattr(resident, "_has_ended", lambda holder: False)


def turn_of(meta: MetaStore, writer: str, told: list[str]) -> Turn:
    return Turn(meta.objects, writer, told.append)


@contextmanager
def waiting(turn: Turn) -> Iterator[Event]:
    """The event that is set when the turn is taken in another thread."""
    taken, stop = Event(), Event()
    thread = Thread(target=lambda: turn.wait(stop, 0.01) and taken.set())
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join(PATIENCE_S)


@pytest.mark.usefixtures("two_hosts")
def test_the_second_process_waits_until_the_first_one_ends(shop: MetaStore) -> None:
    told: list[str] = []
    first, second = turn_of(shop, "a", told), turn_of(shop, "b", told)
    assert first.wait(Event(), 0.01)
    with waiting(second) as taken:
        with first.keep_turn():
            eventually("the second one tells who is first", lambda: bool(told), PATIENCE_S)
            assert not taken.wait(2 * resident.DEAD_S), "the first one shows signs of life"
        assert taken.wait(PATIENCE_S)
    assert told == [f"process {os.getpid()} on {os.uname().nodename} runs the epochs of this store; this one takes over"
                    " when it ends"]  # fmt: skip


@pytest.mark.usefixtures("two_hosts")
def test_the_second_process_takes_over_from_a_dead_one_which_notices_if_it_comes_back(shop: MetaStore) -> None:
    first, second = turn_of(shop, "a", []), turn_of(shop, "b", [])
    assert first.wait(Event(), 0.01)  # and shows no sign, as a process that stands still
    assert second.wait(Event(), 0.01)
    with second.keep_turn(), first.keep_turn():
        eventually("the first one notices", lambda: not first.has_turn(), PATIENCE_S)
        assert second.has_turn()


@pytest.mark.usefixtures("two_hosts")
def test_who_waits_ends_with_its_signal(shop: MetaStore) -> None:
    assert turn_of(shop, "a", []).wait(Event(), 0.01)
    stop = Event()
    stop.set()
    assert not turn_of(shop, "b", []).wait(stop, 0.01)


def test_a_process_that_was_killed_on_this_host_is_followed_at_once(
    shop: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "DEAD_S", 3600.0)
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = TurnHolder("killed", socket.gethostname(), killed.pid)
    shop.objects.put("runs/resident.json", msgspec.json.encode(holder))
    stop = Event()
    stop.set()
    assert not turn_of(shop, "next", []).wait(stop, 0.01), "it lives"
    killed.kill()
    killed.communicate()
    assert turn_of(shop, "next", []).wait(Event(), 0.01)


def test_who_waits_goes_on_waiting_while_the_store_does_not_answer(
    shop: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, put = [RetryableError("no answer"), RetryableError("no answer")], shop.objects.put_if_absent

    def answer_late(name: str, data: bytes) -> bool:
        if answers:
            raise answers.pop()
        return put(name, data)

    monkeypatch.setattr(shop.objects, "put_if_absent", answer_late)
    assert turn_of(shop, "a", []).wait(Event(), 0.01)


def pipeline(meta: MetaStore) -> PipelineStore:
    settings = EpochSettings(runner=Runner.AUTO)
    return PipelineStore(Pipeline("shop", Path(), meta.objects.uri, (), epoch=settings), meta)


def test_each_look_takes_what_arrived_until_the_signal(shop: MetaStore) -> None:
    stop, looks = Event(), 0

    def run(runner: LevelRunner) -> None:
        nonlocal looks
        looks += 1
        if looks <= 3:
            insert(shop, "t", (100 + looks, 7, looks))
        assert len(advance_store(runner, shop)) == (looks <= 3)
        if looks == 5:
            stop.set()

    before = len(rows(shop, "t"))
    run_repeatedly(pipeline(shop), 0.001, stop, run, print)
    assert len(rows(shop, "t")) == before + 3
    assert turn_of(shop, "next", []).wait(Event(), 0.01), "the turn is given back"


def test_a_process_forgets_footers_of_taken_files_and_replaced_ssts(shop: MetaStore, files: Path) -> None:
    """So its memory does not grow with its epochs."""
    stop, held = Event(), list[tuple[int, int]]()

    def run(runner: LevelRunner) -> None:
        live = {sst.name for level in shop.read_latest().levels for sst in level}
        cached = {key[1] for key in process_cache().held_keys() if key[0] == shop.objects.uri}  # type: ignore[index]
        held.append((len(_footers._footers), len({name for name in cached if isinstance(name, str)} - live)))
        write(files / f"{len(held) + 1}.parquet", range(10 * len(held), 10 * len(held) + 10))
        advance_store(runner, shop)
        rows(shop, "per_g")
        list(compact_store(shop, CompactionOptions()))
        if len(held) == 10:
            stop.set()

    run_repeatedly(pipeline(shop), 0.001, stop, run, print)
    assert max(footers for footers, _ in held) <= 3, held
    assert max(replaced for _, replaced in held) <= 4, "only those that one round wrote and replaced"


class Damaged(InputError):
    def __str__(self) -> str:
        return "a row is wrong"


def test_an_error_is_told_once_and_its_end_too(shop: MetaStore) -> None:
    stop, told = Event(), list[str]()
    outcomes = [Damaged(), Damaged(), None, MustStopError("another run was first"), Damaged()]

    def run(_: LevelRunner) -> None:
        outcome = outcomes.pop(0)
        if not outcomes:
            stop.set()
        if outcome is not None:
            raise outcome

    run_repeatedly(pipeline(shop), 0.001, stop, run, told.append)
    assert told == ["error: a row is wrong", "the epochs run again", "another run was first", "error: a row is wrong"]


def test_the_pause_grows_while_a_server_does_not_answer(shop: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()

    class Stop(Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(round(timeout or 0.0))
            if len(pauses) == 8:
                self.set()
            return super().wait(0)

    def run(_: LevelRunner) -> None:
        raise RetryableError("no answer")

    run_repeatedly(pipeline(shop), 3.0, Stop(), run, print)
    assert pauses == [6, 12, 24, 48, 60, 60, 60, 60]


def test_one_signal_ends_the_loop_and_a_later_one_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # as a supervisor: to the process, and to its group
        assert stop.is_set()
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        eventually("the signal arrives", stop.is_set, PATIENCE_S)
        later = time.monotonic() + 2
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
