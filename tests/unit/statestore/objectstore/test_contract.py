"""The contract of every object store, checked against each kind."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tussock.statestore.objectstore.base import BadObjectNameError, ObjectNotFoundError, ObjectStore, ShortReadError
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.ranges import COALESCE_GAP_BYTES


def test_an_object_is_read_back_and_a_second_put_replaces_it(any_store: ObjectStore) -> None:
    for data in (b"first", b"", bytes(range(256)) * 5000):
        any_store.put("a/b", data)
        assert any_store.get("a/b") == data


def test_an_absent_object_is_a_named_error_for_every_read(any_store: ObjectStore) -> None:
    for read in (any_store.get, any_store.head, lambda name: any_store.get_ranges(name, [(0, 1)])):
        with pytest.raises(ObjectNotFoundError, match="nowhere/x"):
            read("nowhere/x")


def test_a_folder_is_not_an_object(any_store: ObjectStore) -> None:
    any_store.put("folder/x", b"1")
    for read in (any_store.get, any_store.head, lambda name: any_store.get_ranges(name, [(0, 1)])):
        with pytest.raises(ObjectNotFoundError):
            read("folder")


def test_head_tells_the_size_and_an_etag_that_changes_with_the_bytes(any_store: ObjectStore) -> None:
    any_store.put("x", b"one")
    first = any_store.head("x")
    assert (first.name, first.size) == ("x", 3)
    assert first == any_store.head("x")
    assert '"' not in first.etag
    any_store.put("x", b"seven  ")
    assert any_store.head("x").size == 7
    assert any_store.head("x").etag != first.etag


def test_ranges_come_back_in_the_order_asked_and_negative_offsets_count_from_the_end(any_store: ObjectStore) -> None:
    data = bytes(i * i % 251 for i in range(3 * COALESCE_GAP_BYTES + 1000))
    any_store.put("x", data)
    far = 2 * COALESCE_GAP_BYTES + 500
    ranges = [(far, 10), (0, 4), (-8, 8), (2, 6), (100, 0), (-100, 20), (3, 1), (len(data) - 1, 1), (0, len(data))]
    expected = [data[far : far + 10], data[:4], data[-8:], data[2:8], b"", data[-100:-80], data[3:4], data[-1:], data]
    assert any_store.get_ranges("x", ranges) == expected
    assert any_store.get_ranges("x", []) == []


@pytest.mark.parametrize("asked", [(0, 11), (5, 6), (10, 1), (100, 5), (-4, 5), (-11, 3), (-20, 20)])
def test_a_range_beyond_the_end_is_a_short_read(any_store: ObjectStore, asked: tuple[int, int]) -> None:
    any_store.put("x", b"0123456789")
    with pytest.raises(ShortReadError, match="truncated"):
        any_store.get_ranges("x", [(0, 2), asked])


def test_put_if_absent_creates_once_and_recognises_its_own_bytes(any_store: ObjectStore) -> None:
    assert any_store.put_if_absent("c/1", b"writer a")
    assert not any_store.put_if_absent("c/1", b"writer b")
    assert any_store.put_if_absent("c/1", b"writer a"), "a repeat of the winner has won"
    assert any_store.get("c/1") == b"writer a"


def test_exactly_one_of_eight_threads_racing_for_a_name_wins(any_store: ObjectStore) -> None:
    threads, rounds = 8, 10
    start = threading.Barrier(threads)

    def race(writer: int) -> list[bool]:
        won = []
        for number in range(rounds):
            start.wait()
            won.append(any_store.put_if_absent(f"race/{number}", f"writer {writer}".encode()))
        return won

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(race, range(threads)))
    for number in range(rounds):
        winners = [writer for writer in range(threads) if results[writer][number]]
        assert [any_store.get(f"race/{number}")] == [f"writer {w}".encode() for w in winners]


def test_list_is_in_name_order_below_a_prefix_and_after_a_name(any_store: ObjectStore) -> None:
    names = ["a", "b-1", "b.x", "b/1", "b/2", "b/2x/3", "b/ä", "b0", "c/ü/%20 +&", "z"]
    for name in reversed(names):
        any_store.put(name, name.encode())
    listed = list(any_store.list(""))
    assert [o.name for o in listed] == sorted(names, key=str.encode)
    assert [o.size for o in listed] == [len(n.encode()) for n in sorted(names, key=str.encode)]
    assert listed[0] == any_store.head("a")
    assert [o.name for o in any_store.list("b/")] == ["b/1", "b/2", "b/2x/3", "b/ä"]
    assert [o.name for o in any_store.list("b/2")] == ["b/2", "b/2x/3"]
    assert [o.name for o in any_store.list("b")] == [n for n in names if n.startswith("b")]
    assert [o.name for o in any_store.list("", start_after="b/2")] == ["b/2x/3", "b/ä", "b0", "c/ü/%20 +&", "z"]
    assert [o.name for o in any_store.list("b/", start_after="b/2x/3")] == ["b/ä"]
    assert list(any_store.list("nothing/here")) == []


def test_delete_ignores_objects_that_do_not_exist(any_store: ObjectStore) -> None:
    any_store.put("d/1", b"1")
    any_store.put("d/2", b"2")
    any_store.delete(["d/1", "d/none", "none/at/all"])
    assert [o.name for o in any_store.list("d/")] == ["d/2"]
    any_store.delete([])
    assert any_store.put_if_absent("d/1", b"again")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.", "a\0b", "x" * 300])
def test_a_name_that_could_leave_the_store_is_refused_by_every_operation(any_store: ObjectStore, name: str) -> None:
    for call in (
        lambda: any_store.get(name),
        lambda: any_store.get_ranges(name, [(0, 1)]),
        lambda: any_store.head(name),
        lambda: any_store.put(name, b""),
        lambda: any_store.put_if_absent(name, b""),
        lambda: any_store.delete([name]),
    ):
        with pytest.raises(BadObjectNameError, match="cannot name an object"):
            call()
    if ".." in name:
        with pytest.raises(BadObjectNameError):
            list(any_store.list(name))


def test_a_store_opens_again_from_its_uri_and_from_a_pickle(any_store: ObjectStore) -> None:
    any_store.put("x", b"here")
    assert open_object_store(any_store.uri).get("x") == b"here"
    assert open_object_store(any_store.uri).uri == any_store.uri
    assert pickle.loads(pickle.dumps(any_store)).get("x") == b"here"
