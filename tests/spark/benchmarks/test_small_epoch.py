"""The small-epoch benchmark: it measures the stated steps, on a store with the expected content."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.bid_store import BidSizes, BidStore, UnusableStoreError
from benchmarks.small_epoch import SmallEpoch, compare_small_epoch

SIZES = BidSizes(rows=2_000, changed=40, load_rows=900)


def _bids(changes: int) -> pa.Table:
    """The expected rows of the table, by plain arithmetic."""
    bid = np.arange(SIZES.rows)
    auction, price = bid // 20, bid * 31 % 100_000
    for change in range(changes):
        place = np.arange(SIZES.changed)
        at = place * 50 + change * 7_919 % 50
        auction[at] = (place * 104_729 + change * 15_485_863) % 100
        price[at] = (place + change * 37) % 100_000
    return pa.table({"bid": bid, "auction": auction.astype(np.int64), "price": price.astype(np.int64)})


@pytest.mark.spark
@pytest.mark.deep
def test_a_store_that_was_left_half_loaded_is_loaded_to_the_end_and_a_whole_one_used_again(
    tmp_path: Path, spark: Any
) -> None:
    def stop_at_the_second_piece(line: str) -> None:
        if "1,800" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BidStore(spark, tmp_path, SIZES, stop_at_the_second_piece)
    told: list[str] = []
    store = BidStore(spark, tmp_path, SIZES, told.append)
    assert len(told) == 2, "only the last piece was missing, and the compaction"
    assert store.l0_runs == 0
    assert store.session.query("SELECT * FROM bids").sort_by("bid").equals(_bids(0))
    store.write_change()
    store.flush()
    store.write_change()  # and stopped before its epoch
    again = BidStore(spark, tmp_path, SIZES, told.append)
    assert (len(told), again.changes) == (2, 2)
    again.tidy()
    assert again.session.query("SELECT * FROM bids").sort_by("bid").equals(_bids(2))
    assert again.expected_bids().toArrow().sort_by("bid").equals(_bids(2).cast(again.expected_bids().toArrow().schema))
    assert again.check() == 100


@pytest.mark.spark
def test_a_store_that_lost_an_sst_or_holds_other_rows_is_not_measured(tmp_path: Path, spark: Any) -> None:
    store = BidStore(spark, tmp_path, SIZES)
    store.session.execute("INSERT INTO bids VALUES (0, 7, 1)")
    store.flush()
    with pytest.raises(UnusableStoreError, match="which differ"):
        store.check()
    store.session.execute("INSERT INTO bids VALUES (-1, 7, 1)")
    store.flush()
    with pytest.raises(UnusableStoreError, match=r"found 2,001 bids, expected 2,000"):
        BidStore(spark, tmp_path, SIZES)
    largest = max((tmp_path / SIZES.name / "data").rglob("*.sst"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    with pytest.raises(UnusableStoreError, match=f"of .*{largest.name}, expected {largest.stat().st_size + 1}"):
        BidStore(spark, tmp_path, SIZES)


@pytest.mark.spark
@pytest.mark.deep
def test_sizes_are_measured_in_turns_and_their_growth_is_reported(tmp_path: Path, spark: Any) -> None:
    size = SmallEpoch((2_000, 6_000), changed=40, epochs=2, warm_up=1, recomputes=1)
    compared, figures = compare_small_epoch(spark, tmp_path, tmp_path / "stores", size, lambda _: None)
    assert [c.what.partition(",")[0] for c in compared] == [
        "small epoch: 40 changed rows of 2",
        "small epoch: 40 changed rows of 6",
        "small epoch: 6",
        "small epoch: 6",
    ]
    assert [len(c.ours.seconds) for c in compared] == [2, 2, 2, 2]
    assert [f.at_most for f in figures] == [None, 1.0]
    assert compared[2].budget == pytest.approx(1 / 1.3)
