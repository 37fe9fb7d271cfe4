"""The vnode mapping stays even with the fewest moves, or moves the excess load away from busy units."""

from collections import Counter
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tussock.statestore.meta.errors import SettingError
from tussock.statestore.meta.mapping import even_mapping, relieve_units, remap_vnodes, validate_mapping
from tussock.statestore.meta.version import VnodeMapping

vnode_counts = st.integers(0, 9).map(lambda bits: 1 << bits)


def _is_even(mapping: VnodeMapping, units: int) -> bool:
    sizes = Counter(mapping.unit_of_vnode)
    share, more = divmod(mapping.vnode_count, units)
    return (
        set(sizes) <= set(range(units))
        and sorted(sizes[u] for u in range(units)) == [share] * (units - more) + [share + 1] * more
    )


def _fewest_moves(mapping: VnodeMapping, units: int) -> int:
    """The moves that any even mapping over `units` needs: each unit keeps at most its share, the largest one more."""
    held = sorted((Counter(mapping.unit_of_vnode)[u] for u in range(units)), reverse=True)
    share, more = divmod(mapping.vnode_count, units)
    return mapping.vnode_count - sum(min(h, share + (i < more)) for i, h in enumerate(held))


@given(vnode_counts, st.data())
def test_the_first_mapping_is_even_and_its_groups_are_contiguous(vnode_count: int, data: st.DataObject) -> None:
    units = data.draw(st.integers(1, vnode_count))
    mapping = even_mapping(vnode_count, units)
    assert mapping.id == 0
    assert _is_even(mapping, units)
    assert list(mapping.unit_of_vnode) == sorted(mapping.unit_of_vnode)


@given(vnode_counts, st.data())
def test_every_change_is_even_and_moves_the_fewest_vnodes(vnode_count: int, data: st.DataObject) -> None:
    mapping = even_mapping(vnode_count, data.draw(st.integers(1, vnode_count)))
    for number in range(1, 4):
        units = data.draw(st.integers(1, vnode_count))
        after = remap_vnodes(mapping, units)
        assert after.id == number
        assert _is_even(after, units)
        moved = sum(a != b for a, b in zip(mapping.unit_of_vnode, after.unit_of_vnode, strict=True))
        assert moved == _fewest_moves(mapping, units)
        assert remap_vnodes(mapping, units) == after
        mapping = after


@given(st.lists(st.integers(0, 6), min_size=16, max_size=16), st.integers(1, 16))
def test_an_uneven_mapping_becomes_even_with_the_fewest_moves(owners: list[int], units: int) -> None:
    mapping = VnodeMapping(3, tuple(owners))
    after = remap_vnodes(mapping, units)
    assert _is_even(after, units)
    assert sum(a != b for a, b in zip(owners, after.unit_of_vnode, strict=True)) == _fewest_moves(mapping, units)


@pytest.mark.parametrize(("vnode_count", "units"), [(0, 1), (-8, 1), (3, 1), (1 << 16, 2), (8, 0), (8, 9)])
def test_an_impossible_count_is_refused(vnode_count: int, units: int) -> None:
    with pytest.raises(SettingError, match="expected"):
        even_mapping(vnode_count, units)


def _moved(before: VnodeMapping, after: VnodeMapping) -> int:
    return sum(a != b for a, b in zip(before.unit_of_vnode, after.unit_of_vnode, strict=True))


def _fewest_relieving_moves(mapping: VnodeMapping, weights: npt.NDArray[np.float64], most: float) -> int | None:
    """The fewest moves after which no unit carries more, by trying every mapping; None if there is no such mapping."""
    every = np.array(list(product(range(mapping.unit_count), repeat=len(weights))))
    loads = np.stack([(every == unit) @ weights for unit in range(mapping.unit_count)], axis=1)
    fine = (loads.max(axis=1) <= most) & np.all(
        [(every == unit).any(axis=1) for unit in range(mapping.unit_count)], axis=0
    )
    moves = (every != np.asarray(mapping.unit_of_vnode)).sum(axis=1)
    return int(moves[fine].min()) if fine.any() else None


@example([1, 1, 7, 7, 0, 0, 1, 3], 2, 1.0)  # an exhaustive search needs two moves; four are made
@given(st.lists(st.integers(0, 9), min_size=8, max_size=8), st.integers(2, 3), st.sampled_from([1.0, 1.1, 1.3, 2.0]))
def test_relief_moves_almost_the_fewest_vnodes_that_bring_every_unit_below_its_target(
    given: list[int], units: int, by: float
) -> None:
    weights, before = np.array(given, np.float64), even_mapping(8, units)
    most = by * weights.sum() / units
    after = relieve_units(before, weights, most)
    load_before, load = (np.bincount(m.unit_of_vnode, weights, minlength=units) for m in (before, after))
    assert set(after.unit_of_vnode) == set(range(units)), "every unit keeps a vnode"
    assert load.max() <= max(load_before.max(), most)
    assert (after is before) == (_moved(before, after) == 0)
    fewest = _fewest_relieving_moves(before, weights, most)
    if load.max() <= most:
        assert fewest is not None
        # If room is short, a greedy choice moves more vnodes than an exhaustive search.
        enough = fewest + 1 if by >= 1.3 else 2 * fewest
        assert _moved(before, after) <= enough
    assert relieve_units(before, weights, most) == after


@pytest.mark.parametrize("seed", range(5))
def test_relief_moves_the_fewest_vnodes_of_each_unit_if_others_have_room(seed: int) -> None:
    """Computed independently: the heaviest vnodes of a unit until they outweigh its excess load."""
    rng = np.random.default_rng(seed)
    before = even_mapping(256, 8)
    weights = rng.integers(50, 150, 256) * np.where(np.asarray(before.unit_of_vnode) < 2, 4.0, 1.0)
    most = 1.3 * weights.sum() / 8
    after = relieve_units(before, weights, most)
    assert np.bincount(after.unit_of_vnode, weights).max() <= most
    fewest = 0
    for unit in range(8):
        own = np.sort(weights[np.asarray(before.unit_of_vnode) == unit])[::-1]
        fewest += int((own.sum() - np.r_[0, np.cumsum(own)] <= most).argmax())
    assert 0 < fewest == _moved(before, after)


def test_one_vnode_too_heavy_for_any_unit_cannot_be_mended_and_relief_ends() -> None:
    weights = np.array([100.0, 1, 1, 1, 1, 1, 1, 1])
    after = relieve_units(even_mapping(8, 2), weights, 60.0)
    load = np.bincount(after.unit_of_vnode, weights)
    assert load.max() == 100.0, "the others left it, as nothing else could go"


@pytest.mark.parametrize("units", [(0, 1, 2), (0, 0, 0, 2), (0, 1)])
def test_a_mapping_that_the_store_cannot_run_on_is_refused(units: tuple[int, ...]) -> None:
    with pytest.raises(SettingError, match="expected"):
        validate_mapping(VnodeMapping(1, units), 4)
