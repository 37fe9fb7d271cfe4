"""ALTER SOURCE in SQL, over files that Spark reads. Views equal Spark's read of each file with the columns of that
time.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs import cli
from tussock.jobs.catalog.alter_source import CannotAlterSourceError
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.sources.errors import BadOptionError, MissingPathError
from tussock.jobs.statements.transaction import CannotFollowError
from tussock.jobs.texts.deployment import deployment_text

pytestmark = pytest.mark.spark

OLD, NEW = "id int, name string", "id int, name string, price decimal(4,2), tags array<string>"
FLAT = "id int, name string, price decimal(4,2), day date"
FORMATS = {
    "csv": (b"1,one\n2,two\nx,bad\n", b"3,three,1.5,2013-01-01\n4,four\n5,five,123.45,\n", FLAT, {}),
    "json": (
        b'{"id": 1, "name": "one", "price": "no number"}\n{"id": 2}\n{"id": "x"}\n',
        b'{"id": 3, "price": 1.5, "tags": ["a", null]}\n{"id": 4}\n{"id": 5, "price": 123.45}\n',
        NEW,
        {},
    ),
    "xml": (
        b"<r><row><id>1</id><price>none</price></row><row><id>x</id></row></r>",
        b"<r><row><id>3</id><price>1.5</price><tags>a</tags></row><row><price>none</price></row></r>",
        NEW,
        {"rowTag": "row"},
    ),
}


def judged(
    spark: SparkSession, format: str, old: Path, new: Path, columns: str, options: dict[str, str]
) -> tuple[list[str], int]:
    """The rows that Spark reads, and the number of corrupt records."""
    options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_c"}
    reads = [
        spark.read.format(format).options(**options).schema(f"{declared}, _c string").load(str(folder)).cache()
        for folder, declared in ((old, OLD), (new, columns))
    ]
    both = reads[0].unionByName(reads[1], allowMissingColumns=True)
    rows = both.filter("_c IS NULL").select([c.split(" ")[0] for c in columns.split(", ")]).toArrow()
    found = sorted(map(repr, rows.to_pylist())), both.filter("_c IS NOT NULL").count()
    for read in reads:
        read.unpersist()
    return found


def test_views_have_the_columns_of_each_files_time(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark) as session:
        for name, (old, new, _, options) in FORMATS.items():
            for folder, content in (("old", old), ("new", new)):
                (tmp_path / name / folder).mkdir(parents=True)
                (tmp_path / name / folder / f"a.{name}").write_bytes(content if folder == "old" else b"")
            given = "".join(f", {k} '{v}'" for k, v in options.items())
            session.execute(
                f"CREATE SOURCE {name} ({OLD}) USING {name} OPTIONS (path '{tmp_path / name}', "
                f"recursiveFileLookup 'true', "
                f"on_error 'quarantine'{given}); CREATE MATERIALIZED VIEW before_{name} AS SELECT * FROM {name}"
            )
        session.flush()
        for name, (_, new, columns, _) in FORMATS.items():
            first, second = columns.split(", ")[2:]
            session.execute(
                f"ALTER SOURCE {name} ADD COLUMN {first}; alter /* so */ source {name} add columns ({second})"
            )
            session.execute(f"CREATE MATERIALIZED VIEW after_{name} AS SELECT * FROM {name}")
            (tmp_path / name / "new" / f"a.{name}").write_bytes(new)
        session.flush()
        for name in FORMATS:
            session.execute(f"CREATE MATERIALIZED VIEW later_{name} AS SELECT * FROM {name}")
        session.flush()
        for name, (_, _, columns, options) in FORMATS.items():
            rows, corrupt = judged(spark, name, tmp_path / name / "old", tmp_path / name / "new", columns, options)
            held = [sorted(map(repr, session.read(f"{view}_{name}").to_pylist())) for view in ("after", "later")]
            assert held == [rows, rows] != [[], []]
            assert session.read(f"{name}__rejects").num_rows == corrupt > 1
            assert session.read(f"before_{name}").column_names == ["id", "name"]
            assert session.read(f"before_{name}").num_rows == len(rows)
        shown = session.execute("SHOW CREATE SOURCE csv")[0].table
        assert shown is not None
        assert f"({FLAT})" in shown["statement"].to_pylist()[0]
        for statement, reason in {
            "ALTER SOURCE csv ADD COLUMN name string": "source 'csv' already has a column 'name'",
            "ALTER SOURCE csv ADD COLUMN more int NOT NULL": "a name and a type",
            "ALTER SOURCE csv ADD COLUMN more int DEFAULT 1": "a name and a type",
            "ALTER SOURCE csv ADD COLUMN more int FIRST": "a name and a type",
            "ALTER SOURCE csv ADD COLUMN more char(3)": "char",
            "ALTER SOURCE csv RENAME TO other": "expected ADD COLUMN",
            "ALTER SOURCE before_csv ADD COLUMN more int": "'before_csv' is a view; sources that exist: csv, json, xml",
            "ALTER SOURCE none ADD COLUMN more int": "there is no source 'none'",
            "ALTER TABLE csv ADD COLUMN more int": "only tables can be changed",
        }.items():
            with pytest.raises(SqlError) as refused:
                session.execute(statement)
            assert reason in str(refused.value), statement


def test_options_of_new_files_and_of_earlier_ones_in_views_and_restatements(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source's separator changes from `,` to `;`. Spark reads each file with the separator of its time."""
    files, store = tmp_path / "in", tmp_path / "pipelines" / "store"
    files.mkdir()
    (files / "a.csv").write_text("1,one;x\n")
    sql = tmp_path / "pipelines" / "shop" / "views.sql"
    sql.parent.mkdir(parents=True)
    (sql.parent / "pipeline.toml").write_text(f'name = "shop"\nstore = "{store}"\nsql = ["views.sql"]\n')
    pipeline = load_pipeline(sql.parent)

    def apply_with(sep: str, more: str = "") -> str:
        sql.write_text(
            f"CREATE SOURCE s (id string, name string) USING csv OPTIONS (path '{files}'{sep});\n"
            f"CREATE MATERIALIZED VIEW v AS SELECT * FROM s;\n{more}"
        )
        with Session(str(store), spark, create=True) as session:
            found = deployment_text(session.apply(pipeline.read_scripts()), "shop")
            session.flush()
        return found

    def rows_of(view: str) -> list[tuple[object, ...]]:
        with Session(str(store), spark) as session:
            return sorted(tuple(row.values()) for row in session.query(f"SELECT id, name FROM {view}").to_pylist())

    apply_with("")
    (files / "b.csv").write_text("2;two,y\n")
    said = apply_with(", sep ';'", "CREATE MATERIALIZED VIEW late AS SELECT * FROM s;\n")
    assert "option sep: none in the store, ';' in the statement" in said
    assert "sep: for files that are read from now on" in said
    expected = [
        tuple(row)
        for name, sep in (("a", ","), ("b", ";"))
        for row in spark.read.options(sep=sep).csv(str(files / f"{name}.csv")).collect()
    ]
    assert rows_of("v") == rows_of("late") == sorted(expected)
    assert "unchanged" in apply_with(", sep ';'", "CREATE MATERIALIZED VIEW late AS SELECT * FROM s;\n")
    with Session(str(store), spark) as session:
        with pytest.raises(BadOptionError, match="similar options: header"):
            session.execute("ALTER SOURCE s SET OPTIONS (haeder 'true')")
        with pytest.raises(MissingPathError, match="no file at"):
            session.execute(f"ALTER SOURCE s SET OPTIONS (path '{tmp_path}/nowhere')")
        with pytest.raises(SqlError, match="SET OPTIONS"):
            session.execute("ALTER SOURCE s SET sep ';'")
        session.execute("ALTER SOURCE s UNSET OPTIONS (SEP)")
        session.flush()
    (files / "c.csv").write_text("3,three;z\n")
    with Session(str(store), spark) as session:
        session.flush()
    expected += [tuple(row) for row in spark.read.csv(str(files / "c.csv")).collect()]
    assert rows_of("v") == rows_of("late") == sorted(expected)
    assert cli.main(["restate", "s", "--options", "--store", str(store)]) == 0
    restated = [tuple(row) for row in spark.read.schema("id string, name string").csv(str(files)).collect()]
    assert sorted(map(repr, rows_of("v"))) == sorted(map(repr, rows_of("late"))) == sorted(map(repr, restated))


def test_renamed_and_wider_columns_in_sessions_and_pipelines(spark: SparkSession, tmp_path: Path) -> None:
    """The producer renames `v` to `amount`, which then exceeds an int. Expected: Spark's read of each file by its own
    columns.
    """
    files, store, folder = tmp_path / "in", tmp_path / "store", tmp_path / "shop"
    files.mkdir()
    folder.mkdir()
    (folder / "pipeline.toml").write_text(f'name = "shop"\nstore = "{store}"\nsql = ["views.sql"]\n')
    (files / "a.csv").write_text('id,v\n1,10\n"2","20"\n')

    def apply_with(columns: str, amount: str) -> str:
        (folder / "views.sql").write_text(
            f"CREATE SOURCE s ({columns}) USING csv OPTIONS (path '{files}', header 'true');\n"
            "CREATE MATERIALIZED VIEW whole AS SELECT * FROM s;\n"
            "CREATE MATERIALIZED VIEW ids AS SELECT id, count(*) AS n FROM s GROUP BY id;\n"
            f"CREATE MATERIALIZED VIEW total AS SELECT sum({amount}) AS total FROM s;\n"
        )
        with Session(str(store), spark, create=True) as session:
            found = deployment_text(session.apply(load_pipeline(folder).read_scripts()), "shop")
            session.flush()
        return found

    apply_with("id int, v int", "v")
    said = apply_with("id int, amount bigint, note string", "amount")
    assert "v is now amount: files that are read from now on must call it amount (otherwise they are held)" in said
    assert "amount: bigint for files that are read from now on, and earlier values are converted" in said
    assert "view ids" not in "".join(line for line in said.splitlines() if "rebuil" in line)
    (files / "b.csv").write_text('id,amount,note\n3,"9999999999",x\n')
    with Session(str(store), spark) as session:
        session.flush()
        old = spark.read.option("header", True).schema("id int, v int").csv(str(files / "a.csv"))
        new = spark.read.option("header", True).schema("id int, amount bigint, note string").csv(str(files / "b.csv"))
        expected = old.selectExpr("id", "cast(v AS bigint) AS amount", "cast(NULL AS string) AS note").union(new)
        whole = session.query("SELECT * FROM whole").to_pylist()
        assert sorted(map(repr, whole)) == sorted(repr(row.asDict()) for row in expected.collect())
        assert session.query("SELECT total FROM total").to_pylist() == [{"total": 9999999999 + 30}]
        assert session.verify().proven
        with pytest.raises(CannotFollowError, match=r"view 'total' reads a relation that changes here"):
            session.execute("ALTER SOURCE s RENAME COLUMN amount TO cents")
        session.execute(
            "BEGIN; ALTER SOURCE s RENAME COLUMN amount TO cents; ALTER SOURCE s ALTER COLUMN id TYPE bigint;"
            "CREATE OR REPLACE MATERIALIZED VIEW total AS SELECT sum(cents) AS total FROM s; COMMIT"
        )
        session.flush()
        assert session.read("whole").schema.names == ["id", "cents", "note"]
        assert sorted(row["n"] for row in session.read("ids").to_pylist()) == [1, 1, 1]
        assert session.verify().proven
        for statement, reason in {
            "ALTER SOURCE s RENAME COLUMN v TO w": "source 's' has no column 'v'; its columns: id, cents, note",
            "ALTER SOURCE s RENAME COLUMN cents TO Note": "source 's' already has a column 'Note'",
            "ALTER SOURCE s ALTER COLUMN id TYPE": "expected TYPE and a type|Syntax error|syntax error",
            "ALTER SOURCE s ALTER COLUMN id TYPE int NOT NULL": "nothing after it",
        }.items():
            with pytest.raises(SqlError, match=reason):
                session.execute(statement)
        with pytest.raises(CannotAlterSourceError, match="cannot change from bigint to string"):
            session.execute("ALTER SOURCE s ALTER COLUMN cents TYPE string")
