"""A reusable store of bids of any size, with two views: the state for the measurement of small epochs.

Every row follows from its number, so Spark can compute the expected content without reading the store. The store's log
records the progress of the load and the number of changes. A partly loaded store is completed, and a complete one is
reused.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tussock import Session
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store, compact_with_spark
from tussock.jobs.upkeep.vacuum import apply_retention, sweep_store
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import SstInfo

BY_AUCTION = "SELECT auction, count(*) AS bids, sum(price) AS total, max(price) AS best FROM bids GROUP BY auction"
BY_CLASS = (
    "SELECT auction % 1000 AS class, count(*) AS auctions, sum(total) AS total FROM by_auction GROUP BY auction % 1000"
)
CLASSES = 1_000

_STATEMENTS = (
    "CREATE TABLE bids (bid bigint, auction bigint, price bigint, PRIMARY KEY (bid))",
    f"CREATE MATERIALIZED VIEW by_auction AS {BY_AUCTION}",
    f"CREATE MATERIALIZED VIEW by_class AS {BY_CLASS}",
)
_STRIDE = 7_919  # a prime: distance between the first bids of successive changes
_READ_BYTES = 8 << 20
_CHECKED_BIDS = 1_000_000  # about this many bids are aggregated by Spark in a check of a view


class UnusableStoreError(Exception):
    """A reused store is not in the state that a load leaves."""

    def __init__(self, folder: str, found: str, expected: str) -> None:
        super().__init__(folder, found, expected)
        self.folder, self.found, self.expected = folder, found, expected

    def __str__(self) -> str:
        return f"{self.folder}: found {self.found}, expected {self.expected}. Remove the folder to create it again."


@dataclass(frozen=True, slots=True)
class BidSizes:
    """The sizes of a store."""

    rows: int
    changed: int = 1_000  # rows changed per epoch
    rows_per_auction: int = 20
    load_rows: int = 2_500_000  # rows per epoch of the load

    @property
    def auctions(self) -> int:
        return max(1, self.rows // self.rows_per_auction)

    @property
    def loads(self) -> int:
        """Number of INSERTs of the load."""
        return -(-self.rows // self.load_rows)

    @property
    def step(self) -> int:
        """Distance of an epoch's changed rows, which are spread over the whole table."""
        return self.rows // self.changed

    @property
    def name(self) -> str:
        return f"bids-{self.rows}-{self.changed}-{self.load_rows}"


class BidStore:
    """The store of one size, complete and compacted, with its expected content.

    Bid i initially belongs to auction i DIV 20, since the bids of an auction arrive together. A change assigns every
    `step`-th bid, from another offset each time, to an arbitrary auction. So it moves a thousand bids between a
    thousand groups all over the state, and hardly ever the groups of the previous change.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, sizes: BidSizes, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        """Open the store below `folder`. Create it, or load the missing rows, if necessary.

        Raises: UnusableStoreError if it exists and is not complete.
        """
        self.spark, self.sizes = spark, sizes
        self.session = Session(str(folder / sizes.name), spark)
        self._load(progress)
        self._require_whole()

    @property
    def meta(self) -> MetaStore:
        """The meta store."""
        return self.session.meta

    @property
    def changes(self) -> int:
        """Number of changes written so far."""
        written: int = self.meta.log_end()
        return written - len(_STATEMENTS) - self.sizes.loads

    @property
    def stored_bytes(self) -> int:
        """Bytes of all SSTs."""
        return sum(sst.size for level in self.meta.read_latest().levels for sst in level)

    @property
    def l0_runs(self) -> int:
        """SSTs that epochs have written since the last compaction."""
        return len(self.meta.read_latest().levels[0])

    def write_change(self) -> None:
        """Make the next change durable, for the next epoch.

        Raises UnusableStoreError if all bids have been changed once.
        """
        if (number := self.changes) >= self.sizes.step:
            room = f"fewer than {self.sizes.step}, so that no bid changes twice"
            raise UnusableStoreError(self.meta.objects.uri, f"{number} changes", room)
        bid = f"id * {self.sizes.step} + {number * _STRIDE % self.sizes.step}"
        values = ", ".join((bid, *self._changed("id", f"{number}L")))
        self.session.execute(f"INSERT INTO bids SELECT {values} FROM range({self.sizes.changed})")

    def flush(self) -> EpochSummary:
        """Run the epoch."""
        return self.session.flush()

    def tidy(self) -> None:
        """Do the work of the upkeep DAG in this process: retention, due compactions, vacuum."""
        apply_retention(self.meta, Retention(1, 0))
        compact_store(self.meta)
        sweep_store(self.meta)

    def read_through(self) -> int:
        """Read all SSTs once, so that they are in the page cache if they fit. Returns the number of bytes."""
        return sum(self._read(sst) for level in self.meta.read_latest().levels for sst in level)

    def expected_bids(self) -> DataFrame:
        """The table's expected rows after all changes, computed by Spark from the numbers alone."""
        sizes = self.sizes
        place, change = f"(id DIV {sizes.step})", f"(id % {sizes.step} * {pow(_STRIDE, -1, sizes.step)} % {sizes.step})"
        changed = f"{place} < {sizes.changed} AND {change} < {self.changes}"
        pairs = zip(self._loaded(), self._changed(place, change), ("auction", "price"), strict=True)
        return self.spark.range(sizes.rows).selectExpr(
            "id AS bid", *(f"if({changed}, {new}, {old}) AS {name}" for old, new, name in pairs)
        )

    def check(self) -> int:
        """Compare the last view with Spark's answer: all rows if the table is small, otherwise the rows of some
        classes.

        Returns: the number of compared rows.
        Raises: UnusableStoreError.
        """
        classes = max(1, min(CLASSES, CLASSES * _CHECKED_BIDS // self.sizes.rows))
        self.expected_bids().where(f"auction % {CLASSES} < {classes}").createOrReplaceTempView("bids")
        self.spark.sql(BY_AUCTION).createOrReplaceTempView("by_auction")
        expected: pa.Table = self.spark.sql(BY_CLASS).toArrow().sort_by("class")
        found = self.session.query(f"SELECT * FROM by_class WHERE class < {classes}").sort_by("class")
        if not found.cast(expected.schema).equals(expected):
            rows = f"{found.num_rows} rows of by_class"
            raise UnusableStoreError(self.meta.objects.uri, rows, f"Spark's {expected.num_rows} rows, which differ")
        return int(expected.num_rows)

    def close(self) -> None:
        """Close the store; it is kept."""
        self.session.close()

    # --- its rows ---

    def _loaded(self) -> tuple[str, str]:
        """(auction, price) of bid `id` after the load."""
        return f"id DIV {self.sizes.rows_per_auction}", "(id * 31) % 100000"

    def _changed(self, place: str, change: str) -> tuple[str, str]:
        """(auction, price) of a bid after a change. `place`: the bid's number within the change."""
        return (
            f"({place} * 104729 + {change} * 15485863) % {self.sizes.auctions}",
            f"({place} + {change} * 37) % 100000",
        )

    def _load(self, progress: Callable[[str], None]) -> None:
        """Load the missing rows, then compact once.

        New keys cost only filters, however many runs there are, while compactions during the load would rewrite older
        rows many times.
        """
        session, sizes = self.session, self.sizes
        session.flush()  # for statements that are written but not taken
        if self.changes > 0 or (self.changes == 0 and not self.l0_runs):
            return
        began = time.perf_counter()
        done = self.meta.log_end()
        for statement in _STATEMENTS[done:]:
            session.execute(statement)
        for piece in range(max(0, done - len(_STATEMENTS)), sizes.loads):
            first, end = piece * sizes.load_rows, min(sizes.rows, (piece + 1) * sizes.load_rows)
            session.execute(f"INSERT INTO bids SELECT {', '.join(('id', *self._loaded()))} FROM range({first}, {end})")
            session.flush()
            progress(
                f"{sizes.rows:,} bids: {end:,} loaded, {time.perf_counter() - began:.0f} s, "
                f"{self.stored_bytes / 1e6:,.0f} MB"
            )
        apply_retention(self.meta, Retention(1, 0))
        compact_with_spark(self.spark, self.meta, full=True)
        sweep_store(self.meta)
        progress(
            f"{sizes.rows:,} bids: compacted, {time.perf_counter() - began:.0f} s, {self.stored_bytes / 1e6:,.0f} MB"
        )

    def _read(self, sst: SstInfo) -> int:
        starts = range(0, sst.size, _READ_BYTES)
        return sum(
            len(self.meta.objects.get_ranges(sst.name, [(at, min(_READ_BYTES, sst.size - at))])[0]) for at in starts
        )

    def _require_whole(self) -> None:
        """Check that every SST exists with its recorded size, and that each bid exists once."""
        for level in self.meta.read_latest().levels:
            for sst in level:
                if (found := self.meta.objects.head(sst.name)).size != sst.size:
                    raise UnusableStoreError(self.meta.objects.uri, f"{found.size} bytes of {sst.name}", f"{sst.size}")
        version = self.meta.read_latest()
        bids = stored_table(next(r for r in version.catalog.live_relations() if r.name == "bids"))
        rows = sum(int(part.num_rows) for part in open_table(self.meta.objects, version, bids).scan(columns=(0,)))
        if rows != self.sizes.rows:
            raise UnusableStoreError(self.meta.objects.uri, f"{rows:,} bids", f"{self.sizes.rows:,}")
