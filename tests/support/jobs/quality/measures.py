"""Rows and helpers of test_measures.py, which is in several lanes."""

import json
from pathlib import Path
from typing import Any

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline

VIEW = """
CREATE TABLE sales (id INT, shop STRING, at DATE, n INT, amount DOUBLE, price DECIMAL(10,2), code STRING,
    PRIMARY KEY (id));
CREATE MATERIALIZED VIEW kept AS SELECT id, shop, at, n, amount, price, code FROM sales WHERE n IS NULL OR n < 1000;
"""


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs}


def where(condition: Any, item: dict[str, Any]) -> dict[str, Any]:
    """The expectation over the rows that meet a condition."""
    parser = {"condition_parser": "spark"} if isinstance(condition, str) else {}
    return {**item, "kwargs": {**item["kwargs"], "row_condition": condition, **parser}}


GREATER = "expect_column_pair_values_a_to_be_greater_than_b"


def pipeline_in(folder: Path, items: list[dict[str, Any]], view: str = "kept", **meta: Any) -> Pipeline:
    folder = folder / "pipelines/shop"
    (folder / "quality").mkdir(parents=True, exist_ok=True)
    (folder / "views.sql").write_text(VIEW)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{folder}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{folder}/docs"\n'
    )
    (folder / f"quality/{view}.json").write_text(json.dumps({"expectations": items, "meta": meta}))
    return load_pipeline(folder)


UNIQUE = expectation("expect_column_values_to_be_unique", column="code")


MEAN = expectation("expect_column_mean_to_be_between", column="n", min_value=10)


FILLED = expectation("expect_column_values_to_not_be_null", column="shop")
