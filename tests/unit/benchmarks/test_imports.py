"""Generated rows of imported projects."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.import_rows import Tables, column_of
from scripts.survey_queries import compared_literals
from tussock.jobs.importing.project import ForeignProject, Model, ProjectPlace

SCHEMAS = {
    "raw_customers": pa.schema([("id", pa.int64()), ("name", pa.string())]),
    "raw_orders": pa.schema([("id", pa.int64()), ("customer_id", pa.int64()), ("status", pa.string())]),
}


def test_every_foreign_key_has_its_row() -> None:
    tables = Tables(SCHEMAS, {}, 5_000)
    chance = np.random.default_rng(0)
    ids = column_of(tables, "raw_customers", SCHEMAS["raw_customers"].field("id"), chance)
    customers = column_of(tables, "raw_orders", SCHEMAS["raw_orders"].field("customer_id"), chance)
    assert (len(ids), len(customers)) == (100, 5_000)
    assert set(customers.to_pylist()) <= set(ids.to_pylist())


def test_a_text_has_the_values_to_which_the_sql_compares_it() -> None:
    sql = "CREATE VIEW v AS\nSELECT * FROM raw_orders WHERE status = 'open' OR status IN ('paid', 'lost')"
    models = (Model("v", "view model", ProjectPlace("v.sql"), sql),)
    project = ForeignProject("dbt", "p", Path("p"), (), models=models)
    literals = compared_literals(project)
    assert literals == {"status": ["open", "paid", "lost"]}
    values = column_of(
        Tables(SCHEMAS, literals, 1_000), "raw_orders", SCHEMAS["raw_orders"].field("status"), np.random.default_rng(0)
    )
    assert set(values.to_pylist()) == {"open", "paid", "lost", "other"}


def test_decimals_of_few_digits_have_values() -> None:
    price = pa.field("price", pa.decimal128(4, 2))
    values = column_of(Tables({"sales": pa.schema([price])}, {}, 500), "sales", price, np.random.default_rng(0))
    assert (values.type, values.null_count) == (price.type, 0)
    assert 50 < len(set(values.to_pylist())) <= 100
