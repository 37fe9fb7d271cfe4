"""The decoded cache: bounded in bytes, least recently used out first, right at any size."""

import random
import threading
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import StoreModel, sealed, storage_key
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.objectstore.base import ObjectStore


@dataclass
class _Thing:
    nbytes: int


def test_the_least_recently_used_entries_go_first_and_the_bound_holds() -> None:
    cache = BlockCache(100)
    for name in "abc":
        cache.put(name, _Thing(30))
    assert cache.get("a", _Thing) is not None
    cache.put("d", _Thing(30))
    assert cache.held_keys() == ["c", "a", "d"]
    cache.put("a", _Thing(50))
    assert (cache.held_keys(), cache.nbytes) == (["d", "a"], 80)
    cache.put("huge", _Thing(101))
    assert cache.held_keys() == ["d", "a"]
    cache.put("d", _Thing(101))
    assert (cache.held_keys(), cache.nbytes) == (["a"], 50)
    assert cache.get_or_load("e", _Thing, lambda: _Thing(1)).nbytes == 1
    assert (cache.counts.hits, cache.counts.misses, cache.counts.evictions) == (1, 1, 2)
    cache.clear()
    assert (cache.nbytes, cache.held_keys()) == (0, [])


@pytest.mark.parametrize("capacity", [0, 30_000, 1 << 30])
def test_answers_do_not_depend_on_the_cache_nor_on_threads(objects: ObjectStore, capacity: int) -> None:
    model = StoreModel(objects)
    keys = [storage_key(1, i % 8, b"%d" % i) for i in range(9000)]
    for epoch in (1, 2):
        model.commit(
            epoch, [sealed(1, {key: {"n": i * epoch, "s": None} for i, key in enumerate(keys) if i % 3 != epoch})]
        )
    store = HummockStore(objects, model.version, BlockCache(capacity))
    wrong: list[bytes] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(15):
            asked = rng.sample(keys, rng.choice([1, 5, 900]))
            _, rows = store.multi_get(1, pa.array(asked, pa.binary()), 2)
            wrong.extend(key for key, row in zip(asked, rows.to_pylist(), strict=True) if row != model.get(key, 2))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.source.stored.cache.nbytes <= capacity
