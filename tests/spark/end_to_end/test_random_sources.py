"""Files that arrive, change, vanish, are damaged or are misplaced, over many runs.

Each view equals the same SELECT over the bytes that its epoch names. Two views over one source never disagree.

The test computes the expected bytes from its own record of files and runs; it never reads them from the store. DuckDB
checks every epoch, and Spark some of them.
"""

import io
import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.session import Session
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.upkeep.vacuum import sweep_store

EPOCHS = 30
DAYS = [
    Interval(datetime(2026, 1, d, tzinfo=UTC), datetime(2026, 1, d, tzinfo=UTC) + timedelta(days=1))
    for d in range(1, 5)
]
SELECTS = {
    "every_row": "SELECT id, g, v FROM files",
    "by_group": "SELECT g, count(*) AS n, min(v) AS low, max(v) AS high, sum(v) AS total FROM files GROUP BY g",
}


@dataclass
class World:
    """The current files, and the files that a source has taken."""

    root: Path
    chance: random.Random
    taken: dict[Path, bytes] = field(default_factory=dict)
    left_alone: dict[Path, bytes] = field(default_factory=dict)  # rows were removed, but the file stays as it is
    ids: int = 0

    def file(self, day: int, name: str) -> Path:
        return self.root / f"2026-01-0{day}" / f"{name}.parquet"

    def there(self, days: range | list[int]) -> dict[Path, bytes]:
        return {
            p: p.read_bytes()
            for d in days
            for p in sorted((self.root / f"2026-01-0{d}").glob("*.parquet"))
            if p.stat().st_size
        }

    def new_bytes(self) -> bytes:
        n = self.chance.randrange(1, 5)
        self.ids += n
        rows = {"id": range(self.ids - n, self.ids), "g": [self.chance.randrange(3) for _ in range(n)]}
        rows["v"] = [self.chance.randrange(100) if self.chance.random() < 0.9 else None for _ in range(n)]
        sink = io.BytesIO()
        pq.write_table(pa.table({c: pa.array(v, pa.int64()) for c, v in rows.items()}), sink)
        return sink.getvalue()

    def disturb(self) -> None:
        """Change the files once, at random."""
        path = self.file(self.chance.randrange(1, 5), self.chance.choice("abc"))
        match self.chance.choice(
            ["write", "write", "write", "vanish", "damage", "empty", "touch", "elsewhere", "back"]
        ):
            case "write":
                path.write_bytes(self.new_bytes())
            case "vanish":
                path.unlink(missing_ok=True)
            case "damage" if path.exists():
                path.write_bytes(path.read_bytes()[:-7])
            case "empty":
                path.write_bytes(b"")
            case "touch" if path.exists():
                path.touch()
            case "elsewhere":
                (self.root / "2026-02-31").mkdir(exist_ok=True)
                (self.root / "2026-02-31" / f"{self.ids}.parquet").write_bytes(self.new_bytes())
            case "back" if path in self.taken:
                path.write_bytes(self.taken[path])

    # --- what each kind of run takes -------------------------------------------------------------

    def run(self, day: int) -> None:
        """A run of one day: it takes all new and changed files, or nothing if one of them cannot be read."""
        there = self.there([day])
        emptied = [p for p in self.taken if p.parent.name == f"2026-01-0{day}" and p.exists() and not p.stat().st_size]
        comes = {p: b for p, b in there.items() if self.taken.get(p) != b and self.left_alone.get(p) != b}
        self._take(comes, emptied)

    def restate_day(self, day: int) -> None:
        """Like a run, and the rows of deleted files are removed."""
        there = self.there([day])
        gone = [p for p in self.taken if p.parent.name == f"2026-01-0{day}" and p not in there]
        comes = {p: b for p, b in there.items() if self.taken.get(p) != b and self.left_alone.get(p) != b}
        self._take(comes, gone)

    def restate_file(self, path: Path, gone: bool) -> None:
        there = path.read_bytes() if path.exists() else None
        if gone:
            if self.taken.pop(path, None) is not None and there is not None:
                self.left_alone[path] = there
        elif there is not None and self.taken.get(path) != there:
            self._take({path: there} if there else {}, [] if there else [path])

    def _take(self, comes: dict[Path, bytes], goes: list[Path]) -> None:
        if not all(readable(b) for b in comes.values()):
            return
        for path in goes:
            self.taken.pop(path, None)
            if path.exists():
                self.left_alone[path] = path.read_bytes()
        for path, content in comes.items():
            self.taken[path] = content
            self.left_alone.pop(path, None)

    def rows(self) -> pa.Table:
        """The rows that the source has taken."""
        empty = pa.schema([(c, pa.int64()) for c in ("id", "g", "v")]).empty_table()
        return pa.concat_tables([empty, *(pq.read_table(pa.BufferReader(b)) for b in self.taken.values())])


def readable(content: bytes) -> bool:
    with suppress(pa.ArrowInvalid, OSError):
        pq.read_table(pa.BufferReader(content))
        return True
    return False


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.fixture(scope="module")
def scripts(spark: Any) -> Any:
    """Make a store with the source and views over it, bound by Spark."""

    def make(folder: Path, root: Path) -> Session:
        session = Session(str(folder), spark=spark, runner="local")
        path = f"{root}/{{start:%Y-%m-%d}}/*.parquet"
        session.execute(
            f"CREATE SOURCE files (id bigint, g bigint, v bigint) USING parquet OPTIONS (path '{path}', "
            f"may_be_missing 'true')"
        )
        for name, select in SELECTS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        return session

    return make


def check(session: Session, world: World, spark: Any | None, views: dict[str, str]) -> None:
    files = world.rows()
    for view, select in views.items():
        found = in_order(session.read(view))
        assert found == in_order(duckdb.from_arrow(files).query("files", select).to_arrow_table()), view
        if spark is not None:
            spark.createDataFrame(files).createOrReplaceTempView("files")
            assert found == in_order(spark.sql(select).toArrow()), view


def walk(seed: int, folder: Path, make: Any, spark: Any) -> int:
    """Run a random history; return the committed epochs."""
    chance = random.Random(seed)
    world = World(folder / "files", chance)
    for day in range(1, 5):
        (world.root / f"2026-01-0{day}").mkdir(parents=True)
    with make(folder / "store", world.root) as session:
        meta, views = session.meta, dict(SELECTS)
        world.file(1, "a").write_bytes(world.new_bytes())
        advance_store(LocalRunner(), meta, InputRequest(DAYS[0]))
        world.run(1)
        epochs = 0
        for step in range(EPOCHS):
            for _ in range(chance.randrange(1, 5)):
                world.disturb()
            day = chance.randrange(1, 5)
            match chance.choice(
                ["run", "run", "run", "restate a day", "restate a file", "take back", "view", "vacuum"]
            ):
                case "run":
                    done = advance_store(LocalRunner(), meta, InputRequest(DAYS[day - 1]))
                    world.run(day)
                    epochs += len(done)
                case "restate a day":
                    if Restating(meta, "files", Restated(interval=DAYS[day - 1])).begin_restating() is not None:
                        epochs += next_epoch(LocalRunner(), meta) is not None
                    world.restate_day(day)
                case "restate a file" | "take back" as kind if world.taken:
                    path, gone = chance.choice(sorted(world.taken)), kind == "take back"
                    if gone or path.exists():
                        if Restating(meta, "files", Restated(str(path), gone=gone)).begin_restating() is not None:
                            epochs += next_epoch(LocalRunner(), meta) is not None
                        world.restate_file(path, gone)
                    else:
                        with pytest.raises(CannotRestateError):
                            Restating(meta, "files", Restated(str(path)))
                case "view" if "later" not in views:
                    session.execute(f"CREATE MATERIALIZED VIEW later AS {SELECTS['by_group']}")
                    advance_store(LocalRunner(), meta, InputRequest(DAYS[day - 1]))
                    world.run(day)
                    views["later"] = SELECTS["by_group"]
                    epochs += 1
                case "vacuum":
                    sweep_store(meta)
            if (version := meta.read_latest()).epoch > version.published:
                publish_epoch(meta, version.epoch)
            check(session, world, spark if step % 10 == 9 else None, views)
            held = held_sources(meta.read_latest().catalog)
            assert set(held) <= {"files"}
        return epochs


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2))
def test_views_equal_their_select_over_the_bytes_that_their_epoch_names(
    seed: int, tmp_path: Path, scripts: Any, spark: Any
) -> None:
    assert walk(seed, tmp_path, scripts, spark) > 5


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.timeout(5400)
def test_two_hundred_histories(tmp_path: Path, scripts: Any, spark: Any) -> None:
    epochs = sum(walk(seed, tmp_path / str(seed), scripts, spark) for seed in range(1000, 1200))
    print(f"{epochs} epochs of 200 histories equal")
