"""Hidden columns in SQL: views over sources of files, compared with Spark's own `_metadata` of the same files."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.runners import here
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verdict

pytestmark = pytest.mark.spark

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
ROWS = ((1, "one"), (2, "two"), (3, "three"), (4, None))
COLUMNS = "id int, name string"
#: Names that Spark spells in another way in a URI.
FOLDER, NAMES = "a b%20c", ("one file.{}", "zwölf+%&'=;[x]#?.{}", "plain.{}")


@dataclass(frozen=True)
class FormatCase:
    """A source and its way of reading: by the engine, or by Spark."""

    format: str
    options: dict[str, str] = field(default_factory=dict)


SOURCES = {
    "parquet_files": FormatCase("parquet"),
    "csv_files": FormatCase("csv", {"header": "true"}),
    "csv_by_spark": FormatCase("csv", {"header": "true", "locale": "en-US"}),
    "json_files": FormatCase("json"),
    "orc_files": FormatCase("orc"),
}
#: Views over `s`. In Spark's query over all columns, `m` is its `_metadata` and `i` the time of the epoch.
VIEWS = (
    "SELECT * FROM s",
    "SELECT _metadata.file_name, _ingested_at, * FROM s",
    "SELECT x._metadata.file_path AS p, X._INGESTED_AT AS at, x.* FROM s AS x",
    "SELECT _metadata AS whole, id FROM s",
    "SELECT _metadata.file_size + _metadata.file_block_start AS n, _metadata.file_modification_time AS t, id FROM s",
    "SELECT _metadata.file_name AS f, count(*) AS n, max(_ingested_at) AS t FROM s GROUP BY _metadata.file_name",
    "SELECT a.id, b.id AS other, b._metadata.file_name AS f FROM s a JOIN s b "
    "ON a._metadata.file_name = b._metadata.file_name AND a.id < b.id",
    "SELECT id FROM s WHERE _metadata.file_name = (SELECT min(_metadata.file_name) FROM s)",
    "SELECT id FROM s WHERE _metadata.file_path IN (SELECT _metadata.file_path FROM s y WHERE y.id = 4)",
    "WITH q AS (SELECT id, _metadata.file_name AS f FROM s WHERE id > 1) SELECT f, sum(id) AS n FROM q GROUP BY f",
    "SELECT id, row_number() OVER (PARTITION BY _metadata.file_path ORDER BY id) AS n FROM s",
    "SELECT DISTINCT upper(_metadata.file_name) AS f FROM s UNION ALL SELECT name FROM s WHERE _metadata IS NULL",
    "SELECT a, _metadata.file_name AS f FROM s AS x(a, b)",
    "SELECT c, _metadata.file_name AS f FROM s LATERAL VIEW explode(array(id, 7)) l AS c",
)


def spelled_for_spark(sql: str) -> str:
    """The same SELECT over a view of Spark in which the hidden columns are the columns m and i."""
    for ours, sparks in (("_metadata", "m"), ("_INGESTED_AT", "i"), ("_ingested_at", "i")):
        sql = sql.replace(ours, sparks)
    for ours, sparks in ((" i, *", " i AS _ingested_at, *"), ("*", "* EXCEPT (m, i)"), ("x(a, b)", "x(a, b, m, i)")):
        sql = sql.replace(ours, sparks)
    return sql.replace("count(* EXCEPT (m, i))", "count(*)")


def write_files(folder: Path, format: str) -> None:
    folder.mkdir(parents=True)
    per_file = (ROWS[:2], ROWS[2:3], ROWS[3:])
    for n, (name, some) in enumerate(zip(NAMES, per_file, strict=True)):
        file = folder / name.format(format)
        ids, names = [i for i, _ in some], [text for _, text in some]
        if format == "parquet":
            pq.write_table(pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())}), file)
        elif format == "orc":
            from pyarrow import orc

            orc.write_table(pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())}), file)
        elif format == "json":
            file.write_text("".join(f'{{"id": {i}{"" if t is None else f""", "name": "{t}" """}}}\n' for i, t in some))
        else:
            file.write_text("id,name\n" + "".join(f"{i},{t or ''}\n" for i, t in some))
        os.utime(file, ns=(0, 1_700_000_000_123_456_789 + n * 10**9))


@dataclass(frozen=True)
class Hidden:
    """The folder of the files, by source, and a session over them."""

    files: Path
    session: Session

    @property
    def taken_micros(self) -> int:
        """When the only epoch began, by its number."""
        return (self.session.meta.read_latest().epoch >> 16) * 1000


@pytest.fixture(scope="module")
def hidden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hidden]:
    """All sources, a view over each, and the views of VIEWS, at one moment."""
    folder = tmp_path_factory.mktemp("hidden")
    with Session(str(folder / "store"), spark, runner=here(spark)) as session:
        for name, case in SOURCES.items():
            write_files(folder / FOLDER / name, case.format)
            given = {"path": str(folder / FOLDER / name), **case.options}
            options = ", ".join(f'{key} "{value}"' for key, value in given.items())
            session.execute(f"CREATE SOURCE {name} ({COLUMNS}) USING {case.format} OPTIONS ({options})")
            session.execute(f"CREATE MATERIALIZED VIEW all_of_{name} AS SELECT *, _metadata, _ingested_at FROM {name}")
        for n, sql in enumerate(VIEWS):
            session.execute(f"CREATE MATERIALIZED VIEW v{n} AS {of_csv(sql)}")
        session.flush(moment=MOMENT)
        yield Hidden(folder / FOLDER, session)


def of_csv(sql: str) -> str:
    """A SELECT over `s` as one over the first source."""
    return re.sub(r"\b(FROM|JOIN) s\b", r"\1 csv_files", sql)


def as_spark_reads(spark: SparkSession, hidden: Hidden, name: str) -> DataFrame:
    """The rows of a source's files as Spark reads them, with its own `_metadata` as m and the epoch's time as i."""
    case = SOURCES[name]
    read = spark.read.format(case.format).options(**case.options).schema(COLUMNS).load(str(hidden.files / name))
    return read.selectExpr("*", "_metadata AS m", f"timestamp_micros({hidden.taken_micros}) AS i")


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("name", SOURCES)
def test_metadata_of_each_format_equals_sparks(name: str, spark: SparkSession, hidden: Hidden) -> None:
    found = hidden.session.read(f"all_of_{name}")
    sparks = as_spark_reads(spark, hidden, name).toArrow().rename_columns(found.column_names)
    assert texts(found) == texts(sparks)
    ours, theirs = ([(f.name, f.type) for f in rows.schema.field("_metadata").type] for rows in (found, sparks))
    assert ours == theirs


@pytest.mark.parametrize("sql", VIEWS)
def test_a_view_of_hidden_columns_equals_sparks_query(sql: str, spark: SparkSession, hidden: Hidden) -> None:
    as_spark_reads(spark, hidden, "csv_files").createOrReplaceTempView("s")
    assert texts(hidden.session.read(f"v{VIEWS.index(sql)}")) == texts(spark.sql(spelled_for_spark(sql)).toArrow())


def test_verify_reads_the_files_again_and_agrees(hidden: Hidden) -> None:
    assert [v for v in hidden.session.verify().views if v.verdict is not Verdict.EQUAL] == []
