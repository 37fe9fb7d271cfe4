"""Processes of an epoch exchange cells. Threads take the part of the processes."""

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.exceptions import InvalidTag

from tests.support.waiting import eventually
from tussock.jobs.exchange import mailbox, meeting, peers
from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.exchange.meeting import Meeting, PeerMissingError, Rendezvous, assign_units
from tussock.jobs.exchange.peers import PeerLostError, Peers
from tussock.jobs.wire.cell import Address, make_cells
from tussock.statestore.local_disk import LocalDiskError

HOST = "127.0.0.1"
Work = Callable[[int, Peers], object]


def join(met: Meeting, rank: int, task: int | None = None, units: tuple[int, ...] = ()) -> Peers:
    return Peers.join_meeting(met, rank if task is None else task, rank, host=HOST, bind=HOST, units=units)


def together(count: int, units: int, work: Work, *, encrypts: bool = False) -> list[object]:
    """Run `work` in `count` processes that meet. Returns the results by rank."""

    def one(met: Meeting, rank: int) -> object:
        with join(met, rank) as joined:
            return work(rank, joined)

    with Rendezvous(HOST, HOST, count, units, encrypts=encrypts) as rendezvous, ThreadPoolExecutor(count) as pool:
        running: list[Future[object]] = [pool.submit(one, rendezvous.meeting, rank) for rank in range(count)]
        return [future.result(60) for future in running]


def taken(joined: Peers, level: int) -> dict[int, list[tuple[int, int, bytes]]]:
    """By unit: fragment, input and chunk of each cell of a level."""
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for unit in joined.units:
        found[unit] = []
        for batch in joined.take_cells(level, unit):
            assert set(batch.column(0).to_pylist()) == {unit}
            found[unit] += zip(*(batch.column(i).to_pylist() for i in (1, 2, 3)), strict=True)
    return found


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
@pytest.mark.parametrize("kept", [1 << 30, 1 << 16], ids=["in memory", "on the disk"])
def test_every_cell_arrives_once_at_its_unit(kept: int, encrypts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, units, levels = 3, 7, 4
    monkeypatch.setattr(mailbox, "KEPT_BYTES", kept)
    sent: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {
        (i, u): [] for i in range(levels) for u in range(units)
    }

    def work(rank: int, joined: Peers) -> dict[tuple[int, int], list[tuple[int, int, bytes]]]:
        rnd, found = random.Random(rank), {}
        for level in range(levels):
            for unit in range(units):
                chunks = [rnd.randbytes(rnd.choice((0, 1, 999, 300_000))) for _ in range(rnd.randrange(3))]
                sent[level, unit] += [(rank, level, chunk) for chunk in chunks]
                joined.post_cells(level, make_cells(unit, Address(rank, level), chunks))
            mixed = [make_cells(unit, Address(-1, rank), [b"m"]) for unit in range(units)]
            for unit in range(units):
                sent[level, unit].append((-1, rank, b"m"))
            joined.post_cells(level, pa.concat_batches(mixed).slice(0))
            assert joined.finish_level(level, 10**rank) == 111
            found |= {(level, unit): chunks for unit, chunks in taken(joined, level).items()}
        return found

    got: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
    for part in together(count, units, work, encrypts=encrypts):
        assert isinstance(part, dict)
        assert not part.keys() & got.keys(), "a unit belongs to one process"
        got |= part
    assert {key: sorted(value) for key, value in got.items()} == {key: sorted(value) for key, value in sent.items()}


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
def test_a_peer_that_ends_early_fails_the_others(encrypts: bool) -> None:
    def work(rank: int, joined: Peers) -> str:
        if rank == 1:
            return "gone"
        with pytest.raises(PeerLostError, match=r"task 1 at 127.0.0.1:.*(closed the connection|reset by peer)"):
            joined.finish_level(0)
        return "failed"

    assert together(3, 3, work, encrypts=encrypts) == ["failed", "gone", "failed"]


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
def test_many_small_frames_that_arrived_together_are_all_read(encrypts: bool) -> None:
    """A sealed connection holds bytes that its selector does not see."""
    with Rendezvous(HOST, HOST, 2, 2, encrypts=encrypts) as rendezvous, ThreadPoolExecutor(2) as pool:
        first, second = (future.result(30) for future in [pool.submit(join, rendezvous.meeting, r) for r in (0, 1)])
        with first:
            for number in range(300):
                first.post_to(1, 0, make_cells(1, Address(0, number), [b"x"]))
            first._connections[1].send_end(0, 7)
            with second:
                second._connections[0].send_end(0, 0)
                eventually("the end mark is read", lambda: second._mailbox._ended.get(0) == {0: 7})
                assert len(taken(second, 0)[1]) == 300


def test_a_silent_peer_is_lost_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 0.5)
    monkeypatch.setattr(peers, "BEAT_S", 0.1)
    monkeypatch.setattr(peers._Connection, "send_sign_of_life", lambda self: None)

    def work(rank: int, joined: Peers) -> str:
        with pytest.raises(PeerLostError) as raised:
            joined.finish_level(rank)  # another level each, so that none ends
        return str(raised.value)

    assert any("no sign of life" in str(text) for text in together(2, 2, work))


def test_a_peer_that_computes_longer_than_the_deadline_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 1.5)
    monkeypatch.setattr(peers, "BEAT_S", 0.1)

    def work(rank: int, joined: Peers) -> int:
        if rank == 1:
            deadline = time.monotonic() + 2.5
            while time.monotonic() < deadline:
                sum(range(1000))
        return joined.finish_level(0, 1)

    assert together(2, 2, work) == [2, 2]


def test_an_encrypted_file_holds_no_cell_in_clear(tmp_path: Path) -> None:
    chunk = b"a row that nobody may read " * 100
    for encrypts in (False, True):
        box = Mailbox((), folder=str(tmp_path), kept_bytes=0, encrypts=encrypts)
        for number in range(3):
            box.put_cells(0, make_cells(0, Address(0, number), [chunk]))
        assert box._file is not None
        written = os.pread(box._file.fileno(), 1 << 20, 0)
        assert (chunk[:20] in written) is not encrypts
        found = [batch.column(3).to_pylist() for batch in box.take_cells(0, 0)]
        assert found == [[chunk]] * 3
        box.close()


def test_a_changed_byte_in_an_encrypted_file_is_noticed(tmp_path: Path) -> None:
    box = Mailbox((), folder=str(tmp_path), kept_bytes=0, encrypts=True)
    box.put_cells(0, make_cells(0, Address(0, 0), [b"x" * 100]))
    assert box._file is not None
    os.pwrite(box._file.fileno(), b"\0\1\2", 50)
    with pytest.raises(InvalidTag):
        list(box.take_cells(0, 0))


def test_a_full_disk_fails_with_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Mailbox((), folder="/dev/full", kept_bytes=0)
    with pytest.raises(LocalDiskError, match=r"/dev/full.*spark.local.dir"):
        box.put_cells(0, make_cells(0, Address(0, 0), [b"x"]))


def test_a_process_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Rendezvous(HOST, HOST, 3, 3, patience_s=0.3) as rendezvous, ThreadPoolExecutor(2) as pool:
        running = [pool.submit(join, rendezvous.meeting, rank) for rank in (0, 2)]
        for future in running:
            with pytest.raises(PeerMissingError, match="tasks 1 of 3"):
                future.result(30)


def test_a_closed_meeting_answers_at_once() -> None:
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous, ThreadPoolExecutor(1) as pool:
        running = pool.submit(join, rendezvous.meeting, 0)
        eventually("the first process waits", lambda: rendezvous.waiting_count == 1)
        rendezvous.__exit__(None, None, None)
        with pytest.raises(PeerMissingError):
            running.result(10)


def test_a_later_attempt_meets_without_the_processes_of_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Task 1 of the first attempt still waits while both tasks of the second one come."""
    monkeypatch.setattr(meeting, "_SETTLE_S", 0.4)
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous, ThreadPoolExecutor(3) as pool:
        old = pool.submit(join, rendezvous.meeting, 1, 11)
        eventually("the first process waits", lambda: rendezvous.waiting_count == 1)
        monkeypatch.setattr(meeting, "_TOGETHER_S", -1.0)
        new = [pool.submit(join, rendezvous.meeting, rank, 12 + rank) for rank in (0, 1)]
        both = [future.result(30) for future in new]
        with pytest.raises(PeerMissingError):
            old.result(30)
        with both[0], both[1]:
            assert [joined.units for joined in both] == [[0], [1]]


def test_a_unit_returns_to_the_process_that_remembers_it() -> None:
    assert assign_units(4, 2, {}) == (0, 1, 0, 1)
    assert assign_units(4, 2, {0: (1, 3), 1: (0, 2)}) == (1, 0, 1, 0)
    assert assign_units(4, 2, {0: (0, 1, 2, 3)}) == (0, 0, 1, 1), "no process gets more than its share"
    assert assign_units(3, 2, {1: (0, 2, 9)}) == (1, 0, 1)
    for units in range(1, 9):
        for count in range(1, units + 1):
            of = assign_units(units, count, {count - 1: tuple(range(units))})
            assert len(of) == units
            assert {of.count(p) for p in range(count)} <= {units // count, -(-units // count)}


def test_a_unit_returns_to_the_host_that_ran_it_unless_a_process_remembers_it() -> None:
    assert assign_units(4, 2, {}, {0: (1, 3), 1: (0, 2)}) == (1, 0, 1, 0)
    assert assign_units(4, 2, {1: (1, 3)}, {0: (0, 1), 1: (0, 1)}) == (0, 1, 0, 1), "memory is nearer than a disk"
    assert assign_units(4, 4, {}, {rank: (3, 1) if rank < 2 else (2, 0) for rank in range(4)}) == (3, 1, 2, 0)


def test_the_tasks_of_a_new_application_prefer_the_units_of_their_hosts() -> None:
    """Two processes on two hosts, which ran these units in an earlier application."""

    def joined(met: Meeting, rank: int) -> list[int]:
        with Peers.join_meeting(met, rank, rank, host=f"127.0.0.{rank + 1}", bind="") as peers:
            return list(peers.units)

    before = {"127.0.0.2": (0, 1), "127.0.0.1": (2, 3), "127.0.0.9": (4,)}
    with Rendezvous(HOST, HOST, 2, 5, hosts=before) as rendezvous, ThreadPoolExecutor(2) as pool:
        units = [one.result(30) for one in [pool.submit(joined, rendezvous.meeting, rank) for rank in (0, 1)]]
    assert units == [[2, 3, 4], [0, 1]]
    assert rendezvous.units_by_host == {"127.0.0.1": [2, 3, 4], "127.0.0.2": [0, 1]}


def test_frames_of_any_fragmentation_are_read(tmp_path: Path) -> None:
    frame = peers._Frame()
    batch = make_cells(3, Address(5, 6), [b"abc", b"", b"de" * 500])
    sent = bytearray()
    connection = peers._Connection.__new__(peers._Connection)
    connection._write_parts = lambda parts: sent.extend(b"".join(map(bytes, parts)))  # type: ignore[method-assign]
    connection.send_cells(2, batch)
    sent += b"H"
    connection.send_end(2, 77)
    found = []
    rnd, left = random.Random(1), memoryview(bytes(sent))
    while left:
        size = min(rnd.choice((1, 2, 7, 400)), len(frame.room), len(left))
        frame.room[:size], left = left[:size], left[size:]
        if (whole := frame.add_bytes(size)) is not None:
            found.append(whole)
    (level, got, _), (end, none, number) = found
    assert (level, got.to_pylist()) == (2, batch.to_pylist())
    assert (end, none, number) == (2, None, 77)


def test_the_driver_learns_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REPORT_S", 0.0)
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(join, rendezvous.meeting, rank) for rank in (0, 1)]:
            with future.result(30) as joined:
                for done in (1, 2):
                    joined.report_progress(done)
        eventually("the reports arrive", lambda: rendezvous.done_levels == 4)
