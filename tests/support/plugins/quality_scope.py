"""Rows and helpers of test_quality_scope.py, which is in several lanes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyspark  # noqa: F401 (Great Expectations is imported once per process; one of these suites needs it with Spark)
import pytest

from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.plugins import by_name as steps
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.operations.publication import Publication
from tussock.jobs.quality.record import Failure, QualityRecord, ViewQuality, write_record
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = pytest.mark.filterwarnings("ignore::tussock.jobs.reading.read.HeldViewWarning")

Row = tuple[int, int, int]
FAILED = (Failure("expect_x()", "1 of 3 rows", ({"g": "1"},)),)


def per_g(name: str = "per_g") -> CreateView:
    """SELECT g, count(*) AS n FROM t GROUP BY g"""
    return view(name, counted(scan("t"), 1))


def sizes(over: str = "per_g") -> CreateView:
    """SELECT n AS size, count(*) AS n FROM per_g GROUP BY n"""
    return view("sizes", counted(Scan(over, (0, 1), (Field("g", "int"), Field("size", "bigint"))), 1))


def keys() -> CreateView:
    """SELECT k FROM t"""
    return view("keys", Project(scan("t"), (Column(0, "int"),), (Field("k", "int"),)))


#: What each view is over the rows of `t`, in plain Python.
ANSWERS: dict[str, Callable[[list[Row]], Counter[tuple[int, ...]]]] = {
    "per_g": lambda t: Counter((g, n) for g, n in Counter(g for _, g, _ in t).items()),
    "sizes": lambda t: Counter((n, m) for n, m in Counter(Counter(g for _, g, _ in t).values()).items()),
    "keys": lambda t: Counter((k,) for k, _, _ in t),
}


@dataclass
class Shop:
    """A pipeline `shop` in a folder, its store, and the rows of `t` as they were at each epoch."""

    folder: Path
    meta: MetaStore
    rows: list[Row] = field(default_factory=list)
    at: dict[int, list[Row]] = field(default_factory=dict)

    def change(self, *rows: Row) -> int:
        """An epoch over more rows."""
        insert(self.meta, "t", *rows)
        self.rows = [*self.rows, *rows]
        (*_, done) = advance_store(LocalRunner(), self.meta)
        self.at[done.epoch] = self.rows
        return done.epoch

    def judge(self, epoch: int, *failed: str) -> None:
        views = (ViewQuality(name, 3, 1, FAILED if name in failed else ()) for name in ("per_g", "keys"))
        write_record(self.meta.objects, QualityRecord(epoch, tuple(views)))

    def publish(self, epoch: int, *failed: str) -> Publication:
        self.judge(epoch, *failed)
        return steps.publish("shop", epoch)

    def require(self, **seen: int) -> None:
        """Readers see each view as of this epoch."""
        with Session(str(self.folder / "store"), create=False) as session:
            for name, epoch in seen.items():
                found = session.read(name)
                assert counted_rows(found) == ANSWERS[name](self.at[epoch]), name


def counted_rows(found: pa.Table) -> "Counter[tuple[int, ...]]":
    return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    for name in ("per_g", "keys"):
        (folder / f"quality/{name}.json").write_text('{"expectations": []}')
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n'
        f'[quality]\nscope = "view"\ndocs = "{tmp_path}/docs"\n[publish]\nto = "{tmp_path}/tables"\n'
        '[pages]\nrows = "readers"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    MetaStore.init(open_object_store(f"{tmp_path}/store"))
    meta = open_meta(f"{tmp_path}/store")
    append(meta, table("t"), per_g(), sizes(), keys())
    return Shop(tmp_path, meta)


BROKEN = {
    "not JSON": "{",
    "an unknown expectation": '{"expectations": [{"type": "expect_peace"}]}',
    "a missing column": '{"expectations": '
    '[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "w"}}]}',
    "an unknown argument": '{"expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": {"x": 1}}]}',
    "an unknown severity": '{"expectations": [{"type": "expect_table_row_count_to_be_between", "severity": "fatal"}]}',
}
