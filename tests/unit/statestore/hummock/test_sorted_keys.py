"""Keys compared as whole arrays agree with bytes compared one by one."""

import bisect
import random
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import storage_key
from tussock.statestore.hummock.sorted_keys import (
    Probes,
    SortedKeys,
    above_previous,
    differs_from_previous,
    fixed_keys,
    left_positions,
    probe_order,
    sort_order,
    successor,
    successors,
    take_keys,
)


def _keys(rng: random.Random, count: int, width: int) -> list[bytes]:
    return [storage_key(1, rng.randrange(4), b"p" * width + rng.randbytes(rng.randint(0, 5))) for _ in range(count)]


@pytest.mark.parametrize("width", [0, 20, 100])
@pytest.mark.parametrize("count", [1, 50, 20_000])
def test_searching_and_sorting_agree_with_bisect(width: int, count: int) -> None:
    rng = random.Random(count + width)
    stored = sorted(_keys(rng, count, width))
    probes = _keys(rng, 200, width) + rng.sample(stored, min(50, count)) + [stored[0], stored[-1]]
    keys, searched = SortedKeys(pa.array(stored, pa.binary())), Probes(pa.array(probes, pa.binary()))
    expected = [bisect.bisect_left(stored, probe) for probe in probes]
    assert keys.count_below(searched, slice(None)).tolist() == expected
    assert left_positions(keys.array, searched.array).tolist() == expected
    positions, hit = keys.find_probes(searched, slice(3, None))
    there = set(stored)
    assert hit.tolist() == [probe in there for probe in probes[3:]]
    assert [p for p, h in zip(positions.tolist(), hit.tolist(), strict=True) if h] == [
        e for e, probe in zip(expected[3:], probes[3:], strict=True) if probe in there
    ]
    shuffled = probes + stored
    rng.shuffle(shuffled)
    array = pa.array(shuffled, pa.binary())
    assert sort_order(array).tolist() == sorted(range(len(shuffled)), key=lambda i: shuffled[i])
    assert [shuffled[i] for i in probe_order(array)] == sorted(shuffled)
    repeated = sorted(shuffled)
    firsts = [i == 0 or key != repeated[i - 1] for i, key in enumerate(repeated)]
    assert differs_from_previous(pa.array(repeated, pa.binary())).tolist() == firsts


@pytest.mark.parametrize("width", [0, 20, 100])
@pytest.mark.parametrize("count", [1, 50, 20_000])
def test_ascending_probes_are_found_as_others_are(width: int, count: int) -> None:
    rng = random.Random(count * width + 1)
    stored = sorted(_keys(rng, count, width))
    probes = sorted(
        _keys(rng, 20, width) + _keys(rng, 500, 0) + _keys(rng, 500, width + 9) + rng.choices(stored, k=300)
    )
    keys, searched = SortedKeys(pa.array(stored, pa.binary())), Probes(pa.array(probes, pa.binary()), ascending=True)
    there = set(stored)
    for part in (
        slice(None),
        slice(100, 1000),
        slice(7, 12),
        slice(5, 5),
    ):  # more probes than keys, and fewer; many, few, none
        assert keys.count_below(searched, part).tolist() == [
            bisect.bisect_left(stored, probe) for probe in probes[part]
        ]
        positions, hit = keys.find_probes(searched, part)
        assert hit.tolist() == [probe in there for probe in probes[part]]
        assert [stored[p] for p in positions[hit].tolist()] == [
            probe for probe, h in zip(probes[part], hit.tolist(), strict=True) if h
        ]


@pytest.mark.parametrize("width", [1, 5, 8, 9, 15, 16, 24, 64, 70])
def test_neighbours_are_compared_as_bytes_are_wherever_they_differ(width: int) -> None:
    rng = random.Random(width)
    keys = [bytes(width)]
    for _ in range(20_000):  # between neighbouring keys one byte changes, up or down, or none
        key = bytearray(keys[-1])
        key[rng.randrange(width)] = rng.choice([0, 1, 127, 128, 255])
        keys.append(bytes(key))
    for array in (
        pa.array(keys, pa.binary()),
        pa.array(keys, pa.binary(width)),
        pa.array([b"q" * width, *keys], pa.binary()).slice(1),
    ):
        assert above_previous(array).tolist() == [True, *(b > a for a, b in pairwise(keys))]
        assert differs_from_previous(array).tolist() == [True, *(b != a for a, b in pairwise(keys))]


@pytest.mark.parametrize("spread", [1, 200, 2**20, 2**40, 2**63])
def test_equal_keys_stay_in_order_however_far_keys_lie_apart(spread: int) -> None:
    rng = random.Random(spread)
    keys = [
        storage_key(1, rng.randrange(3), rng.randrange(spread).to_bytes(8, "big")[rng.randrange(2) :])
        for _ in range(9000)
    ]
    numbers = [b"\0\0\0\1\0\0" + rng.randrange(spread).to_bytes(8, "big") for _ in range(9000)]
    for stored in (keys, numbers):
        array = pa.array(stored, pa.binary())
        assert sort_order(array).tolist() == sorted(range(len(stored)), key=lambda i: stored[i])
        assert [stored[i] for i in probe_order(array)] == sorted(stored)


@pytest.mark.parametrize("values", [2, 10, 256])
@pytest.mark.parametrize("alike", ["nothing", "the first half", "all"])
def test_keys_that_differ_in_many_bytes_are_sorted_as_bytes(values: int, alike: str) -> None:
    """Sorting by digits: with few values per byte and shared prefixes or keys, most keys tie at the first byte."""
    rng = np.random.default_rng(values)
    for width in (9, 24, 64):
        keys = rng.integers(0, values, (20_000, width)).astype(np.uint8)
        if alike == "the first half":
            keys[:, : width // 2] = keys[rng.integers(0, 50, 20_000), : width // 2]
        elif alike == "all":
            keys = keys[rng.integers(0, 5_000, 20_000)]
        keys = [bytes(key) for key in keys]
        order = probe_order(pa.array(keys, pa.binary(width))).tolist()
        assert order == sorted(range(len(keys)), key=keys.__getitem__)


@pytest.mark.parametrize("at", [None, 3, 39_000])
def test_keys_whose_ties_are_in_order_are_sorted_by_their_heads(at: int | None) -> None:
    """With `at`, two neighbours are in the wrong order."""
    rng, count = np.random.default_rng(1), 40_000
    heads = rng.integers(0, 2**63, 50).tolist()
    keys = [heads[i % 50].to_bytes(8, "big") + i.to_bytes(16, "big") for i in range(count)]
    if at is not None:
        one, other = sorted(range(count), key=keys.__getitem__)[at : at + 2]
        keys[one], keys[other] = keys[other], keys[one]
    order = probe_order(pa.array(keys, pa.binary(24))).tolist()
    assert order == sorted(range(count), key=keys.__getitem__)


def test_keys_of_any_length_are_compared_in_their_type() -> None:
    same, several = [b"abc", b"def", b"ghi"], [b"abc", b"", b"x"]
    rows = np.array([2, 0, 2])
    for keys, kind in ((same, pa.binary()), (same, pa.binary(3)), (several, pa.binary()), (same, pa.large_binary())):
        array = pa.array([b"zzz", *keys], kind).slice(1)
        taken = take_keys(array, rows)
        assert taken.type == kind
        assert taken.to_pylist() == [keys[2], keys[0], keys[2]]
        assert take_keys(array, rows[:0]).to_pylist() == []
    assert take_keys(pa.array([], pa.binary()), rows[:0]).to_pylist() == []


def test_keys_of_any_slice_are_padded_or_cut() -> None:
    keys = [b"abc", b"", b"ab\x00\x01", b"\xff" * 9, b"abc"]
    array = pa.array([b"zz", *keys, b"y"], pa.binary()).slice(1, len(keys))
    for width in (1, 2, 4, 9, 12):
        assert fixed_keys(array, width).tobytes() == b"".join(key[:width].ljust(width, b"\0") for key in keys)
    same = pa.array([b"abc", b"def", b"ghi"], pa.binary())
    assert fixed_keys(same.slice(1)).tobytes() == b"defghi"
    assert fixed_keys(same.cast(pa.binary(3)).slice(1), 5).tobytes() == b"def\0\0ghi\0\0"
    assert len(fixed_keys(pa.array([], pa.binary()), 3)) == 0


def test_a_successor_is_the_least_string_above_all_that_start_with_the_prefix() -> None:
    prefixes = [
        b"a",
        b"a\xff",
        b"\x00\x00\x01\xff\xff",
        b"\x00\xff\xfe",
        b"\x01" * 30,
        b"\x02" + b"\xff" * 40,
        b"y" * 9000,
    ]
    for array in (pa.array(prefixes, pa.binary()), pa.array([b"q", *prefixes], pa.binary()).slice(1)):
        assert successors(array).to_pylist() == [successor(prefix) for prefix in prefixes]
    assert successor(b"a\xff") == b"b"
    assert successor(b"\xff\xff") is None
    assert successors(pa.array([b"ab"], pa.binary(2))).to_pylist() == [b"ac"]
    assert np.array_equal(successors(pa.array([], pa.binary())).to_numpy(zero_copy_only=False), [])


def test_one_very_long_key_among_many_costs_its_bytes_once() -> None:
    """If it were padded, or compared with every probe, its bytes would count once per key. Arrow overflows at 2 GB."""
    long, short = b"z" * (8 << 20), [b"k%03d" % i for i in range(300)]
    stored = SortedKeys(pa.array([*short, long], pa.binary()))
    probes = [b"kx%d" % i for i in range(300)] + [long, short[7]]
    start = time.process_time()
    positions, hit = stored.find_probes(Probes(pa.array(probes, pa.binary())), slice(None))
    assert (positions[-2], positions[-1]) == (300, 7)
    assert hit.tolist() == [False] * 300 + [True, True]
    assert successors(pa.array([long, *short], pa.binary()))[0].as_py() == long[:-1] + b"{"
    assert time.process_time() - start < 1
