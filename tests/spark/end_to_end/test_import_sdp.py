"""Declarative pipelines, imported and run, compared with the same functions and queries run by Spark itself."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.declarative import rows_of
from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.importing.imports import ImportOutcome, ImportReport, import_project
from tussock.jobs.importing.judge import judge_project
from tussock.jobs.importing.project import ForeignProject
from tussock.jobs.importing.sdp_binding import opened_binding
from tussock.jobs.importing.sdp_project import SourcePlace, read_sdp_project
from tussock.jobs.importing.sdp_spec import read_spec
from tussock.jobs.importing.trial import try_project
from tussock.jobs.session import Session
from tussock.jobs.settings.variables import substituted_in_sql
from tussock.jobs.sources.kafka import KafkaTopics
from tussock.jobs.sources.kafka_errors import KafkaUnavailableError

pytestmark = pytest.mark.spark

BAKERY = Path(__file__).parents[3] / "examples" / "bakery_sdp"
SPEC = "name: shop\nstorage: file:///tmp/none\nlibraries: [{glob: {include: transformations/**}}]\n"
CHANGE = {
    "orders": (
        "id,shop_id,customer_id,ordered_at,status\n"
        "900,1,7,2026-01-01 08:00:00,paid\n901,2,7,2026-01-01 09:00:00,returned\n"
    ),
    "order_lines": "id,order_id,sku,quantity\n9000,900,BRE-1,3\n9001,901,DRI-1,1\n",
    "products": "sku,name,kind,price_cents,changed_at\nBRE-2,walnut loaf,bread,999,2026-01-01 06:00:00\n",
}
ROWS = "id BIGINT, customer BIGINT, at TIMESTAMP, amount DOUBLE, op STRING"
ORDERS = """\
{"id": 1, "customer": 7, "at": "2026-01-01 10:00:00", "amount": 12.5, "op": "I"}
{"id": 2, "customer": 8, "at": "2026-01-01 11:00:00", "amount": 3.0, "op": "I"}
{"id": 2, "customer": 8, "at": "2026-01-02 11:00:00", "amount": 4.0, "op": "U"}
{"id": 3, "at": "2026-01-02 12:00:00", "amount": -1.0, "op": "I"}
{"id": 1, "customer": 7, "at": "2026-01-03 10:00:00", "amount": 12.5, "op": "D"}
"""


def write_project(root: Path, **files: str) -> Path:
    (root / "transformations").mkdir(parents=True)
    (root / "spark-pipeline.yml").write_text(SPEC, encoding="utf-8")
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (root / "transformations" / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    (root / "data" / "orders").mkdir(parents=True)
    (root / "data" / "orders" / "1.json").write_text(ORDERS, encoding="utf-8")
    return root / "spark-pipeline.yml"


def read_project(spark: SparkSession, spec: Path, **sources: str) -> ForeignProject:
    with opened_binding(lambda: spark) as binding:
        places = {name: SourcePlace(path) for name, path in sources.items()}
        return read_sdp_project(read_spec(spec), "shop", places, binding)


def import_files(spark: SparkSession, spec: Path, folder: Path, **sources: str) -> tuple[ForeignProject, ImportReport]:
    project = read_project(spark, spec, **sources)
    return project, import_project(project, folder / "pipelines", "tussock import sdp x", judge_project)


def outcomes(report: ImportReport) -> dict[str, ImportOutcome]:
    return {line.name: line.outcome for line in report.lines}


def reason_of(report: ImportReport, name: str) -> str:
    return next(line.reason for line in report.lines if line.name == name)


@contextmanager
def running(project: ForeignProject, report: ImportReport, store: Path, spark: SparkSession) -> Iterator[Session]:
    """A store with the imported pipeline after its first epoch."""
    with Session(str(store), spark, runner=here(spark)) as session:
        for script in ("sources.sql", "views.sql"):
            text = (report.folder / script).read_text(encoding="utf-8")
            session.execute(substituted_in_sql(text, {"data": str(project.root)}, script), base=project.root)
        session.flush()
        yield session


class Batch:
    """`pyspark.pipelines` that runs each function at once in Spark, in the order of the files, over real rows."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.answers = spark, dict[str, DataFrame]()

    def define(self, function: Callable[[], DataFrame] | None = None, **options: object) -> object:
        def run(decorated: Callable[[], DataFrame]) -> object:
            self.add(str(options.get("name") or getattr(decorated, "__name__")), decorated())  # noqa: B009
            return decorated

        return run if function is None else run(function)

    def add(self, name: str, rows: DataFrame) -> None:
        self.answers[name] = rows.localCheckpoint()
        self.answers[name].createOrReplaceTempView(name)

    def run_file(self, path: Path, data: Path) -> None:
        text = path.read_text(encoding="utf-8").replace('"data/', f'"{data}/').replace("readStream", "read")
        module = ModuleType("pyspark.pipelines")
        module.__dict__.update(table=self.define, materialized_view=self.define, temporary_view=self.define)
        before = sys.modules.get("pyspark.pipelines")
        sys.modules["pyspark.pipelines"] = module
        try:
            source = text.replace("from pyspark import pipelines as dp", "import pyspark.pipelines, sys").replace(
                "SparkSession.active()", "SPARK"
            )
            source = source.replace(
                "import pyspark.pipelines, sys", "import sys; dp = sys.modules['pyspark.pipelines']"
            )
            exec(compile(source, str(path), "exec"), {"SPARK": self.spark})
        finally:
            del sys.modules["pyspark.pipelines"]
            if before is not None:
                sys.modules["pyspark.pipelines"] = before

    def run_sql(self, name: str, query: str) -> None:
        self.add(name, self.spark.sql(query))


def bakery_by_spark(spark: SparkSession, data: Path) -> dict[str, DataFrame]:
    """The bakery's datasets, computed by Spark from the project's own texts."""
    batch = Batch(spark)
    files = BAKERY / "transformations"
    batch.run_file(files / "sources.py", data)
    sql = (files / "orders.sql").read_text(encoding="utf-8").replace("${bakery.least_items}", "1")
    for name, begin in (
        ("products", "SELECT sku"),
        ("order_totals", "WITH totals"),
        ("returned_orders", "SELECT id AS"),
    ):
        query = sql[sql.index(begin) :].partition(";")[0].replace("STREAM ", "")
        batch.run_sql(name, query)
    batch.run_file(files / "marts.py", data)
    return batch.answers


def test_a_project_equals_its_own_run_by_spark_before_and_after_a_change(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "bakery"
    shutil.copytree(BAKERY, root)
    project, report = import_files(spark, root / "spark-pipeline.yml", tmp_path)
    assert not report.refused
    assert project.name == "shop"
    with running(project, report, tmp_path / "store", spark) as session:
        for delivery in range(2):
            if delivery:
                for name, text in CHANGE.items():
                    (root / "data" / name / "2026.csv").write_text(text, encoding="utf-8")
                session.flush()
            else:  # recorded from `spark-pipelines run` of Spark 4.2 over the example
                recorded = json.loads((Path(__file__).parent / "cases/bakery_by_spark_pipelines.json").read_text())
                assert {name: sorted(rows_of(session.read(name)).elements()) for name in recorded} == recorded
            expected = bakery_by_spark(spark.newSession(), root / "data")
            for name in ("order_totals", "returned_orders", "daily_sales", "best_products", "customer_totals"):
                assert_same_answer(session.read(name), expected[name].toArrow(), name)


SQL = f"""
CREATE OR REFRESH STREAMING TABLE orders_raw AS
SELECT *, current_timestamp() AS taken_at, _metadata.file_name AS file
FROM STREAM read_files('data/orders', format => 'json', schema => '{ROWS}');

CREATE STREAMING TABLE orders_clean (
  CONSTRAINT positive EXPECT (amount > 0) ON VIOLATION DROP ROW,
  CONSTRAINT known EXPECT (customer IS NOT NULL),
  CONSTRAINT has_id EXPECT (id IS NOT NULL) ON VIOLATION FAIL UPDATE
) AS SELECT id, customer, at, amount, op FROM STREAM(LIVE.orders_raw);

CREATE STREAMING TABLE orders_now;
CREATE FLOW changes AS AUTO CDC INTO orders_now FROM STREAM(orders_raw)
KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY at COLUMNS * EXCEPT (op, taken_at, file) STORED AS SCD TYPE 1;

CREATE STREAMING TABLE doubled;
APPLY CHANGES INTO doubled FROM (SELECT id, at, 2 * amount AS twice FROM STREAM(orders_raw) WHERE op <> 'D')
KEYS (id) SEQUENCE BY at;

CREATE STREAMING TABLE by_day (id BIGINT, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)))
AS SELECT id FROM STREAM(orders_raw);
SET spark.sql.ansi.enabled = false;
CREATE MATERIALIZED VIEW shuffled AS SELECT *, rand() AS r FROM orders_clean;
CREATE MATERIALIZED VIEW shuffled_count AS SELECT count(*) AS n FROM shuffled;
CREATE MATERIALIZED VIEW trips AS SELECT t.id FROM samples.nyctaxi.trips t WHERE trips.id > 1;
DROP TABLE old;
"""
PYTHON = """
import dlt
from pyspark.sql import functions as F


@dlt.table
@dlt.expect_or_drop("paid", "amount > 3")
def large_orders():
    return dlt.read_stream("orders_clean").withWatermark("at", "1 hour").select("id", F.col("amount")).distinct()


dlt.create_streaming_table("all_ids")


@dlt.append_flow(target="all_ids")
def from_orders():
    return spark.readStream.table("LIVE.orders_raw").select("id")


@dlt.append_flow(target="all_ids")
def with_customer():
    return spark.readStream.table("orders_raw").select(F.col("customer").alias("customer"), F.col("id") * 10)


dlt.create_streaming_table("history")
dlt.create_auto_cdc_flow(
    target="history", source="orders_raw", keys=["id"], sequence_by=F.col("at"), stored_as_scd_type="2",
    apply_as_deletes=F.expr("op = 'D'"), except_column_list=["op", "taken_at", "file"],
)


@dlt.table
def collected():
    return spark.createDataFrame(spark.table("orders_raw").collect())


@dlt.table
def shaped():
    counted = spark.table("orders_raw").groupBy("customer").agg(
        F.countDistinct("op").alias("ops"), F.countDistinct("amount").alias("amounts")
    )
    moments = counted.withColumn("at", F.from_unixtime(spark.conf.get("shop.first", default="ops")).cast("timestamp"))
    return moments.withColumn("day", F.col("at").cast("date"))


@dlt.table
def unpivoted():
    known = spark.table("orders_raw").where("customer IS NOT NULL")
    values = known.unpivot(["id"], ["customer", "amount"], "what", "value")
    return values.groupBy("what").agg(F.count("value").alias("n"))


@dlt.table
def cubed():
    by = spark.table("orders_raw").cube("customer", "op").agg(F.sum("id").alias("ids"), F.grouping_id().alias("kind"))
    return by.where("kind < 3")


@dlt.table
def pivoted():
    return spark.table("orders_raw").groupBy("customer").pivot("op", ["U", "D"]).agg(F.sum("amount"), F.count("id"))


@dlt.table
def pivoted_by_rows():
    return spark.table("orders_raw").groupBy("customer").pivot("op").count()


@dlt.table
def in_sessions():
    moments = spark.table("orders_raw").withColumn("moment", F.timestamp_seconds(F.col("id") * 10))
    return moments.groupBy(F.session_window("moment", "2 seconds")).agg(F.count("*").alias("n"))


@dlt.table
def of_a_count():
    return spark.table("orders_raw").limit(spark.table("orders_raw").count() - 1)


@dlt.table
def of_a_first_row():
    return spark.table("orders_raw") if spark.table("orders_raw").first() else spark.range(1)


@dlt.table
def newest():
    return spark.table("orders_raw").dropDuplicates(["customer"])
"""


IN_GROUPS = ("cubed", "pivoted", "in_sessions")


def test_each_part_of_a_project_is_taken_or_has_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    project, report = import_files(spark, write_project(tmp_path / "shop", orders_sql=SQL, more_py=PYTHON), tmp_path)
    taken = outcomes(report)
    for name in (
        "orders_raw",
        "orders_clean",
        "orders_now",
        "large_orders",
        "history",
        "shaped",
        "unpivoted",
        *IN_GROUPS,
    ):
        assert taken[name] is ImportOutcome.INCREMENTAL, reason_of(report, name)
    assert taken["orders_raw_files"] is ImportOutcome.SOURCE
    assert taken["orders_clean_known"] is taken["orders_clean_has_id"] is ImportOutcome.TEST
    assert "rand() is not supported" in reason_of(report, "shuffled")
    assert reason_of(report, "shuffled_count") == "it reads shuffled, which was not taken"
    assert "`--source samples_nyctaxi.trips=PATH`" in reason_of(report, "samples_nyctaxi.trips")
    assert "dropDuplicates of some columns" in reason_of(report, "newest") or "keeps any" in reason_of(report, "newest")
    assert reason_of(report, "by_day") == "its column day is GENERATED; compute it in the query"
    assert "it has no effect here: remove it" in reason_of(report, "spark.sql.ansi.enabled=false")
    assert taken["collected"] is ImportOutcome.NOT_TAKEN
    assert "Name the values: pivot(column, [value, …])" in reason_of(report, "pivoted_by_rows")
    for name in ("collected", "of_a_count", "of_a_first_row"):
        assert "reads rows while the query is made" in reason_of(report, name)
    assert any("expected CREATE" in line.reason for line in report.refused)
    with running(project, report, tmp_path / "store", spark) as session:
        assert session.query("SELECT id, amount FROM orders_now ORDER BY id").to_pylist() == [
            {"id": 2, "amount": 4.0},
            {"id": 3, "amount": -1.0},
        ]
        assert session.query("SELECT id, twice FROM doubled ORDER BY id").to_pylist() == [
            {"id": 1, "twice": 25.0},
            {"id": 2, "twice": 8.0},
            {"id": 3, "twice": -2.0},
        ]
        assert session.query("SELECT id, amount FROM large_orders ORDER BY id").to_pylist() == [
            {"id": 1, "amount": 12.5},
            {"id": 2, "amount": 4.0},
        ]
        for name in IN_GROUPS:
            assert session.read(name).num_rows > 1, name
        assert session.query("SELECT count(*) AS n FROM history WHERE __END_AT IS NULL").to_pylist() == [{"n": 2}]
        assert session.query("SELECT DISTINCT file FROM orders_raw WHERE taken_at IS NOT NULL").to_pylist() == [
            {"file": "1.json"}
        ]
        assert session.query("SELECT ops, amounts, day FROM shaped WHERE customer = 8").to_pylist() == [
            {"ops": 2, "amounts": 2, "day": date(1970, 1, 1)}
        ]
        assert not session.verify().different


TWO_EXPECTATIONS = f"""
CREATE STREAMING TABLE paid (number, buyer, price, day,
  CONSTRAINT positive EXPECT (paid.price > 0) ON VIOLATION DROP ROW,
  CONSTRAINT known EXPECT (buyer IS NOT NULL) ON VIOLATION FAIL UPDATE,
  CONSTRAINT small EXPECT (price BETWEEN 0 AND 10)
) AS SELECT id, customer, amount, current_date()
FROM STREAM read_files('data/orders', format => 'json', schema => '{ROWS}');
CREATE TEMPORARY VIEW later (
  CONSTRAINT large EXPECT (amount > 100) ON VIOLATION DROP ROW, CONSTRAINT in_time EXPECT (at < '2026-01-03')
) AS SELECT at, amount, now() AS seen FROM STREAM read_files('data/orders', format => 'json', schema => '{ROWS}');
CREATE MATERIALIZED VIEW latest (
  CONSTRAINT last EXPECT (number = 1) ON VIOLATION DROP ROW, CONSTRAINT alone EXPECT (n = 1)
) AS SELECT number, count(*) AS n, max(current_timestamp()) AS at FROM paid GROUP BY number;
"""


def test_an_expectation_judges_rows_that_another_one_drops(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", a_sql=TWO_EXPECTATIONS)
    with opened_binding(lambda: spark) as binding:
        project = read_sdp_project(read_spec(spec), "shop", {}, binding, leave_out_clock=True)
    report = import_project(project, tmp_path / "pipelines", "tussock import sdp x", judge_project)
    assert not report.refused, report.refused
    with running(project, report, tmp_path / "store", spark) as session:
        assert sorted(session.read("paid")["number"].to_pylist()) == [1, 1, 2, 2]

        def wrong_rows(name: str, column: str) -> list[object]:
            text = (report.folder / "quality" / f"{name}.sql").read_text(encoding="utf-8")
            session.execute(f"CREATE MATERIALIZED VIEW wrong_{name} AS {text}")
            session.flush()
            return sorted(session.read(f"wrong_{name}")[column].to_pylist())

        assert wrong_rows("paid_known", "number") == [3], "a row that DROP ROW removes fails the update too"
        assert wrong_rows("paid_small", "number") == [1, 1, 3]
        assert wrong_rows("later_in_time", "amount") == [12.5]
        assert wrong_rows("latest_alone", "number") == [1, 2]


OUTSIDE = f"""
from pyspark import pipelines as dp

raw = spark.readStream.format("json").schema("{ROWS}").load("data/orders")


@dp.table
def ids():
    return raw.select("id")


@dp.materialized_view
def amounts():
    return raw.join(spark.read.table("ids"), "id").select("id", "amount")
"""


def test_a_python_file_may_read_files_outside_of_its_functions(spark: SparkSession, tmp_path: Path) -> None:
    project, report = import_files(spark, write_project(tmp_path / "shop", orders_py=OUTSIDE), tmp_path)
    assert not report.refused, report.refused
    assert {model.name: model.reads for model in project.models} == {
        "orders_files": (),
        "ids": ("orders_files",),
        "amounts": ("ids", "orders_files"),
    }
    with running(project, report, tmp_path / "store", spark) as session:
        assert session.query("SELECT count(*) > 0 AS some FROM amounts").to_pylist() == [{"some": True}]


NESTED = """
from pyspark import pipelines as dp
from pyspark.sql.types import LongType, StringType, StructField, StructType

SCHEMA = StructType([StructField("person", StructType([StructField("first name", StringType())])),
                     StructField("n-1", LongType())])

@dp.materialized_view
def declared():
    return spark.read.schema(SCHEMA).json("data/people")

@dp.materialized_view
def inferred():
    return spark.read.json("data/people")
"""


def test_fields_of_structs_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", people_py=NESTED)
    people = spec.parent / "data" / "people"
    people.mkdir()
    (people / "1.json").write_text('{"person": {"first name": "Ann"}, "n-1": 5}\n', encoding="utf-8")
    project, report = import_files(spark, spec, tmp_path)
    assert not report.refused, report.refused
    with running(project, report, tmp_path / "store", spark) as session:
        for name in ("declared", "inferred"):
            assert session.read(name).to_pylist() == [{"person": {"first name": "Ann"}, "n-1": 5}], name


def test_a_table_of_a_catalog_is_read_at_the_place_of_the_option(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trips").mkdir()
    (tmp_path / "trips" / "1.csv").write_text("id,fare\n1,2.5\n2,3.5\n", encoding="utf-8")
    spec = write_project(tmp_path / "shop", a_sql="CREATE MATERIALIZED VIEW t AS SELECT trips.id FROM nyc.trips")
    project, report = import_files(spark, spec, tmp_path, **{"nyc.trips": str(tmp_path / "trips")})
    assert not report.refused
    with running(project, report, tmp_path / "store", spark) as session:
        assert session.query("SELECT id FROM t ORDER BY id").to_pylist() == [{"id": 1}, {"id": 2}]


SCHEMAS_SPEC = """\
name: shop
storage: file:///tmp/none
catalog: main
database: sales
libraries: [{glob: {include: transformations/**}}]
"""
SCHEMAS_SQL = f"""
CREATE STREAMING TABLE bronze.orders AS SELECT * FROM STREAM read_files(
  'data/orders', format => 'json', schema => '{ROWS}');
CREATE MATERIALIZED VIEW `orders` (CONSTRAINT `has id` EXPECT (id IS NOT NULL)) AS
SELECT main.bronze.orders.id, bronze.orders.amount, orders.customer FROM main.bronze.orders WHERE op <> 'D';
CREATE MATERIALIZED VIEW gold.totals AS
SELECT o.customer, sum(o.amount) AS total, count(b.id) AS events
FROM main.sales.orders o LEFT JOIN bronze.orders b ON b.id = o.id GROUP BY o.customer;
USE SCHEMA silver;
CREATE MATERIALIZED VIEW orders (CONSTRAINT large EXPECT (amount > 3) ON VIOLATION DROP ROW) AS
WITH orders AS (SELECT * FROM bronze.orders) SELECT orders.id, orders.amount FROM orders;
CREATE MATERIALIZED VIEW both AS
SELECT silver.orders.id, sales.orders.customer FROM silver.orders JOIN sales.orders
ON silver.orders.id = sales.orders.id;
CREATE STREAMING TABLE newest;
CREATE FLOW f AS AUTO CDC INTO newest FROM STREAM(bronze.orders) KEYS (id)
APPLY AS DELETE WHEN op = 'D' SEQUENCE BY at COLUMNS (id, amount) STORED AS SCD TYPE 1;
"""
SCHEMAS_PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql.functions import col

for name in ("bronze", "silver"):

    @dp.materialized_view(name=f"{name}.counts")
    def counts(name=name):
        return spark.read.table(f"{name}.orders").groupBy(col("orders.id")).count()


@dp.materialized_view
def counts():
    silver, bronze = spark.read.table("silver.counts").alias("s"), spark.sql("SELECT counts.* FROM bronze.counts")
    return silver.join(bronze.alias("b"), "id").select("id", col("s.count").alias("few"), col("b.count").alias("all"))
"""
#: What the datasets are, over the rows of the file.
SCHEMAS_ANSWERS = {
    "orders": "SELECT id, amount, customer FROM rows WHERE op <> 'D'",
    "gold.totals": (
        "SELECT o.customer, sum(o.amount) AS total, count(b.id) AS events "
        "FROM (SELECT * FROM rows WHERE op <> 'D') o LEFT JOIN rows b ON b.id = o.id GROUP BY o.customer"
    ),
    "silver.orders": "SELECT id, amount FROM rows WHERE amount > 3",
    "silver.both": (
        "SELECT a.id, b.customer FROM (SELECT * FROM rows WHERE amount > 3) a "
        "JOIN (SELECT * FROM rows WHERE op <> 'D') b ON a.id = b.id"
    ),
    "silver.newest": (
        "SELECT id, amount FROM rows WHERE id IN (2, 3) AND (id, at) IN (SELECT id, max(at) FROM rows GROUP BY id)"
    ),
    "bronze.counts": "SELECT id, count(*) AS count FROM rows GROUP BY id",
    "counts": (
        "SELECT id, few, all FROM (SELECT id, count(*) AS few FROM rows WHERE amount > 3 GROUP BY id) "
        "JOIN (SELECT id, count(*) AS all FROM rows GROUP BY id) USING (id)"
    ),
}


def test_datasets_of_several_schemas_share_names(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", a_sql=SCHEMAS_SQL, b_py=SCHEMAS_PYTHON)
    spec.write_text(SCHEMAS_SPEC, encoding="utf-8")
    project, report = import_files(spark, spec, tmp_path)
    assert [(line.name, line.reason) for line in report.lines if line.reason] == []
    assert {line.name for line in report.lines} >= {"orders", "silver.orders", "bronze.orders", "bronze.orders_files"}
    assert (report.folder / "quality" / "orders_has_id.sql").exists()
    with running(project, report, tmp_path / "store", spark) as session:
        rows = spark.read.schema(ROWS).json(str(tmp_path / "shop" / "data" / "orders"))
        rows.createOrReplaceTempView("rows")
        for name, answer in SCHEMAS_ANSWERS.items():
            assert_same_answer(session.read(name), spark.sql(answer).toArrow(), name)
        assert not session.verify().different


#: Spark 4.2 keeps temporary views in no schema: `spark-pipelines run` over these files gives the rows of VIEW_ANSWERS.
VIEWS_SQL = {
    "a_sql": """
        CREATE TEMPORARY VIEW part AS SELECT 1 AS id;
        CREATE MATERIALIZED VIEW part AS SELECT 2 AS id;
        CREATE MATERIALIZED VIEW of_view AS SELECT * FROM part;
        CREATE MATERIALIZED VIEW of_table AS SELECT * FROM default.part;
        CREATE MATERIALIZED VIEW beside AS
        WITH part AS (SELECT 10 AS id), other AS (SELECT part.id FROM default.part) SELECT other.id FROM other, part;
        USE SCHEMA silver;
        CREATE TEMPORARY VIEW late AS SELECT 3 AS id;
        CREATE MATERIALIZED VIEW own AS SELECT part.id FROM part;
    """,
    "b_sql": """
        CREATE MATERIALIZED VIEW of_late AS SELECT * FROM late;
        CREATE TEMPORARY VIEW late AS SELECT 4 AS id;
        CREATE MATERIALIZED VIEW checked (CONSTRAINT some EXPECT (id > 0  -- all
        ) ON VIOLATION DROP ROW) AS SELECT * FROM part;
        CREATE STREAMING TABLE newest;
        CREATE FLOW f AS AUTO CDC INTO newest FROM checked
        KEYS (id) -- of the only one
        SEQUENCE BY id -- it grows
        STORED AS SCD TYPE 2;
    """,
}
VIEW_ANSWERS = {"part": 2, "of_view": 1, "of_table": 2, "beside": 2, "silver.own": 1, "of_late": 3, "checked": 1}


def test_temporary_views_are_in_no_schema_and_hide_tables(spark: SparkSession, tmp_path: Path) -> None:
    project, report = import_files(spark, write_project(tmp_path / "shop", **VIEWS_SQL), tmp_path)
    assert [(line.kind, line.name, line.reason) for line in report.lines if line.reason] == [
        (
            "temporary view",
            "late",
            "transformations/a.sql:9 defines it too, and its readers read that one; Spark refuses two of one name. "
            "Rename one",
        )
    ]
    with running(project, report, tmp_path / "store", spark) as session:
        assert {name: session.read(name)["id"].to_pylist() for name in VIEW_ANSWERS} == {
            name: [number] for name, number in VIEW_ANSWERS.items()
        }
        assert session.read("newest").column_names == ["id", "__START_AT", "__END_AT"]


def test_an_option_that_spark_ignores_is_dropped_with_a_note(spark: SparkSession, tmp_path: Path) -> None:
    python = f"""
from pyspark import pipelines as dp

@dp.table
def orders():
    return spark.readStream.schema("{ROWS}").option("megaSchema", True).json("data/orders")

@dp.table
def recent():
    return spark.readStream.schema("{ROWS}").option("modifiedAfter", "2020-01-01").json("data/orders")
"""
    project, report = import_files(spark, write_project(tmp_path / "shop", a_py=python), tmp_path)
    dropped = "megaSchema is dropped: format json has no such option, and Spark ignores it"
    assert dropped in next(line.notes for line in report.lines if line.name == "orders_files")
    assert "only the path selects files" in reason_of(report, "recent_files"), "Spark does not ignore it"
    with running(project, report, tmp_path / "store", spark) as session:
        assert session.read("orders").num_rows == spark.read.schema(ROWS).json(f"{tmp_path}/shop/data/orders").count()


def test_a_query_with_parameters_is_taken_with_their_values(spark: SparkSession, tmp_path: Path) -> None:
    python = f"""
from datetime import date
from pyspark import pipelines as dp

@dp.table
def orders():
    return spark.readStream.schema("{ROWS}").json("data/orders")

@dp.materialized_view
def by_name():
    text = "SELECT id, :note AS note, :day AS day, ':note' AS same FROM orders WHERE amount > :least"
    return spark.sql(text, args={{"least": 3, "note": "it's", "day": date(2026, 1, 2), "unused": 1}})

@dp.materialized_view
def by_place():
    return spark.sql("SELECT id, ? AS a, ? AS b FROM orders WHERE amount > ?", args=["x", 2.5, 3])

@dp.materialized_view
def of_array():
    return spark.sql("SELECT id, :ids AS ids FROM orders", args={{"ids": [1, 2]}})
"""
    project, report = import_files(spark, write_project(tmp_path / "shop", a_py=python), tmp_path)
    assert "spark.sql with an array or a map as an argument" in reason_of(report, "of_array")
    with running(project, report, tmp_path / "store", spark) as session:
        spark.read.schema(ROWS).json(f"{tmp_path}/shop/data/orders").createOrReplaceTempView("their_orders")
        text = "SELECT id, :note AS note, :day AS day, ':note' AS same FROM their_orders WHERE amount > :least"
        named = spark.sql(text, {"least": 3, "note": "it's", "day": date(2026, 1, 2)}).toArrow()
        assert_same_answer(session.read("by_name"), named, "by_name")
        placed = spark.sql("SELECT id, ? AS a, ? AS b FROM their_orders WHERE amount > ?", ["x", 2.5, 3]).toArrow()
        assert_same_answer(session.read("by_place"), placed, "by_place")
        assert named.num_rows
        assert placed.num_rows


EXPRESSIONS = f"""
from functools import partial
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
spark = SparkSession.active()
BY_TIME = Window.partitionBy("customer").orderBy("at", "id")

@dp.materialized_view
def orders():
    return spark.read.schema("{ROWS}").json("data/orders").withColumn("pair", F.array("id", "customer"))

@dp.materialized_view
def lambdas():
    nested = F.transform("pair", lambda a: F.transform("pair", lambda b, place: a * b + place + F.col("id")))
    total = F.aggregate("pair", F.lit(0).cast("bigint"), lambda sum, one: sum + F.coalesce(one, F.lit(0)))
    return spark.table("orders").select("id", nested.alias("nested"), total.alias("total"))

@dp.materialized_view
def not_null():
    grouped = spark.table("orders").groupBy("op")
    first = F.first("customer", ignorenulls=True)
    return grouped.agg(first.isNull().alias("f"), F.max(F.struct("at", "id")).alias("m"))

@dp.materialized_view
def second():
    return spark.table("orders").select("id", F.nth_value("amount", 2, True).over(BY_TIME).alias("second"))

@dp.materialized_view
def fields():
    order = F.struct("id", "amount", "op")
    return spark.table("orders").select("id", order.dropFields("id").withField("twice", F.col("amount") * 2).alias("o"))

@dp.materialized_view
def one_by_one():
    return spark.table("orders").unpivot(["id"], ["amount"], "what", "value").where("what <> 'id' AND id > 1")

@dp.materialized_view
def sliding():
    hours = F.window("at", "36 hours", "10 hours")
    return spark.table("orders").groupBy(hours, "op").agg(F.sum("amount").alias("total"))

@dp.materialized_view
def blanks():
    return spark.table("orders").withColumn("op", F.nullif("op", F.lit("U"))).groupBy().pivot("op", ["", "I"]).count()

@dp.materialized_view
def blanks_by_customer():
    rows = spark.table("orders").withColumn("op", F.regexp_replace("op", "D", ""))
    return rows.groupBy("customer").pivot("op", ["", "I"]).agg(F.sum("amount"), F.count("id").alias("n"))

def of(op):
    return spark.table("orders").where(F.col("op") == op).select("id")

dp.materialized_view(partial(of, "U"), name="updates")
"""


def test_expressions_of_python_files_equal_spark(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", a_py=EXPRESSIONS)
    project, report = import_files(spark, spec, tmp_path)
    assert not report.refused, report.refused
    batch = Batch(spark.newSession())
    batch.run_file(spec.parent / "transformations" / "a.py", spec.parent / "data")
    with running(project, report, tmp_path / "store", spark) as session:
        for name in (
            "lambdas",
            "not_null",
            "second",
            "fields",
            "one_by_one",
            "sliding",
            "blanks",
            "blanks_by_customer",
        ):
            assert_same_answer(session.read(name), batch.answers[name].toArrow(), name)
        assert session.read("updates").to_pylist() == [{"id": 2}]


EFFECTS = f"""
from pyspark import pipelines as dp
spark.sql("SET shop.least = 3")

@dp.temporary_view
def orders():
    return spark.read.schema("{ROWS}").json("data/orders")

@dp.materialized_view
def large():
    return spark.sql("SELECT id FROM orders WHERE amount > ${{shop.least}}")

@dp.materialized_view
def written():
    spark.table("orders").write.mode("overwrite").parquet("data/out")
    return spark.table("orders")

@dp.materialized_view
def named():
    spark.table("orders").createOrReplaceTempView("mine")
    return spark.sql("SELECT * FROM mine")

@dp.materialized_view
def dropped():
    spark.sql("DROP TABLE IF EXISTS orders")
    return spark.table("orders")

@dp.materialized_view
def of_two_folders():
    return spark.read.parquet("data/a", "data/b")

dp.create_streaming_table("newest")
dp.create_auto_cdc_flow("newest", "orders", ["id"], "at")
dp.create_auto_cdc_flow("newest", "orders", ["id"], "at", name="old", once=True)

@dp.append_flow(target="nothing")
def more():
    return spark.table("orders")

spark.table("orders")
"""


def test_functions_of_python_files_only_return_rows(spark: SparkSession, tmp_path: Path) -> None:
    circle = "CREATE MATERIALIZED VIEW a AS SELECT * FROM b; CREATE MATERIALIZED VIEW b AS SELECT * FROM a;"
    b_sql = f"CREATE FLOW f AS INSERT OVERWRITE t SELECT 1; {circle}"
    spec = write_project(tmp_path / "shop", a_py=EFFECTS, b_sql=b_sql)
    project, report = import_files(spark, spec, tmp_path)
    reasons = {line.name: line.reason for line in report.refused}
    assert "DataFrame.write: the import writes nothing" in reasons["written"]
    assert not (spec.parent / "data" / "out").exists()
    assert "@dp.temporary_view" in reasons["named"]
    assert "spark.sql with DROP" in reasons["dropped"]
    assert "a read of several paths" in reasons["of_two_folders"]
    assert "AUTO CDC ONCE is not supported" in reasons["newest"]
    assert "no statement creates its target" in reasons["nothing"]
    assert "a read of a table outside of a dataset's function" in reasons["transformations/a.py"]
    assert reasons["a"] == "it reads itself through b. Remove one of the reads of this circle"
    assert len(reasons) == 10, reasons
    with running(project, report, tmp_path / "store", spark) as session:
        assert session.query("SELECT id FROM large ORDER BY id").to_pylist() == [{"id": 1}, {"id": 1}, {"id": 2}]


def test_a_column_of_auto_loader_has_a_remedy(spark: SparkSession, tmp_path: Path) -> None:
    read = f"read_files('data/orders', format => 'json', schema => '{ROWS}')"
    sql = f"CREATE STREAMING TABLE bad AS SELECT id FROM STREAM {read} WHERE _rescued_data IS NOT NULL;"
    python = f"""
from pyspark import pipelines as dp

@dp.table
def worse():
    return spark.readStream.schema("{ROWS}").json("data/orders").select("id", "_rescued_data")
"""
    _, report = import_files(spark, write_project(tmp_path / "shop", a_sql=sql, b_py=python), tmp_path)
    for name in ("bad", "worse"):
        assert "it reads _rescued_data, a column of Auto Loader" in reason_of(report, name)


JOINS = f"""
import dlt

@dlt.table
def orders():
    return spark.readStream.schema("{ROWS}").json("data/orders")

@dlt.table
def customers():
    return dlt.read("orders").groupBy("customer").count()

@dlt.table
def joined():
    return dlt.read_stream("orders").join(dlt.read("customers"), "customer").select("id", "count")

@dlt.table
def again():
    return dlt.read("orders").join(dlt.read("customers"), "customer").select("id", "count")

@dlt.table
def united():
    return dlt.read_stream("orders").select("id").union(dlt.read("customers").select("customer"))

@dlt.table
def collected():
    return dlt.read("customers").toPandas()

@dlt.table
def local():
    import pandas
    return pandas.DataFrame({{"id": [1]}})
"""


def test_only_joins_of_streams_have_the_note(spark: SparkSession, tmp_path: Path) -> None:
    project, report = import_files(spark, write_project(tmp_path / "shop", a_py=JOINS), tmp_path)
    notes = {model.name: " ".join(model.notes) for model in project.models}
    assert [name for name, text in notes.items() if "Spark joins a row of a stream once" in text] == ["joined"]
    assert "DataFrame.toPandas: it reads rows while the query is made" in reason_of(report, "collected")
    assert re.search(r"it returned pandas[\w.]*\.DataFrame, and not a DataFrame of Spark", reason_of(report, "local"))


USING_PYTHON = f"""
import json
from pyspark import pipelines as dp
from pyspark.sql import functions as F

spark.sql("USE CATALOG main")
spark.sql("USE SCHEMA silver")
spark.conf.set("least", json.load(open("settings.json"))["least"])
least = float(spark.conf.get("least"))


@dp.temporary_view
def arrived():
    return spark.readStream.schema("{ROWS}").json("data/orders").withColumn("taken_at", F.current_timestamp())


@dp.table
def dear():
    return spark.readStream.table("arrived").where(F.col("amount") > least)


@dp.table
def late():
    return spark.readStream.table("silver.dear").withColumn("seen_at", F.current_timestamp())


@dp.materialized_view
def labels():
    rows = [(1, "it's low", None, 1.5), (2, None, True, None)]
    return spark.createDataFrame(rows, "id BIGINT, name STRING, shown BOOLEAN, rate DOUBLE").join(spark.range(3), "id")


@dp.materialized_view
def by_day():
    rows = spark.read.table("arrived").dropna(subset=["customer"]).groupBy(F.window("at", "1 day").alias("day"))
    return rows.agg(F.sum("amount").alias("total")).select("day.start", "total")


dp.create_sink("shop_topic", "kafka", {{"topic": "orders"}})


@dp.append_flow(target="shop_topic")
def to_topic():
    return spark.readStream.table("dear").selectExpr("cast(id AS string) AS key", "op AS value")
"""
USING_SQL = """
CREATE MATERIALIZED VIEW unset AS SELECT '${no.such}' AS s FROM silver.dear;
CREATE MATERIALIZED VIEW counted (CONSTRAINT few EXPECT (n < ${also.none})) AS SELECT count(*) AS n FROM silver.dear;
"""


def test_python_files_use_schemas_settings_and_sinks(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", a_py=USING_PYTHON, b_sql=USING_SQL)
    (tmp_path / "shop" / "settings.json").write_text('{"least": 3.5}')
    project, report = import_files(spark, spec, tmp_path)
    assert "it reads the clock" in reason_of(report, "main_silver.late")
    assert "add no.such to `configuration`" in reason_of(report, "unset")
    assert "add also.none to `configuration`" in reason_of(report, "counted_few")
    assert outcomes(report)["counted"] is ImportOutcome.INCREMENTAL
    with running(project, report, tmp_path / "store", spark) as session:
        dear = session.query("SELECT id, taken_at IS NULL AS late FROM main_silver.dear").to_pylist()
        assert sorted((row["id"], row["late"]) for row in dear) == [(1, False), (1, False), (2, False)]
        labels = [tuple(row.values()) for row in session.query("SELECT * FROM main_silver.labels").to_pylist()]
        assert sorted(labels) == [(1, "it's low", None, 1.5), (2, None, True, None)]
        rows = spark.read.schema(ROWS).json(str(tmp_path / "shop" / "data" / "orders"))
        days = rows.dropna(subset=["customer"]).groupBy(F.window("at", "1 day").alias("day"))
        totals = days.agg(F.sum("amount").alias("total")).select("day.start", "total")
        assert_same_answer(session.read("main_silver.by_day"), totals.toArrow(), "days")
        sent = session.query("SELECT key, value FROM main_silver.shop_topic ORDER BY key, value").to_pylist()
        assert [tuple(row.values()) for row in sent] == [("1", "D"), ("1", "I"), ("2", "U")]


def test_a_trial_compares_every_view_after_a_change(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "bakery"
    shutil.copytree(BAKERY, root)
    project = read_project(spark, root / "spark-pipeline.yml")
    trial = try_project(project, judge_project(project), root / "data", spark)
    assert trial.all_equal, trial.views
    assert 0 < trial.changed_rows < trial.rows
    assert {view.name for view in trial.views} >= {"order_totals", "daily_sales", "best_products"}
    assert all(view.spark_s is not None and view.rows for view in trial.views if view.name != "returned_orders")


CLOCKS = f'''
from pyspark import pipelines as dp
from pyspark.sql.functions import col, current_timestamp, explode, input_file_name, split


@dp.table
def bronze():
    files = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json").schema("{ROWS}")
    rows = files.load("data/orders")
    return rows.withColumn("taken_at", current_timestamp()).withColumn("file", input_file_name())


@dp.table
def parts():
    rows = spark.readStream.table("bronze")
    return rows.where("amount > 3").select("id", explode(split("op", "")).alias("part")).where(col("part") != "")


@dp.materialized_view
def now_of_a_view():
    return spark.read.table("bronze").withColumn("now", current_timestamp())
'''


def test_the_clock_of_a_stream_is_the_moment_of_its_file(spark: SparkSession, tmp_path: Path) -> None:
    project, report = import_files(spark, write_project(tmp_path / "shop", a_py=CLOCKS), tmp_path)
    assert outcomes(report)["bronze"] is ImportOutcome.INCREMENTAL, reason_of(report, "bronze")
    assert outcomes(report)["parts"] is ImportOutcome.INCREMENTAL, reason_of(report, "parts")
    assert "now()" in reason_of(report, "now_of_a_view")
    with running(project, report, tmp_path / "store", spark) as session:
        (row,) = session.query("SELECT count(*) AS n, min(taken_at) AS at, max(file) AS file FROM bronze").to_pylist()
        assert row["n"] == 5
        assert row["at"] is not None
        assert row["file"].endswith("/data/orders/1.json")
        assert session.query("SELECT count(*) AS n FROM parts").to_pylist() == [{"n": 3}]
        assert not session.verify().different


RANDOM = """
import random
from datetime import datetime
from pyspark import pipelines as dp
from pyspark.sql import functions as F


@dp.materialized_view
def made():
    return spark.createDataFrame([(random.random(),)], "x DOUBLE")


@dp.materialized_view
def stamped():
    return spark.read.format("json").schema("id BIGINT").load("data/orders").withColumn("at", F.lit(datetime.now()))


@dp.materialized_view
def fixed():
    return spark.createDataFrame([(1, "a")], "id INT, name STRING")
"""


def test_a_function_that_makes_other_rows_in_its_second_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    _, report = import_files(spark, write_project(tmp_path / "shop", rows_py=RANDOM), tmp_path)
    assert "it uses chance or the clock" in reason_of(report, "made")
    assert "it uses chance or the clock" in reason_of(report, "stamped")
    assert outcomes(report)["fixed"] is ImportOutcome.INCREMENTAL


CLOCKS_SQL = f"""
CREATE STREAMING TABLE raw AS SELECT * FROM STREAM read_files('data/orders', format => 'json', schema => '{ROWS}');
CREATE MATERIALIZED VIEW staged AS
WITH parts AS (SELECT id, customer, amount, current_timestamp() AS loaded_at FROM raw)
SELECT id, current_date() AS day, customer, amount, datediff(current_date(), loaded_at) AS age, loaded_at FROM parts;
CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total FROM staged GROUP BY customer;
CREATE MATERIALIZED VIEW newest AS SELECT customer, max(loaded_at) AS at FROM staged GROUP BY customer;
CREATE MATERIALIZED VIEW today AS SELECT DISTINCT customer, current_date() AS day FROM raw;
"""
CLOCKS_PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F


@dp.table
def cleaned():
    return spark.readStream.table("raw").select("id", "amount").withColumn("cleaned_at", F.current_timestamp())


@dp.materialized_view
def amounts():
    return spark.read.table("cleaned").groupBy("amount").agg(F.count("*").alias("n"))
"""


def test_columns_with_the_clock_are_left_out_on_request(spark: SparkSession, tmp_path: Path) -> None:
    spec = write_project(tmp_path / "shop", a_sql=CLOCKS_SQL, b_py=CLOCKS_PYTHON)
    _, report = import_files(spark, spec, tmp_path)
    assert {line.name for line in report.refused} == {"staged", "totals", "newest", "today", "cleaned", "amounts"}
    assert "--leave-out-clock imports them without" in report.notes[0]
    with opened_binding(lambda: spark) as binding:
        project = read_sdp_project(read_spec(spec), "other", {}, binding, leave_out_clock=True)
    command = "tussock import sdp x --leave-out-clock"
    report = import_project(project, tmp_path / "pipelines", command, judge_project)
    assert {line.name for line in report.refused} == {"newest", "today"}
    assert reason_of(report, "newest") == "it reads loaded_at of staged, which --leave-out-clock leaves out"
    notes = {line.name: line.notes for line in report.lines}
    assert notes["staged"] == ("without day, age, loaded_at: the clock of each run would change the rows",)
    assert notes["cleaned"] == ("without cleaned_at: the clock of each run would change the rows",)
    with running(project, report, tmp_path / "store", spark) as session:
        orders = spark.read.schema(ROWS).json(str(spec.parent / "data" / "orders"))
        assert_same_answer(session.read("staged"), orders.select("id", "customer", "amount").toArrow(), "staged")
        totals = orders.groupBy("customer").agg(F.sum("amount").alias("total"))
        assert_same_answer(session.read("totals"), totals.toArrow(), "totals")
        amounts = orders.groupBy("amount").agg(F.count("*").alias("n"))
        assert_same_answer(session.read("amounts"), amounts.toArrow(), "amounts")


TOPIC = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F


@dp.table
def events():
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "localhost:1")
    return topic.option("subscribe", "events").load().select(F.col("value").cast("string").alias("text"))


@dp.materialized_view
def texts():
    return spark.table("events").groupBy("text").agg(F.countDistinct("text").alias("n"), F.count("*").alias("m"))
"""


def test_a_topic_that_cannot_be_read_now_does_not_hide_its_readers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_away(*_: object) -> None:
        raise KafkaUnavailableError("events_topic", "localhost:1", "timeout")

    monkeypatch.setattr(KafkaTopics, "describe", be_away)
    _, report = import_files(spark, write_project(tmp_path / "shop", a_py=TOPIC), tmp_path)
    assert not report.refused
    notes = {line.name: line.notes for line in report.lines}
    assert notes["events_topic"][0].startswith(
        "it was not checked: source 'events_topic': Kafka at localhost:1 did not"
    )
