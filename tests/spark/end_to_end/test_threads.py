"""Sessions in several threads of one process, over separate stores and over one store. Each equals its mirror in
plain Python.
"""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.kernels.errors import KernelError
from tussock.jobs.kernels.kernel import Kernel, thread_kernel
from tussock.jobs.session import Session
from tussock.statestore.meta.errors import LostRaceError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::tussock.jobs.reading.read.PausedViewWarning")]

THREADS = 8
THREADS_IN_CI = 4
KEYS = 300  # per thread
PICKED = (3, 5, 8, 13, 21, 34)
WORDS = ("a", "b", "c", "d")
FUNCTION = """
import pyarrow as pa
import pyarrow.compute as pc

FACTOR = 3


def tripled(x: pa.Array) -> pa.Array:
    return pc.multiply(x, FACTOR)
"""
RELATIONS = f"""
CREATE TABLE t (k int, g int, v int, w string, PRIMARY KEY (k));
CREATE TABLE words (w string, n int, PRIMARY KEY (w));
INSERT INTO words VALUES {", ".join(f"('{w}', {i})" for i, w in enumerate(WORDS[:-1]))};
CREATE FUNCTION tripled (x int) RETURNS int LANGUAGE PYTHON AS 'thrice:tripled';
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(tripled(v)) AS s, count(*) AS n FROM t WHERE v % 7 <> 3 GROUP BY g;
CREATE MATERIALIZED VIEW picked AS SELECT k, v IN {PICKED} AS there,
    CASE WHEN v <> 0 THEN (100 DIV v) IN {PICKED} END AS part FROM t;
CREATE MATERIALIZED VIEW joined AS SELECT t.k, t.v + words.n AS x FROM t JOIN words ON t.w = words.w;
CREATE MATERIALIZED VIEW bad AS SELECT k, 100 DIV (v - 1000) AS q FROM t
"""

Model = dict[int, tuple[int, int, str]]  # by key: g, v, w
Rows = dict[str, list[tuple[Any, ...]]]


def rows_of(model: Model) -> Rows:
    """The views' rows over a table, computed in plain Python."""
    sums: dict[int, tuple[int, int]] = {}
    for g, v, _ in model.values():
        if v % 7 != 3:
            s, n = sums.get(g, (0, 0))
            sums[g] = s + 3 * v, n + 1
    return {
        "sums": sorted((g, *sn) for g, sn in sums.items()),
        "picked": sorted((k, v in PICKED, None if v == 0 else 100 // v in PICKED) for k, (_, v, _) in model.items()),
        "joined": sorted((k, v + WORDS.index(w)) for k, (_, v, w) in model.items() if w != WORDS[-1]),
    }


def rows_in(session: Session, mine: range) -> Rows:
    """The views' rows in a store, for the groups and keys of one thread."""
    found = {
        name: [tuple(row.values()) for row in session.read(name).to_pylist()] for name in ("sums", "picked", "joined")
    }
    return {name: sorted(row for row in rows if row[0] in mine) for name, rows in found.items()}


class Worker:
    """One thread: a session, its mirror, and the differences between them."""

    def __init__(
        self, number: int, store: str, until: Callable[[int], bool], spark: SparkSession | None, *, alone: bool
    ) -> None:
        self.random, self.number, self.until, self.alone = random.Random(number), number, until, alone
        self.keys = range(number * 1_000, number * 1_000 + KEYS)
        self.store, self.spark = store, spark
        self.model: Model = {}
        self.wrong: list[str] = []
        self.epochs = 0

    def __str__(self) -> str:
        return f"thread {self.number}, epoch {self.epochs}"

    def run(self) -> None:
        """The thread's target."""
        try:
            with Session(self.store, self.spark, runner="local", on_error="pause") as session:
                while not self.until(self.epochs):
                    self._step(session)
                    self.epochs += 1
        except BaseException as err:
            self.wrong.append(f"{self}: {type(err).__name__}: {err}")

    def _step(self, session: Session) -> None:
        for _ in range(self.random.randint(1, 2)):
            self._change(session)
        if self.alone and self.epochs == 2:  # this value stops one view of this thread's store, and no other view
            self._insert(session, {self.keys.start: (self.keys.start, 1_000, "a")})
        self._flush(session)
        expected, found = rows_of(self.model), rows_in(session, self.keys)
        if found != expected:
            self.wrong.append(f"{self}: other rows in {[name for name in found if found[name] != expected[name]]}")
        paused = ["bad"] if self.alone and self.epochs >= 2 else []
        if self._paused(session) != paused:
            self.wrong.append(f"{self}: {self._paused(session)} paused, expected {paused}")

    def _change(self, session: Session) -> None:
        keys = self.random.sample(self.keys, self.random.choice([1, 7, 40, KEYS]))
        if self.spark is not None and self.model and self.random.random() < 0.3:
            low = self.random.choice(self.keys)
            if self.random.random() < 0.5:
                session.execute(
                    f"DELETE FROM t WHERE k BETWEEN {low} AND {low + 20} AND v IN (1, 2, 3, 4, 5, 6, 7, 8, "
                    f"9) AND k < {self.keys.stop}"
                )
                self.model = {k: r for k, r in self.model.items() if not (low <= k <= low + 20 and 1 <= r[1] <= 9)}
            else:
                session.execute(f"UPDATE t SET v = v + 1 WHERE k >= {low} AND k < {self.keys.stop} AND v IN {PICKED}")
                self.model = {
                    k: (g, v + 1, w) if k >= low and v in PICKED else (g, v, w) for k, (g, v, w) in self.model.items()
                }
            return
        draw = self.random.randrange
        self._insert(session, {k: (self.keys.start + draw(10), draw(60), self.random.choice(WORDS)) for k in keys})

    def _insert(self, session: Session, rows: Model) -> None:
        columns = zip(*((k, *row) for k, row in rows.items()), strict=True)
        types = (pa.int32(), pa.int32(), pa.int32(), pa.string())
        session.insert(
            "t", pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], ["k", "g", "v", "w"])
        )
        self.model |= rows

    def _flush(self, session: Session) -> None:
        """Run an epoch. If the sessions share a store, they race for it, and a session that loses tries again."""
        while True:
            try:
                session.flush()
                return
            except LostRaceError:
                if self.alone:
                    raise
                Event().wait(self.random.random() / 20)  # so that the sessions do not collide again at once

    def _paused(self, session: Session) -> list[str]:
        return [r.name for r in session.meta.read_latest().catalog.live_relations() if r.paused is not None]


def run_all(workers: list[Worker]) -> None:
    """Run each worker in a thread, and wait for all."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the relations, as a template."""
    folder = tmp_path_factory.mktemp("threads")
    (folder / "functions").mkdir()
    (folder / "functions" / "thrice.py").write_text(FUNCTION)
    with Session(str(folder / "store"), spark) as session:
        session.execute(RELATIONS, base=folder)
        session.flush()
    return folder / "store"


def differences_of_own_stores(
    made: Path, folder: Path, until: Callable[[int], bool], spark: SparkSession | None, threads: int = THREADS
) -> list[str]:
    """Run sessions in several threads, each over a separate store; return the differences."""
    stores = [str(shutil.copytree(made, folder / f"store{n}")) for n in range(threads)]
    workers = [Worker(n, store, until, spark, alone=True) for n, store in enumerate(stores)]
    run_all(workers)
    return [text for worker in workers for text in worker.wrong]


def differences_of_one_store(
    made: Path, folder: Path, until: Callable[[int], bool], spark: SparkSession | None, threads: int = THREADS
) -> list[str]:
    """Run sessions in several threads over one store, each with its own rows; commits race. Return the differences."""
    store = str(shutil.copytree(made, folder / "store"))
    workers = [Worker(n, store, until, spark, alone=False) for n in range(threads)]
    run_all(workers)
    wrong = [text for worker in workers for text in worker.wrong]
    with Session(store, runner="local") as session:
        session.flush()
        ended = [worker for worker in workers if rows_in(session, worker.keys) != rows_of(worker.model)]
    return [*wrong, *(f"{worker}: other rows at the end" for worker in ended)]


def test_threads_over_separate_stores_equal_their_mirrors(made: Path, tmp_path: Path) -> None:
    assert differences_of_own_stores(made, tmp_path, lambda epochs: epochs >= 3, None, THREADS_IN_CI) == []


def test_threads_over_one_store_equal_their_mirrors(made: Path, tmp_path: Path) -> None:
    assert differences_of_one_store(made, tmp_path, lambda epochs: epochs >= 1, None, THREADS_IN_CI) == []


def test_threads_that_change_rows_by_one_spark_equal_their_mirrors(
    made: Path, tmp_path: Path, spark: SparkSession
) -> None:
    stores = [str(shutil.copytree(made, tmp_path / f"store{n}")) for n in range(2)]
    workers = [Worker(n, store, lambda epochs: epochs >= 3, spark, alone=True) for n, store in enumerate(stores)]
    run_all(workers)
    assert [text for worker in workers for text in worker.wrong] == []


@pytest.mark.deep
@pytest.mark.parametrize("with_spark", [False, True], ids=["local", "spark"])
@pytest.mark.parametrize("differences", [differences_of_own_stores, differences_of_one_store])
def test_minutes_of_threads(
    differences: Any, with_spark: bool, made: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """Each part runs for `TUSSOCK_THREADS_S` seconds; default 120."""
    end = time.monotonic() + float(os.environ.get("TUSSOCK_THREADS_S", "120"))
    assert differences(made, tmp_path, lambda _: time.monotonic() > end, spark if with_spark else None) == []


def test_a_thread_has_one_kernel_which_ends_with_it() -> None:
    found: list[tuple[Kernel, bool, str]] = []

    def look() -> None:
        kernel = thread_kernel()
        folder = kernel.compute_columns("current_setting('temp_directory') AS f", pa.table({"a": [1]}))["f"][0].as_py()
        found.append((kernel, kernel is thread_kernel(), folder))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (one, same, folder), (other, _, other_folder) = found
    assert same
    assert one is not other
    assert folder != other_folder
    assert thread_kernel() is not one
    for kernel, _, spilled in found:
        assert not Path(spilled).exists()
        with pytest.raises(KernelError, match="closed"):
            kernel.compute_columns("a", pa.table({"a": [1]}))
