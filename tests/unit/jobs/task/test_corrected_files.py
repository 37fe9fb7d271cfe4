"""Random histories of corrected files: views equal the present files, and only rows that differ reach them. No Spark.

The expected rows are pyarrow's read of the files. Values repeat, so that files contain equal rows, and include NULL,
NaN, -0.0 and nested values. Rows are compared by their texts, which tell -0.0 from 0.0.
"""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, epoch, new_store, rows
from tests.support.jobs.plan.catalogs import counted
from tussock.jobs.chunks import matched_rows
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("v", pa.float64()),
        ("t", pa.string()),
        ("a", pa.list_(pa.float64())),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
TYPES = ("int", "double", "string", "array<double>", "struct<x:int,y:string>")
FIELDS = tuple(Field(name, kind) for name, kind in zip(SCHEMA.names, TYPES, strict=True))
NAN = float("nan")
VALUES: tuple[tuple[object, ...], ...] = (
    (None, 1, 2, 3),
    (None, NAN, -0.0, 0.0, 1.5),
    (None, "", "a", "b"),
    (None, [], [None], [NAN, -0.0], [0.0]),
    (None, {"x": None, "y": None}, {"x": 1, "y": "a"}),
)
DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=1))
Row = tuple[object, ...]


class Apart(LocalRunner):
    """Runs each unit, however small the epoch is."""

    def may_unite(self, task: EpochTask) -> bool:
        return False


class History:
    """A source of files, some views, and the rows that the files contain."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.runner = Apart() if seed % 2 else LocalRunner()
        self.hidden = seed % 3 == 0
        self.meta: MetaStore = new_store(folder / "store", units=3)
        self.folder = folder / "days" / "2026-01-01"
        self.folder.mkdir(parents=True)
        self.files: dict[Path, list[Row]] = {}
        self.names = 0
        for _ in range(2):
            self.write(self.new_path(), self.random_rows(self.random.randrange(40)))
        path = str(folder / "days" / "{start:%Y-%m-%d}")
        append(self.meta, CreateSource("s", "parquet", FIELDS, {"path": path, "retain": "files"}))
        append(self.meta, CreateView("all", "SELECT …", Scan("s", (0, 1, 2, 3, 4), FIELDS)))
        append(self.meta, CreateView("some", "SELECT …", Scan("s", (0, 2), (FIELDS[0], FIELDS[2]))))
        append(self.meta, CreateView("per_k", "SELECT …", counted(Scan("s", (0, 1), FIELDS[:2]), 0)))
        if self.hidden:
            append(self.meta, self.places("places"))
        epoch(self.meta, self.runner)

    @staticmethod
    def places(name: str) -> CreateView:
        index = HiddenColumn.ROW_INDEX
        scan = Scan("s", (0, int(index)), (FIELDS[0], Field(index.column, index.type)))
        return CreateView(name, "SELECT …", scan)

    def new_path(self) -> Path:
        self.names += 1
        return self.folder / f"{self.names}.parquet"

    def random_rows(self, count: int) -> list[Row]:
        return [tuple(self.random.choice(values) for values in VALUES) for _ in range(count)]

    def write(self, path: Path, rows: list[Row]) -> None:
        table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        pq.write_table(table, path, row_group_size=self.random.choice((1, 7, 1000)))
        self.files[path] = list(zip(*(c.to_pylist() for c in pq.read_table(path).columns), strict=True))

    def corrected(self, rows: list[Row]) -> list[Row]:
        """Rows with some random changes."""
        rows = list(rows)
        for _ in range(self.random.randrange(4)):
            match self.random.randrange(5):
                case 0:
                    self.random.shuffle(rows)
                case 1:
                    rows[: self.random.randrange(3)] = []
                case 2:
                    rows += self.random.choices(rows, k=2) if rows else self.random_rows(2)
                case 3:
                    rows.insert(self.random.randrange(len(rows) + 1), *self.random_rows(1))
                case 4 if rows:
                    place, column = self.random.randrange(len(rows)), self.random.randrange(len(VALUES))
                    row = list(rows[place])
                    row[column] = self.random.choice(VALUES[column])
                    rows[place] = tuple(row)
        return rows

    def restate(self, restated: Restated) -> EpochSummary | None:
        if Restating(self.meta, "s", restated).begin_restating() is None:
            return None
        return next_epoch(self.runner, self.meta)

    def step(self) -> None:
        """Correct a file, replace one, write the folder again under other names, or create a view."""
        before = self.all_rows()
        path = self.random.choice(sorted(self.files)) if self.files else self.new_path()
        match self.random.randrange(6) if self.files else 4:
            case 0 | 1:
                self.write(path, self.corrected(self.files[path]))
                done = self.restate(Restated(str(path)))
            case 2:
                other = self.folder.parent / f"{self.names}-replaces-{path.name}"
                self.write(other, self.corrected(self.files.pop(path)))
                done = self.restate(Restated(str(path), by=str(other)))
            case 3:
                del self.files[path]
                done = self.restate(Restated(str(path), gone=True))
            case 4:
                known = {p: self.files.pop(p) for p in sorted(self.files) if p.parent == self.folder}
                for path, rows in known.items():
                    path.unlink(missing_ok=True)
                    self.write(self.new_path(), self.corrected(rows))
                done = self.restate(Restated(interval=DAY))
                if any(p.parent != self.folder for p in self.files):
                    return  # rows of files elsewhere are no part of the interval
            case _:
                self.create_late()
                return
        if done is not None and not self.hidden:
            after = self.all_rows()
            assert done.rows["s"].rows_out == ((before - after) + (after - before)).total()

    def create_late(self) -> None:
        append(
            self.meta, CreateView("late", "SELECT …", Scan("s", (0, 1, 2, 3, 4), FIELDS)), self.places("late_places")
        )
        epoch(self.meta, self.runner)
        self.require("late", [row for found in self.files.values() for row in found])
        self.require("late_places", self.expected_places())
        append(self.meta, Drop(RelationKind.VIEW, "late"), Drop(RelationKind.VIEW, "late_places"))
        epoch(self.meta, self.runner)

    def all_rows(self) -> Counter[str]:
        return Counter(repr(row) for found in self.files.values() for row in found)

    def expected_places(self) -> list[Row]:
        return [(row[0], n) for found in self.files.values() for n, row in enumerate(found)]

    def check(self) -> None:
        there = [row for found in self.files.values() for row in found]
        self.require("all", there)
        self.require("some", [(row[0], row[2]) for row in there])
        self.require("per_k", [(k, n) for k, n in Counter(row[0] for row in there).items()])
        if self.hidden:
            self.require("places", self.expected_places())

    def require(self, view: str, expected: list[Row]) -> None:
        assert list(map(repr, rows(self.meta, view))) == sorted(map(repr, expected)), view


@pytest.mark.sampled(75)
@pytest.mark.parametrize("seed", range(300))
def test_views_equal_the_corrected_files(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 5 == 0:  # rows of old and new files go to the local disk
        monkeypatch.setattr(matched_rows, "MEMORY_BYTES", 100)
    history = History(seed, tmp_path)
    history.check()
    for _ in range(5):
        history.step()
        history.check()
