"""`python -m benchmarks`: run the benchmarks, print a table, write JSON to benchmarks/results/.

    python -m benchmarks                         the default benchmarks, at the design's sizes
    python -m benchmarks group-by --bids 1000000 --runs 1
    python -m benchmarks small-epoch --rows 1000000 100000000 --store-folder /var/tmp/tussock
    python -m benchmarks train

These benchmarks have their own options and are not in `all`:

    python -m benchmarks nexmark                 Nexmark's queries on Tussock and on its peers; half an hour
    python -m benchmarks store --rows 100000     the state store against RocksDB and SlateDB
    python -m benchmarks cold-start              from process start to a view's rows, with and without a JVM; starts
                                                 Spark itself
    python -m benchmarks airflow                 CPU seconds of an Airflow run over 1,000 rows, by task; starts Airflow;
                                                 minutes
    python -m benchmarks bills                   rows of the bills of deployments beside those that epochs read; minutes
    python -m benchmarks declarative             a declarative pipeline: 1 % more input, beside `spark-pipelines run`;
                                                 minutes
    python -m benchmarks commands                CPU seconds of each command on the flights and on a new project;
                                                 minutes
    python -m benchmarks arrival-latency         from a file's arrival to readers, beside Structured Streaming; three
                                                 minutes
    python -m benchmarks amplification           reads, space and writes under 50 epochs of uniform updates; a few
                                                 minutes
    python -m benchmarks kept-objects            objects in a store of one epoch and statement a minute; minutes
    python -m benchmarks keyed-sources           a dump of 10 M rows in which 1,000 changed, and 1,000 changes into 1 M
                                                 and 10 M keys; minutes
    python -m benchmarks public-dumps FOLDER     ten public data sets in three versions each, compared with Spark;
                                                 minutes
    python -m benchmarks imports PROJECTS.json   imported dbt projects over generated rows: a change of 1 %, beside a
                                                 full run by Spark; minutes per project
    python -m benchmarks import-tools PROJECTS.json --tools ENVIRONMENT   imported projects next to dbt-spark and
                                                 `spark-pipelines`: a change of 1 %; minutes per project
    python -m benchmarks joins                   every kind of join against the inner join on the same changes; half a
                                                 minute
    python -m benchmarks operators               every operator: first load and small epochs on 1 M and 10 M rows; an
                                                 hour
    python -m benchmarks history                 the same changes after 1 M, 4 M and 16 M rows, against recomputation;
                                                 hours with all views
    python -m benchmarks by-spark                a view with expressions computed by Spark, against Spark's own SELECT;
                                                 two minutes
    python -m benchmarks epoch-profile           the CPU time of an epoch by part, for small and large epochs of
                                                 Nexmark's queries; two minutes
    python -m benchmarks pages                   Airflow's pages of 200 views and 10,000 epochs for ten clients, with a
                                                 commit per second; three minutes
    python -m benchmarks publish                 an epoch's changes to a Delta table, against a plain MERGE; half a
                                                 minute
    python -m benchmarks large-files             memory of epochs over a file of 2 GB of rows, in each format; a quarter
                                                 of an hour
    python -m benchmarks idle-epochs             CPU of an epoch and a status of sources of 20,000 and 100,000 files;
                                                 minutes
    python -m benchmarks lake-changes            1,000 changes to Delta and Iceberg tables of 1 M and 10 M rows, MERGE
                                                 and a rewrite; five minutes
    python -m benchmarks branches                the comparison of 10 M rows of which 1,000 differ, and a merge beside
                                                 building anew; minutes
    python -m benchmarks lake-sources            1,000 changes of an Iceberg table of 1 M and 10 M rows, read by its
                                                 key; five minutes
    python -m benchmarks server-changes          1,000 changes to 1 M and 10 M rows in Postgres and Kafka; ten minutes
    python -m benchmarks server-sources          1,000 changes of tables of 1 M and 10 M rows in Postgres, read from its
                                                 log; ten minutes
    python -m benchmarks replace                 replacing a view under two views, against rebuilding all three; a
                                                 minute
    python -m benchmarks quality                 ten rules over 1 M and 10 M rows with 1,000 changes, against a scan;
                                                 ten minutes
    python -m benchmarks rebalance               units 2 -> 3 -> 8 -> 2 under load: moving epochs against ordinary ones;
                                                 a minute
    python -m benchmarks restate                 correcting one day of a hundred, against rebuilding the views; a minute
    python -m benchmarks plain-files             10 M CSV rows without Spark, against Spark's reader; minutes
    python -m benchmarks plain-corpus FOLDER     rows of CSV and JSON-lines files without Spark and by Spark: equal?
    python -m benchmarks growth                  growth of costs with columns, views, files, statements, …; an hour
    python -m benchmarks scale                   versions of 10^4 to 10^6 SSTs and barriers of as many files, without
                                                 their bytes; a quarter of an hour
    python -m benchmarks windows --rows 10000000 window functions: new rows at the end of one partition; 1 M rows: half
                                                 a minute
    python -m benchmarks skew                    private memory of a worker if one key, group or partition has all rows;
                                                 five minutes
    python -m benchmarks memory --gb 10          private memory of a compaction and of a full scan of 10 GB; needs twice
                                                 the disk
"""

import argparse
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
ALONE = {
    "airflow": "benchmarks.airflow_run",
    "cold-start": "benchmarks.cold_start",
    "bills": "benchmarks.bills",
    "branches": "benchmarks.branches",
    "declarative": "benchmarks.declarative",
    "commands": "benchmarks.commands",
    "store": "benchmarks.store.__main__",
    "arrival-latency": "benchmarks.arrival_latency",
    "amplification": "benchmarks.amplification",
    "kept-objects": "benchmarks.kept_objects",
    "keyed-sources": "benchmarks.keyed_sources",
    "memory": "benchmarks.memory",
    "growth": "benchmarks.growth",
    "history": "benchmarks.history",
    "imports": "benchmarks.imports",
    "import-tools": "benchmarks.import_tools",
    "idle-epochs": "benchmarks.idle_epochs",
    "lake-changes": "benchmarks.lake_changes",
    "lake-sources": "benchmarks.lake_sources",
    "large-files": "benchmarks.large_files",
    "server-changes": "benchmarks.server_changes",
    "server-sources": "benchmarks.server_sources",
    "joins": "benchmarks.joins",
    "operators": "benchmarks.operators",
    "by-spark": "benchmarks.by_spark",
    "epoch-profile": "benchmarks.epoch_profile",
    "nexmark": "benchmarks.nexmark.__main__",
    "pages": "benchmarks.pages",
    "plain-corpus": "benchmarks.plain_corpus",
    "plain-files": "benchmarks.plain_files",
    "public-dumps": "benchmarks.public_dumps",
    "publish": "benchmarks.publish",
    "replace": "benchmarks.replace",
    "quality": "benchmarks.quality",
    "rebalance": "benchmarks.rebalance",
    "restate": "benchmarks.restate",
    "scale": "benchmarks.scale",
    "skew": "benchmarks.skew",
    "windows": "benchmarks.windows",
}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in ALONE:
        code: int = import_module(ALONE[arguments[0]]).main(arguments[1:])
        return code
    description = "Compare Tussock with Structured Streaming and with recomputing."
    alone = f"not in `all`, with their own options (python -m benchmarks memory --help): {', '.join(ALONE)}"
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=description, epilog=alone)
    choices = ["all", "group-by", "small-epoch", "train"]
    parser.add_argument("which", nargs="?", choices=choices, default="all", help="name of the benchmark (default: all)")
    parser.add_argument("--bids", type=int, default=20_000_000, help="group-by: number of events")
    parser.add_argument("--epochs", type=int, default=16, help="group-by: number of files and epochs")
    parser.add_argument("--auctions", type=int, default=500_000, help="group-by: number of groups")
    parser.add_argument("--runs", type=int, default=3, help="group-by: runs per side")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="small-epoch: sizes of the table"
    )
    parser.add_argument("--changed", type=int, default=1_000, help="small-epoch: changed rows per epoch")
    parser.add_argument("--small-epochs", type=int, default=9, help="small-epoch: measured epochs per size")
    kept = "small-epoch: folder of reusable stores (100 M rows: 5 GB, a quarter of an hour to create); default: scratch"
    parser.add_argument("--store-folder", type=Path, help=kept)
    parser.add_argument("--recomputes", type=int, default=3, help="small-epoch: runs of the recomputation")
    parser.add_argument("--train-epochs", type=int, default=20, help="train: epochs per run")
    parser.add_argument(
        "--scratch",
        type=Path,
        help="folder of input, stores and checkpoints, kept; default: a temporary folder",
    )
    parser.add_argument("--driver-memory", default="3g", help="memory of the Spark session that both sides share")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/<time>.json")
    options = parser.parse_args(arguments)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from benchmarks.group_by import GroupBy, compare_group_by
    from benchmarks.report import Comparison, Figure, figures_of, table_of, write_json
    from benchmarks.small_epoch import SmallEpoch, compare_small_epoch
    from benchmarks.store import latency
    from benchmarks.train import TrainBenchmark, compare_trains
    from tussock.jobs.spark.session import build_spark

    compared: list[Comparison] = []
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tussock-bench-") as temporary:
        scratch = options.scratch or Path(temporary)
        latency.register()  # before the JVM starts, since Spark's workers inherit the setting
        settings = {"spark.driver.memory": options.driver_memory, "spark.local.dir": str(scratch / "spark")}
        spark = build_spark("tussock-benchmarks", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            if options.which in ("all", "group-by"):
                size = GroupBy(options.bids, options.epochs, options.auctions, options.runs)
                compared += compare_group_by(spark, scratch, size, _progress)
            if options.which in ("all", "small-epoch"):
                small = SmallEpoch(
                    tuple(options.rows), options.changed, options.small_epochs, recomputes=options.recomputes
                )
                stores = options.store_folder or scratch / "small-stores"
                made = compare_small_epoch(spark, scratch, stores, small, _progress)
                compared, figures = [*compared, *made[0]], [*figures, *made[1]]
            if options.which in ("all", "train"):
                compared += compare_trains(
                    spark, scratch, TrainBenchmark(options.train_epochs, options.runs), _progress
                )
        finally:
            spark.stop()
    out = options.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    write_json(
        out, compared, {k: v for k, v in vars(options).items() if k not in ("scratch", "out", "store_folder")}, figures
    )
    print(table_of(compared))
    if figures:
        print(figures_of(figures))
    print(f"wrote {out}")
    return 0


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
