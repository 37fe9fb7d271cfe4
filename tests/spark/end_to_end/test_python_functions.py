"""CREATE FUNCTION … LANGUAGE PYTHON: views that call the user's code equal Spark's UDF of the same code at every
epoch.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from tests.support.release import needs_spark
from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.catalog.apply import RelationExistsError, RelationInUseError
from tussock.jobs.chunks.failure import ActorError
from tussock.jobs.kernels.python_function import FunctionCodeError
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.reading.query import FunctionInQueryError
from tussock.jobs.session import Session
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier

pytestmark = pytest.mark.spark

PRICING = '''
"""Functions of the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import rounding


@dataclass
class Rate:
    share: "float"


def taxed(price: pa.Array, country: pa.Array) -> pa.Array:
    rate = pc.if_else(pc.equal(country, "de"), Rate(0.19).share, 0.07)
    return pc.multiply(rounding.cents(pc.cast(price, pa.float64())), pc.add(1.0, rate))


def doubled(x: pd.Series) -> pd.Series:
    return x * 2


def spelled(x: pd.Series, s: pd.Series) -> pd.Series:
    return s.fillna("none") + "/" + x.astype("string").fillna("?")


def picked(xs, at):
    return pc.list_flatten(xs) if False else pc.list_element(xs, 0)


def natural(x):
    if pc.any(pc.less(x, 0)).as_py():
        raise ValueError("a negative\\nnumber")
    return x


def mean(x):
    return pa.array([pc.mean(x).as_py()])


NUMBER = 5
'''
ROUNDING = """
import pyarrow.compute as pc


def cents(x):
    return pc.round(x, 2)
"""
FUNCTIONS = """
CREATE FUNCTION taxed (price int, country string) RETURNS double COMMENT 'with tax' LANGUAGE PYTHON AS 'pricing:taxed';
CREATE FUNCTION doubled (x bigint) RETURNS bigint LANGUAGE PYTHON DETERMINISTIC_ AS 'pricing:doubled';
CREATE FUNCTION spelled (x int, s string) RETURNS string LANGUAGE PYTHON AS 'pricing:spelled';
CREATE FUNCTION picked (xs array<int>, at struct<comment: int>) RETURNS int LANGUAGE PYTHON AS 'pricing:picked'
""".replace(" DETERMINISTIC_", "")
VIEWS = {
    "priced": "SELECT id, taxed(price, country) AS total, doubled(price) + 1 AS d FROM orders",
    "by_word": "SELECT spelled(price, country) AS w, count(*) AS n, sum(taxed(price, "
    "country)) AS s FROM orders GROUP BY 1",
    "dear": "SELECT id FROM orders WHERE taxed(price, country) > 20 OR country IS NULL",
    "joined": "SELECT o.id, c.name FROM orders o LEFT JOIN countries c ON spelled(o.price, "
    "c.name) = concat(c.name, '/20')",
    "inside": "SELECT id, CASE WHEN price > 10 THEN picked(array(price, id), named_struct('comment', 1)) END AS p, "
    "rank() OVER (PARTITION BY country ORDER BY doubled(price), id) AS r FROM orders",
    "over_spark": "SELECT id, spelled(price, soundex(country)) AS w FROM orders",
    "with_constants": "SELECT id, taxed('12', NULL) AS t FROM orders",
}


JUDGED = {  # for cases without an equivalent Spark UDF
    "joined": "SELECT o.id, p.name FROM orders o LEFT JOIN (SELECT o.id, c.name FROM orders o CROSS JOIN countries c "
    "WHERE spelled(o.price, c.name) = concat(c.name, '/20')) p ON o.id = p.id"
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's folder."""
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "functions").mkdir()
    (folder / "functions" / "pricing.py").write_text(PRICING)
    (folder / "functions" / "rounding.py").write_text(ROUNDING)
    (folder / "functions" / "broken.py").write_text("import no_such_module\n")
    (folder / "functions" / "spelling.py").write_text("def f(x:\n")
    return folder


@pytest.fixture(scope="module")
def session(spark: SparkSession, base: Path) -> Iterator[Session]:
    with Session(str(base / "store"), spark, runner=here(spark)) as made:
        made.execute(
            "CREATE TABLE orders (id int, price int, country string, PRIMARY KEY (id)); "
            "CREATE TABLE countries (name string)"
        )
        made.execute(FUNCTIONS, base=base)
        for name, sql in VIEWS.items():
            made.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        made.flush()
        yield made


@pytest.fixture(scope="module")
def judge(spark: SparkSession, base: Path) -> SparkSession:
    """A session that has the same functions as Spark UDFs."""
    from pyspark.sql.functions import arrow_udf

    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "true")
    pricing = _modules(base)
    made.udf.register("taxed", arrow_udf(pricing.taxed, "double"))
    made.udf.register("doubled", pandas_udf(pricing.doubled, "bigint"))
    made.udf.register("spelled", pandas_udf(lambda x, s: pricing.spelled(x.astype("Int64"), s), "string"))
    made.udf.register("picked", arrow_udf(pricing.picked, "int"))
    return made


@needs_spark("4.1")  # Spark's UDFs over Arrow
def test_views_with_functions_equal_spark_at_every_epoch(session: Session, judge: SparkSession) -> None:
    rows = ", ".join(
        f"({i}, {i * 7 % 23}, {['NULL', chr(39) + 'de' + chr(39), chr(39) + 'fr' + chr(39)][i % 3]})" for i in range(40)
    )
    epochs = (
        f"INSERT INTO orders VALUES {rows}, (100, NULL, 'de'), (101, NULL, NULL); "
        f"INSERT INTO countries VALUES ('de'), (NULL), ('fr')",
        "DELETE FROM orders WHERE id % 4 = 1; UPDATE orders SET price = price + 20 WHERE id < 8",
        "UPDATE orders SET country = NULL WHERE id % 5 = 0; DELETE FROM countries WHERE name = 'de'; "
        "INSERT INTO orders VALUES (200, 20, 'fr')",
        "DELETE FROM orders",
    )
    _compare(session, judge)  # still empty
    for statements in epochs:
        session.execute(statements)
        session.flush()
        _compare(session, judge)


def test_functions_are_shown_described_and_explained(session: Session, base: Path) -> None:
    shown = session.execute("SHOW FUNCTIONS")[0].table
    assert shown is not None
    (first, *_) = shown.to_pylist()
    assert {k: v for k, v in first.items() if k != "digest"} == {
        "name": "taxed",
        "parameters": "price int, country string",
        "returns": "double",
        "code": "pricing:taxed",
        "comment": "with tax",
    }
    described = session.execute("DESCRIBE FUNCTION taxed")[0].table
    assert described is not None
    assert described.to_pylist() == [{"column": "price", "type": "int"}, {"column": "country", "type": "string"}]
    created = session.execute("SHOW CREATE FUNCTION taxed")[0].table
    assert created is not None
    again = created["statement"][0].as_py().replace("CREATE FUNCTION", "CREATE FUNCTION IF NOT EXISTS")
    assert session.execute(again, base=base)[0].message.startswith("nothing to do")
    relations = session.execute("SHOW RELATIONS")[0].table
    assert relations is not None
    assert "taxed" not in relations["name"].to_pylist()
    explained = session.execute("EXPLAIN SELECT id FROM orders WHERE taxed(price, 'x') > 2")[0].table
    assert explained is not None
    assert "taxed(c1, 'x') > 2" in "\n".join(explained["plan"].to_pylist())


def test_changed_code_is_refused_unless_it_replaces_the_function(session: Session, base: Path) -> None:
    file = base / "functions" / "rounding.py"
    create = "FUNCTION taxed (price int, country string) RETURNS double LANGUAGE PYTHON AS 'pricing:taxed'"
    file.write_text(ROUNDING.replace("x, 2", "x, 1"))
    try:
        said = (
            r"(?s)functions/rounding.py \(- store, \+ statement\).*-     return pc.round\(x, "
            r"2\).*CREATE OR REPLACE FUNCTION to replace it"
        )
        with pytest.raises(RelationExistsError, match=said):
            session.execute(f"CREATE FUNCTION IF NOT EXISTS {create.removeprefix('FUNCTION ')}", base=base)
        alone = "FUNCTION alone (price int, country string) RETURNS double LANGUAGE PYTHON AS 'pricing:taxed'"
        session.execute(f"CREATE {alone}", base=base)
        file.write_text(ROUNDING)
        with pytest.raises(RelationExistsError, match="Use CREATE OR REPLACE FUNCTION to replace it"):
            session.execute(f"CREATE {alone}", base=base)
        assert session.execute(f"CREATE OR REPLACE {alone}", base=base)[0].message.startswith("log entry")
        assert session.execute(f"CREATE OR REPLACE {alone}", base=base)[0].message.startswith("nothing to do")
    finally:
        file.write_text(ROUNDING)
    session.execute("DROP FUNCTION alone; DROP FUNCTION IF EXISTS alone")
    with pytest.raises(
        RelationInUseError,
        match=r"function 'doubled' cannot be dropped, because it is read by .*inside.*DROP FUNCTION doubled CASCADE",
    ):
        session.execute("DROP FUNCTION doubled")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "f (x int) RETURNS int LANGUAGE PYTHON AS 'missing:f'",
            r"missing.py: there is no such file; Python files in the folder: broken.py",
        ),
        (
            "f (x int) RETURNS int LANGUAGE PYTHON AS 'broken:f'",
            r"cannot be imported: ModuleNotFoundError: .*no_such_module.* \(line 1 of",
        ),
        ("f (x int) RETURNS int LANGUAGE PYTHON AS 'spelling:f'", r"spelling.py: it cannot be read as Python"),
        (
            "f (x int) RETURNS int LANGUAGE PYTHON AS 'pricing:none'",
            r"the file has no function of this name \('none'\)",
        ),
        ("f (x int) RETURNS int LANGUAGE PYTHON AS 'pricing:NUMBER'", "is not a function"),
        (
            "f (x int, y int) RETURNS int LANGUAGE PYTHON AS 'pricing:doubled'",
            r"does not take the declared \(x int, y int\)",
        ),
    ],
)
def test_code_that_cannot_be_used_is_refused_by_name(session: Session, base: Path, statement: str, said: str) -> None:
    before = session.meta.log_end()
    with pytest.raises(FunctionCodeError, match=said):
        session.execute(f"CREATE FUNCTION {statement}", base=base)
    assert session.meta.log_end() == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE FUNCTION f (x int) RETURNS int LANGUAGE SCALA AS 'a:b'", "expected PYTHON, found SCALA"),
        ("CREATE FUNCTION f (x int) RETURNS int LANGUAGE PYTHON AS '../a:b'", "expected 'module:name'"),
        (
            "CREATE FUNCTION f (x int) RETURNS int NOT DETERMINISTIC LANGUAGE PYTHON AS 'a:b'",
            "must be deterministic",
        ),
        ("CREATE FUNCTION f () RETURNS int LANGUAGE PYTHON AS 'a:b'", "takes 1 to 22 parameters; this one has 0"),
        (
            "CREATE FUNCTION upper (x int) RETURNS int LANGUAGE PYTHON AS 'a:b'",
            "Spark already has a function 'upper'",
        ),
        ("CREATE FUNCTION f (x whatever) RETURNS int LANGUAGE PYTHON AS 'a:b'", "(?i)whatever"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT taxed(price) AS t FROM orders",
            r"has 1 arguments; the functions are taxed\(price int",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT taxed(date'2020-01-01', 'x') AS t FROM orders", "(?i)cast"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT soundex(spelled(price, country)) AS t FROM orders",
            "mixes Python functions with functions that only",
        ),
        ("UPDATE orders SET price = 1 WHERE taxed(price, country) > 1", "runs only in materialized views"),
    ],
)
def test_statements_that_cannot_be_kept_are_refused_with_the_place(session: Session, statement: str, said: str) -> None:
    with pytest.raises((SqlError, UnsupportedQueryError), match=said):
        session.execute(statement)


def test_a_query_never_runs_a_function(session: Session) -> None:
    for sql in ("SELECT taxed(price, country) FROM orders", "SELECT id FROM orders WHERE doubled(id) > 1"):
        with pytest.raises(FunctionInQueryError, match="not in queries"):
            session.query(sql)
    with pytest.raises(FunctionInQueryError):
        session.execute("INSERT INTO orders SELECT doubled(id), 1, 'x' FROM orders")


def test_a_result_of_another_type_ends_the_epoch_and_can_be_skipped(
    spark: SparkSession, base: Path, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute("CREATE TABLE t (x int); INSERT INTO t SELECT id FROM range(20)")
        session.flush()
        session.execute("CREATE FUNCTION f (x int) RETURNS double LANGUAGE PYTHON AS 'pricing:mean'", base=base)
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT x, f(x) AS y FROM t")
        with pytest.raises(
            ActorError, match=r"view 'v': function 'f' .*gave 1 values for \d+ rows, expected one value for each row"
        ):
            session.flush()
        abandon_barrier(session.meta, Detour(drop=("v",)))
        session.flush()
        assert sorted(session.read("t")["x"].to_pylist()) == list(range(20))


def test_a_row_on_which_a_function_raises_is_named_and_can_be_skipped(
    spark: SparkSession, base: Path, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (k int, x int, PRIMARY KEY (k))")
        session.execute("CREATE FUNCTION natural (x int) RETURNS int LANGUAGE PYTHON AS 'pricing:natural'", base=base)
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT k, natural(x) AS y FROM t")
        session.execute(
            "CREATE MATERIALIZED VIEW w AS SELECT k, CASE WHEN x >= 0 THEN natural(x) END AS y FROM t WHERE k <> 9"
        )
        session.execute(f"INSERT INTO t VALUES {', '.join(f'({k}, {k})' for k in range(100))}")
        session.flush()
        session.execute("UPDATE t SET x = -4 WHERE k = 57")
        said = (
            r"'v': natural\(x\) raised: function 'natural' raised ValueError: "
            r"a negative number \(line \d+ of functions/pricing.py\)"
        )
        with pytest.raises(ViewRowError, match=said) as raised:
            session.flush()
        assert "x=-4" in raised.value.row
        assert "k=57" in raised.value.row
        assert session.read("v").num_rows == 100
        abandon_barrier(session.meta, Detour(drop=("v",)))
        session.flush()
        assert [r["y"] for r in session.read("w").to_pylist() if r["k"] == 57] == [None]


def _modules(base: Path) -> ModuleType:
    """The functions' module, imported as by any Python program; Spark's workers receive it by value."""
    sys.path.insert(0, str(base / "functions"))
    try:
        for name in ("rounding", "pricing"):
            cloudpickle.register_pickle_by_value(importlib.import_module(name))
        return sys.modules["pricing"]
    finally:
        sys.path.pop(0)


def _compare(session: Session, judge: SparkSession) -> None:
    for table in ("orders", "countries"):
        rows = session.read(table)
        judge.createDataFrame(rows).createOrReplaceTempView(table)
    for name, sql in VIEWS.items():
        assert_same_answer(session.read(name), judge.sql(JUDGED.get(name, sql)).toArrow(), name)
