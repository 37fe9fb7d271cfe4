"""CREATE SOURCE … USING tussock: views over the relations of another store, compared with Spark over its rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verdict

pytestmark = pytest.mark.spark

VIEWS = {
    "per_shop": "SELECT shop, count(*) AS n, min(amount) AS low, max(note) AS last FROM sales GROUP BY shop",
    "notes": "SELECT DISTINCT note FROM sales",
    "pairs": "SELECT a.id, b.id AS other FROM sales a JOIN sales b ON a.shop = b.shop AND a.id < b.id",
    "ranked": "SELECT id, shop, row_number() OVER (PARTITION BY shop ORDER BY amount, id) AS n FROM sales",
}
SOURCE = "CREATE SOURCE {name} USING tussock OPTIONS (store '{store}', relation '{relation}'{more})"


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@contextmanager
def two_stores(spark: SparkSession, folder: Path) -> Iterator[tuple[Session, Session]]:
    """The other store, with a table of sales, and a store that reads it."""
    with (
        Session(str(folder / "theirs"), spark, runner=here(spark)) as theirs,
        Session(str(folder / "ours"), spark, runner=here(spark)) as ours,
    ):
        theirs.execute(
            "CREATE TABLE sales (id bigint, shop string, amount decimal(10,2), note string, PRIMARY KEY (id))"
        )
        theirs.execute("INSERT INTO sales VALUES (1, 'Bern', 1.5, 'a'), (2, 'Bern', 2, NULL), (3, NULL, 3, 'c')")
        theirs.flush()
        yield theirs, ours


def change_randomly(session: Session, random: Random) -> None:
    """Insert, update and delete some sales."""
    key, shop = random.randrange(12), random.choice(["Bern", "Basel", "Chur"])
    session.execute(f"DELETE FROM sales WHERE id = {key}")
    if random.random() < 0.7:
        note = random.choice(["'a'", "'b'", "NULL"])
        session.execute(f"INSERT INTO sales VALUES ({key}, '{shop}', {random.randrange(5)}, {note})")
    if random.random() < 0.3:
        session.execute(f"UPDATE sales SET amount = amount + 1 WHERE shop = '{shop}'")


@pytest.mark.parametrize("more", [", key 'id'", ""])
def test_views_over_another_store_equal_sparks_over_its_rows(spark: SparkSession, tmp_path: Path, more: str) -> None:
    random = Random(7)
    with two_stores(spark, tmp_path) as (theirs, ours):
        ours.execute(SOURCE.format(name="sales", store=tmp_path / "theirs", relation="sales", more=more))
        for name, select in VIEWS.items():
            ours.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        for _ in range(6):
            ours.flush()
            there = theirs.table("sales")
            there.createOrReplaceTempView("sales")
            for name, select in VIEWS.items():
                expected = there.sparkSession.sql(select).toArrow().rename_columns(ours.read(name).column_names)
                assert texts(ours.read(name)) == texts(expected), name
            for _ in range(random.randrange(1, 4)):
                change_randomly(theirs, random)
                theirs.flush()
        ours.flush()
        assert {check.verdict for check in ours.verify().views} == {Verdict.EQUAL}
