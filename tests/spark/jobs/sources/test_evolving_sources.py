"""Sources whose files get columns and wider types (`columns 'evolve'`): views compared with Spark's over all files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.session import Session
from tussock.jobs.statements.deployment import StepAction

pytestmark = pytest.mark.spark

SOURCE = "CREATE SOURCE sales (id int, shop string, amount float) USING parquet OPTIONS (path '{}', columns 'evolve')"
VIEWS = {
    "named": "SELECT id, amount FROM sales",
    "all_columns": "SELECT * FROM sales s",
    "totals": "SELECT shop, sum(id) AS ids, max(amount) AS most, count(*) AS n FROM sales GROUP BY shop",
    "pairs": "SELECT a.id, b.amount FROM sales a JOIN sales b ON a.id = b.id",
    "typed": "SELECT typeof(id) AS kind, count(*) AS n FROM sales GROUP BY typeof(id)",
}
FIRST = pa.table(
    {"id": pa.array([1, 2, 2], pa.int32()), "shop": ["a", "b", "b"], "amount": pa.array([0.1, 2, 3], "f4")}
)
SECOND = pa.table(
    {"id": [1 << 40, 2], "shop": ["a", None], "amount": pa.array([0.1, 7.5], "f8"), "city": ["Bern", "X"]}
)


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def test_views_follow_wider_types_and_keep_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(FIRST, folder / "1.parquet")
    scripts = [
        (tmp_path / "sources.sql", SOURCE.format(folder)),
        (tmp_path / "views.sql", ";\n".join(f"CREATE MATERIALIZED VIEW {n} AS {s}" for n, s in VIEWS.items())),
    ]
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.apply(scripts)
        session.flush()
        pq.write_table(SECOND, folder / "2.parquet")
        summary = session.flush()
        assert "has wider columns: id bigint (was int), amount double (was float)" in str(summary)
        assert "has the new columns city string" in str(summary)
        first, second = (spark.read.parquet(str(folder / f"{n}.parquet")) for n in (1, 2))
        wide = first.selectExpr("CAST(id AS bigint) AS id", "shop", "CAST(amount AS double) AS amount")
        wide.unionByName(second.drop("city")).createOrReplaceTempView("sales")
        for name, select in VIEWS.items():
            found, expected = session.read(name), spark.sql(select).toArrow()
            assert texts(found) == texts(expected), name
            assert found.schema.types == expected.schema.types, name
        plan = session.plan(scripts)
        assert {step.action for step in plan.steps} == {StepAction.NONE}
        notes = {step.what.split()[-1]: step.note for step in plan.steps if step.note}
        assert list(notes) == ["all_columns"]
        assert "the source had the columns city of sales" in notes["all_columns"]
        session.execute(f"CREATE OR REPLACE MATERIALIZED VIEW all_columns AS {VIEWS['all_columns']}")
        session.flush()
        assert session.read("all_columns").column_names == ["id", "shop", "amount", "city"]
        assert not [step.note for step in session.plan(scripts).steps if step.note]


def test_a_type_that_is_not_wider_holds_the_source(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(FIRST, folder / "1.parquet")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(SOURCE.format(folder))
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM sales")
        session.execute("CREATE MATERIALIZED VIEW w AS SELECT id FROM v UNION ALL SELECT id FROM sales")
        session.flush()
        pq.write_table(SECOND.set_column(0, "id", pa.array(["x", "y"])), folder / "2.parquet")
        with pytest.warns(UserWarning, match="'id'.*expected int"):
            session.flush()
        assert session.read("w").num_rows == 2 * FIRST.num_rows
