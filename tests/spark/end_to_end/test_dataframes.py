"""DataFrames over a store's rows, and views made from DataFrames, compared with Spark over separate copies of the
rows.
"""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.catalog.definition import UnknownRelationError, definition_of, find_relation
from tussock.jobs.catalog.definition import ViewDefinition as Definition
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.reading.frames import FrameOfAnEpochError, OutdatedFrameError
from tussock.jobs.reading.read import NotThereYetError
from tussock.jobs.session import Session
from tussock.jobs.sql.show import show_plan

pytestmark = pytest.mark.spark

Tables = Callable[[str], DataFrame]
DAY = "DATE '2026-01-01'"
ORDERS = {
    1: f"(1, 7, 1.50, {DAY}, 'a b'), (2, 7, 2.00, NULL, 'c'), (3, 8, 4.25, {DAY} + 2, NULL), (4, NULL, "
    f"8.00, {DAY}, 'c d e')",
    2: f"(1, 7, 1.50, {DAY}, 'a b'), (2, 9, 2.50, NULL, 'c'), (4, NULL, 8.00, {DAY}, 'c d e'), (5, 8, "
    f"NULL, {DAY} + 8, '')",
}
COLUMNS = "id int, shop int, amount decimal(8,2), day date, note string"
SHOPS = "(7, 'north'), (8, 'south'), (9, 'east')"
VISITS = pa.table(
    {
        "id": pa.array([1, 1, 2, 3], pa.int32()),
        "page": ["a", "a", "b", "a"],
        "at": pa.array([0, 10**9, 4 * 10**9, 5 * 10**9], pa.timestamp("us", "UTC")),
    }
)
COUNTED = "SELECT shop, count(*) AS n FROM orders GROUP BY shop"

VIEWS: dict[str, tuple[Callable[[Tables], DataFrame], str | None]] = {  # with an equivalent SQL text, if one exists
    "filtered": (
        lambda t: (
            t("orders")
            .where("amount > 1.75")
            .select("id", (F.col("amount") * 2).alias("twice"), F.upper("note").alias("note"))
        ),
        "SELECT id, amount * 2 AS twice, upper(note) AS note FROM orders WHERE amount > 1.75",
    ),
    "grouped": (
        lambda t: (
            t("orders")
            .groupBy("shop")
            .agg(F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("day").alias("last"))
        ),
        "SELECT shop, count(*) AS n, sum(amount) AS total, max(day) AS last FROM orders GROUP BY shop",
    ),
    "joined": (
        lambda t: (
            t("orders")
            .alias("o")
            .join(t("shops").alias("s"), F.col("o.shop") == F.col("s.shop"), "left")
            .select("o.id", "s.name")
        ),
        "SELECT o.id, s.name FROM orders o LEFT JOIN shops s ON o.shop = s.shop",
    ),
    "with_itself": (
        lambda t: (
            t("orders")
            .alias("a")
            .join(t("orders").alias("b"), F.expr("a.shop = b.shop AND a.id < b.id"))
            .select("a.id", F.col("b.id").alias("other"))
        ),
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.shop = b.shop AND a.id < b.id",
    ),
    "either": (
        lambda t: t("orders").select("shop").union(t("shops").select("shop")).distinct(),
        "SELECT shop FROM orders UNION SELECT shop FROM shops",
    ),
    "without": (lambda t: t("shops").join(t("orders"), "shop", "left_anti"), None),
    "ranked": (
        lambda t: t("orders").withColumn(
            "place", F.row_number().over(Window.partitionBy("shop").orderBy(F.desc_nulls_last("amount"), "id"))
        ),
        None,
    ),
    "top": (lambda t: t("orders").orderBy(F.desc("id")).limit(2), "SELECT * FROM orders ORDER BY id DESC LIMIT 2"),
    "words": (
        lambda t: t("orders").select("id", F.explode(F.array("id", "shop")).alias("number")).groupBy("number").count(),
        None,
    ),
    "by_spark": (
        lambda t: t("orders").select(
            "id", F.soundex("note").alias("sound"), F.date_format("day", "EEE").alias("weekday")
        ),
        None,
    ),
    "of_source": (lambda t: t("visits").groupBy("page").agg(F.count_distinct("id").alias("n")), None),
    "hourly": (
        lambda t: t("visits").groupBy(F.window("at", "1 hour"), "page").count().select("window.start", "page", "count"),
        None,
    ),
    "of_view": (lambda t: t("counted").where(F.col("n") > 1).na.fill({"shop": -1}), None),
    "of_plain": (lambda t: t("plain").groupBy().agg(F.sum("amount").alias("total")), None),
    "pivoted": (lambda t: t("orders").groupBy("day").pivot("shop", [7, 8]).agg(F.sum("amount")), None),
    "pivoted_twice": (
        lambda t: (
            t("orders")
            .groupBy("shop")
            .pivot("day", [date(2026, 1, 1), date(2026, 1, 9)])
            .agg(F.sum("amount").alias("total"), F.max("note").alias("last"))
            .select("*", (F.col("2026-01-01_total") + 1).alias("more"))
        ),
        None,
    ),
    "pivoted_texts": (lambda t: t("orders").groupBy("shop").pivot("note", ["c", "it's"]).agg(F.count("id")), None),
    "unpivoted": (
        lambda t: (
            t("orders").where("shop > 0").unpivot(["id", "day"], ["shop", "amount"], "what", "value").where("id < 9")
        ),
        None,
    ),
    "melted": (lambda t: t("shops").melt("shop", [F.col("name"), F.lit("x").alias("y")], "what", "value"), None),
    "unpivoted_one": (
        lambda t: (
            t("orders")
            .withColumnRenamed("amount", "the `amount`")
            .unpivot(["id"], [F.col("`the ``amount```")], "what", "value")
            .where("what > '' AND id < 9")
        ),
        "SELECT * FROM (SELECT id, amount AS `the ``amount``` FROM orders) UNPIVOT INCLUDE NULLS "
        "(value FOR what IN (`the ``amount```)) WHERE what > '' AND id < 9",
    ),
    "unpivoted_beside": (
        lambda t: t("shops").join(t("orders").unpivot(["shop"], ["id", "amount"], "what", "value"), "shop"),
        None,
    ),
    "sliding": (
        lambda t: (
            t("visits")
            .where("page <> ''")
            .groupBy(F.window("at", "90 minutes", "20 minutes", "5 minutes"), "page")
            .agg(F.count("*").alias("n"))
            .select("window.start", F.col("window.end").alias("until"), "page", "n")
        ),
        "SELECT window.start, window.end AS until, page, n FROM (SELECT window(at, '90 minutes', '20 minutes', "
        "'5 minutes') AS window, page, count(*) AS n FROM visits WHERE page <> '' GROUP BY 1, page)",
    ),
    "slid": (
        lambda t: (
            t("visits").withColumn("w", F.window("at", "1 second", "250 milliseconds")).where("id > 0").select("w.end")
        ),
        None,
    ),
    "pivoted_blanks": (lambda t: t("orders").groupBy().pivot("note", ["", "c"]).agg(F.sum("amount")), None),
    "rolled": (
        lambda t: t("orders").rollup("shop", "day").agg(F.count("*").alias("n")),
        "SELECT shop, day, count(*) AS n FROM orders GROUP BY ROLLUP (shop, day)",
    ),
    "cubed": (
        lambda t: (
            t("orders")
            .where("id > 0")
            .cube("shop", F.year("day").alias("year"))
            .agg(
                F.sum("shop").alias("total"),
                F.grouping("shop").alias("of_all"),
                F.grouping_id().alias("kind"),
                (F.grouping_id() + F.count("*")).alias("both"),
            )
            .where("total > 0 OR kind > 1")
        ),
        "SELECT * FROM (SELECT shop, year(day) AS year, sum(shop) AS total, grouping(shop) AS of_all, grouping_id() AS "
        "kind, grouping_id() + count(*) AS both FROM orders WHERE id > 0 GROUP BY CUBE (shop, year(day))) "
        "WHERE total > 0 OR kind > 1",
    ),
    "grouped_by_sets": (
        lambda t: (
            t("orders")
            .join(t("shops"), "shop")
            .groupingSets([["name"], ["day", "name"], []], "name", "day")
            .agg(F.count("*").alias("n"), F.collect_set("shop").alias("shops"))
            .withColumn("shops", F.sort_array("shops"))
        ),
        None,
    ),
    "sessions": (
        lambda t: (
            t("visits")
            .where("page <> ''")
            .groupBy(F.session_window("at", "20 minutes"), "page")
            .agg(F.count("*").alias("n"))
            .select("session_window.start", F.col("session_window.end").alias("until"), "page", "n")
        ),
        None,
    ),
    "sessions_by_page": (
        lambda t: (
            t("visits")
            .groupBy(F.session_window("at", F.when(F.col("page") == "a", "5 minutes").otherwise("2 hours")))
            .count()
        ),
        None,
    ),
    "calendar": (
        lambda t: (
            t("orders")
            .sparkSession.sql("SELECT explode(sequence(DATE '2026-01-01', DATE '2026-01-04')) AS day")
            .withColumn("weekday", F.date_format("day", "EEE"))
        ),
        None,
    ),
    "numbered": (lambda t: t("orders").crossJoin(t("orders").sparkSession.sql("SELECT 1 AS one")).select("id"), None),
    "above": (
        lambda t: t("orders").where(F.col("amount") > t("orders").agg(F.avg("amount")).scalar()).select("id"),
        None,
    ),
}


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("frames")
    pq.write_table(VISITS, folder / "visits.parquet")
    with Session(str(folder / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE visits USING parquet OPTIONS (path '{folder}/*.parquet')")
        session.execute(
            f"CREATE TABLE orders ({COLUMNS}, PRIMARY KEY (id)); CREATE TABLE shops (shop int, name string, "
            f"PRIMARY KEY (shop))"
        )
        session.execute(
            f"CREATE MATERIALIZED VIEW counted AS {COUNTED}; CREATE VIEW plain AS SELECT id, "
            f"amount FROM orders WHERE shop > 0"
        )
        session.execute(f"INSERT INTO orders VALUES {ORDERS[1]}; INSERT INTO shops VALUES {SHOPS}")
        session.flush()
        for name, (build, sql) in VIEWS.items():
            assert "takes effect with the next epoch" in session.create_view(name, build(session.table)).message
            if sql is not None:
                session.execute(f"CREATE MATERIALIZED VIEW {name}_sql AS {sql}")
        session.flush()
        yield session


def judged(spark: SparkSession, chapter: int) -> Tables:
    """Spark's frames of the expected rows after a chapter of the story."""
    truth = spark.newSession()
    truth.conf.set("spark.sql.ansi.enabled", "true")
    truth.sql(f"SELECT * FROM VALUES {ORDERS[chapter]} AS t(id, shop, amount, day, note)").selectExpr(
        *(f"CAST({c.split()[0]} AS {c.split()[1]}) AS {c.split()[0]}" for c in COLUMNS.split(", "))
    ).createOrReplaceTempView("orders")
    truth.sql(f"SELECT CAST(shop AS int) AS shop, name FROM VALUES {SHOPS} AS t(shop, name)").createOrReplaceTempView(
        "shops"
    )
    truth.createDataFrame(VISITS).createOrReplaceTempView("visits")
    truth.sql(COUNTED).createOrReplaceTempView("counted")
    truth.sql("SELECT id, amount FROM orders WHERE shop > 0").createOrReplaceTempView("plain")
    return truth.table


def plan_of(session: Session, name: str) -> str:
    definition = definition_of(find_relation(session.meta.read_latest().catalog, name))
    assert isinstance(definition, Definition)
    return show_plan(definition.plan)  # equal plans print equal text


def test_a_table_is_a_dataframe_and_a_dataframe_becomes_a_view_that_keeps_up(
    session: Session, spark: SparkSession
) -> None:
    first = session.meta.read_latest().published
    old, truth = session.table("orders"), judged(spark, 1)
    assert_same_answer(old.toArrow(), truth("orders").toArrow(), "the rows")
    assert_same_answer(session.table("COUNTED").toArrow(), truth("counted").toArrow(), "a view's rows")
    for name, (build, _) in VIEWS.items():
        if name in (
            "of_source",
            "hourly",
            "sessions",
            "sessions_by_page",
            "sliding",
            "slid",
        ):  # sources have no stored rows
            continue
        assert_same_answer(build(session.table).toArrow(), build(truth).toArrow(), f"{name}, run by Spark")
    session.execute("UPDATE orders SET shop = 9, amount = 2.5 WHERE id = 2; DELETE FROM orders WHERE id = 3")
    session.execute("INSERT INTO orders VALUES (5, 8, NULL, DATE '2026-01-09', '')")
    session.flush()
    for chapter, epoch in ((1, session.meta.read_latest().epochs[-2]), (2, None)):
        truth = judged(spark, chapter)
        for name, (build, sql) in VIEWS.items():
            found = session.read(name, epoch=epoch)
            assert_same_answer(found, build(truth).toArrow(), f"{name}, chapter {chapter}")
            if sql is not None:
                assert_same_answer(session.read(f"{name}_sql", epoch=epoch), found, f"{name} by SQL, chapter {chapter}")
                assert plan_of(session, f"{name}_sql") == plan_of(session, name), name
    assert_same_answer(old.toArrow(), judged(spark, 1)("orders").toArrow(), "rows of the epoch at which it was made")
    assert_same_answer(
        session.table("orders", first).toArrow(), judged(spark, 1)("orders").toArrow(), "an epoch by number"
    )
    assert_same_answer(
        session.table("grouped").toArrow(), VIEWS["grouped"][0](judged(spark, 2)).toArrow(), "a view of a DataFrame"
    )


def created(session: Session, name: str) -> str:
    (answer,) = session.execute(f"SHOW CREATE {name}")
    assert answer.table is not None
    return str(answer.table["statement"][0].as_py()).removeprefix(f"CREATE MATERIALIZED VIEW {name} AS ")


def test_a_view_of_a_dataframe_is_shown_as_the_equivalent_select(session: Session, spark: SparkSession) -> None:
    """If a SELECT can be written; Spark computes its rows over separate copies of the tables."""
    truth, shown = judged(spark, 2), {}
    for name, (build, _) in VIEWS.items():
        text = created(session, name)
        if not text.startswith("/*"):
            shown[name] = text
            assert_same_answer(build(truth).sparkSession.sql(text).toArrow(), build(truth).toArrow(), text)
    assert shown["grouped"] == (
        "SELECT orders.shop, count(1) AS n, sum(orders.amount) AS total, "
        "max(orders.day) AS last FROM orders GROUP BY orders.shop"
    )
    days = "LATERAL VIEW explode(sequence(DATE '2026-01-01', DATE '2026-01-04')) g AS day"
    assert shown["calendar"].endswith(f" FROM (SELECT g.day {days}) AS t")
    assert set(VIEWS) - set(shown) <= {"words", "either", "by_spark", "of_view", "above"}


def test_a_view_of_a_dataframe_is_read_by_other_sessions(session: Session) -> None:
    session.create_view("shown", VIEWS["above"][0](session.table))
    session.flush()
    text = created(session, "shown")
    assert text.startswith("/* made of a DataFrame")
    assert "Aggregate" in text
    assert "Scan orders" in text
    with Session(session.meta.objects.uri, session.spark, create=False, runner=here(session.spark)) as other:
        other.execute("CREATE MATERIALIZED VIEW of_shown AS SELECT count(*) AS n FROM shown")
        other.flush()
        assert other.read("of_shown").to_pylist() == [{"n": session.read("shown").num_rows}]
    again = VIEWS["above"][0](session.table)
    assert "nothing to do" in session.create_view("shown", again, if_not_exists=True).message


def test_a_frame_of_a_plain_view_leaves_no_view_in_the_session_of_spark(session: Session) -> None:
    frame = session.table("plain")
    assert frame.count() > 0
    assert frame.sparkSession.sql("SHOW VIEWS").collect() == []


def test_frames_pin_their_epoch_until_the_session_is_closed(session: Session) -> None:
    with Session(session.meta.objects.uri, session.spark, create=False, runner=here(session.spark)) as other:
        before = len(session.meta.all_pins())
        other.table("orders"), other.table("shops"), other.table("orders")
        assert len(session.meta.all_pins()) == before + 1
    assert len(session.meta.all_pins()) == before


def test_an_unmaintainable_query_is_refused_with_the_reason(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    orders = session.table("orders")
    outside = spark.createDataFrame([(7, "x")], "shop int, word string")
    spark.range(3).write.parquet(str(tmp_path / "files"))
    cached = session.table("shops").select("name").cache()
    plus = F.udf(lambda x: None if x is None else x + 1, "int")
    refused: list[tuple[DataFrame, type[Exception], str]] = [
        (orders.join(outside, "shop"), UnsupportedQueryError, "a relation that is not in the catalog"),
        (
            orders.join(spark.read.parquet(str(tmp_path / "files")), "id"),
            UnsupportedQueryError,
            "a relation of Spark's own catalog",
        ),
        (
            orders.select(plus("shop").alias("s")),
            UnsupportedQueryError,
            "a Python function of a DataFrame .*CREATE FUNCTION",
        ),
        (
            orders.mapInArrow(lambda rows: rows, orders.schema),
            UnsupportedQueryError,
            "a Python function of a DataFrame",
        ),
        (orders.withColumn("r", F.rand()), UnsupportedQueryError, "gives another value on every run"),
        (orders.sample(0.5), UnsupportedQueryError, "selects other rows on every run"),
        (orders.where("day = current_date()"), UnsupportedQueryError, "create the view by SQL"),
        (cached.distinct(), UnsupportedQueryError, "a cached DataFrame .*unpersist"),
        (session.table("orders", session.meta.read_latest().published), FrameOfAnEpochError, "without an epoch"),
        (orders.select("id", F.col("shop").alias("ID")), SqlError, "columns 1 and 2 .* are both named 'ID'"),
    ]
    end = session.meta.log_end()
    for frame, error, says in refused:
        with pytest.raises(error, match=says) as raised:
            session.create_view("v", frame)
        assert type(raised.value) is error
    cached.unpersist()
    for name, says in (("a b", "expected"), ("1", "expected the name of the view"), ("orders", "exists")):
        with pytest.raises(Exception, match=says):
            session.create_view(name, orders)
    assert session.meta.log_end() == end
    with pytest.raises(UnknownRelationError, match=r"'order'; .*Did you mean 'orders'"):
        session.table("order")
    session.execute(f"CREATE SOURCE files (a int) USING csv OPTIONS (path '{tmp_path}')")
    with pytest.raises(NotThereYetError, match="'files' is in the log"):
        session.table("files")
    session.execute("CREATE TABLE brief (a int, PRIMARY KEY (a))")
    session.flush()
    with pytest.raises(PySparkException, match="'files' is a source: views read its files"):
        session.table("files").collect()
    brief = session.table("brief")
    session.execute("DROP TABLE brief; CREATE TABLE brief (b int, PRIMARY KEY (b))")
    with pytest.raises(
        OutdatedFrameError, match=r"'brief' as of epoch .*, but it was dropped, replaced or altered since"
    ):
        session.create_view("v", brief)
