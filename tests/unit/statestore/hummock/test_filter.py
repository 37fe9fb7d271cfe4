"""Filters: no false negatives, at most 1% false positives, and the specified hash, checked in plain Python."""

import random
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import StoreModel, sealed, storage_key
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.filter import KeyHashes, build_filter, filter_bits, hash_keys, probe_filter
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.objectstore.base import ObjectStore

_M = 2**64 - 1


def _finish(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _M
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _M
    return x ^ (x >> 31)


def _plain_hash(key: bytes) -> int:
    padded = key + bytes(-len(key) % 8)
    total = 0
    for i in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * i : 8 * i + 8], "little")
        mixed = (word ^ (word >> 32)) * (_finish(i + 1) | 1) & _M
        total += mixed ^ (mixed >> 29)
    return _finish(total & _M)


def test_the_hash_is_as_specified_among_any_other_keys() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.randint(1, 40)) for _ in range(300)] + [b"", b"\x00", b"x" * 5000]
    expected = [_plain_hash(key) for key in keys]
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == expected
    assert [hash_keys(pa.array([key], pa.binary()))[0] for key in keys] == expected
    long = keys + [rng.randbytes(n) for n in (511, 512, 513, 1024, 1025, 3000, 40_000) for _ in range(3)]
    assert hash_keys(pa.array(long, pa.binary())).tolist() == [_plain_hash(key) for key in long]
    wide = [rng.randbytes(700) for _ in range(200)]
    assert hash_keys(pa.array(wide, pa.binary(700))).tolist() == [_plain_hash(key) for key in wide]
    same = [key[:8].ljust(8, b"z") for key in keys]
    assert hash_keys(pa.array(same, pa.binary(8))).tolist() == [_plain_hash(key) for key in same]


def test_one_very_long_key_does_not_make_the_others_long() -> None:
    keys = pa.array([b"x" * (1 << 20), *(b"key %d" % i for i in range(500))], pa.binary())
    start = time.process_time()
    hash_keys(keys)
    assert time.process_time() - start < 0.5


def test_the_filter_is_the_specified_one_bit_by_bit() -> None:
    hashes = [_plain_hash(b"key %d" % i) for i in range(50)]
    bits = filter_bits(50)
    expected = bytearray(bits // 8)
    for value in hashes:
        low, high = value & 0xFFFFFFFF, value >> 32 | 1
        for i in range(7):
            bit = ((low + i * high) % 2**32 * bits) >> 32
            expected[bit // 8] |= 1 << bit % 8
    assert build_filter(np.array(hashes, np.uint64)) == bytes(expected)


@pytest.mark.parametrize("count", [1, 1_024, 1_025])
def test_few_and_many_hashes_get_the_answers_of_the_specified_bits(count: int) -> None:
    """Over three filters in one arena; every second hash is held by its filter."""
    rng = random.Random(count)
    held = [[rng.getrandbits(64) for _ in range(rows)] for rows in (5, 50, 300)]
    filters = [build_filter(np.array(hashes, np.uint64)) for hashes in held]
    starts = np.cumsum([0, *map(len, filters[:-1])])
    which = np.sort(np.array([rng.randrange(3) for _ in range(count)]))
    hashes = [rng.choice(held[f]) if i % 2 else rng.getrandbits(64) for i, f in enumerate(which.tolist())]

    def passes(number: int, value: int) -> bool:
        data, bits = filters[number], 8 * len(filters[number])
        low, high = value & 0xFFFFFFFF, value >> 32 | 1
        places = [((low + i * high) % 2**32 * bits) >> 32 for i in range(7)]
        return all(data[place // 8] >> place % 8 & 1 for place in places)

    expected = [passes(number, value) for number, value in zip(which.tolist(), hashes, strict=True)]
    data = np.frombuffer(b"".join(filters), np.uint8)
    sizes = np.array([8 * len(part) for part in filters])
    answers = probe_filter(data, starts[which], sizes[which], np.array(hashes, np.uint64))
    assert answers.tolist() == expected
    keys, part = KeyHashes(np.array(hashes, np.uint64)), slice(count // 3, count)
    assert keys.may_be_in_each(data, starts[which][part], sizes[which][part], part).tolist() == expected[part]
    for number, one in enumerate(filters):
        found = keys.may_be_in(np.frombuffer(one, np.uint8), 8 * len(one), part)
        assert found.tolist() == [passes(number, value) for value in hashes[part]]
    assert keys.may_be_in(np.zeros(0, np.uint8), 0, part).all(), "a part without a filter may hold any key"


@pytest.mark.parametrize("rows", [1, 10, 1000, 65_536])
@pytest.mark.parametrize("shape", ["counting", "random", "text"])
def test_all_held_keys_pass_and_at_most_one_in_a_hundred_others(rows: int, shape: str) -> None:
    rng = random.Random(rows)
    makers: dict[str, Callable[[int], bytes]] = {
        "counting": lambda i: storage_key(1, i % 256, i.to_bytes(8, "big")),
        "random": lambda i: storage_key(1, i % 256, rng.randbytes(8)),
        "text": lambda i: storage_key(1, i % 256, b"customer#%09d" % i),
    }
    made = makers[shape]
    held, absent = [made(i) for i in range(rows)], [made(i) for i in range(rows, rows + 20_000)]
    data = np.frombuffer(build_filter(hash_keys(pa.array(held))), np.uint8)

    def passing(keys: list[bytes]) -> int:
        count = len(keys)
        return int(
            probe_filter(
                data, np.zeros(count, np.int64), np.full(count, 8 * len(data)), hash_keys(pa.array(keys))
            ).sum()
        )

    assert passing(held) == rows
    assert passing(absent) <= 0.01 * len(absent)


def test_absent_keys_are_answered_without_reading_blocks(objects: ObjectStore) -> None:
    model = StoreModel(objects)
    keys = [storage_key(1, i % 256, i.to_bytes(8, "big")) for i in range(30_000)]
    for epoch in (1, 2, 3):
        model.commit(epoch, [sealed(1, {key: {"n": 1, "s": None} for key in keys[epoch * 3000 :: 3]})])
    cache = BlockCache()
    store = HummockStore(objects, model.version, cache)
    stored = set(model.rows)
    absent = [
        key for key in (storage_key(1, i % 256, i.to_bytes(8, "big")) for i in range(40_000)) if key not in stored
    ]
    found, _ = store.multi_get(1, pa.array(absent, pa.binary()), 3)
    assert found.true_count == 0
    section = store.source.stored.open_ssts(list(model.version.levels[0]))[0].open_section(1)
    decoded = sum(1 for key in cache.held_keys() if isinstance(key, tuple) and len(key) == 5 and key[-1] != -1)
    assert decoded <= 3 * -(-len(section) // 64), "a few false positives at most"
