"""Generated bids, the input of several benchmarks. The same seed gives the same bytes for every side and run."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_ROW_GROUP_ROWS = 250_000
_START_US = 1_700_000_000_000_000


def write_bids(folder: Path, rows: int, files: int, auctions: int, seed: int = 0) -> list[Path]:
    """Write `rows` bids as `files` Parquet files of equal size, one per epoch or micro-batch. Existing files are kept.

    Columns: bid bigint (dense from 0), auction bigint (uniform over `auctions`), bidder bigint, price bigint, date_time
    timestamp. 1.25 M bids per epoch over 500 K auctions touch 1 - e^-2.5 of them, about 459 K.
    """
    target = folder / f"bids-{rows}-{files}-{auctions}-{seed}"
    paths = [target / f"{i:05d}.parquet" for i in range(files)]
    if not all(p.exists() for p in paths):
        target.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        bounds = np.linspace(0, rows, files + 1).astype(np.int64)
        for i, path in enumerate(paths):
            _write(path, int(bounds[i]), int(bounds[i + 1]), auctions, rng)
            os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))  # streaming processes the oldest file first
    return paths


def _write(path: Path, first: int, end: int, auctions: int, rng: np.random.Generator) -> None:
    n = end - first
    bids = pa.table(
        {
            "bid": np.arange(first, end),
            "auction": rng.integers(0, auctions, n),
            "bidder": rng.integers(0, 1_000_000, n),
            "price": rng.integers(1, 100_000, n),
            "date_time": pa.array(_START_US + np.arange(first, end) * 10, pa.timestamp("us", "UTC")),
        }
    )
    pending = path.with_suffix(".pending")
    pq.write_table(bids, pending, row_group_size=_ROW_GROUP_ROWS, compression="zstd")
    pending.rename(path)
