"""Publish 900 updates and 100 deletes to tables of several sizes: located rows, MERGE, and a rewrite.

    delta       Delta, deletion vectors         merge          deltalake's MERGE
    iceberg     Iceberg 2, position deletes     rewrite        all rows again, in Delta
    iceberg-3   Iceberg 3, deletion vectors     spark-delta    Spark's MERGE INTO, with deletion vectors
                                                spark-iceberg  Spark's MERGE INTO, merge-on-read, Iceberg's Java

    python -m benchmarks lake-changes
    python -m benchmarks lake-changes --rows 1000000 10000000 100000000 --ways delta iceberg
    python -m benchmarks lake-changes --rows 1000000 --ways spark-delta spark-iceberg
    python -m benchmarks lake-changes --sparse       keys that are no consecutive integers

The sinks get the changes in memory, as a publish has them after it read the store. Each round opens the table, looks
the old rows up, commits, and tags the table of Iceberg. The requests are counted on an S3 server in this process, with
the ones of the deltalake package; a read of a data file fails. At the end, the counts and sums of all columns are
compared.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.cpu import cpu_seconds_between, tree_usage
from tests.support.jobs.iceberg.java import java_in
from tests.support.s3_servers import BUCKET, Seen, credentials, moto_server
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.delta.location import location_of
from tussock.jobs.reading.keyed_rows import ChangesWithKeys, RowsWithKeys
from tussock.jobs.settings.home import Home
from tussock.jobs.settings.publishing import IcebergSettings
from tussock.jobs.sinks.base import Difference, Outline, Publisher
from tussock.jobs.sinks.delta_located import CHECKPOINT_EVERY, DeltaLocatedSink
from tussock.jobs.sinks.delta_rs import DeltaRsSink
from tussock.jobs.sinks.iceberg import IcebergPlace, IcebergSink
from tussock.jobs.sinks.manifest import TableState
from tussock.jobs.spark.session import spark_session
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store

CHANGED, DELETED = 1000, 100
_COLUMNS = (ColumnSpec("k", "bigint"), ColumnSpec("v", "bigint"), ColumnSpec("name", "string"))
_AT_ONCE = 500_000
_GAP, _SPREAD = 1009, 0x9E3779B97F4A7C15  # of sparse keys


@dataclass
class Model:
    """The rows of the table: integer keys, of which some are deleted. Row n has the key n, or a `sparse` one."""

    count: int
    sparse: bool = False
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    deleted: set[int] = field(default_factory=set)
    values: dict[int, int] = field(default_factory=dict)

    def batches(self) -> pa.RecordBatchReader:
        """All rows, in the order of their keys."""
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("name", pa.string())])
        return pa.RecordBatchReader.from_batches(schema, (b for part in self.keyed() for b in part.rows.to_batches()))

    def keyed(self) -> Iterator[RowsWithKeys]:
        """See WholeRows."""
        for start in range(0, self.count, _AT_ONCE):
            yield self.rows_of(np.arange(start, min(self.count, start + _AT_ONCE)), 0)

    def rows_of(self, numbers: np.ndarray, value: int) -> RowsWithKeys:
        """Rows by their numbers, with this value."""
        keys = self.keys_of(numbers)
        names = pa.array(np.char.add("customer ", keys.astype(str)))
        rows = pa.table([keys, np.full(len(keys), value), names], names=["k", "v", "name"])
        return RowsWithKeys(rows, pa.table({"k0": keys}))

    def keys_of(self, numbers: np.ndarray) -> np.ndarray:
        """Keys by the numbers of rows, in the same order."""
        if not self.sparse:
            return numbers
        return numbers * _GAP + (numbers.astype(np.uint64) * np.uint64(_SPREAD) >> np.uint64(40)).astype(int) % _GAP

    def frame(self, spark: Any) -> Any:
        """See WholeRows. Not used."""
        raise NotImplementedError

    def change(self, value: int) -> ChangesWithKeys:
        """The changes of a round: old keys, and new rows with this value."""
        drawn = self.random.choice(self.count, CHANGED + len(self.deleted), replace=False).tolist()
        numbers = np.array([number for number in drawn if number not in self.deleted][:CHANGED])
        gone, left = numbers[:DELETED], np.sort(numbers[DELETED:])
        self.deleted.update(gone.tolist())
        self.values |= dict.fromkeys(left.tolist(), value)
        removed = self.keys_of(np.concatenate([np.sort(gone), left]))
        return ChangesWithKeys(pa.table({"k0": removed}), self.rows_of(left, value))

    def sums(self) -> tuple[int, int, int]:
        """Number of rows, sum of the keys, sum of the values."""
        values = sum(value for number, value in self.values.items() if number not in self.deleted)
        parts = (np.arange(start, min(self.count, start + _AT_ONCE)) for start in range(0, self.count, _AT_ONCE))
        keys = sum(int(self.keys_of(part).sum()) for part in parts)
        gone = int(self.keys_of(np.array(sorted(self.deleted), int)).sum())
        return self.count - len(self.deleted), keys - gone, values


@dataclass(frozen=True)
class Cost:
    """The median cost of a round.

    Args:
        seconds, cpu: in seconds.
        read, written: bytes of files. `read` is None if other processes read.
    """

    seconds: float
    cpu: float
    written: float
    read: float | None = None

    def __str__(self) -> str:
        text = f"{1000 * self.seconds:,.0f} ms, {1000 * self.cpu:,.0f} ms CPU, {self.written / 1000:,.0f} KB written"
        return text if self.read is None else f"{text}, {self.read / 1000:,.0f} KB read"


def outline() -> Outline:
    """The relation of the tables."""
    stored = TableSchema(1, "orders", _COLUMNS, (KeyColumn(0),), (0,))
    return Outline("bench", frozenset({"bench"}), "orders", _COLUMNS, ("k",), stored=stored)


def measure(rounds: int, run: Callable[[int], None], written: Callable[[], int]) -> Cost:
    """Run rounds after a warm one. Returns the medians."""
    costs = []
    for number in range(rounds + 1):
        before, read, cpu, start = written(), _bytes_read(), time.process_time(), time.perf_counter()
        run(number)
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
        costs.append((seconds, used, written() - before, _bytes_read() - read))
    return Cost(*(statistics.median(column) for column in zip(*costs[1:], strict=True)))


@dataclass(frozen=True)
class Made:
    """A sink, and its place if an epoch ends with a commit there."""

    sink: DeltaLocatedSink | IcebergSink
    place: IcebergPlace | None = None

    def publish(self, changes: ChangesWithKeys, epoch: int) -> None:
        """Publish an epoch: read the state of the table, change it, and tag it."""
        assert self.sink.read_state() is not None
        version = self.sink.apply_keyed(changes, epoch)
        assert version is not None
        if self.place is not None:
            self.place.finish_epoch(epoch, {"orders": TableState("orders", version, str(epoch))}, complete=True)


SinkOf = Callable[[str, ObjectStore], Made]
"""Makes the sink of the table in a place. Its arguments: the address of the tables, and the store of the locator."""


def delta_sink(to: str, store: ObjectStore) -> Made:
    """See SinkOf."""
    return Made(DeltaLocatedSink(location_of(to), outline(), store))


def iceberg_sink(to: str, store: ObjectStore, version: Literal[2, 3], catalog: str = "") -> Made:
    """See SinkOf. `catalog`: the SQLite file of tables in a bucket."""
    properties = {"type": "sql", "uri": f"sqlite:///{catalog}", "warehouse": to.partition("?")[0]} if catalog else {}
    settings = IcebergSettings(to, catalog=properties, format_version=version)
    meta = cast(MetaStore, SimpleNamespace(objects=store))  # the sink uses its objects only
    home = Home("bench", "", "")
    place = IcebergPlace(settings, location_of(to), Publisher(meta, home, str))
    return Made(place.sink_of(outline()), place)


def by_locator(folder: Path, model: Model, rounds: int, make_sink: SinkOf) -> Cost:
    """Changes by a locator; see the module."""
    to, store = str(folder / "tables"), open_object_store(str(folder / "store"))
    sink = make_sink(to, store).sink
    sink.read_state()
    sink.replace(model, 1 << 16)
    changes = [model.change(number + 1) for number in range(rounds + 1)]

    def run(number: int) -> None:
        make_sink(to, store).publish(changes[number], (number + 2) << 16)

    cost = measure(rounds, run, lambda: _bytes_in(folder))
    _check(make_sink(to, store).sink, model)
    return cost


def by_merge(folder: Path, model: Model, rounds: int) -> Cost:
    """The same changes by deltalake's MERGE."""
    place = location_of(str(folder / "tables"))
    sink = DeltaRsSink(place, outline())
    sink.read_state()
    sink.replace(model, 1 << 16)

    every = [model.change(number + 1) for number in range(rounds + 1)]

    def run(number: int) -> None:
        changes, sink = every[number], DeltaRsSink(place, outline())
        assert sink.read_state() is not None
        removed = changes.removed.rename_columns(["k"]).slice(0, DELETED)
        assert (
            sink.apply(
                Difference(removed, changes.written.rows, only_new=False, changes=changes.removed), (number + 2) << 16
            )
            is not None
        )

    cost = measure(rounds, run, lambda: _bytes_in(folder))
    _check(DeltaRsSink(place, outline()), model)
    return cost


def by_rewrite(folder: Path, model: Model) -> Cost:
    """All rows written again."""
    place = location_of(str(folder / "tables"))

    def run(number: int) -> None:
        sink = DeltaRsSink(place, outline())
        sink.read_state()
        sink.replace(model, (number + 1) << 16)

    return measure(1, run, lambda: _bytes_in(folder))


_MERGE = """
    MERGE INTO {} t USING changes s ON t.k = s.k WHEN MATCHED AND s.name IS NULL THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.v = s.v, t.name = s.name WHEN NOT MATCHED THEN INSERT *
"""


def by_spark(folder: Path, rows: int, way: str) -> Cost:
    """The same changes by Spark's MERGE INTO. The CPU seconds are those of all processes, and the files are warm."""
    (tables := folder / "tables").mkdir()
    if way == "spark-delta":
        with spark_session(settings=with_delta({"spark.sql.shuffle.partitions": "2"})) as spark:
            return _merge_by_spark(folder, rows, lambda sql: spark.sql(sql).collect(), f"delta.`{tables}/t`", _VECTORS)
    with java_in(tables) as java:
        return _merge_by_spark(folder, rows, lambda sql: java.run(sql=sql), "db.t", _MERGE_ON_READ)


_VECTORS = "USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
_MERGE_ON_READ = "USING iceberg TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')"


def _merge_by_spark(folder: Path, rows: int, run: Callable[[str], Any], table: str, settings: str) -> Cost:
    model, costs = Model(rows), []
    select = f"SELECT id AS k, 0L AS v, concat('customer ', id) AS name FROM range({rows})"
    run(f"CREATE TABLE {table} {settings} AS {select}")
    for number in range(4):
        changes = model.change(number + 1)
        gone = changes.removed["k0"].slice(0, DELETED)
        deleted = pa.table(
            [gone, pa.nulls(len(gone), pa.int64()), pa.nulls(len(gone), pa.string())], ["k", "v", "name"]
        )
        pq.write_table(pa.concat_tables([changes.written.rows, deleted]), path := folder / f"{number}.parquet")
        run(f"CREATE OR REPLACE TEMPORARY VIEW changes USING parquet OPTIONS (path '{path}')")
        before, used, start = _bytes_in(folder / "tables"), tree_usage(), time.perf_counter()
        run(_MERGE.format(table))
        spent = cpu_seconds_between(used, tree_usage())
        costs.append((time.perf_counter() - start, spent, _bytes_in(folder / "tables") - before))
    answer = run(f"SELECT count(*), sum(k), sum(v) FROM {table}")
    assert tuple(map(int, answer[0])) == model.sums(), (answer, model.sums())
    return Cost(*(statistics.median(column) for column in zip(*costs[1:], strict=True)))


def count_requests(model: Model, rounds: int, make_sink: SinkOf) -> str:
    """Return the requests of a publish: median and maximum, also with the writing of checkpoints, and the bytes.

    Raises AssertionError if a publish reads a data file.
    """
    seen: list[Seen] = []
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with credentials(), moto_server(seen) as endpoint:
        uri = f"s3://{BUCKET}/{{}}?endpoint={endpoint}&path_style=true"
        to, store = uri.format("tables"), open_object_store(uri.format("store"))
        sink = make_sink(to, store).sink
        sink.read_state()
        sink.replace(model, 1 << 16)
        counts, read = [], []
        for number in range(rounds):
            changes = model.change(number + 1)
            made, before = make_sink(to, store), len(seen)
            process_cache().clear()
            made.publish(changes, (number + 2) << 16)
            gets = [request for request in seen[before:] if request.method == "GET"]
            counts.append(len(seen) - before)
            read.append(sum(request.bytes_out for request in gets))
            assert not [request for request in gets if _is_data(request.path)]
    plain = [count for number, count in enumerate(counts) if (number + 1) % CHECKPOINT_EVERY]
    requests = f"{statistics.median(plain):.0f} requests, at most {max(plain)}; {max(counts)} with a checkpoint"
    return f"{requests}; {statistics.median(read) / 1000:,.0f} KB read"


def _is_data(path: str) -> bool:
    return "/tables/" in path and path.endswith(".parquet") and "/_delta_log/" not in path


def _bytes_read() -> int:
    """Return the bytes that this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check(sink: DeltaLocatedSink | IcebergSink | DeltaRsSink, model: Model) -> None:
    """Compare the sums of the columns with the model, as the sink reads its rows."""
    count = key = value = 0
    for batch in sink.read_rows():
        count, key, value = count + len(batch), key + _sum_of(batch["k"]), value + _sum_of(batch["v"])
    assert (count, key, value) == model.sums(), ((count, key, value), model.sums())


def _sum_of(column: pa.Array) -> int:
    return int(pc.sum(column).as_py() or 0)


WAYS: dict[str, Callable[..., Any]] = {
    "delta": delta_sink,
    "iceberg": partial(iceberg_sink, version=2),
    "iceberg-3": partial(iceberg_sink, version=3),
}
"""The sinks that use a locator. See SinkOf."""
BY_SPARK = ("spark-delta", "spark-iceberg")


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the cost depends on the size of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake-changes")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    parser.add_argument("--rounds", type=int, default=9, help="measured publishes")
    others = ("merge", "rewrite", *BY_SPARK)
    parser.add_argument(
        "--ways", nargs="+", choices=(*WAYS, *others), default=[*WAYS, *others[:2]], help="what to measure"
    )
    parser.add_argument("--folder", help="for the tables; default: a temporary one")
    parser.add_argument("--sparse", action="store_true", help="keys that are no consecutive integers; not for Spark")
    parser.add_argument(
        "--bucket-rows", type=int, default=100_000, help="rows of the tables whose requests are counted"
    )
    options = parser.parse_args(arguments)
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    for rows in options.rows:
        for way in options.ways:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                model = Model(rows, options.sparse)
                if way in WAYS:
                    cost = by_locator(Path(folder), model, options.rounds, WAYS[way])
                    costs[way].append(cost)
                elif way in BY_SPARK:
                    cost = by_spark(Path(folder), rows, way)
                else:
                    cost = by_rewrite(Path(folder), model) if way == "rewrite" else by_merge(Path(folder), model, 2)
                print(f"{rows:>12,} rows  {way:<9} {cost}", flush=True)
    worst = 1.0
    for way in filter(WAYS.__contains__, options.ways):
        ratio = max(cost.cpu for cost in costs[way]) / min(cost.cpu for cost in costs[way])
        worst = max(worst, ratio)
        with tempfile.TemporaryDirectory() as folder:
            in_bucket = WAYS[way] if way == "delta" else partial(WAYS[way], catalog=f"{folder}/catalog.db")
            requests = count_requests(Model(options.bucket_rows, options.sparse), 12, in_bucket)
        print(f"{way}: {ratio:.2f} times the CPU time between the sizes (limit 1.3); on S3 {requests}", flush=True)
    return int(worst > 1.3)
