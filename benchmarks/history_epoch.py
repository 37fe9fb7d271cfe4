"""The measured processes of `python -m benchmarks history`: each prints one JSON document per measurement.

    python -m benchmarks.history_epoch --code CHECKOUT load STORES.json
    python -m benchmarks.history_epoch --code CHECKOUT epoch STORE flush|insert|restate [FILE …]
    python -m benchmarks.history_epoch --code CHECKOUT duckdb|spark|merge QUERY.json

CPU seconds are of the epoch, in this process and its worker processes. Reads are counted in this process.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.cpu import cpu_seconds_between, tree_usage


@contextmanager
def measured(what: str, **facts: Any) -> Iterator[dict[str, Any]]:
    """Measure the block and print its document; the block can add facts. Worker processes that still run count too."""
    before, began = tree_usage(), time.perf_counter()
    yield facts
    cpu, seconds = cpu_seconds_between(before, after := tree_usage()), time.perf_counter() - began
    print(json.dumps({"what": what, "cpu_s": cpu, "s": seconds, "peak_mb": _peak_mb(after), **facts}), flush=True)


def _peak_mb(pids: Iterable[int]) -> float:
    """The most memory that one of the processes has had."""
    peaks = [0]
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return max(peaks) / 1024


def load(given: Path) -> None:
    """Create stores, load their views, and run the first epochs in this process.

    The document has, per store: its folder, its statements, the table to load or None, and the new files of the epochs.
    """
    import pyarrow.parquet as pq

    from benchmarks.reads import count_reads
    from tussock import Session
    from tussock.jobs.spark.session import build_spark
    from tussock.jobs.upkeep.compaction import compact_store

    spark = build_spark("tussock-history", settings={"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    for store in json.loads(given.read_text()):
        with Session(store["folder"], spark, runner="local") as session:
            for statement in store["statements"]:
                session.execute(statement)
            for file in store["table"] or ():
                session.insert("events", pq.read_table(file))
                session.flush()
            for statement in store["views"]:
                session.execute(statement)
            with measured("load", name=store["name"]):
                session.flush()
            compact_store(session.meta)
            for waiting, place in store["epochs"]:
                Path(waiting).rename(place)
                with count_reads() as reads, measured("long-lived", name=store["name"]) as facts:
                    session.flush()
                    facts |= {"rows": reads.rows, "blocks": reads.blocks, "bytes": reads.bytes}
    spark.stop()


def epoch(store: str, change: str, files: list[str]) -> None:
    """Run one epoch in this new process.

    Args:
        change: `flush` takes new files; `restate` restates the files; `insert` inserts their rows before, unmeasured.
    """
    import pyarrow.parquet as pq

    from benchmarks.reads import count_reads
    from tussock import Session

    if change == "insert":
        with Session(store, runner="local") as session:
            for file in files:
                session.insert("events", pq.read_table(file))
    with count_reads() as reads, Session(store, runner="local") as session, measured("epoch") as facts:
        if change == "restate":
            for restated in _restated_together(files):
                session.restate("events", restated)
        else:
            session.flush()
        facts |= {"rows": reads.rows, "blocks": reads.blocks, "bytes": reads.bytes}


def _restated_together(files: list[str]) -> list[Any]:
    """All files in one epoch. An older checkout needs an epoch for each."""
    from tussock.jobs.sources.base import Restated

    if "more" not in {field.name for field in fields(Restated)}:
        return [Restated(file) for file in files]
    return [Restated(files[0], more=tuple(files[1:]))]


def recompute_with_duckdb(given: dict[str, Any]) -> None:
    """Compute all views from all rows, and write them as Parquet."""
    import duckdb

    with duckdb.connect() as connection, measured("duckdb"):
        connection.execute("SET threads = 2; SET memory_limit = '6GB'")
        for name, files in given["inputs"].items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")
        for number, select in enumerate(given["selects"]):
            connection.execute(f"COPY ({select}) TO '{given['out']}-{number}.parquet' (FORMAT parquet)")


def recompute_with_spark(given: dict[str, Any]) -> None:
    """The same on Spark, in a second run."""
    from tussock.jobs.spark.session import build_spark

    spark = build_spark("tussock-history", settings={"spark.driver.memory": "3g"})
    spark.sparkContext.setLogLevel("OFF")
    for name, files in given["inputs"].items():
        spark.read.parquet(files).createOrReplaceTempView(name)
    for turn in range(2):
        before = tree_usage()
        for number, select in enumerate(given["selects"]):
            spark.sql(select).write.mode("overwrite").parquet(f"{given['out']}-{number}")
        if turn:
            print(json.dumps({"what": "spark", "cpu_s": cpu_seconds_between(before, tree_usage())}), flush=True)
    spark.stop()


def merge_by_hand(given: dict[str, Any]) -> None:
    """Bring the latest rows of customers, daily sums and first rows of shops up to date in Delta tables, with MERGE.

    The tables are first computed from the history. Then the rows of the new file are merged: latest rows and sums by
    themselves, and the first rows of the touched shops from their old first rows and the new rows. Deleted or corrected
    rows would need the whole history.
    """
    import duckdb
    from deltalake import DeltaTable, write_deltalake

    latest, days, top = given["selects"]
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{given['inputs']['events']}')")
    for name, select in (("latest", latest), ("days", days), ("top", top)):
        write_deltalake(f"{given['out']}-{name}", connection.execute(select).to_arrow_table())
    connection.execute("DROP VIEW events")
    with measured("merge"):
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{given['new']}')")
        table = DeltaTable(f"{given['out']}-latest").merge(
            connection.execute(latest).to_arrow_table(),
            "t.customer = s.customer",
            source_alias="s",
            target_alias="t",
        )
        newer = "s.ts > t.ts OR (s.ts = t.ts AND s.id > t.id)"
        table.when_matched_update_all(newer).when_not_matched_insert_all().execute()
        table = DeltaTable(f"{given['out']}-days").merge(
            connection.execute(days).to_arrow_table(),
            "t.shop = s.shop AND t.day = s.day",
            source_alias="s",
            target_alias="t",
        )
        table.when_matched_update({"total": "t.total + s.total"}).when_not_matched_insert_all().execute()
        place = f"{given['out']}-top"
        connection.register("kept", DeltaTable(place).to_pyarrow_table())
        both = "SELECT id, shop, amount FROM kept UNION SELECT id, shop, amount FROM events"
        rows = top.replace("FROM events", f"FROM ({both})")
        table = DeltaTable(place).merge(
            connection.execute(rows).to_arrow_table(),
            "t.shop = s.shop AND t.r = s.r",
            source_alias="s",
            target_alias="t",
        )
        table.when_matched_update_all("t.id <> s.id").when_not_matched_insert_all().execute()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history_epoch")
    parser.add_argument("--code", type=Path, required=True, help="the checkout whose Tussock runs")
    parser.add_argument("what", choices=["load", "epoch", "duckdb", "spark", "merge"])
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(options.code))
    given = options.arguments
    match options.what:
        case "load":
            load(Path(given[0]))
        case "epoch":
            epoch(given[0], given[1], given[2:])
        case "duckdb":
            recompute_with_duckdb(json.loads(Path(given[0]).read_text()))
        case "spark":
            recompute_with_spark(json.loads(Path(given[0]).read_text()))
        case _:
            merge_by_hand(json.loads(Path(given[0]).read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
