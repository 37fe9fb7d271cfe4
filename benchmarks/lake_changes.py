"""Publish 900 updates and 100 deletes to Delta tables of several sizes: deletion vectors, MERGE, and a rewrite.

    python -m benchmarks lake-changes
    python -m benchmarks lake-changes --rows 1000000 10000000 100000000 --no-merge

The sinks get the changes in memory, as a publish has them after it read the store. Each round opens the table, looks
the old rows up and commits. The requests are counted on an S3 server in this process, with the ones of the deltalake
package. At the end, the deltalake package compares the counts and sums of all columns.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.support.s3_servers import BUCKET, Seen, credentials, moto_server
from tussock.jobs.delta.location import Location, location_of
from tussock.jobs.reading.keyed_rows import ChangesWithKeys, RowsWithKeys
from tussock.jobs.sinks.base import Difference, Outline
from tussock.jobs.sinks.delta_located import CHECKPOINT_EVERY, DeltaLocatedSink
from tussock.jobs.sinks.delta_rs import DeltaRsSink
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store

CHANGED, DELETED = 1000, 100
_COLUMNS = (ColumnSpec("k", "bigint"), ColumnSpec("v", "bigint"), ColumnSpec("name", "string"))
_AT_ONCE = 500_000


@dataclass
class Model:
    """The rows of the table: dense integer keys, of which some are deleted."""

    count: int
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
            yield keyed_rows(np.arange(start, min(self.count, start + _AT_ONCE)), 0)

    def frame(self, spark: Any) -> Any:
        """See WholeRows. Not used."""
        raise NotImplementedError

    def change(self, value: int) -> ChangesWithKeys:
        """The changes of a round: old keys, and new rows with this value."""
        drawn = self.random.choice(self.count, CHANGED + len(self.deleted), replace=False).tolist()
        keys = np.sort([key for key in drawn if key not in self.deleted][:CHANGED])
        gone, left = keys[:DELETED], keys[DELETED:]
        self.deleted.update(gone.tolist())
        self.values |= dict.fromkeys(left.tolist(), value)
        return ChangesWithKeys(pa.table({"k0": keys}), keyed_rows(left, value))

    def sums(self) -> tuple[int, int, int]:
        """Number of rows, sum of the keys, sum of the values."""
        values = sum(value for key, value in self.values.items() if key not in self.deleted)
        keys = self.count * (self.count - 1) // 2 - sum(self.deleted)
        return self.count - len(self.deleted), keys, values


def keyed_rows(keys: np.ndarray, value: int) -> RowsWithKeys:
    """Rows with these keys."""
    names = pa.array(np.char.add("customer ", keys.astype(str)))
    rows = pa.table([keys, np.full(len(keys), value), names], names=["k", "v", "name"])
    return RowsWithKeys(rows, pa.table({"k0": keys}))


@dataclass(frozen=True)
class Cost:
    """The median cost of a round, and the largest number of requests."""

    seconds: float
    cpu: float
    written: float

    def __str__(self) -> str:
        return f"{1000 * self.seconds:,.0f} ms, {1000 * self.cpu:,.0f} ms CPU, {self.written / 1000:,.0f} KB written"


def located_sink(place: Location, store: ObjectStore) -> DeltaLocatedSink:
    """The sink of the table in a place."""
    return DeltaLocatedSink(place, _outline(), store)


def _outline() -> Outline:
    stored = TableSchema(1, "orders", _COLUMNS, (KeyColumn(0),), (0,))
    return Outline("bench", frozenset({"bench"}), "orders", _COLUMNS, ("k",), stored=stored)


def measure(rounds: int, run: Callable[[int], None], written: Callable[[], int]) -> Cost:
    """Run rounds after a warm one. Returns the medians."""
    costs = []
    for number in range(rounds + 1):
        before, cpu, start = written(), time.process_time(), time.perf_counter()
        run(number)
        costs.append((time.perf_counter() - start, time.process_time() - cpu, written() - before))
    return Cost(*(statistics.median(column) for column in zip(*costs[1:], strict=True)))


def by_vectors(folder: Path, rows: int, rounds: int) -> Cost:
    """Changes by deletion vectors; see the module."""
    place, store = location_of(str(folder / "tables")), open_object_store(str(folder / "store"))
    model, epoch = Model(rows), 1 << 16
    sink = located_sink(place, store)
    sink.read_state()
    sink.replace(model, epoch)
    changes = [model.change(number + 1) for number in range(rounds + 1)]

    def run(number: int) -> None:
        sink = located_sink(place, store)
        assert sink.read_state() is not None
        assert sink.apply_keyed(changes[number], (number + 2) << 16) is not None

    cost = measure(rounds, run, lambda: _bytes_in(folder))
    _check(folder, model)
    return cost


def by_merge(folder: Path, rows: int, rounds: int) -> Cost:
    """The same changes by deltalake's MERGE."""
    place, model = location_of(str(folder / "tables")), Model(rows)
    sink = DeltaRsSink(place, _outline())
    sink.read_state()
    sink.replace(model, 1 << 16)

    def run(number: int) -> None:
        changes = model.change(number + 1)
        sink = DeltaRsSink(place, _outline())
        assert sink.read_state() is not None
        removed = changes.removed.rename_columns(["k"]).slice(0, DELETED)
        assert (
            sink.apply(
                Difference(removed, changes.written.rows, only_new=False, changes=changes.removed), (number + 2) << 16
            )
            is not None
        )

    cost = measure(rounds, run, lambda: _bytes_in(folder))
    _check(folder, model)
    return cost


def by_rewrite(folder: Path, rows: int) -> Cost:
    """All rows written again."""
    place, model = location_of(str(folder / "tables")), Model(rows)

    def run(number: int) -> None:
        sink = DeltaRsSink(place, _outline())
        sink.read_state()
        sink.replace(model, (number + 1) << 16)

    return measure(1, run, lambda: _bytes_in(folder))


def count_requests(rows: int, rounds: int) -> str:
    """Return the requests of a publish: median and maximum, also with the writing of checkpoints."""
    seen: list[Seen] = []
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with credentials(), moto_server(seen) as endpoint:
        uri = f"s3://{BUCKET}/{{}}?endpoint={endpoint}&path_style=true"
        place, store, model = location_of(uri.format("tables")), open_object_store(uri.format("store")), Model(rows)
        sink = located_sink(place, store)
        sink.read_state()
        sink.replace(model, 1 << 16)
        counts = []
        for number in range(rounds):
            changes = model.change(number + 1)
            sink = located_sink(location_of(uri.format("tables")), store)
            before = len(seen)
            process_cache().clear()
            sink.read_state()
            sink.apply_keyed(changes, (number + 2) << 16)
            counts.append(len(seen) - before)
    plain = [count for number, count in enumerate(counts) if (number + 1) % CHECKPOINT_EVERY]
    return f"{statistics.median(plain):.0f} requests, at most {max(plain)}; {max(counts)} with a checkpoint"


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check(folder: Path, model: Model) -> None:
    table = DeltaTable(str(folder / "tables" / "orders"))
    sql = "SELECT count(*), sum(k), sum(v) FROM t"
    found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
    sums = tuple(column[0].as_py() for column in found.columns)
    assert sums == model.sums(), (sums, model.sums())


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the cost depends on the size of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake-changes")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    parser.add_argument("--rounds", type=int, default=9, help="measured publishes")
    parser.add_argument("--no-merge", action="store_true", help="only deletion vectors")
    parser.add_argument("--folder", help="for the tables; default: a temporary one")
    options = parser.parse_args(arguments)
    costs = []
    for rows in options.rows:
        for name, run in (("vectors", by_vectors), ("merge", by_merge), ("rewrite", None)):
            if name != "vectors" and options.no_merge:
                continue
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                rounds = options.rounds if name == "vectors" else 2
                cost = by_rewrite(Path(folder), rows) if run is None else run(Path(folder), rows, rounds)
                print(f"{rows:>12,} rows  {name:<8} {cost}", flush=True)
                costs += [cost] if name == "vectors" else []
    print(f"on S3: {count_requests(100_000, 12)}")
    ratio = max(cost.cpu for cost in costs) / min(cost.cpu for cost in costs)
    print(f"the CPU time differs by {ratio:.2f} between the sizes; the limit is 1.3")
    return int(ratio > 1.3)
