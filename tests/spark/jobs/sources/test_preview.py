"""`tussock preview` infers columns like Spark, without it, and prints a statement that works as pasted."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from tests.support.jobs.sources.preview import CSV, TYPES
from tests.support.spark_types import SparkSession
from tussock import Session
from tussock.jobs.sources.preview import preview_source, source_text


def test_spark_infers_the_same_types_and_reads_the_pasted_statement(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    frame = spark.read.csv(str(path), header=True, inferSchema=True, escape='"')
    by_spark = {f.name: f.dataType.simpleString().replace("int", "bigint") for f in frame.schema}
    by_spark = {name: kind.replace("bigbigint", "bigint") for name, kind in by_spark.items()}
    different = {name: by_spark[name] for name in TYPES if by_spark[name] != TYPES[name]}
    assert different == {"zip": "bigint", "price": "double", "huge": "decimal(20,0)"}, "as the module promises"
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute(source_text(preview_source(str(path)).source))
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM a")
        session.flush()
        rows = session.read("v").to_pylist()
    assert [row["word"] for row in sorted(rows, key=lambda row: -row["id"])] == ["a", 'b "c", d']
    assert sum(row["price"] for row in rows) == Decimal("1.40"), "exactly"
    assert {row["at"] for row in rows} == {datetime(2026, 1, 31, 8, 0, 0, micros, UTC) for micros in (0, 500_000)}
