"""The DML and DDL log: dense, durable, each client id once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.statestore.meta.make import new_meta, open_meta
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.meta.names import log_name
from tussock.statestore.meta.probe import end_of
from tussock.statestore.meta.statement_log import LogMovedError, read_payload
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore


def test_entries_keep_their_order_and_their_json(any_store: ObjectStore) -> None:
    meta = new_meta(any_store)
    statements = [b'{"n": %d, "text": "\\u00e4\\n"}' % n for n in range(5)]
    assert [meta.append_log(f"c{n}", s) for n, s in enumerate(statements)] == list(range(5))
    other = open_meta(any_store, "b")
    assert other.log_end() == 5
    assert [(e.position, bytes(e.statement), e.client_id) for e in other.read_log(1, 5)] == [
        (n, statements[n], f"c{n}") for n in range(1, 5)
    ]
    assert other.read_log(2, 2) == []


def test_a_repeated_client_id_is_ignored_and_answers_the_first_position(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    for n in range(4):
        meta.append_log(f"c{n}", b"1")
    assert open_meta(objects, "b").append_log("c1", b"2") == 1
    assert meta.append_log("c3", b"3") == 3
    assert [bytes(e.statement) for e in meta.read_log(0, meta.log_end())] == [b"1"] * 4


@pytest.mark.parametrize("nth", range(6))
def test_a_client_id_is_found_exactly_at_the_position_of_its_entry(objects: ObjectStore, nth: int) -> None:
    meta, store = new_meta(objects), FaultyObjectStore(objects)
    other = open_meta(store, "b")
    for n in range(3):
        meta.append_log(f"m{n}", b"0")
    assert meta.logged_position("c") is None
    store.kill(nth)
    with suppress(Killed):
        other.append_log("c", b"1")
    store.heal()
    standing = {e.client_id: e.position for e in meta.read_log(0, meta.log_end())}
    assert meta.logged_position("c") == standing.get("c")
    meta.append_log("m3", b"0")
    assert open_meta(objects, "d").logged_position("c") == standing.get("c")
    assert meta.append_log("c", b"1") == meta.logged_position("c") == standing.get("c", 4)


def test_an_append_that_expects_a_position_gets_it_or_fails(objects: ObjectStore) -> None:
    meta, other = new_meta(objects), open_meta(objects, "b")
    assert meta.append_log("a", b"0", expected=0) == 0
    end = meta.log_end()
    other.append_log("first", b"1")
    with pytest.raises(LogMovedError, match="expected to end at 1, but has 2"):
        meta.append_log("b", b"2", expected=end)
    assert meta.log_end() == 2
    assert meta.append_log("b", b"2", expected=meta.log_end()) == 2
    assert meta.append_log("b", b"2", expected=3) == 2, "a repeated append keeps its number"


def test_one_of_many_writers_that_expect_the_same_position_gets_it(objects: ObjectStore) -> None:
    MetaStore.init(objects, vnode_count=8)

    def write(writer: int) -> int | None:
        try:
            return open_meta(objects, f"w{writer}").append_log(f"c{writer}", b"%d" % writer, expected=0)
        except LogMovedError:
            return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    assert sorted(answers, key=str) == [0, *[None] * 7]
    assert open_meta(objects).log_end() == 1


def test_eight_writers_fill_the_log_without_gaps_and_their_shared_client_id_has_one_entry(objects: ObjectStore) -> None:
    MetaStore.init(objects, vnode_count=8)
    writers, rounds = 8, 20
    start = threading.Barrier(writers)

    def write(writer: int) -> list[tuple[int, int]]:
        meta = open_meta(objects, f"w{writer}")
        answers = []
        for n in range(rounds):
            start.wait()
            answers.append((meta.append_log(f"own {writer} {n}", b"0"), meta.append_log(f"shared {n}", b"%d" % writer)))
        return answers

    with ThreadPoolExecutor(writers) as pool:
        answers = list(pool.map(write, range(writers)))
    meta = open_meta(objects)
    end = meta.log_end()
    entries = meta.read_log(0, end)
    assert end == writers * rounds + rounds
    assert len({e.client_id for e in entries}) == end
    for writer in range(writers):
        for n in range(rounds):
            own, shared = answers[writer][n]
            assert entries[own].client_id == f"own {writer} {n}"
            assert entries[shared].client_id == f"shared {n}"


def test_two_calls_with_one_client_id_that_interleave_at_any_request_write_one_entry(objects: ObjectStore) -> None:
    for nth in range(6):
        store = FaultyObjectStore(objects)
        slow, fast = open_meta(store, f"slow {nth}"), open_meta(objects, f"fast {nth}")
        if nth == 0:
            MetaStore.init(objects, vnode_count=8)
        before = fast.log_end()
        told: list[int] = []

        def rival(fast: MetaStore = fast, told: list[int] = told, nth: int = nth) -> None:
            fast.append_log(f"noise {nth}", b"0")
            told.append(fast.append_log(f"shared {nth}", b"1"))

        store.before(nth, rival)
        position = slow.append_log(f"shared {nth}", b"2")
        ids = [e.client_id for e in fast.read_log(before, fast.log_end())]
        assert ids.count(f"shared {nth}") == 1
        assert ids[position - before] == f"shared {nth}"
        assert told in ([position], [])


def test_an_append_costs_three_requests_and_one_that_may_be_repeated_four(objects: ObjectStore) -> None:
    store = FaultyObjectStore(objects)
    meta = new_meta(store)
    meta.append_log("first", b"0")
    store.calls.clear()
    meta.append_log("second", b"0", is_new=True)
    assert [operation for operation, _ in store.calls] == ["head", "put_if_absent", "head"]
    store.calls.clear()
    meta.append_log("third", b"0")
    assert [operation for operation, _ in store.calls] == ["head", "put_if_absent", "put_if_absent", "head"]


def test_a_missing_entry_is_named(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    for n in range(3):
        meta.append_log(f"c{n}", b"0")
    objects.delete([log_name(1)])
    with pytest.raises(DamagedDocumentError, match=r"meta/log/00000000000000000001\.json.*missing"):
        meta.read_log(0, 3)


def test_a_payload_is_named_after_its_bytes_and_checked_when_read(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    name = meta.put_payload(b"rows" * 100)
    assert meta.put_payload(b"rows" * 100) == name
    assert read_payload(meta.objects, name) == b"rows" * 100
    objects.put(name, b"rows" * 99)
    with pytest.raises(DamagedDocumentError, match=name):
        read_payload(meta.objects, name)
    with pytest.raises(DamagedDocumentError, match=name):
        meta.put_payload(b"rows" * 100)
    objects.delete([name])
    with pytest.raises(DamagedDocumentError, match="missing"):
        read_payload(meta.objects, name)


def test_invalid_json_or_a_missing_client_id_is_refused_before_anything_is_written(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    with pytest.raises(SettingError, match="one JSON value"):
        meta.append_log("c", b"{")
    with pytest.raises(SettingError, match="client id"):
        meta.append_log("", b"1")
    assert meta.log_end() == 0
    assert meta.append_log("c", b"1") == 0


@pytest.mark.parametrize("end", [*range(0, 40), 1000, 4095, 4096, 4097])
def test_probing_finds_the_end_from_any_start_in_few_steps(end: int) -> None:
    for start in {0, end // 2, max(0, end - 1), end}:
        asked: list[int] = []

        def exists(n: int, asked: list[int] = asked) -> bool:
            asked.append(n)
            return n < end

        assert end_of(exists, start) == end
        assert len(asked) <= 2 * (end - start + 1).bit_length() + 1
