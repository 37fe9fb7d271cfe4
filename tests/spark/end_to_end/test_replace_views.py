"""CREATE OR REPLACE: a view changes at one epoch.

Views over it continue and receive the difference if their state stays valid.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.truth.compare import assert_same_answer
from tussock.jobs.catalog.apply import RelationExistsError
from tussock.jobs.catalog.replace import CannotReplaceError
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.session import Session
from tussock.jobs.statements.transaction import CannotFollowError
from tussock.jobs.trouble.row_names import ViewRowError

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE orders (id int, shop int, price int, note string, PRIMARY KEY (id));
CREATE TABLE shops (shop int, city string, PRIMARY KEY (shop));
CREATE TABLE hits (page string, n int);
INSERT INTO shops VALUES (1, 'Ulm'), (2, 'Jena'), (3, 'Ulm');
INSERT INTO orders SELECT CAST(id AS int), CAST(id % 4 AS int), CAST(id * 7 % 50 AS int), CAST(id % 9 AS string)
    FROM range(200);
INSERT INTO hits VALUES ('a', 1), ('a', 1), ('b', 2), ('c', NULL)
"""
TABLE_NAMES = ("orders", "shops", "hits")
VIEWS = {
    "dear": "SELECT id, shop, price FROM orders WHERE price > 20",
    "in_city": "SELECT d.id, d.price, s.city FROM dear d LEFT JOIN shops s ON s.shop = d.shop",
    "by_city": "SELECT city, count(*) AS n, max(price) AS most, min(price) AS least FROM in_city GROUP BY city",
    "all_of_it": "SELECT count(*) AS n FROM dear",
    "first_ones": "SELECT id, price FROM dear ORDER BY price DESC, id LIMIT 5",
    "ranked": "SELECT id, shop, row_number() OVER (PARTITION BY shop ORDER BY price, id) AS place FROM dear",
    "prices": "SELECT DISTINCT price FROM dear",
    "few": "SELECT h.page, d.id FROM hits h JOIN dear d ON d.price = h.n + 20",
}


class Kept:
    """A session with views, and the SELECTs of these views."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.views: dict[str, str] = {}

    def create(self, name: str, select: str) -> None:
        self.session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        self.views[name] = select

    def replace(self, name: str, select: str) -> str:
        (answer,) = self.session.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {select}")
        self.views[name] = select
        return answer.message

    def flush(self) -> EpochSummary:
        """Run an epoch, then compare the views."""
        summary = self.session.flush()
        self.compare()
        return summary

    def compare(self) -> None:
        """Compare each view with Spark's answer to its SELECT, computed from the tables."""
        truth = self.session.spark.newSession()
        truth.conf.set("spark.sql.ansi.enabled", "true")
        for table in TABLE_NAMES:
            truth.createDataFrame(self.session.read(table)).createOrReplaceTempView(table)
        for name, select in self.in_order():
            expected = truth.sql(select).toArrow()
            truth.createDataFrame(expected).createOrReplaceTempView(name)  # plans of stacked views would grow
            assert_same_answer(self.session.read(name), expected, f"{name}: {select}")

    def in_order(self) -> list[tuple[str, str]]:
        """The views in dependency order."""
        names = self.session.execute("SHOW RELATIONS")[0].table
        assert names is not None
        return [(n, self.views[n]) for n in names["name"].to_pylist() if n in self.views]


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after the first epoch of the views, for copies: binding and building the views takes seconds."""
    folder = tmp_path_factory.mktemp("prepared") / "store"
    with Session(str(folder), spark, runner="local") as session:
        for statement in TABLES.strip().split(";"):
            session.execute(statement)
        made = Kept(session)
        for name, select in VIEWS.items():
            made.create(name, select)
        made.flush()
    return folder


@pytest.fixture
def kept(spark: SparkSession, prepared: Path, tmp_path: Path) -> Iterator[Kept]:
    folder = shutil.copytree(prepared, tmp_path / "store")
    with Session(str(folder), spark, runner="local") as session:
        made = Kept(session)
        made.views = dict(VIEWS)
        yield made


def test_readers_of_a_view_that_filters_otherwise_are_fed_the_difference(kept: Kept) -> None:
    tables = {r.name: r.state_tables for r in kept.session.meta.read_latest().catalog.live_relations()}
    before = kept.session.read("dear").num_rows
    epoch = kept.session.meta.read_latest().epoch
    message = kept.replace("dear", "SELECT id, shop, price FROM orders WHERE price > 24")
    assert "replace view dear" in message
    kept.session.execute(
        "INSERT INTO orders VALUES (1, 2, 49, NULL), (500, 3, 41, 'x'); DELETE FROM orders WHERE id BETWEEN 20 AND 30"
    )
    assert kept.session.read("dear").num_rows == before, "readers see the old view until the new one is whole"
    summary = kept.flush()
    after = {r.name: r.state_tables for r in kept.session.meta.read_latest().catalog.live_relations()}
    assert {name for name in after if after[name] != tables[name]} == {"dear"}, "the views over it keep their state"
    changed = len(
        {tuple(r.values()) for r in kept.session.read("dear").to_pylist()}
        ^ {tuple(r.values()) for r in rows_at(kept, epoch)}
    )
    assert summary.rows["prices"].rows_in <= changed * 2, "not the whole view"
    assert summary.rows["dear"].rows_in > changed, "while the new view is built of all rows"
    kept.session.execute("UPDATE orders SET price = price + 1 WHERE id % 3 = 0")
    kept.flush()


def rows_at(kept: Kept, epoch: int) -> list[dict[str, object]]:
    """The rows of `dear` for readers of the epoch."""
    return kept.session.read("dear", epoch=epoch).to_pylist()


@pytest.mark.deep
def test_more_columns_other_places_and_another_expression(kept: Kept) -> None:
    kept.replace(
        "dear", "SELECT upper(note) AS note, price + 0 AS price, shop, id, 'x' AS more FROM orders WHERE price > 10"
    )
    kept.session.execute("INSERT INTO shops VALUES (0, 'Bonn')")
    kept.flush()
    kept.session.execute("DELETE FROM orders WHERE price > 40")
    kept.flush()


OTHERWISE = {
    # Another key: the views that read it are replaced too.
    "dear": "SELECT id, shop, max(price) AS price FROM orders GROUP BY id, shop",
    "other": "SELECT upper(note) AS note, price, shop, id FROM orders WHERE price > 10",
    "narrower": "SELECT id, shop, price FROM orders WHERE price > 30",  # its readers receive the difference
}


@pytest.mark.parametrize(
    "select", [pytest.param(s, id=n, marks=[pytest.mark.deep][: n != "dear"]) for n, s in OTHERWISE.items()]
)
@pytest.mark.sampled(2)
def test_views_that_are_built_over_several_epochs_equal_spark_at_each(kept: Kept, select: str) -> None:
    old = dict(kept.views)
    kept.replace("dear", select)
    new, steps = kept.views, 0
    while not steps or kept.session.meta.read_latest().catalog.builds:
        k = 40 * steps
        kept.session.execute(
            f"INSERT INTO orders VALUES ({k}, 2, 49, 'n'), (500 + {k}, 3, 41, 'x'); "
            f"DELETE FROM orders WHERE id BETWEEN {k} + 20 AND {k} + 25; "
            f"UPDATE orders SET price = price + 3, shop = shop + 1 WHERE id % 7 = {steps}; "
            f"UPDATE shops SET city = 'Hof' WHERE shop = {steps}"
        )
        kept.session.flush(max_epoch_bytes=1200)
        kept.views = old if kept.session.meta.read_latest().catalog.builds else new
        kept.compare()
        steps += 1
    assert steps > 2
    kept.session.execute("DELETE FROM orders WHERE price > 40; DELETE FROM shops WHERE shop = 2")
    kept.flush()


@pytest.mark.deep
def test_a_reader_that_does_not_fit_is_replaced_too(kept: Kept) -> None:
    kept.create("every", "SELECT * FROM dear")
    kept.flush()
    kept.replace("dear", "SELECT shop AS id, shop, max(price) AS price FROM orders GROUP BY shop")
    kept.session.execute("INSERT INTO orders VALUES (700, 9, 100, NULL)")
    kept.flush()
    kept.replace("dear", "SELECT id, shop, CAST(price AS bigint) AS price, note FROM orders")
    kept.flush()
    assert kept.session.read("every").column_names == ["id", "shop", "price", "note"], "* means the current columns"
    kept.session.execute("DELETE FROM orders WHERE id % 2 = 0")
    kept.flush()


@pytest.mark.deep
def test_replaced_twice_and_dropped_before_an_epoch(kept: Kept) -> None:
    kept.replace("dear", "SELECT id, shop, price FROM orders WHERE price > 30")
    kept.replace("in_city", "SELECT d.id, d.price, s.city FROM dear d JOIN shops s ON s.shop = d.shop")
    kept.replace("dear", "SELECT id, shop, price FROM orders WHERE price < 30")
    kept.create("late", "SELECT shop, max(price) AS most FROM dear GROUP BY shop")
    kept.session.execute("DROP MATERIALIZED VIEW few")
    del kept.views["few"]
    kept.flush()
    assert kept.replace("dear", "SELECT id, shop, price -- as it is\nFROM orders WHERE price < 30").startswith(
        "nothing to do"
    )


def test_a_view_over_a_source_and_those_that_trusted_it_to_grow(kept: Kept, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()

    def write(name: str, start: int) -> None:
        rows = pa.table(
            {"k": pa.array(range(start, start + 50), pa.int32()), "v": pa.array([i % 7 for i in range(50)], pa.int32())}
        )
        pq.write_table(rows, files / name)
        for row in rows.to_pylist():
            kept.session.execute(f"INSERT INTO mirror VALUES ({row['k']}, {row['v']})") if row["k"] % 10 == 0 else None

    kept.session.execute(
        f"CREATE TABLE mirror (k int, v int); CREATE SOURCE s (k int, v int) USING parquet OPTIONS (path '{files}')"
    )
    write("a.parquet", 0)
    for name, select in {
        "tens": "SELECT k, v FROM s WHERE k % 10 = 0",
        "most": "SELECT v, max(k) AS k FROM tens GROUP BY v",
        "twice": "SELECT k * 2 AS k FROM tens",
        "largest": "SELECT max(k) AS k FROM twice",
    }.items():
        kept.create(name, select)
    own = {name: kept.views.pop(name) for name in ("tens", "most", "twice", "largest")}
    kept.session.flush()
    kept.session.execute("CREATE OR REPLACE MATERIALIZED VIEW tens AS SELECT k, v FROM s WHERE k % 10 = 0 AND k < 30")
    write("b.parquet", 50)
    kept.session.flush()
    own["tens"] = "SELECT k, v FROM mirror WHERE k % 10 = 0 AND k < 30"
    texts = ", ".join(f"{n} AS ({s})" for n, s in own.items())
    for name in own:
        assert_same_answer(kept.session.read(name), kept.session.query(f"WITH {texts} SELECT * FROM {name}"), name)
    assert kept.session.read("largest")["k"].to_pylist() == [40]


def test_plain_views_and_functions_are_replaced_with_their_readers(kept: Kept, tmp_path: Path) -> None:
    kept.session.execute("CREATE VIEW cheap AS SELECT id, price FROM orders WHERE price < 10")
    kept.session.execute("CREATE VIEW cheaper AS SELECT * FROM cheap WHERE price < 5")
    kept.create("of_cheap", "SELECT count(*) AS n, sum(price) AS total FROM cheaper")
    kept.views["of_cheap"] = "SELECT count(*) AS n, sum(price) AS total FROM orders WHERE price < 5"
    kept.flush()
    kept.session.execute("CREATE OR REPLACE VIEW cheap AS SELECT id, price FROM orders WHERE price < 4")
    kept.views["of_cheap"] = "SELECT count(*) AS n, sum(price) AS total FROM orders WHERE price < 4"
    kept.flush()
    (tmp_path / "functions").mkdir()
    code = tmp_path / "functions" / "f.py"
    code.write_text("def twice(x):\n    import pyarrow.compute as pc\n    return pc.multiply(x, 2)\n")
    create = "FUNCTION twice (x int) RETURNS int LANGUAGE PYTHON AS 'f:twice'"
    kept.session.execute(f"CREATE {create}", base=tmp_path)
    kept.session.execute("CREATE MATERIALIZED VIEW doubled AS SELECT id, twice(price) AS price FROM orders")
    kept.flush()
    code.write_text("def twice(x):\n    import pyarrow.compute as pc\n    return pc.multiply(x, 3)\n")
    kept.session.execute(f"CREATE OR REPLACE {create}", base=tmp_path)
    kept.flush()
    expected = kept.session.query("SELECT id, price * 3 AS price FROM orders")
    assert_same_answer(kept.session.read("doubled"), expected, "doubled")


def test_a_view_that_cannot_follow_stops_it_and_nothing_is_changed(kept: Kept) -> None:
    before = kept.session.meta.log_end()
    with pytest.raises(
        CannotFollowError,
        match=r"'in_city' reads a relation that changes here, "
        r"and its SELECT is not valid over the new one: .*price",
    ):
        kept.session.execute("CREATE OR REPLACE MATERIALIZED VIEW dear AS SELECT id, shop FROM orders")
    with pytest.raises(CannotReplaceError, match="its query reads 'in_city', which itself reads 'dear'"):
        kept.session.execute("CREATE OR REPLACE MATERIALIZED VIEW dear AS SELECT id, 1 AS shop, price FROM in_city")
    with pytest.raises(RelationExistsError, match="CREATE OR REPLACE MATERIALIZED VIEW to replace it"):
        kept.session.execute("CREATE MATERIALIZED VIEW dear AS SELECT id FROM orders")
    with pytest.raises(RelationExistsError, match="it is a table, this statement creates a view"):
        kept.session.execute("CREATE OR REPLACE MATERIALIZED VIEW orders AS SELECT id FROM dear")
    assert kept.session.meta.log_end() == before


def test_if_the_new_view_cannot_process_a_row_the_old_one_remains_and_the_entry_can_be_skipped(kept: Kept) -> None:
    from tussock.jobs.barriers.detour import Detour
    from tussock.jobs.trouble.supersede import abandon_barrier

    entry, before = kept.session.meta.log_end(), kept.views["dear"]
    kept.replace("dear", "SELECT id, shop, 100 div (price - 21) AS price FROM orders")
    with pytest.raises(ViewRowError, match=rf"To keep the old view.*--skip-entry {entry}`"):
        kept.session.flush()
    abandon_barrier(kept.session.meta, Detour(skip_entries=(entry,)))
    kept.session.flush()
    kept.views["dear"] = before
    kept.session.execute("DELETE FROM orders WHERE id = 3")
    kept.flush()


@pytest.mark.deep
def test_a_paused_view_continues_when_it_is_replaced_by_the_same_query(kept: Kept) -> None:
    from tussock.jobs.barriers.detour import Detour
    from tussock.jobs.trouble.supersede import abandon_barrier

    kept.create("risky", "SELECT id, 100 / (price - 21) AS x FROM dear")
    kept.create("over_it", "SELECT max(x) AS x FROM risky")
    kept.session.execute("UPDATE orders SET price = 22 WHERE price = 21")
    kept.flush()
    kept.session.execute("UPDATE orders SET price = 21 WHERE id = 5")
    with pytest.raises(Exception, match="risky"):
        kept.session.flush()
    abandon_barrier(kept.session.meta, Detour(pause=("risky",)))
    kept.session.flush()
    kept.session.execute("UPDATE orders SET price = 33 WHERE id = 5")
    assert not kept.replace("risky", kept.views["risky"]).startswith("nothing")
    kept.flush()
    assert all(r.paused is None for r in kept.session.meta.read_latest().catalog.live_relations())


@pytest.mark.deep
def test_earlier_epochs_keep_the_names_and_the_query_that_they_had(kept: Kept) -> None:
    kept.session.execute("CREATE VIEW cheap AS SELECT id FROM orders WHERE price < 3")
    kept.create("swapped", "SELECT id AS a, price AS b FROM orders")
    kept.flush()
    epoch, few = kept.session.meta.read_latest().epoch, kept.session.query("SELECT * FROM cheap").num_rows
    before = kept.session.query("SELECT max(a) AS a, max(b) AS b FROM swapped").to_pylist()
    kept.replace("swapped", "SELECT id AS b, price AS a FROM orders")
    kept.session.execute("CREATE OR REPLACE VIEW cheap AS SELECT id FROM orders WHERE price < 30")
    kept.flush()
    assert kept.session.query("SELECT max(a) AS a, max(b) AS b FROM swapped", epoch=epoch).to_pylist() == before
    assert (
        kept.session.query("SELECT * FROM cheap", epoch=epoch).num_rows
        == few
        < kept.session.query("SELECT * FROM cheap").num_rows
    )
