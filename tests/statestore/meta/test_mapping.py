"""The vnode mapping is even, and changes with the least movement that keeps it even."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.meta.errors import SettingError
from statestore.meta.mapping import even_mapping, remap
from statestore.meta.version import VnodeMapping

vnode_counts = st.integers(0, 9).map(lambda bits: 1 << bits)


def _is_even(mapping: VnodeMapping, units: int) -> bool:
    sizes = Counter(mapping.units)
    share, more = divmod(len(mapping.units), units)
    return set(sizes) <= set(range(units)) and sorted(sizes[u] for u in range(units)) == [share] * (units - more) + [share + 1] * more


def _fewest_moves(mapping: VnodeMapping, units: int) -> int:
    """How many vnodes any even mapping over `units` must move: each unit keeps at most its share, the largest one more."""
    held = sorted((Counter(mapping.units)[u] for u in range(units)), reverse=True)
    share, more = divmod(len(mapping.units), units)
    return len(mapping.units) - sum(min(h, share + (i < more)) for i, h in enumerate(held))


@given(vnode_counts, st.data())
def test_the_first_mapping_is_even_and_its_groups_are_contiguous(vnode_count: int, data: st.DataObject) -> None:
    units = data.draw(st.integers(1, vnode_count))
    mapping = even_mapping(vnode_count, units)
    assert mapping.id == 0
    assert _is_even(mapping, units)
    assert list(mapping.units) == sorted(mapping.units)


@given(vnode_counts, st.data())
def test_every_change_is_even_and_moves_the_fewest_vnodes(vnode_count: int, data: st.DataObject) -> None:
    mapping = even_mapping(vnode_count, data.draw(st.integers(1, vnode_count)))
    for number in range(1, 4):
        units = data.draw(st.integers(1, vnode_count))
        after = remap(mapping, units)
        assert after.id == number
        assert _is_even(after, units)
        moved = sum(a != b for a, b in zip(mapping.units, after.units, strict=True))
        assert moved == _fewest_moves(mapping, units)
        assert remap(mapping, units) == after
        mapping = after


@given(st.lists(st.integers(0, 6), min_size=16, max_size=16), st.integers(1, 16))
def test_an_uneven_mapping_becomes_even_with_the_fewest_moves(owners: list[int], units: int) -> None:
    mapping = VnodeMapping(3, tuple(owners))
    after = remap(mapping, units)
    assert _is_even(after, units)
    assert sum(a != b for a, b in zip(owners, after.units, strict=True)) == _fewest_moves(mapping, units)


@pytest.mark.parametrize(("vnode_count", "units"), [(0, 1), (-8, 1), (3, 1), (1 << 16, 2), (8, 0), (8, 9)])
def test_a_count_that_cannot_be_is_refused(vnode_count: int, units: int) -> None:
    with pytest.raises(SettingError, match="expected"):
        even_mapping(vnode_count, units)
