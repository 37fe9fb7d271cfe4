"""Rows that the driver reads for Spark, of every type, against Spark's own rows and the rows that workers read."""

from collections.abc import Iterator

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.reading import reader
from tussock.jobs.session import Session
from tussock.jobs.spark.session import sql_session

pytestmark = pytest.mark.spark

ZONE = "America/New_York"
#: By type: a value, and one at an edge.
VALUES = {
    "boolean": ("true", "false"),
    "tinyint": ("1Y", "-128Y"),
    "smallint": ("2S", "32767S"),
    "bigint": ("4L", "9223372036854775807L"),
    "float": ("cast(0.1 AS float)", "cast('-0.0' AS float)"),
    "double": ("0.1D", "cast('NaN' AS double)"),
    "decimal(10,2)": ("1.25", "-99999999.99"),
    "decimal(38,18)": ("cast('1E-18' AS decimal(38,18))", "cast('-99999999999999999999' AS decimal(38,18))"),
    "string": ("'é 😀'", "''"),
    "char(3)": ("'a'", "'abc'"),
    "varchar(3)": ("'a'", "'abc'"),
    "binary": ("X'00FF'", "X''"),
    "date": ("date'2013-01-01'", "date'0001-01-01'"),
    "timestamp": ("timestamp'2013-11-03 01:30:00'", "timestamp'1500-01-01 00:00:00.000001'"),
    "timestamp_ntz": ("timestamp_ntz'2013-03-10 02:30:00'", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
    "time(6)": ("time'12:30:00'", "time'23:59:59.999999'"),
    "interval month": ("interval '3' month", "interval '-2147483648' month"),
    "interval year": ("interval '3' year", "interval '-1' year"),
    "interval day to second": ("interval '1 02:03:04.000005' day to second", "interval '-1' day"),
    "variant": ("parse_json('{\"a\": [1, null]}')", "parse_json('null')"),
    "array<int>": ("array(1, NULL)", "array()"),
    "map<string,decimal(10,2)>": ("map('a', 1.25, 'b', NULL)", "map()"),
    "struct<at:timestamp,of:array<struct<d:date,m:interval month>>>": (
        "named_struct('at', timestamp'2013-11-03 01:30:00', 'of', array(named_struct('d', date'2013-01-01', "
        "'m', interval '1' month), NULL))",
        "named_struct('at', NULL, 'of', NULL)",
    ),
}
KINDS = list(VALUES)
ROWS = [
    f"(1, {', '.join(VALUES[kind][0] for kind in KINDS)})",
    f"(2, {', '.join(VALUES[kind][1] for kind in KINDS)})",
    f"(3, {', '.join('NULL' for _ in KINDS)})",
]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A table with a column of each type, and one without rows."""
    with Session(str(tmp_path_factory.mktemp("few") / "store"), spark, runner=here(spark), time_zone=ZONE) as opened:
        columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(KINDS))
        opened.execute(f"CREATE TABLE every (id int, {columns}, PRIMARY KEY (id)); CREATE TABLE empty (v variant)")
        opened.execute(f"INSERT INTO every VALUES {', '.join(ROWS)}")
        opened.flush()
        yield opened


@pytest.fixture(params=["driver", "workers"])
def read_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads the rows."""
    if request.param == "workers":
        monkeypatch.setattr(reader, "FEW_ROWS", -1)
    else:
        monkeypatch.setattr(reader, "_carried_frame", None)
    return str(request.param)


def test_values_of_every_type_are_those_of_spark(session: Session, spark: SparkSession, read_by: str) -> None:
    texts = ", ".join(f"to_json(struct(c{i})) AS c{i}" for i, kind in enumerate(KINDS) if "interval" not in kind)
    intervals = ", ".join(f"c{i}::string AS c{i}" for i, kind in enumerate(KINDS) if "interval" in kind)
    shown = f"SELECT id, {texts}, {intervals} FROM every ORDER BY id"
    alone = sql_session(spark, ZONE)
    cast = ", ".join(f"{_as_stored(f'col{i + 2}', kind)} AS c{i}" for i, kind in enumerate(KINDS))
    alone.sql(f"SELECT col1 AS id, {cast} FROM VALUES {', '.join(ROWS)}").createOrReplaceTempView("every")
    wanted = [row.asDict() for row in alone.sql(shown).collect()]
    found = session.query(shown).to_pylist()
    pairs = zip(found, wanted, strict=True)
    differing = [
        (name, ours[name], spark_s[name]) for ours, spark_s in pairs for name in spark_s if ours[name] != spark_s[name]
    ]
    assert not differing


def test_whole_rows_are_the_stored_ones(session: Session, read_by: str) -> None:
    found, stored = session.query("SELECT * FROM every ORDER BY id"), session.read("every")
    stored = stored.take(pc.sort_indices(stored["id"]))
    assert repr(found.to_pylist()) == repr(stored.to_pylist()), "as texts, in which NaN equals NaN"
    assert (
        session.query("SELECT * FROM empty").num_rows == session.query("SELECT count(*) FROM empty")[0][0].as_py() == 0
    )


def _as_stored(text: str, kind: str) -> str:
    """A value as a table keeps it."""
    if kind.startswith("char"):
        return f"rpad({text}, 3, ' ')"
    return f"CAST({text} AS {'string' if kind.startswith('varchar') else kind})"


def test_the_optimizer_computes_no_unneeded_expression(session: Session, read_by: str) -> None:
    assert session.query("SELECT count(*) AS n FROM (SELECT 1 / (id - 1) FROM every)")["n"].to_pylist() == [3]


def test_changes_are_net(session: Session, read_by: str) -> None:
    session.execute("INSERT INTO empty VALUES (parse_json('1'))")
    first = session.flush().epoch
    session.execute("INSERT INTO empty VALUES (parse_json('2')), (NULL)")
    last = session.flush().epoch
    changes = f"SELECT to_json(v) AS v, _change_type AS c FROM table_changes('empty', {first}, {last}) ORDER BY v"
    assert session.query(changes).to_pylist() == [{"v": None, "c": "insert"}, {"v": "2", "c": "insert"}]
    session.execute("DELETE FROM empty")
    session.flush()
