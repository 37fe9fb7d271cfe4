"""Ranges of vnodes of a scan: no vnode is in two of them, wherever the batches of the scan end."""

import random

import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.executors.input_parts import scanned_parts, vnodes_of_rows

VNODES = 8


@pytest.mark.parametrize("seed", range(20))
def test_all_rows_of_a_vnode_are_in_its_range(seed: int) -> None:
    chance = random.Random(seed)
    rows = pa.table({"c0": pa.array(chance.sample(range(1_000), 60))})
    of_rows = vnodes_of_rows(rows, [0], VNODES)
    vnodes = sorted(chance.sample(range(VNODES), 5))
    chosen = np.isin(of_rows, vnodes)
    rows = rows.filter(pa.array(chosen)).take(pa.array(np.argsort(of_rows[chosen], kind="stable")))
    size, most = chance.choice([1, 2, 7]), chance.choice([1, 3, 10])
    batches = (rows.slice(start, size) for start in range(0, rows.num_rows, size))
    parts = list(scanned_parts(batches, vnodes, [0], most, VNODES))
    assert [v for some, _ in parts for v in some] == vnodes
    assert pa.concat_tables([batch for _, some in parts for batch in some]).equals(rows)
    for some, found in parts:
        assert {int(v) for batch in found for v in vnodes_of_rows(batch, [0], VNODES)} <= set(some)
    assert len(parts) > 1
