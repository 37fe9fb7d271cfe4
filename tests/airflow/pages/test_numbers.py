"""The numbers on the pages, compared with DuckDB over the input files, folders on disk and Airflow's database."""

import random
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI

from tests.airflow.pages.test_pages import HERE, read
from tests.support.jobs.driver.embedded import append, new_store
from tests.support.jobs.plan.catalogs import counted, view
from tests.support.pages.serving import HOME, Shop, Visitor
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
DAG = "/tussock/dags/epoch_counted"
EPOCHS, WAITING = 5, 2


class Counted:
    """The pipeline `counted`: a source of files, a view over it, one epoch per file, and waiting files."""

    def __init__(self, shop: Shop) -> None:
        chance = random.Random(3)
        self.store, self.data = shop.folder / "counted", shop.folder / "counted_data"
        folder = shop.folder / "pipelines/counted"
        folder.mkdir()
        self.data.mkdir()
        (folder / "pipeline.toml").write_text(f'name = "counted"\nstore = "{self.store}"\nsql = ["views.sql"]\n')
        meta = new_store(self.store)
        append(meta, CreateSource("orders", "parquet", FIELDS, {"path": str(self.data)}))
        append(meta, view("per_g", counted(Scan("orders", (1,), FIELDS[1:2]), 0)))
        self.files = [self.data / f"{number}.parquet" for number in range(EPOCHS + WAITING)]
        self.epochs: list[int] = []
        for number, file in enumerate(self.files):
            rows = chance.randrange(5, 40)
            columns = {f.name: pa.array([chance.randrange(12) for _ in range(rows)], pa.int32()) for f in FIELDS}
            pq.write_table(pa.table(columns), file)
            if number < EPOCHS:
                (done,) = advance_store(LocalRunner(), meta)
                publish_epoch(meta, done.epoch)
                self.epochs.append(done.epoch)

    def per_g(self, files: int) -> str:
        """The view over the first `files` files, as DuckDB's SQL."""
        paths = ", ".join(f"'{file}'" for file in self.files[:files])
        return (
            f"SELECT g, count(*) AS n FROM read_parquet([{paths}]) GROUP BY g"
            if files
            else "SELECT 1 AS g, 1 AS n WHERE false"
        )

    def rows(self, file: int) -> int:
        return number_of(f"SELECT count(*) FROM '{self.files[file]}'")

    def changes(self, file: int) -> int:
        """The numbers of rows that a file removes from the view and adds to it."""
        before, after = self.per_g(file), self.per_g(file + 1)
        went, came = f"({before}) EXCEPT ALL ({after})", f"({after}) EXCEPT ALL ({before})"
        return number_of(f"SELECT count(*) FROM ({went})") + number_of(f"SELECT count(*) FROM ({came})")


def number_of(sql: str) -> int:
    ((found,),) = duckdb.sql(sql).fetchall()
    return int(found)


def bytes_of(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def shown_size(nbytes: int) -> str:
    """As the pages write it."""
    return f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1000:.3g} kB"


@pytest.fixture(scope="module")
def pipeline(app: FastAPI, shop: Shop) -> Counted:
    return Counted(shop)


def test_the_pipelines_page_counts_views_files_that_wait_and_stored_bytes(admin: Visitor, pipeline: Counted) -> None:
    text = read(admin, "/tussock/dags/epoch_counted")
    stored = list((pipeline.store / "data").rglob("*.sst"))
    waiting, taken = pipeline.files[EPOCHS:], pipeline.files[:EPOCHS]
    assert f"{WAITING} files waiting, {shown_size(bytes_of(waiting))}" in text
    assert f"{shown_size(bytes_of(stored))} in {len(stored)} SST" in text
    orders = (
        f"orders parquet the engine {EPOCHS} , {shown_size(bytes_of(taken))} "
        f"{WAITING} , {shown_size(bytes_of(waiting))} {pipeline.data}"
    )
    assert orders in text
    groups = number_of(f"SELECT count(*) FROM ({pipeline.per_g(EPOCHS)})")
    shown = re.search(r"per_g view ready – \S.*? (\d+) rows changed in the last \d+ epochs, at most (\d+) (\d+) ", text)
    assert shown is not None
    changes = [pipeline.changes(file) for file in range(EPOCHS)]
    assert [int(number) for number in shown.groups()] == [groups, max(changes), changes[-1]]


def test_the_pages_of_epochs_count_rows_changes_and_the_bytes_that_were_written(
    admin: Visitor, pipeline: Counted
) -> None:
    listed = read(admin, f"{DAG}/epochs")
    for number, epoch in enumerate(pipeline.epochs):
        text = read(admin, f"{DAG}/epochs/{epoch}")
        written = list((pipeline.store / f"data/{epoch:016x}").glob("*.sst"))
        assert written
        assert f"{pipeline.rows(number)} rows in {pipeline.changes(number)} view changes" in text
        assert f"{shown_size(bytes_of(written))} in {len(written)} SST" in text
        assert re.search(rf"orders source \d+ {pipeline.rows(number)} ", text)
        assert re.search(rf"per_g view \d+ {pipeline.changes(number)} ", text)
        assert re.search(rf"{epoch} .*?\b{pipeline.rows(number)} {pipeline.changes(number)}\b", listed)


def test_a_relations_page_has_the_changes_of_each_epoch(admin: Visitor, pipeline: Counted) -> None:
    text = read(admin, f"{DAG}/relations/per_g")
    for number, epoch in enumerate(pipeline.epochs):
        assert re.search(rf"{epoch} \d+ {pipeline.changes(number)} ", text)


def test_objects_that_vacuum_removes_and_keeps_are_all_objects_in_the_folder(admin: Visitor, pipeline: Counted) -> None:
    stored = list((pipeline.store / "data").rglob("*.sst"))
    (orphan := pipeline.store / f"data/{pipeline.epochs[0]:016x}/{'0' * 32}.sst").write_bytes(b"x" * 777)
    text = read(admin, "/tussock/dags/upkeep_counted/actions/upkeep")
    orphan.unlink()
    assert "can remove 1 object (777 B) now" in text
    assert f"{len(stored)} objects in use, {shown_size(bytes_of(stored))}" in text


def test_the_last_run_and_whether_the_dag_is_paused_are_those_of_airflows_database(
    admin: Visitor, pipeline: Counted
) -> None:
    admin.post("/tussock/dags/epoch_shop/actions/epoch", headers=HERE)
    with sqlite3.connect(f"file:{HOME}/airflow.db?mode=ro", uri=True) as database:
        (state,) = database.execute(
            "SELECT state FROM dag_run WHERE dag_id = 'epoch_shop' ORDER BY run_after DESC LIMIT 1"
        ).fetchone()
        (paused,) = database.execute("SELECT is_paused FROM dag WHERE dag_id = 'epoch_shop'").fetchone()
    text = read(admin, "/tussock/pipelines")
    shown = re.search(
        r"shop Orders of a <b>shop</b> .*? [\d-]{10} [\d:]{8} (queued|running|success|failed)(?: [\w. ]+? ago)?"
        r"( DAG is paused)?",
        text,
    )
    assert shown is not None
    assert (shown[1], shown[2] is not None) == (state, bool(paused))
