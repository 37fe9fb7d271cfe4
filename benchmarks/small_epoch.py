"""Benchmark (b): an epoch of a thousand changed rows, three levels deep, against recomputing.

The engine's time should hardly depend on the size of the state. Each size has its own store (bid_store.py), loaded and
compacted before. Upkeep between the epochs is not timed. SSTs are in the page cache, so the disk is not measured
either. Epochs of all sizes take turns, so other load on the machine affects all of them. CPU seconds of the driver, its
JVM and Spark's workers are printed next to wall seconds.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bid_store import BY_AUCTION, BY_CLASS, BidSizes, BidStore
from benchmarks.cpu import cpu_seconds_between, tree_usage
from benchmarks.report import Comparison, Figure, Series

EPOCH_BUDGET_S = 1.0
GROWTH_BUDGET = 1.3
RECOMPUTED_ROWS = 10_000_000  # larger tables are not recomputed, since that takes minutes


@dataclass(frozen=True, slots=True)
class SmallEpoch:
    """Sizes of the benchmark."""

    rows: tuple[int, ...] = (1_000_000, 10_000_000)
    changed: int = 1_000
    epochs: int = 9  # measured per size
    warm_up: int = 25  # epochs for the JIT compilers, and to load filters and hot blocks, as in a steady pipeline
    recomputes: int = 3


@dataclass(slots=True)
class _Measured:
    """The epochs of one size."""

    store: BidStore
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)  # parts of `seconds`
    runs: list[int] = field(default_factory=list)  # L0 runs at the start of each epoch

    @property
    def series(self) -> Series:
        return Series(f"tussock, {self.store.sizes.rows:,} rows of state", tuple(self.seconds))

    @property
    def facts(self) -> dict[str, object]:
        return {
            "rows": self.store.sizes.rows,
            "stored bytes": self.store.stored_bytes,
            "cpu seconds": self.cpu,
            "L0 runs found": self.runs,
            **{f"{part}, median s": statistics.median(seconds) for part, seconds in self.parts.items()},
        }


def compare_small_epoch(
    spark: SparkSession, scratch: Path, stores: Path, size: SmallEpoch, progress: Callable[[str], None]
) -> tuple[list[Comparison], list[Figure]]:
    """Measure epochs of each table size in turns, then the recomputation, then check the last view of each.

    Args:
        scratch: folder for recomputed views.
    Returns: for each recomputed size, the epoch against the recomputation; the largest size's epoch against the
        smallest's, in wall and CPU seconds; the medians of the epochs, with the design's budget for the largest.
    Raises: UnusableStoreError if a view differs from Spark's answer.
    """
    measured: list[_Measured] = []
    try:
        measured.extend(
            _Measured(BidStore(spark, stores, BidSizes(rows, size.changed), progress)) for rows in sorted(size.rows)
        )
        for epoch in range(-size.warm_up, size.epochs):
            for one in measured:
                _run(one, epoch >= 0)
        for one in measured:
            progress(f"small epoch: {_told(one)}")
        compared = [
            _recomputed(spark, scratch, size, one, progress)
            for one in measured
            if one.store.sizes.rows <= RECOMPUTED_ROWS
        ]
        for one in measured:
            progress(
                f"small epoch: {one.store.sizes.rows:,} rows: {one.store.check()} rows of the last view equal Spark's"
            )
        return [*compared, *_growth(measured)], _figures(measured)
    finally:
        for one in measured:
            one.store.close()


def _run(one: _Measured, counts: bool) -> None:
    """Time one epoch, without the upkeep after it.

    The store is read into the page cache first, so that the latency of the disk is not measured.
    """
    one.store.write_change()
    one.store.read_through()
    runs = one.store.l0_runs
    used, began = tree_usage(), time.perf_counter()
    summary = one.store.flush()
    seconds = time.perf_counter() - began
    cpu = cpu_seconds_between(used, tree_usage())
    if counts:
        one.seconds.append(seconds)
        one.cpu.append(cpu)
        one.runs.append(runs)
        for part, taken in summary.seconds.items():
            one.parts.setdefault(part, []).append(taken)
    one.store.tidy()


def _told(one: _Measured) -> str:
    parts = ", ".join(f"{part} {statistics.median(seconds):.3f}" for part, seconds in one.parts.items())
    median, cpu = statistics.median(one.seconds), statistics.median(one.cpu)
    held = f"{one.store.sizes.rows:,} rows, {one.store.stored_bytes / 1e6:,.0f} MB"
    return f"{held}: median epoch {median:.3f} s ({parts}), {cpu:.3f} s of CPU"


def _growth(measured: Sequence[_Measured]) -> list[Comparison]:
    """The largest size against the smallest."""
    if len(measured) < 2:
        return []
    small, large = measured[0], measured[-1]
    sizes = f"{large.store.sizes.rows:,} rows of state against {small.store.sizes.rows:,}"
    more, less = (Series(f"cpu, {one.store.sizes.rows:,} rows of state", tuple(one.cpu)) for one in (large, small))
    return [
        Comparison(
            f"small epoch: {sizes}",
            large.series,
            small.series,
            1 / GROWTH_BUDGET,
            {"large": large.facts, "small": small.facts},
        ),
        Comparison(f"small epoch: {sizes}, CPU seconds", more, less),  # the budget is for wall seconds
    ]


def _figures(measured: Sequence[_Measured]) -> list[Figure]:
    last = measured[-1]
    return [
        Figure(
            f"an epoch of {one.store.sizes.changed:,} changed rows, 3 levels, {one.store.sizes.rows:,} rows of state",
            one.series.median,
            "s",
            facts=one.facts,
            at_most=EPOCH_BUDGET_S if one is last else None,
        )
        for one in measured
    ]


def _recomputed(
    spark: SparkSession, scratch: Path, size: SmallEpoch, one: _Measured, progress: Callable[[str], None]
) -> Comparison:
    """The epochs against both views recomputed from all rows, as in a pipeline without increments."""
    rows = one.store.sizes.rows
    folder = scratch / f"small-bids-{rows}"
    one.store.expected_bids().write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
    seconds = [_recompute(spark, scratch, folder) for _ in range(1 + size.recomputes)][1:]  # the first warms up
    progress(f"small epoch: {rows:,} rows: recomputing {', '.join(f'{s:.2f}' for s in seconds)} s")
    what = f"small epoch: {size.changed:,} changed rows of {rows:,}, 3 levels, against recomputing"
    return Comparison(what, one.series, Series(f"recompute from {rows:,} rows", tuple(seconds)), facts=one.facts)


def _recompute(spark: SparkSession, scratch: Path, folder: Path) -> float:
    """Compute both views and write them as Parquet."""
    began = time.perf_counter()
    spark.read.parquet(str(folder)).createOrReplaceTempView("bids")
    spark.sql(BY_AUCTION).write.mode("overwrite").parquet(str(scratch / "recomputed-by-auction"))
    spark.read.parquet(str(scratch / "recomputed-by-auction")).createOrReplaceTempView("by_auction")
    spark.sql(BY_CLASS).write.mode("overwrite").parquet(str(scratch / "recomputed-by-class"))
    return time.perf_counter() - began
