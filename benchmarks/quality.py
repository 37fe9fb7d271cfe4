"""A suite of ten rules over a large view with 1,000 changes: hidden views against a scan of all rows by Spark.

    python -m benchmarks quality
    python -m benchmarks quality --rows 200000

Four of the ten rules judge single rows, and six need all rows. Hidden views answer all of them. The output contains
the seconds of the check (with Great Expectations' pages), of epochs before and after the hidden views exist, and of one
run of the same suite with `"scan": "full"`. At the end the results of both are compared rule by rule. The cost of a
suite is its check, and the time that its hidden views add to an epoch. The epoch itself looks up the thousand rows that
it replaces, which are in more blocks of a larger table.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tussock import Session
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.operations.deploy import derive_measures
from tussock.jobs.quality.epoch_check import check_epoch, refuse_spark
from tussock.jobs.quality.record import QualityRecord
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.statements.deployment import DeployOptions
from tussock.jobs.upkeep.compaction import compact_store

BUDGET = 1.3  # growth of the suite's seconds from the smallest size to the largest
CHANGED = 1_000
BATCH = 1_000_000

SQL = """
CREATE TABLE orders (id bigint, shop int, amount double, code string, day date, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW sales AS SELECT id, shop, amount, code, day FROM orders WHERE amount >= 0;
"""
RULES = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "shop"}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0, "max_value": 1}},
    {
        "type": "expect_column_value_lengths_to_be_between",
        "kwargs": {"column": "code", "min_value": 2, "max_value": 12},
    },
    {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "code"}},
    {"type": "expect_column_sum_to_be_between", "kwargs": {"column": "amount", "min_value": 0}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "amount", "min_value": 0.4, "max_value": 0.6}},
    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "amount", "max_value": 1}},
    {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "shop", "value_set": list(range(100))}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0.01, "mostly": 0.9}},
]


class Measured(NamedTuple):
    """Seconds at one size. All are medians, except the scan's."""

    rows: int
    epoch_before: float
    epoch: float
    check: float
    scan: float

    @property
    def suite(self) -> float:
        return self.check + self.epoch - self.epoch_before


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the budget is missed or results differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks quality", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the view")
    parser.add_argument("--runs", type=int, default=7, help="measured epochs per size")
    options = parser.parse_args(arguments)
    found = [_measured(rows, options.runs) for rows in options.rows]
    print(
        f"{'rows':>12} {'epoch without':>14} {'epoch with':>11} {'check':>7} {'suite':>7} {'check by scan':>13} seconds"
    )
    for one in found:
        print(
            f"{one.rows:>12,} {one.epoch_before:>14.2f} {one.epoch:>11.2f} {one.check:>7.2f} "
            f"{one.suite:>7.2f} {one.scan:>13.2f}"
        )
    growth = found[-1].suite / found[0].suite
    print(f"growth from {found[0].rows:,} to {found[-1].rows:,} rows: suite {growth:.2f}x (at most {BUDGET}x)")
    return int(growth > BUDGET)


def _measured(rows: int, runs: int) -> Measured:
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="tussock-quality-") as folder:
        pipeline = _pipeline(Path(folder) / "pipelines/shop", {})
        with Session(pipeline.store, runner="local") as session:
            session.apply(pipeline.read_scripts())
            for first in range(0, rows, BATCH):
                session.insert("orders", _orders(random, np.arange(first, min(rows, first + BATCH))))
                session.flush()
            compact_store(session.meta)
            before = [_epoch(session, random, rows)[0] for _ in range(runs + 1)][1:]
            options = DeployOptions(derived=derive_measures(_pipeline(pipeline.folder, {})))
            session.apply(pipeline.read_scripts(), options)
            session.flush()
            compact_store(session.meta)
            epochs, checks = [], []
            for run in range(runs + 2):  # the first two warm up
                seconds, epoch = _epoch(session, random, rows)
                start = time.perf_counter()
                record = check_epoch(refuse_spark, session.meta, pipeline, epoch)
                if run > 1:
                    epochs.append(seconds)
                    checks.append(time.perf_counter() - start)
                session.meta.publish(epoch)
            start = time.perf_counter()
            scanned = check_epoch(
                lambda _: session.spark, session.meta, _pipeline(pipeline.folder, {"scan": "full"}), epoch
            )
            scan = time.perf_counter() - start
            _compare(record, scanned)
    print(f"{rows:,} rows: measured, and equal to Great Expectations over all of them", flush=True)
    return Measured(rows, statistics.median(before), statistics.median(epochs), statistics.median(checks), scan)


def _epoch(session: Session, random: np.random.Generator, rows: int) -> tuple[float, int]:
    session.insert("orders", _orders(random, random.choice(rows, CHANGED, replace=False)))
    start = time.perf_counter()
    (run,) = advance_store(LocalRunner(), session.meta)
    return time.perf_counter() - start, run.epoch


def _orders(random: np.random.Generator, ids: np.ndarray) -> pa.Table:
    codes = pa.array([f"k{n}" for n in ids.tolist()])
    days = pa.array(random.integers(19_000, 20_000, len(ids)), pa.int32()).cast(pa.date32())
    shops = pa.array(random.integers(0, 100, len(ids)), pa.int32())
    return pa.table([ids, shops, random.random(len(ids)), codes, days], names=["id", "shop", "amount", "code", "day"])


def _pipeline(folder: Path, meta: dict[str, object]) -> Pipeline:
    (folder / "quality").mkdir(parents=True, exist_ok=True)
    (folder / "views.sql").write_text(SQL)
    (folder / "quality/sales.json").write_text(json.dumps({"expectations": RULES, "meta": meta}))
    toml = f'name = "shop"\nstore = "{folder}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{folder}/docs"\n'
    (folder / "pipeline.toml").write_text(toml)
    return load_pipeline(folder)


def _compare(kept: QualityRecord, scanned: QualityRecord) -> None:
    """Raises AssertionError if a rule has another result."""
    (mine,), (theirs,) = kept.views, scanned.views
    assert (mine.failures, mine.rows) == ((), theirs.rows), mine
    assert theirs.failures == (), theirs
    for metric in mine.metrics:
        other = theirs.metric(metric.expectation)
        assert metric.value is not None
        assert other is not None
        assert other.value is not None
        assert abs(metric.value - other.value) <= 1e-9 * abs(other.value), (metric, other)
