"""Statements as people write them.

Silent traps are refused with their place, EXPLAIN refuses the statements that CREATE refuses, and the advice works.
"""

import re
import shutil
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session, TwoThreadsError
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two tables and rows, one epoch old."""
    store = tmp_path_factory.mktemp("template") / "store"
    with Session(str(store), spark, runner=here(spark)) as session:
        session.execute(
            """CREATE TABLE orders (id int, shop int, item string, price double, ts timestamp, PRIMARY KEY (id));
            CREATE TABLE shops (id int, name string, PRIMARY KEY (id));
            INSERT INTO orders VALUES (1, 7, 'x', 1.5, TIMESTAMP '2013-01-01 10:59:59.999999'), (2, 7, NULL, 2.5, NULL),
                (3, 8, 'y', -1, TIMESTAMP '1969-12-31 23:30:00');
            INSERT INTO shops VALUES (7, 'seven')"""
        )
        session.flush()
    return store


@pytest.fixture
def session(template: Path, tmp_path: Path, spark: SparkSession) -> Session:
    return Session(str(shutil.copytree(template, tmp_path / "store")), spark, create=False, runner=here(spark))


@pytest.fixture(scope="module")
def quiet(template: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Session:
    """One store for all refused statements."""
    return Session(str(shutil.copytree(template, tmp_path_factory.mktemp("quiet") / "store")), spark, create=False)


REFUSED = {
    "a view without columns": (
        "CREATE MATERIALIZED VIEW v AS\n  SELECT * EXCEPT (id, name) FROM shops",
        ("this SELECT has no columns", "line 2, column 3", "^"),
    ),
    "EXPLAIN of a view without columns": (
        "EXPLAIN SELECT * EXCEPT (id, name) FROM shops",
        ("no columns", "line 1, column 9"),
    ),
    "a DELETE whose condition is missing": (
        "DELETE FROM orders WHERE",
        ("ends in WHERE", "a condition is missing", "line 1, column 20"),
    ),
    "a DELETE whose condition is a comment": (
        "DELETE FROM orders WHERE -- id = 3",
        ("a condition is missing", "line 1, column 20"),
    ),
    "a view whose condition is missing": (
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders where",
        ("condition is missing",),
    ),
    "a SELECT whose condition is missing": ("SELECT id FROM orders WHERE", ("a condition is missing", "column 23")),
    "a field of a column that has none": (
        "SELECT id,\n  item:a.b FROM orders",
        ("Spark failed here with", "COLUMN_IS_NOT_VARIANT_TYPE", "line 1, column 1", "TUSSOCK_DEBUG=1"),
    ),
    "the same in a view": (
        "CREATE MATERIALIZED VIEW v AS SELECT item:a.b AS x FROM orders",
        ("Spark failed here with", "COLUMN_IS_NOT_VARIANT_TYPE", "line 1, column 31"),
    ),
    "two columns of one name": (
        "CREATE MATERIALIZED VIEW v AS SELECT o.id,\n  s.id FROM orders o JOIN shops s ON o.shop = s.id",
        ("columns 1 and 2 of the SELECT are both named 'id'", "line 2, column 3", "^"),
    ),
    "two columns of one name by a star": (
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders o JOIN shops s ON o.shop = s.id",
        ("both named 'id'", "line 1, column 31"),
    ),
    "a column of a type that is not kept": (
        "CREATE MATERIALIZED VIEW v AS SELECT id,\n  array(make_interval(id)) AS x FROM orders",
        ("column 'x': type array<interval> is not supported", "line 2, column 3"),
    ),
    "OR REPLACE": (
        "CREATE OR REPLACE TABLE v (id int)",
        ("OR REPLACE is for views and functions", "line 1, column 19"),
    ),
    "CREATE TABLE of a type that is not kept": (
        "CREATE TABLE t (a int, b interval, PRIMARY KEY (a))",
        ("column 'b': type interval is not supported", "line 1, column 24"),
    ),
}


@pytest.mark.parametrize(("sql", "says"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_reason_and_place_and_leaves_no_trace(
    sql: str, says: tuple[str, ...], quiet: Session
) -> None:
    before = quiet.meta.log_end()
    with pytest.raises(InputError) as caught:
        quiet.execute(sql)
    assert [part for part in says if part not in str(caught.value)] == [], str(caught.value)
    assert "\tat " not in str(caught.value)
    assert "py4j" not in str(caught.value)
    assert quiet.meta.log_end() == before


@pytest.mark.parametrize(
    "select",
    [
        "SELECT uuid() AS h FROM orders",
        "SELECT shop, histogram_numeric(price, 3) AS s FROM orders GROUP BY shop",
        "SELECT hll_sketch_agg(id) AS s FROM orders",
        "SELECT * EXCEPT (id, name) FROM shops",
        "SELECT now() AS t FROM orders",
    ],
)
def test_explain_and_create_refuse_the_same_queries_with_the_same_message(select: str, quiet: Session) -> None:
    messages = []
    for statement in (
        f"CREATE MATERIALIZED VIEW v AS {select}",
        f"EXPLAIN CREATE MATERIALIZED VIEW v AS {select}",
        f"EXPLAIN {select}",
    ):
        with pytest.raises(InputError) as caught:
            quiet.execute(statement)
        messages.append(re.sub(r" \(line.*| at line 1, column \d+", "", str(caught.value), flags=re.DOTALL))
    assert messages == messages[:1] * 3


def test_show_create_gives_a_statement_that_creates_the_same(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "it's here"
    path.mkdir()
    session.execute(
        f"""CREATE TABLE odd (`a b` int, `c.d` string, `e``f` int, Größe decimal(5,2), PRIMARY KEY (`e``f`, `a b`));
        CREATE SOURCE words (`a b` int) USING csv OPTIONS (path "{path}", sep '\\t', quote "'",
            dateFormat 'yyyy\\\\MM')""".replace("Größe", "`Größe`")
    )
    for name in ("odd", "words"):
        (before,) = session.execute(f"SHOW CREATE {name}")
        assert before.table is not None
        statement = before.table["statement"][0].as_py()
        (answer,) = session.execute(re.sub(r"^CREATE (\w+)", r"CREATE \1 IF NOT EXISTS", statement))
        assert answer.message.startswith("nothing to do"), answer.message


def test_describe_takes_the_word_table(quiet: Session) -> None:
    tables = [quiet.execute(f"{words} orders")[0].table for words in ("DESCRIBE", "DESC TABLE", "SHOW COLUMNS IN")]
    assert tables[0] == tables[1] == tables[2]


# --- advice -------------------------------------------------------------------------------------

ADVICE = {
    "an aggregate by chance": (
        "SELECT approx_top_k(shop, 2) AS p FROM orders",
        "count by value, ORDER BY that and LIMIT",
        "SELECT shop, count(*) AS n FROM orders GROUP BY shop ORDER BY n DESC LIMIT 2",
    ),
    "the clock": (
        "SELECT id, now() AS n FROM orders",
        "compare it with an expression of the row",
        "SELECT id FROM orders WHERE ts < now()",
    ),
    "NULL without a type": (
        "SELECT id, NULL AS x FROM orders",
        "Cast the column",
        "SELECT id, CAST(NULL AS int) AS x FROM orders",
    ),
}


@pytest.mark.parametrize(("sql", "advice", "followed"), ADVICE.values(), ids=ADVICE)
def test_a_refused_select_names_an_accepted_alternative(
    sql: str, advice: str, followed: str, session: Session, spark: SparkSession
) -> None:
    with pytest.raises(SqlError) as caught:
        session.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
    assert advice in str(caught.value)
    session.execute(f"CREATE MATERIALIZED VIEW v AS {followed}")
    session.flush()
    found, expected = session.query("SELECT * FROM v"), session.query(followed)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.parametrize("width", [900, 3600, 7])
def test_a_window_of_time_gives_the_windows_of_spark(width: int, session: Session) -> None:
    window = f"window(ts, '{width} seconds')"
    views = {
        "by_start": f"SELECT {window}.start AS s, count(*) AS n FROM orders GROUP BY {window}.start",
        "by_window": f"SELECT window.start AS s, window.end AS e, count(*) AS n FROM orders GROUP BY {window}",
        "whole": f"SELECT {window} AS w, count(*) AS n FROM orders GROUP BY {window}",
    }
    session.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in views.items()))
    session.flush()
    for name, sql in views.items():
        expected = session.query(sql).to_pylist()
        assert sorted(session.query(f"SELECT * FROM {name}").to_pylist(), key=repr) == sorted(expected, key=repr)
        assert len(expected) == 2


def test_frames_reach_beyond_the_type(session: Session) -> None:
    select = """SELECT n, count(*) OVER (ORDER BY d RANGE BETWEEN 2 PRECEDING AND 1.5 FOLLOWING) AS near,
        sum(n) OVER (ORDER BY d DESC RANGE BETWEEN 2 PRECEDING AND 1.5 FOLLOWING) AS back,
        count(*) OVER (ORDER BY w RANGE BETWEEN 2 PRECEDING AND 1.5 FOLLOWING) AS wide,
        sum(n) OVER (ORDER BY w RANGE BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS ahead,
        sum(n) OVER (ORDER BY d DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1.5 PRECEDING) AS behind,
        sum(n) OVER (ORDER BY b RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS bytes,
        count(*) OVER (ORDER BY l DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS longs FROM edges"""
    # Spark adds integers with a check of overflow, but not for rows after a row whose frame reaches the end.
    rows = [
        f"(1, 99.9, {'9' * 38}, 127, bigint('{-(2**63)}'))",
        f"(2, 98.4, {'9' * 37}7, 125, bigint('{1 - 2**63}'))",
        f"(3, -99.9, -{'9' * 38}, 0, 0)",
        "(4, NULL, NULL, NULL, 5)",
    ]
    session.execute(
        "CREATE TABLE edges (n int, d decimal(3,1), w decimal(38,0), b tinyint, l bigint, PRIMARY KEY (n));"
        f"CREATE MATERIALIZED VIEW frames AS {select}"
    )
    for chosen in (rows[1:], rows[:1]):
        session.execute(f"INSERT INTO edges VALUES {', '.join(chosen)}")
        session.flush()
        assert session.read("frames").sort_by("n").to_pylist() == session.query(select).sort_by("n").to_pylist()


def test_decimals_of_38_digits_before_and_after_the_point(session: Session) -> None:
    """In Spark, the average of a frame is exact, and a group's is NULL, if the sum does not fit the type.

    All values of a group have one sign: whether Spark's group overflows for others depends on the order of rows.
    """
    select = """SELECT n, try_avg(m) OVER (ORDER BY n) AS mean, avg(m) OVER (ORDER BY n ROWS 1 PRECEDING) AS near,
        try_avg(w) OVER (PARTITION BY n % 2) AS wide, try_sum(m) OVER (ORDER BY n) AS total,
        try_subtract(m, w) AS less, try_add(w, m) AS more FROM longest"""
    grouped = "SELECT n % 2 AS g, try_avg(m) AS mean, try_avg(w) AS wide, try_sum(m) AS total FROM longest GROUP BY 1"
    rows = [(1, 9, 9), (2, 8, 1), (3, 9, -9), (4, 9, 4), (5, 7, 9), (6, 7, 2)]
    session.execute(
        "CREATE TABLE longest (n int, m decimal(38,38), w decimal(38,0), PRIMARY KEY (n));"
        f"CREATE MATERIALIZED VIEW means AS {select}; CREATE MATERIALIZED VIEW grouped_means AS {grouped}"
    )
    changes = [f"INSERT INTO longest VALUES ({n}, '{'-' * (m < 0)}0.{str(abs(m)) * 38}', {w}e33)" for n, m, w in rows]
    for change in ("; ".join(changes[:4]), "; ".join(changes[4:]), "DELETE FROM longest WHERE n IN (1, 2, 5)"):
        session.execute(change.replace("e33)", "0" * 33 + ")"))
        session.flush()
        for name, by, text in (("means", "n", select), ("grouped_means", "g", grouped)):
            assert session.read(name).sort_by(by).to_pylist() == session.query(text).sort_by(by).to_pylist()


def test_instants_of_a_query_are_in_utc_for_any_time_zone_of_the_store(session: Session, tmp_path: Path) -> None:
    with Session(
        str(tmp_path / "elsewhere"), session.spark, time_zone="America/New_York", runner=here(session.spark)
    ) as elsewhere:
        found = elsewhere.query(
            "SELECT TIMESTAMP'2020-01-01 12:00:00' AS at, array(TIMESTAMP'2020-01-01 12:00:00') AS several"
        )
        assert [found["at"].type, found["several"].type.value_type] == [pa.timestamp("us", "UTC")] * 2
        assert found["at"].cast("int64").to_pylist() == [1_577_898_000_000_000]


def test_a_query_with_a_type_that_arrow_has_not_is_refused_by_its_name(session: Session) -> None:
    with pytest.raises(SqlError, match="CalendarIntervalType"):
        session.query("SELECT make_interval(1, 1) AS i")


# --- threads ------------------------------------------------------------------------------------


def test_a_concurrent_call_from_another_thread_is_refused_and_a_second_session_works(
    session: Session,
) -> None:
    begun, ended = Event(), Event()

    def say(line: str) -> None:
        begun.set()
        assert ended.wait(60)

    session.execute("INSERT INTO shops VALUES (8, 'eight')")
    at_work = Thread(target=lambda: session.flush(progress=say))
    at_work.start()
    assert begun.wait(60)
    for call in (lambda: session.execute("SHOW TABLES"), lambda: session.query("SELECT 1 AS a"), session.flush):
        with pytest.raises(TwoThreadsError, match="a session for each thread"):
            call()
    with Session(session.meta.objects.uri, session.spark, create=False, runner=here(session.spark)) as own:
        assert own.query("SELECT count(*) AS n FROM shops").to_pylist() == [{"n": 1}]
    ended.set()
    at_work.join(60)
    assert session.query("SELECT count(*) AS n FROM shops").to_pylist() == [{"n": 2}]


def test_a_script_can_be_resumed_while_its_answers_are_used(session: Session) -> None:
    found = [session.query("SELECT 1 AS a").num_rows for _ in session.run("SHOW TABLES; SHOW TABLES")]
    assert found == [1, 1]
