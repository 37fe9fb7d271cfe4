"""Read CSV files as plain files, against Spark's reader, in turns.

    python -m benchmarks plain-files
    python -m benchmarks plain-files --rows 1000000 --files 1 --epoch

Compares the same files: their rows alone, and with --epoch an epoch with a view over them. The sources differ in one
option, `locale 'en-US'`: it is Spark's default, and not on the list of plain options, so Spark reads the second source.
At the end, the views of both are compared.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv
from pyspark.sql import SparkSession

from benchmarks.report import Comparison, Series, table_of
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import engine_of, source_of
from tests.support.zone_rules import ruled_by_python
from tussock import Session
from tussock.jobs.sources.base import Division, TimeZones
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.spark.session import build_spark, epoch_session

BUDGET = 5.0  # speedup over Spark's reader
COLUMNS = "id bigint, shop int, price double, amount decimal(10,2), at timestamp, name string"
VIEW = "SELECT shop, count(*) AS n, sum(amount) AS amount, max(at) AS last FROM sales GROUP BY shop"
SIDES: Mapping[str, Mapping[str, str]] = {"plain": {}, "Spark": {"locale": "en-US"}}


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the budget of the read is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks plain-files", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of all files")
    parser.add_argument("--files", type=int, default=4, help="number of files")
    parser.add_argument("--runs", type=int, default=1, help="runs per side, after a small one")
    parser.add_argument("--epoch", action="store_true", help="also compare an epoch")
    options = parser.parse_args(arguments)
    spark = build_spark("tussock plain files")
    with tempfile.TemporaryDirectory(prefix="tussock-plain-") as root:
        small = [_write(Path(root) / "small", 0, 1_000)]
        files = [_write(Path(root), n, options.rows // options.files) for n in range(options.files)]
        facts = {"rows": options.rows, "files": options.files, "MB": sum(f.stat().st_size for f in files) // 10**6}
        utc = epoch_session(spark, "UTC")
        read = _in_turns(options.runs, lambda side, run: _read(utc, side, files if run else small))
        comparisons = [Comparison("rows alone", *read, budget=BUDGET, facts=facts)]
        if options.epoch:
            views: dict[str, pa.Table] = {}
            folders = small[0].parent, Path(root)
            epochs = _in_turns(options.runs, lambda side, run: _epoch(spark, side, folders[min(run, 1)], views))
            assert views["plain"].equals(views["Spark"]), "the views differ"
            comparisons.append(Comparison("an epoch", *epochs, facts=facts))
    print(table_of(comparisons))
    for c in comparisons:
        mine, theirs = (options.rows / side.median / 1e6 for side in (c.ours, c.theirs))
        print(f"{c.what}: {mine:.2f} M rows/s, {theirs:.2f} by Spark; {facts}")
    return int(comparisons[0].ratio < BUDGET)


def _in_turns(runs: int, seconds: Callable[[str, int], float]) -> tuple[Series, Series]:
    """Run both sides in turns. The first run, 0, warms up."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    for run in range(runs + 1):
        for side in SIDES:
            took = seconds(side, run)
            if run:
                found[side].append(took)
    plain, spark = (Series(side, tuple(found[side])) for side in SIDES)
    return plain, spark


def _write(folder: Path, number: int, rows: int) -> Path:
    """Write a file of sales."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(number)
    cents = random.integers(0, 10**7, rows)
    sales = pa.table({
        "id": np.arange(rows) + number * rows,
        "shop": random.integers(0, 1000, rows),
        "price": np.round(random.random(rows) * 1000, 3),
        "amount": pa.array(cents).cast(pa.decimal128(20, 0)).cast(pa.decimal128(22, 2)),
        "at": pa.array(random.integers(1_500_000_000, 1_700_000_000, rows)).cast(pa.timestamp("s")).cast(pa.string()),
        "name": pa.array([f"customer {n}" for n in range(1000)]).take(pa.array(random.integers(0, 1000, rows))),
    })  # fmt: skip
    path = folder / f"{number}.csv"
    csv.write_csv(sales, path, csv.WriteOptions(quoting_style="none", quoting_header="none"))
    return path


def _read(spark: SparkSession, side: str, paths: Sequence[Path]) -> float:
    """Seconds to read the rows of files: one after another as plain files, two at a time by Spark."""
    columns = [(name, kind) for name, kind in (column.split() for column in COLUMNS.split(", "))]
    source = source_of("csv", columns, {"header": "true", **SIDES[side]})
    reader, engine = reader_of(source), engine_of(source)
    document = document_of([pinned(path, n) for n, path in enumerate(paths)])
    began = time.perf_counter()
    zones = TimeZones(ruled_by_python("UTC"), ruled_by_python)
    by_spark = engine.reasons_for_spark(source, document, zones)
    divided = engine.divide(source, document, Division(1, zones, by_spark))
    rows = sum(engine.read(source, part, range(len(columns))).rows.num_rows for part in divided.parts)
    assert (divided.rest is None) == (rows > 0), "a side reads other files"
    if divided.rest is not None:
        reader.frame(spark, source, divided.rest, range(len(columns))).agg({"part": "count"}).collect()
    return time.perf_counter() - began


def _epoch(spark: SparkSession, side: str, folder: Path, views: dict[str, pa.Table]) -> float:
    """Seconds of an epoch that reads the files of a folder for a view. Its rows are added to `views`."""
    with (
        tempfile.TemporaryDirectory(prefix="tussock-plain-store-") as store,
        Session(store, spark=spark, units=2, runner="spark" if side == "Spark" else "local", workers=2) as session,
    ):
        more = "".join(f", {name} '{value}'" for name, value in SIDES[side].items())
        options = f"path '{folder}/*.csv', header 'true', retain 'none'{more}"
        session.execute(f"CREATE SOURCE sales ({COLUMNS}) USING csv OPTIONS ({options})")
        session.execute(f"CREATE MATERIALIZED VIEW by_shop AS {VIEW}")
        began = time.perf_counter()
        session.flush()
        took = time.perf_counter() - began
        views[side] = session.read("by_shop").sort_by("shop")
    return took
