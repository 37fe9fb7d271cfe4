"""Publish an epoch's changes to a Delta table, against a plain MERGE of the same rows, in turns.

    python -m benchmarks publish
    python -m benchmarks publish --rows 1000000 --changed 10000

The plain side has its rows in memory, checks nothing and records nothing. Tussock finds the changes in the store since
the table was written, and commits them exactly once under concurrency. Both tables are compared with the store at the
end.
"""

import argparse
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.report import Comparison, Series, table_of
from tests.support.jobs.sinks.delta_readers import package_rows
from tussock import Session
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import DeltaSettings, PublishSettings
from tussock.jobs.sinks.publication import publish_tables

BUDGET = 0.67  # at most 1.5 times the plain MERGE
_FIELDS = Field("id", "bigint"), Field("shop", "int"), Field("amount", "double"), Field("note", "string")


class _Rows:
    """Rows of the table: all of them first, then changed and new ones."""

    def __init__(self, count: int) -> None:
        self.random, self.count = np.random.default_rng(3), count

    def all(self) -> pa.Table:
        return self._of(np.arange(self.count))

    def changed(self, count: int) -> pa.Table:
        new = np.arange(self.count, self.count + count // 10)
        self.count += len(new)
        return self._of(
            np.concatenate([self.random.choice(self.count - len(new), count - len(new), replace=False), new])
        )

    def _of(self, ids: np.ndarray) -> pa.Table:
        amounts, shops = self.random.random(len(ids)), self.random.integers(0, 1000, len(ids)).astype(np.int32)
        return pa.table(
            [ids, shops, amounts, [f"note {n % 997}" for n in ids.tolist()]], names=[f.name for f in _FIELDS]
        )


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the budget is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks publish", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--changed", type=int, default=10_000, help="changed rows per epoch, a tenth of them new")
    parser.add_argument("--runs", type=int, default=7, help="measured epochs")
    options = parser.parse_args(arguments)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="tussock-publish-") as folder:
        rows, plain = _Rows(options.rows), Path(folder) / "plain"
        settings = DeltaSettings(f"{folder}/tables", ("orders",))
        with Session(f"{folder}/store", runner="local") as session:
            session.meta.append_log("bench/1", msgspec.json.encode(CreateTable("orders", _FIELDS, (0,))))
            first = rows.all()
            session.insert("orders", first)
            session.flush()
            _publish(session, settings)
            write_deltalake(plain, first)
            for run in range(options.runs + 2):  # the first two warm up
                changed = rows.changed(options.changed)
                session.insert("orders", changed)
                session.flush()
                seconds = _publish(session, settings), _merge(plain, changed)
                if run >= 2:
                    ours.append(seconds[0])
                    theirs.append(seconds[1])
            stored = _sorted(session.read("orders"))
            assert _sorted(package_rows(DeltaTable(f"{folder}/tables/orders"))).equals(stored)
            assert _sorted(package_rows(DeltaTable(plain))).equals(stored)
    what = f"publish {options.changed:,} changed rows of {options.rows:,} to a Delta table"
    found = Comparison(
        what, Series("tussock publish", tuple(ours)), Series("plain MERGE of the same rows", tuple(theirs)), BUDGET
    )
    print(table_of([found]))
    return int(found.ratio < BUDGET)


def _publish(session: Session, settings: PublishSettings) -> float:
    """Publish like a separate process, with a new meta store."""
    meta = open_meta(session.meta.objects.uri)
    started = time.perf_counter()
    publish_tables(meta, settings)
    return time.perf_counter() - started


def _merge(place: Path, changed: pa.Table) -> float:
    started = time.perf_counter()
    merge = DeltaTable(place).merge(changed, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.perf_counter() - started


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by("id").combine_chunks()
