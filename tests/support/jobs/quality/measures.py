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


FILLED_AMOUNT = {"type": "nullity", "column": {"name": "amount"}, "is_null": False}


SOME_SHOPS = {
    "type": "and",
    "conditions": [
        FILLED_AMOUNT,
        {"type": "comparison", "column": {"name": "shop"}, "operator": "!=", "parameter": "a"},
    ],
}


QUANTILES = {"quantiles": [0.0, 0.25, 0.5, 0.9, 1.0], "value_ranges": [[1, 5], [20, 30], *[[30, None]] * 3]}


#: Rules on single rows.
RULES = [
    expectation("expect_column_values_to_not_be_null", column="shop"),
    expectation("expect_column_values_to_be_null", column="amount"),
    expectation("expect_column_values_to_be_between", column="n", min_value=0, max_value=98, strict_max=True),
    expectation("expect_column_values_to_be_between", column="amount", min_value=-19.75, strict_min=True),
    expectation("expect_column_values_to_be_between", column="price", min_value=0, max_value=98.5),
    expectation("expect_column_values_to_be_between", column="at", max_value="2024-01-31"),
    expectation("expect_column_values_to_be_in_set", column="shop", value_set=["a", "b", "c"]),
    expectation("expect_column_values_to_be_in_set", column="n", value_set=list(range(95))),
    expectation("expect_column_values_to_not_be_in_set", column="price", value_set=[7, 8, 9]),
    expectation("expect_column_value_lengths_to_equal", column="code", value=2),
    expectation("expect_column_value_lengths_to_be_between", column="code", max_value=2),
    expectation("expect_column_values_to_match_regex", column="code", regex="^k"),
    expectation("expect_column_values_to_not_match_regex", column="code", regex="[|]"),
    expectation("expect_column_values_to_match_regex_list", column="code", regex_list=["^k1", "^k2"]),
    expectation("expect_column_values_to_match_regex_list", column="code", regex_list=["^k", "1"], match_on="all"),
    expectation("expect_column_values_to_not_match_regex_list", column="code", regex_list=["^x", "^k3"]),
    *(expectation(GREATER, column_A="n", column_B=other) for other in ("amount", "price", "id")),
    expectation(GREATER, column_A="n", column_B="id", or_equal=True),
    expectation(GREATER, column_A="n", column_B="amount", ignore_row_if="either_value_is_missing"),
    expectation(GREATER, column_A="n", column_B="amount", ignore_row_if="neither"),
    expectation("expect_column_pair_values_to_be_equal", column_A="n", column_B="id"),
    expectation("expect_column_pair_values_to_be_equal", column_A="shop", column_B="code"),
    expectation("expect_select_column_values_to_be_unique_within_record", column_list=["n", "id"]),
    expectation(
        "unexpected_rows_expectation",
        unexpected_rows_query="SELECT * FROM {batch} WHERE price < 7 OR at IN (DATE '2024-01-01')",
    ),
    expectation(
        "unexpected_rows_expectation",
        unexpected_rows_query="SELECT shop, count(*) AS rows FROM {batch} GROUP BY shop HAVING count(*) > 12;",
    ),
]


#: Each kind of measure, some more than once; about half fail in some epochs.
ITEMS = [
    *RULES,
    where("price > 50 -- dear", RULES[0]),
    where("price > 50 -- dear", expectation("expect_column_max_to_be_between", column="n", max_value=95)),
    where("shop <> 'a' OR length(code) IS NULL", expectation("expect_column_values_to_be_unique", column="code")),
    where("shop LIKE 'a%'", expectation("expect_table_row_count_to_be_between", max_value=15)),
    where(FILLED_AMOUNT, expectation("expect_column_median_to_be_between", column="n", max_value=50)),
    where(SOME_SHOPS, expectation("expect_column_distinct_values_to_be_in_set", column="shop", value_set=["b", "c"])),
    where(SOME_SHOPS, expectation("expect_compound_columns_to_be_unique", column_list=["shop", "code"])),
    expectation("expect_column_median_to_be_between", column="n", max_value=50),
    expectation("expect_column_median_to_be_between", column="price", min_value=50),
    expectation("expect_column_quantile_values_to_be_between", column="n", quantile_ranges=QUANTILES),
    expectation(
        "expect_compound_columns_to_be_unique", column_list=["shop", "n"], ignore_row_if="any_value_is_missing"
    ),
    expectation("expect_compound_columns_to_be_unique", column_list=["shop", "n"], ignore_row_if="never"),
    expectation("expect_table_columns_to_match_ordered_list", column_list=["id", "shop"]),
    expectation("expect_column_to_exist", column="at"),
    expectation("expect_table_row_count_to_be_between", min_value=45, max_value=60),
    expectation("expect_table_row_count_to_equal", value=50),
    expectation("expect_column_max_to_be_between", column="n", max_value=95),
    expectation("expect_column_max_to_be_between", column="price", max_value=90.5, strict_max=True),
    expectation("expect_column_min_to_be_between", column="amount", min_value=-10),
    expectation("expect_column_min_to_be_between", column="n", min_value=2),
    expectation("expect_column_mean_to_be_between", column="n", min_value=45, max_value=55),
    expectation("expect_column_mean_to_be_between", column="price", min_value=40),
    expectation("expect_column_sum_to_be_between", column="n", max_value=2400),
    expectation("expect_column_sum_to_be_between", column="amount", max_value=100),
    expectation("expect_column_sum_to_be_between", column="price", max_value=2400),
    expectation("expect_column_stdev_to_be_between", column="n", max_value=29),
    expectation("expect_column_stdev_to_be_between", column="amount", max_value=29),
    expectation("expect_column_unique_value_count_to_be_between", column="code", min_value=20),
    expectation("expect_column_unique_value_count_to_be_between", column="at", min_value=5),
    expectation("expect_column_proportion_of_unique_values_to_be_between", column="n", min_value=0.8),
    expectation("expect_column_proportion_of_non_null_values_to_be_between", column="n", min_value=0.9),
    expectation("expect_column_distinct_values_to_be_in_set", column="shop", value_set=["a", "b", "c"]),
    expectation("expect_column_distinct_values_to_contain_set", column="shop", value_set=["a", "b", "z"]),
    expectation("expect_column_distinct_values_to_equal_set", column="shop", value_set=["a", "b", "c", "d"]),
    expectation("expect_column_distinct_values_to_contain_set", column="n", value_set=[1, 2, 3]),
    expectation("expect_column_most_common_value_to_be_in_set", column="shop", value_set=["a", "b"], ties_okay=True),
    expectation("expect_column_values_to_be_unique", column="id"),
    expectation("expect_column_values_to_be_unique", column="code"),
    expectation("expect_column_values_to_be_unique", column="n", mostly=0.6),
    expectation("expect_compound_columns_to_be_unique", column_list=["shop", "code"]),
    expectation("expect_compound_columns_to_be_unique", column_list=["id", "shop"]),
    expectation("expect_column_values_to_not_be_null", column="n", mostly=0.95),
    expectation("expect_column_values_to_be_null", column="n", mostly=0.05),
    expectation("expect_column_values_to_be_between", column="n", min_value=5, mostly=0.95),
    expectation(
        "expect_column_values_to_be_between", column="n", min_value=50, max_value=90, strict_max=True, mostly=0.4
    ),
    expectation("expect_column_values_to_be_between", column="amount", min_value=-1.5, mostly=0.9),
    expectation("expect_column_values_to_be_in_set", column="shop", value_set=["a", "b", "c"], mostly=0.9),
    expectation("expect_column_values_to_not_be_in_set", column="n", value_set=[3, 4, 5], mostly=0.95),
    expectation("expect_column_value_lengths_to_be_between", column="code", min_value=2, mostly=0.8),
    expectation("expect_column_value_lengths_to_equal", column="code", value=2, mostly=0.8),
    expectation("expect_column_values_to_match_regex", column="code", regex="^k[0-9]+$", mostly=0.9),
    expectation("expect_column_values_to_not_match_regex", column="code", regex="[|]|\\d{2}", mostly=0.3),
]
