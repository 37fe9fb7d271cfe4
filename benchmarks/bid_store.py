"""A store of bids with two views over them, of any size, made once: the state that small epochs are measured on.

Every row follows from its number, so that Spark knows what the store must hold without asking it. The log in the store says how far its
load has come and how many changes it has taken: a store that was left half loaded is loaded to the end, and a whole one is used again.
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
from tussock.jobs.upkeep.compaction import compact, compact_with_spark
from tussock.jobs.upkeep.vacuum import apply_retention, sweep
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
_STRIDE = 7_919  # a prime: between the first bids of one change and of the next
_READ_BYTES = 8 << 20
_CHECKED_BIDS = 1_000_000  # about so many of the bids are aggregated by Spark where a view is checked


class UnusableStoreError(Exception):
    """A store that was to be used again is not what a load leaves."""

    def __init__(self, folder: str, found: str, expected: str) -> None:
        super().__init__(folder, found, expected)
        self.folder, self.found, self.expected = folder, found, expected

    def __str__(self) -> str:
        return f"{self.folder}: found {self.found}, expected {self.expected}; remove the folder, and it is made anew"


@dataclass(frozen=True, slots=True)
class BidSizes:
    """What a store holds."""

    rows: int
    changed: int = 1_000  # rows that one epoch changes
    rows_per_auction: int = 20
    load_rows: int = 2_500_000  # that one epoch of the load brings

    @property
    def auctions(self) -> int:
        return max(1, self.rows // self.rows_per_auction)

    @property
    def loads(self) -> int:
        """INSERTs of the load."""
        return -(-self.rows // self.load_rows)

    @property
    def step(self) -> int:
        """The changed rows of an epoch lie so far apart, over the whole table."""
        return self.rows // self.changed

    @property
    def name(self) -> str:
        return f"bids-{self.rows}-{self.changed}-{self.load_rows}"


class BidStore:
    """The store of one size, whole and compacted, and what it must hold.

    Bid i is of auction i DIV 20 at first: an auction's bids come together, as they would. A change gives every `step`-th bid, from another
    one on each time, to an auction anywhere: so it takes a thousand bids from as many groups and gives them to others, all over the state,
    and hardly ever to those of the change before.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, sizes: BidSizes, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        """Open the store below `folder`; make it, or load what is missing, where need be.

        Raises: UnusableStoreError for one that is there and not whole.
        """
        self.spark, self.sizes = spark, sizes
        self.session = Session(str(folder / sizes.name), spark)
        self._load(progress)
        self._require_whole()

    @property
    def meta(self) -> MetaStore:
        """Of the store."""
        return self.session.meta

    @property
    def changes(self) -> int:
        """Changes that were written so far."""
        written: int = self.meta.log_end()
        return written - len(_STATEMENTS) - self.sizes.loads

    @property
    def stored_bytes(self) -> int:
        """Bytes of all SSTs."""
        return sum(sst.size for level in self.meta.latest().levels for sst in level)

    @property
    def l0_runs(self) -> int:
        """SSTs that epochs have left since the last compaction."""
        return len(self.meta.latest().levels[0])

    def write_change(self) -> None:
        """Make the next change durable; the next epoch takes it in. Raises UnusableStoreError where all bids have been changed once."""
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
        """What the upkeep DAG does, in this process: retention, compactions that are due, vacuum."""
        apply_retention(self.meta, Retention(1, 0))
        compact(self.meta)
        sweep(self.meta)

    def read_through(self) -> int:
        """Read all SSTs once, as bytes, so that they are in the host's page cache if there is room. Returns how many bytes that was."""
        return sum(self._read(sst) for level in self.meta.latest().levels for sst in level)

    def expected_bids(self) -> DataFrame:
        """What the table must hold after all changes, as Spark computes it from the numbers alone."""
        sizes = self.sizes
        place, change = f"(id DIV {sizes.step})", f"(id % {sizes.step} * {pow(_STRIDE, -1, sizes.step)} % {sizes.step})"
        changed = f"{place} < {sizes.changed} AND {change} < {self.changes}"
        pairs = zip(self._loaded(), self._changed(place, change), ("auction", "price"), strict=True)
        return self.spark.range(sizes.rows).selectExpr(
            "id AS bid", *(f"if({changed}, {new}, {old}) AS {name}" for old, new, name in pairs)
        )

    def check(self) -> int:
        """Compare the deepest view with what Spark computes: all its rows where the table is small, else those of some classes. Returns how
        many rows were compared.

        Raises: UnusableStoreError.
        """
        classes = max(1, min(CLASSES, CLASSES * _CHECKED_BIDS // self.sizes.rows))
        self.expected_bids().where(f"auction % {CLASSES} < {classes}").createOrReplaceTempView("bids")
        self.spark.sql(BY_AUCTION).createOrReplaceTempView("by_auction")
        expected: pa.Table = self.spark.sql(BY_CLASS).toArrow().sort_by("class")
        found = self.session.query(f"SELECT * FROM by_class WHERE class < {classes}").sort_by("class")
        if not found.cast(expected.schema).equals(expected):
            rows = f"{found.num_rows} rows of by_class"
            raise UnusableStoreError(
                self.meta.objects.uri, rows, f"the {expected.num_rows} that Spark computes, which are others"
            )
        return int(expected.num_rows)

    def close(self) -> None:
        """Let go of it; it stays where it is."""
        self.session.close()

    # --- its rows, and how they get there --------------------------------------------------------------------------------------------

    def _loaded(self) -> tuple[str, str]:
        """(auction, price) of bid `id` as the load brings it."""
        return f"id DIV {self.sizes.rows_per_auction}", "(id * 31) % 100000"

    def _changed(self, place: str, change: str) -> tuple[str, str]:
        """(auction, price) of a bid as a change makes them; `place`: the bid's number among those of the change."""
        return (
            f"({place} * 104729 + {change} * 15485863) % {self.sizes.auctions}",
            f"({place} + {change} * 37) % 100000",
        )

    def _load(self, progress: Callable[[str], None]) -> None:
        """Bring in what is missing, then compact once: its new keys cost filters only, however many runs there are, and merging what lies
        below at every piece would write it many times over."""
        session, sizes = self.session, self.sizes
        session.flush()  # what was written and not taken in
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
                f"{sizes.rows:,} bids: {end:,} are loaded, {time.perf_counter() - began:.0f} s, {self.stored_bytes / 1e6:,.0f} MB"
            )
        apply_retention(self.meta, Retention(1, 0))
        compact_with_spark(self.spark, self.meta, full=True)
        sweep(self.meta)
        progress(
            f"{sizes.rows:,} bids: compacted, {time.perf_counter() - began:.0f} s, {self.stored_bytes / 1e6:,.0f} MB"
        )

    def _read(self, sst: SstInfo) -> int:
        starts = range(0, sst.size, _READ_BYTES)
        return sum(
            len(self.meta.objects.get_ranges(sst.name, [(at, min(_READ_BYTES, sst.size - at))])[0]) for at in starts
        )

    def _require_whole(self) -> None:
        """Every SST is there, as long as it should be, and each bid once."""
        for level in self.meta.latest().levels:
            for sst in level:
                if (found := self.meta.objects.head(sst.name)).size != sst.size:
                    raise UnusableStoreError(self.meta.objects.uri, f"{found.size} bytes of {sst.name}", f"{sst.size}")
        version = self.meta.latest()
        bids = stored_table(next(r for r in version.catalog.live() if r.name == "bids"))
        rows = sum(int(part.num_rows) for part in open_table(self.meta.objects, version, bids).scan(columns=(0,)))
        if rows != self.sizes.rows:
            raise UnusableStoreError(self.meta.objects.uri, f"{rows:,} bids", f"{self.sizes.rows:,}")
