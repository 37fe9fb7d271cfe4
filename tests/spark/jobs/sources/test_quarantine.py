"""Sources that quarantine, compared with Spark's PERMISSIVE mode: exactly the records of its corrupt-record column
are rejects.
"""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.catalog.fed_tables import FedTableError
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

COLUMNS = "id int, name string, price decimal(4,2), day date, at timestamp, b boolean"


@dataclass(frozen=True)
class Case:
    """A source's files, by epoch."""

    format: str
    first: Mapping[str, bytes]
    second: Mapping[str, bytes]
    columns: str = COLUMNS
    options: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "csv": Case(
        "csv",
        {
            "a.csv": b"""1,one,1.50,2013-01-01,2013-01-01 05:00:00,true
x,not a number,,,,
2,too many digits,123.45,,,
3,no date,,2013-02-30,,
4,too short
5,too long,1,,,,7
,,,,,
2147483648,too large,,,,
6,no truth,,,,perhaps
7,"quotes, too",1,,,false
8,"no end,1,,,false
""",
            "b.csv.gz": gzip.compress(b"9,fine,1,,,\nbad\n" * 500),
        },
        {"c.csv": b"bad\n", "d.csv": "10,größer,,,,\n\n\nlast,ß,,,,".encode()},
    ),
    "csv_header": Case(
        "csv",
        {"a.csv": b"id;name;price;day;at;b\n1;one;;01/02/2013;;\n2;two;;2013-02-01;;\n"},
        {"b.csv": b"id;name;price;day;at;b\nNA;'x;y';NA;NA;NA;NA\nna;NA;NA;NA;NA;NA\n"},
        options={"header": "true", "sep": ";", "quote": "'", "nullValue": "NA", "dateFormat": "dd/MM/yyyy"},
    ),
    "csv_lines": Case(
        "csv",
        {"a.csv": b'1,"two\nlines",1,,,\nx,"two\nmore",,,,\n'},
        {"b.csv": b'2,"three\n\nlines",999,,,\n'},
        options={"multiLine": "true"},
    ),
    "json": Case(
        "json",
        {
            "a.json": b"""\
{"id": 1, "name": "one", "price": 1.5, "day": "2013-01-01", "at": "2013-01-01T05:00:00+05:00", "b": true}
{"id": "x"}
{"id": 2, "name": {"any": "thing"}}
not json at all
{"id": 3, "price": 123.45}
{"id": 4, "more": [1, 2
[{"id": 5}, {"id": 6}]
[{"id": 7}, {"id": "y"}]
null
{}
{"id": 2147483648}
{"id": 8, "name": "bad \xff bytes"}
{"id": 9, "b": "perhaps"}
{"id": 10, "day": "2013-02-30"}
""",
            "b.json.gz": gzip.compress(b'{"id": 1}\n{"id": 1\n' * 500),
        },
        {"c.json": b"{", "d.json": '{"id": 11, "name": "größer"}\n\n  \n{"id": 1.5}'.encode()},
    ),
    "json_lines": Case(
        "json",
        {"a.json": b'[{"id": 1},\n {"id": "x"},\n {"id": 2, "name": null}]', "whole.json": b'{"id": 3,\n "name": \n'},
        {"b.json": b'{"id": 4,\n "price": 2.25}\n'},
        options={"multiLine": "true"},
    ),
    "xml": Case(
        "xml",
        {
            "a.xml": b"<all><row><id>1</id></row><row><id>x</id><name>two</name></row>"
            b"<row><id>3</id><day>2013-02-30</day></row></all>"
        },
        {
            "b.xml": b"<row><id>4</id></row>\n<row><id>5</id><name>&nothing;</name></row>",
            "c.xml": b"<row><price>123.45</price></row>",
        },
        options={"rowTag": "row"},
    ),
    "csv_fine": Case("csv", {"a.csv": b"1,one,,,,\n"}, {"b.csv": b"2,two,,,,\n"}),
}


@dataclass(frozen=True)
class Found:
    """A store's rows and rejects of one source after one epoch."""

    rows: list[str]
    later: list[str]  # of a view created in that epoch
    rejects: list[tuple[object, ...]]
    rejected: int  # the summary's count


def texts(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def sparks_own(spark: SparkSession, case: Case, folder: Path) -> list[tuple[str, str, str | None]]:
    """Spark's read of a folder, each file in its order: (file, the row, the corrupt-record column)."""
    options = {**case.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_c"}
    read = spark.read.format(case.format).options(**options).schema(f"{case.columns}, _c string").load(str(folder))
    wanted = (
        "*",
        "CAST(_c AS BINARY) AS _bytes",
        "_metadata.file_name AS _file",
        "monotonically_increasing_id() AS _place",
    )
    found = read.selectExpr(*wanted).drop("_c").toArrow().sort_by("_place")
    bad = [None if text is None else text.decode(errors="backslashreplace") for text in found["_bytes"].to_pylist()]
    rows = map(repr, found.drop_columns(["_bytes", "_file", "_place"]).to_pylist())
    return list(zip(found["_file"].to_pylist(), rows, bad, strict=True))


def of_files(
    records: Sequence[tuple[str, str, str | None]], folder: Path, files: Iterable[str]
) -> tuple[list[str], list[tuple[object, ...]]]:
    """The rows of these files, and (path, position, record) of their corrupt records."""
    rejects: list[tuple[object, ...]] = []
    for file in files:
        own = [bad for name, _, bad in records if name == file]
        rejects += [(str(folder / file), n, bad) for n, bad in enumerate(own, 1) if bad is not None]
    return sorted(row for name, row, bad in records if name in files and bad is None), sorted(rejects)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quarantine")


@pytest.fixture(scope="module")
def found(spark: SparkSession, store: Path) -> dict[tuple[str, int], Found]:
    """By source and epoch."""
    answers = {}
    with Session(str(store / "store"), spark, runner=here(spark)) as session:
        for epoch in (1, 2):
            for name, case in CASES.items():
                folder = store / "in" / name
                folder.mkdir(parents=True, exist_ok=True)
                for file, content in (case.first if epoch == 1 else case.second).items():
                    (folder / file).write_bytes(content)
                if epoch == 1:
                    given = {"path": str(folder), "on_error": "quarantine", **case.options}
                    options = ", ".join(f'{key} "{value}"' for key, value in given.items())
                    session.execute(f"CREATE SOURCE {name} ({case.columns}) USING {case.format} OPTIONS ({options})")
                    session.execute(f"CREATE MATERIALIZED VIEW v_{name} AS SELECT * FROM {name}")
                else:
                    session.execute(f"CREATE MATERIALIZED VIEW later_{name} AS SELECT * FROM {name}")
            summary = session.flush()
            for name in CASES:
                kept = session.query(f"SELECT file, position, raw FROM {name}__rejects").to_pylist()
                answers[name, epoch] = Found(
                    texts(session.read(f"v_{name}")),
                    texts(session.read(f"{'v' if epoch == 1 else 'later'}_{name}")),
                    sorted(tuple(r.values()) for r in kept),
                    summary.rejected.get(name, 0),
                )
    return answers


@pytest.mark.parametrize("name", CASES)
def test_sparks_corrupt_records_are_rejects_and_all_others_are_rows(
    name: str, spark: SparkSession, store: Path, found: dict[tuple[str, int], Found]
) -> None:
    case, folder, before = CASES[name], store / "in" / name, 0
    records = sparks_own(spark, case, folder)
    for epoch, files in ((1, case.first), (2, {**case.first, **case.second})):
        at = found[name, epoch]
        rows, rejects = of_files(records, folder, files)
        assert at.rejects == rejects
        assert at.rows == at.later == rows
        assert at.rejected == len(rejects) - before
        before = len(rejects)
    assert rows != []
    assert (rejects != []) == (name != "csv_fine")


def test_rejects_are_a_table_to_ask_keep_views_over_and_empty(
    spark: SparkSession, store: Path, found: dict[tuple[str, int], Found]
) -> None:
    """The store as `found` left it."""
    with Session(str(store / "store"), spark, create=False, runner=here(spark)) as session:
        session.execute(
            "CREATE MATERIALIZED VIEW by_file AS SELECT file, count(*) AS n FROM csv__rejects GROUP BY file"
        )
        session.flush()
        counted = session.query("SELECT sum(n) AS n FROM by_file").to_pylist()
        assert counted == [{"n": len(found["csv", 2].rejects)}]
        reasons = session.query("SELECT DISTINCT reason FROM csv__rejects").to_pylist()
        assert reasons == [{"reason": f"does not parse as ({COLUMNS})"}]
        state = {r["name"]: r["state"] for r in session.execute("SHOW SOURCES")[0].table.to_pylist()}
        assert state["csv"] == f"rejects in csv__rejects: {len(found['csv', 2].rejects)}"
        assert state["csv_fine"] == ""
        for statement in (
            "INSERT INTO csv__rejects VALUES ('f', 1, 'r', NULL, NULL, NULL)",
            "UPDATE csv__rejects SET reason = 'none'",
            "UPDATE csv__rejects SET reason = (SELECT max(reason) FROM json__rejects)",
            "MERGE INTO csv__rejects AS r USING json__rejects AS o ON r.position = o.position WHEN MATCHED THEN DELETE",
            "ALTER TABLE csv__rejects ADD COLUMN more int",
            "COMMENT ON TABLE csv__rejects IS 'mine'",
            "DROP TABLE csv__rejects",
            "DROP TABLE IF EXISTS csv__rejects CASCADE",
        ):
            with pytest.raises(FedTableError, match="only the source writes it"):
                session.execute(statement)
        with pytest.raises(FedTableError):
            session.insert("csv__rejects", pa.table({"file": ["f"], "position": [1]}))
        with pytest.raises(SqlError, match="only tables can be changed"):
            session.execute("INSERT INTO csv VALUES (1)")
        session.execute(
            "TRUNCATE TABLE csv__rejects; DELETE FROM json__rejects WHERE position > (SELECT "
            "min(position) FROM json__rejects)"
        )
        (store / "in" / "csv" / "z.csv").write_bytes(b"1,a,,,,\nnone\n")
        session.flush()
        assert session.query("SELECT position, raw FROM csv__rejects").to_pylist() == [{"position": 2, "raw": "none"}]
        assert session.query("SELECT n FROM by_file").to_pylist() == [{"n": 1}]
        assert {r["position"] for r in session.read("json__rejects").to_pylist()} == {
            min(p for _, p, _ in found["json", 2].rejects)
        }
        session.execute("DROP SOURCE csv_header CASCADE")
        session.flush()
        assert "csv_header__rejects" not in session.execute("SHOW TABLES")[0].table["name"].to_pylist()
