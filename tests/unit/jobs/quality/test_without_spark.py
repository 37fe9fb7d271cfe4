"""Expectations judged without Spark: their verdicts and report pages equal Spark's. Spark judges all others."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.jobs.quality.without_spark import expectation
from tussock.jobs.quality.without_spark import key_objection, objection


def test_decimals_without_a_common_type_are_left_to_spark() -> None:
    wide = pa.table(
        {"a": pa.array([Decimal(1)], pa.decimal128(38, 0)), "b": pa.array([Decimal(1)], pa.decimal128(38, 18))}
    )
    pair = expectation("expect_column_pair_values_a_to_be_greater_than_b", column_A="a", column_B="b")
    assert objection(pair, wide) == "columns ['a', 'b'] have no common decimal type"


ODD = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "list": pa.array([[1], None], pa.list_(pa.field("item", pa.int32()))),
        "text": ["a", "b"],
        "empty": pa.array([None, None], pa.int64()),
    }
)
KNOWN = "it is not among the expectations that are known to be judged alike without Spark"


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (expectation("expect_column_value_z_scores_to_be_less_than", column="id", threshold=1), KNOWN),
        (
            expectation("expect_column_values_to_match_regex", column="text", regex="(?i)a"),
            "has a pattern with '(?i)', which is not among the supported elements of patterns",
        ),
        (expectation("expect_column_values_to_not_be_null", column="list"), "column 'list' is array<int>"),
        (expectation("expect_column_values_to_be_between", column="text", min_value="a"), "column 'text' is string"),
        (expectation("expect_column_values_to_be_between", column="id", min_value="1"), "bound '1'"),
        (expectation("expect_column_values_to_be_between", column="id", min_value=2**60), f"bound {2**60}"),
        (
            expectation("expect_column_values_to_be_between", column="id", min_value=5, max_value=1),
            "no value is between its bounds",
        ),
        (expectation("expect_column_values_to_be_between", column="id"), "no bound"),
        (
            expectation("expect_column_values_to_be_in_set", column="id", value_set=["1"]),
            "values of another type than column 'id'",
        ),
        (
            expectation("expect_column_values_to_be_in_set", column="id", value_set=[True]),
            "values of another type than column 'id'",
        ),
        (
            expectation("expect_column_values_to_be_in_set", column="text", value_set=["a", None]),
            "values of another type than column 'text'",
        ),
        (
            expectation(
                "expect_column_values_to_not_be_null", column="id", row_condition="id % 2 = 1", condition_parser="spark"
            ),
            "row_condition 'id % 2 = 1'",
        ),
        (
            expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT id FROM {batch} GROUP BY id"),
            "its query is not SELECT * FROM {batch} WHERE with simple comparisons",
        ),
        (
            expectation("expect_column_pair_values_to_be_equal", column_A="id", column_B="text"),
            "column 'text' is string",
        ),
        (
            expectation("expect_column_max_to_be_between", column="empty", max_value=1),
            "column 'empty' contains no value",
        ),
    ],
)
def test_expectations_that_may_differ_run_in_spark(item: dict[str, Any], why: str) -> None:
    assert objection(item, ODD) == why


def test_a_key_whose_text_may_differ_is_left_to_spark() -> None:
    assert key_objection(["id", "list"], ODD) == "key 'list': column 'list' is array<int>"
