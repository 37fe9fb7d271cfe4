"""The Python session, on one story of four epochs over files and a table. Spark over the same input gives the
answers.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.truth.compare import assert_same_answer
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.reading.moment import BadMomentError
from tussock.jobs.reading.read import NotThereYetError
from tussock.jobs.reading.reader import NoStoredRowsError
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import MissingPathError, NoFilesError
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.errors import EpochNotCommittedError, NotInitialisedError

pytestmark = pytest.mark.spark

SALES = pa.schema([("id", pa.int64()), ("shop", pa.int32()), ("amount", pa.float64())])
VIEWS = {
    "by_shop": "SELECT shop, count(*) AS sales, sum(amount) AS total FROM sales GROUP BY shop",
    "named": "SELECT s.name, b.sales, b.total FROM by_shop b JOIN shops s ON b.shop = s.id",
    "noted": "SELECT word, count(*) AS n, min(at) AS first_at, sum(price) AS price FROM notes GROUP BY word",
}
LATE = {
    "late_of_source": "SELECT shop, max(amount) AS top FROM sales WHERE id % 2 = 0 GROUP BY shop",
    "late_of_table": "SELECT length(name) AS width, count(*) AS n FROM shops GROUP BY length(name)",
    "late_of_view": "SELECT sales, count(*) AS shops FROM by_shop GROUP BY sales",
    "late_of_csv": "SELECT count(*) AS n, max(price) AS dearest FROM notes",
}
NOTES = "at timestamp, word string, price decimal(8,2)"
SHOPS = "(1, 'north'), (2, 'south'), (3, 'east'), (9, 'closed')"


def write_sales(folder: Path, day: int) -> None:
    ids = list(range(day * 100, day * 100 + 50))
    rows = {"id": ids, "shop": [i % 4 for i in ids], "amount": [i * 0.25 for i in ids]}
    pq.write_table(pa.table(rows, SALES), folder / f"day{day}.parquet")


@dataclass(frozen=True)
class Story:
    """The epochs of the story and its paths."""

    store: str
    data: Path
    epochs: tuple[EpochSummary, ...]
    pending: tuple[int, pa.Table]  # the log's end and SHOW, read by another session before the first flush


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp("story")
    data = root / "data"
    for folder in ("sales", "notes"):
        (data / folder).mkdir(parents=True)
    for day in (1, 2, 3):
        write_sales(data / "sales", day)
    (data / "notes" / "1.csv").write_text(
        'at,word,price\n2013-01-01 10:00:00,"a, b",1.50\n2013-01-02 00:00:00,plain,\n'
    )
    (data / "notes" / "2.csv").write_text("at,word,price\n1999-12-31 23:59:59.5,plain,-3.25\n,,7\n")
    store = str(root / "store")
    epochs = []
    with Session(store, spark, units=3) as session:
        session.execute(
            f"""-- columns of a Parquet source come from its files; a relative path starts at the script's folder
            CREATE SOURCE sales USING parquet OPTIONS (path 'sales');
            CREATE SOURCE notes ({NOTES}) USING csv OPTIONS (path 'notes', header 'true');
            CREATE TABLE shops (id int, name string, PRIMARY KEY (id));
            {";".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in VIEWS.items())};
            INSERT INTO shops VALUES {SHOPS}""",
            base=data,
        )
        with Session(store, spark, create=False) as other:
            (shown,) = other.execute("SHOW relations")
            assert shown.table is not None
            pending = other.meta.log_end(), shown.table
        epochs += [session.flush(max_epoch_bytes=1) for _ in range(3)]
        write_sales(data / "sales", 4)
        session.execute(";".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in LATE.items()))
        session.execute("UPDATE shops SET name = 'northern' WHERE id = 1; DELETE FROM shops WHERE id = 9")
        epochs.append(session.flush())
    return Story(store, data, tuple(epochs), pending)


@pytest.fixture(scope="module")
def session(story: Story, spark: SparkSession) -> Iterator[Session]:
    with Session(story.store, spark, create=False) as session:
        yield session


def judge(spark: SparkSession, story: Story, days: int, changed: bool = True) -> SparkSession:
    """Spark over the files of the first `days` days, and over shops before or after the change."""
    truth = spark.newSession()
    truth.conf.set("spark.sql.ansi.enabled", "true")
    truth.read.parquet(
        *(str(story.data / "sales" / f"day{d}.parquet") for d in range(1, days + 1))
    ).createOrReplaceTempView("sales")
    notes = [str(story.data / "notes" / f"{n}.csv") for n in range(1, min(days, 2) + 1)]
    truth.read.csv(notes, schema=NOTES, header=True).createOrReplaceTempView("notes")
    shops = "(1, 'northern'), (2, 'south'), (3, 'east')" if changed else SHOPS
    truth.sql(f"SELECT CAST(id AS int) AS id, name FROM VALUES {shops} AS t(id, name)").createOrReplaceTempView("shops")
    for name, sql in VIEWS.items():
        truth.sql(sql).createOrReplaceTempView(name)
    return truth


# --- durability, and when statements take effect ---


def test_statements_are_durable_before_the_flush_and_another_session_sees_them(story: Story) -> None:
    log_end, shown = story.pending
    assert log_end == 3 + len(VIEWS) + 1
    assert shown["name"].to_pylist() == ["sales", "notes", "shops", *VIEWS]
    assert shown["kind"].to_pylist() == ["source", "source", "table", "view", "view", "view"]


def test_a_source_without_columns_has_those_of_its_files(story: Story) -> None:
    _, shown = story.pending
    assert shown["columns"].to_pylist()[0] == "id bigint, shop int, amount double"


def test_max_epoch_bytes_divides_the_input_into_epochs_of_at_least_one_file_per_source(story: Story) -> None:
    assert [e.rows["by_shop"][0] > 0 for e in story.epochs] == [True] * 4
    assert len({e.epoch for e in story.epochs}) == 4


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*VIEWS, *LATE])
def test_a_view_equals_spark_over_the_same_input_whenever_it_was_created(
    name: str, story: Story, session: Session, spark: SparkSession
) -> None:
    expected = judge(spark, story, 4).sql({**VIEWS, **LATE}[name]).toArrow()
    assert_same_answer(session.query(f"SELECT * FROM {name}"), expected, name)


@pytest.mark.parametrize("days", [1, 2, 3])
def test_a_query_at_an_earlier_epoch_sees_that_epochs_rows(
    days: int, story: Story, session: Session, spark: SparkSession
) -> None:
    found = session.query("SELECT * FROM named", epoch=story.epochs[days - 1].epoch)
    assert_same_answer(
        found, judge(spark, story, days, changed=False).sql(VIEWS["named"]).toArrow(), f"named after {days} days"
    )


def test_a_query_as_of_a_moment_sees_the_epoch_published_then(
    story: Story, session: Session, spark: SparkSession
) -> None:
    first, second, *_ = (epoch_ms(summary.epoch) for summary in story.epochs)
    for at_ms, days in ((first, 1), (second - 1, 1), (second, 2)):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        truth = judge(spark, story, days, changed=False).sql("SELECT * FROM by_shop").toArrow()
        assert_same_answer(session.query("SELECT * FROM by_shop", at=at), truth, f"at {at}")
        local = at.replace(tzinfo=None)  # the store's time zone is UTC
        assert_same_answer(session.query("SELECT * FROM by_shop", at=local), truth, f"at {local}")


def test_a_moment_that_nothing_can_be_read_at_is_refused(story: Story, session: Session) -> None:
    with pytest.raises(BadMomentError, match="is in the future"):
        session.query("SELECT 1", at=datetime(2999, 1, 1, tzinfo=UTC))
    with pytest.raises(BadMomentError, match="an epoch or a time, not both"):
        session.query("SELECT 1", story.epochs[0].epoch, at=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(NotThereYetError, match="it was created in epoch"):
        session.query("SELECT * FROM by_shop", at=datetime(2000, 1, 1, tzinfo=UTC))


def test_a_query_may_be_anything_that_spark_runs(story: Story, session: Session, spark: SparkSession) -> None:
    sql = """WITH b AS (SELECT *, rank() OVER (ORDER BY total DESC) AS place FROM by_shop)
             SELECT b.place, s.name, array(b.shop, b.place) AS pair FROM b LEFT JOIN shops s ON s.id = b.shop
                 ORDER BY b.place"""
    assert session.query(sql).to_pylist() == judge(spark, story, 4).sql(sql).toArrow().to_pylist()


def test_an_answer_is_not_split_into_the_small_batches_of_cells(session: Session) -> None:
    assert session.query("SELECT id FROM range(0, 1000, 1, 1)")["id"].num_chunks == 1


def test_workers_do_not_scan_imported_objects_after_every_task(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark, runner="spark") as session:
        session.execute("CREATE TABLE t (a int, PRIMARY KEY (a)); INSERT INTO t VALUES (1), (2), (3)")
        session.flush()
    counts = spark.sparkContext.range(0, 8, 1, 8).map(lambda _: gc.get_freeze_count()).collect()
    assert max(counts) > 50_000


def test_an_alias_may_have_the_name_of_a_source(session: Session) -> None:
    rows = session.query("SELECT total AS sales, notes FROM (SELECT total, sales AS notes FROM by_shop) ORDER BY sales")
    assert rows.column_names == ["sales", "notes"]


def test_a_query_in_a_script_answers_with_a_table(session: Session) -> None:
    first, second = session.execute("SELECT 1 AS one; SELECT count(*) AS n FROM shops")
    assert first.table is not None
    assert second.table is not None
    assert (first.table.to_pylist(), second.table.to_pylist()) == ([{"one": 1}], [{"n": 3}])


def test_insert_select_reads_the_last_committed_epoch(session: Session) -> None:
    before = session.meta.log_end()
    (answer,) = session.execute("INSERT INTO shops SELECT shop + 100, concat('copy of ', shop) FROM by_shop")
    assert "4 rows" in answer.message
    assert session.meta.log_end() == before + 1


# --- SHOW, EXPLAIN, DROP ------------------------------------------------------------------------


def test_show_lists_relations_columns_and_the_statement_of_one(session: Session) -> None:
    (views,) = session.execute("SHOW MATERIALIZED VIEWS")
    (columns,) = session.execute("DESCRIBE by_shop")
    (made,) = session.execute("SHOW CREATE MATERIALIZED VIEW by_shop")
    assert views.table is not None
    assert columns.table is not None
    assert made.table is not None
    assert set(VIEWS) <= set(views.table["name"].to_pylist())
    assert columns.table.to_pylist() == [
        {"column": "shop", "type": "int"},
        {"column": "sales", "type": "bigint"},
        {"column": "total", "type": "double"},
    ]
    assert made.table["statement"].to_pylist() == [f"CREATE MATERIALIZED VIEW by_shop AS {VIEWS['by_shop']}"]


def test_explain_shows_how_a_select_would_be_kept_and_keeps_nothing(session: Session) -> None:
    before = session.meta.log_end()
    (answer,) = session.execute("EXPLAIN SELECT name, count(*) AS n FROM named GROUP BY name")
    assert answer.table is not None
    text = "\n".join(answer.table["plan"].to_pylist())
    assert "HashAgg keys=[c0] calls=[count(*)]" in text
    assert "view named" in text
    assert session.meta.log_end() == before


def test_if_not_exists_and_if_exists_add_nothing_to_the_log(session: Session) -> None:
    before = session.meta.log_end()
    answers = session.execute(
        "CREATE TABLE IF NOT EXISTS shops (id int, name string, PRIMARY KEY (id)); "
        "DROP MATERIALIZED VIEW IF EXISTS nobody"
    )
    assert all(a.message.startswith("nothing to do") for a in answers)
    assert session.meta.log_end() == before


def test_drop_cascade_drops_its_readers_and_frees_the_name(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute("CREATE TABLE t (k int, v int, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 10), (2, 20)")
        session.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT sum(v) AS s FROM t; "
            "CREATE MATERIALIZED VIEW w AS SELECT s + 1 AS s FROM v"
        )
        first = session.flush()
        session.execute("DROP MATERIALIZED VIEW v CASCADE; CREATE MATERIALIZED VIEW w AS SELECT max(v) AS m FROM t")
        session.flush()
        assert session.query("SELECT m FROM w").to_pylist() == [{"m": 20}]
        assert session.query("SELECT s FROM w", epoch=first.epoch).to_pylist() == [{"s": 31}]
        with pytest.raises(SqlError, match="there is no relation `v`; those that exist: t, w"):
            session.query("SELECT * FROM v")
        idle = session.flush()
        assert idle.version == session.meta.read_latest().id, "nothing waited: nothing was committed"


# --- what cannot be answered --------------------------------------------------------------------


def test_a_source_has_no_stored_rows_to_query(session: Session) -> None:
    with pytest.raises(NoStoredRowsError, match="'sales' is a source"):
        session.query("SELECT * FROM sales")


def test_a_relation_that_came_later_is_not_in_an_earlier_epoch(story: Story, session: Session) -> None:
    with pytest.raises(NotThereYetError, match=f"created in epoch {story.epochs[3].epoch}"):
        session.query("SELECT * FROM late_of_table", epoch=story.epochs[0].epoch)


def test_a_view_that_waits_for_its_first_epoch_is_reported_as_waiting(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute("CREATE TABLE t (k int, PRIMARY KEY (k))")
        for ask in (session.query, session.execute):
            with pytest.raises(NotThereYetError, match="'t' is in the log, but not yet in any epoch; run an epoch"):
                ask("SELECT * FROM t")


def test_an_uncommitted_epoch_cannot_be_read(session: Session) -> None:
    with pytest.raises(EpochNotCommittedError, match="epoch 12345 does not exist; the last committed one is"):
        session.query("SELECT 1", epoch=12345)


def test_a_query_whose_expression_raises_has_sparks_message(session: Session) -> None:
    with pytest.raises(SqlError, match=r"DIVIDE_BY_ZERO.*\n"):
        session.query("SELECT sales / (sales - sales) AS x FROM by_shop")


def test_only_a_select_can_name_an_epoch(session: Session) -> None:
    with pytest.raises(SqlError, match="expected a SELECT"):
        session.query("DROP TABLE shops")


def test_columns_cannot_come_from_missing_files(session: Session, tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="no file at"):
        session.execute(f"CREATE SOURCE nothing USING parquet OPTIONS (path '{tmp_path}/nothing')")
    with pytest.raises(NoFilesError, match="contains no file to infer the columns from"):
        session.execute(f"CREATE SOURCE nothing USING parquet OPTIONS (path '{tmp_path}')")


def test_a_session_that_must_not_create_a_store_reports_a_missing_one(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(NotInitialisedError, match="contains no store"),
        Session(str(tmp_path / "store"), spark, create=False) as session,
    ):
        session.execute("SHOW TABLES")


def test_close_leaves_a_spark_session_that_was_given_running(spark: SparkSession, story: Story) -> None:
    Session(story.store, spark).close()
    Session(story.store).close()
    assert spark.range(3).count() == 3
