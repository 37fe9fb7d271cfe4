"""Key encoding against plain Python's order, and against Spark's ORDER BY."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.key import ORDERS
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.types import arrow_type

NINES = "9" * 36 + ".99"
MOMENTS = (datetime(1900, 1, 1), datetime(1970, 1, 1), datetime(2038, 1, 19, 3, 14, 8, 1))
SPARK_VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, 1, -1, 127, -128],
    "smallint": [0, 1, -1, 2**15 - 1, -(2**15)],
    "int": [0, 1, -1, 2**31 - 1, -(2**31), 256, -256],
    "bigint": [0, 1, -1, 2**63 - 1, -(2**63), 2**40, -(2**40)],
    "float": [0.5, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e-40],
    "double": [0.5, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, -5e-324],
    "decimal(18,2)": [Decimal(x) for x in ("0.00", "-0.01", "0.01", "9999999999999999.99", "-9999999999999999.99")],
    "decimal(38,2)": [Decimal(x) for x in ("0.00", "-0.01", "0.01", NINES, "-" + NINES, "184467440737095516.16")],
    "string": ["", "a", "ab", "b", "a\x00", "a\x01", "a\x00b", "ß", "中", "🙂", "\uffff", "Z"],
    "binary": [b"", b"\x00", b"\x00\x00", b"\x01", b"\x80", b"\xff", b"\xff\x00"],
    "date": [date(1, 1, 1), date(1970, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    "timestamp_ntz": [*MOMENTS],
    "array<int>": [[], [None], [None, 1], [1], [1, None], [1, 2], [-1, 5], [2]],
    "array<array<string>>": [[], [None], [[]], [[None]], [["a"]], [["a", "b"]], [["a"], ["b"]], [["a\0"]]],
    "struct<a:double,b:string>": [{"a": a, "b": b} for a in (None, -1.5, 0.0, math.nan) for b in (None, "", "a")],
}


@pytest.mark.spark
def test_keys_sort_as_sparks_order_by(spark: Any) -> None:
    for name, values in SPARK_VALUES.items():
        table = pa.table({"c": pa.array([None, *values], arrow_type(name))})
        spark.createDataFrame(table).selectExpr(f"CAST(c AS {name}) AS c").createOrReplaceTempView("t")
        for order in ORDERS:
            direction = f"{'DESC' if order.descending else 'ASC'} NULLS {'LAST' if order.nulls_last else 'FIRST'}"
            ordered = spark.sql(f"SELECT c FROM t ORDER BY c {direction}").toArrow()["c"].combine_chunks()
            keys = encode_keys(1, np.zeros(len(ordered), np.uint16), [ordered], [order]).to_pylist()
            assert keys == sorted(set(keys)), (name, direction)


@pytest.mark.spark
def test_composite_keys_sort_as_sparks_order_by(spark: Any) -> None:
    names = ["string", "double", "int"]
    rows = list(product(*([None, *SPARK_VALUES[name][:5]] for name in names)))
    table = pa.table(
        [pa.array([row[i] for row in rows], arrow_type(name)) for i, name in enumerate(names)], ["a", "b", "c"]
    )
    spark.createDataFrame(table).createOrReplaceTempView("t")
    ordered = spark.sql("SELECT * FROM t ORDER BY a DESC NULLS LAST, b ASC NULLS FIRST, c DESC NULLS FIRST").toArrow()
    key = [KeyColumn(0, descending=True, nulls_last=True), KeyColumn(1), KeyColumn(2, descending=True)]
    keys = encode_keys(1, np.zeros(len(rows), np.uint16), ordered.columns, key).to_pylist()
    assert keys == sorted(set(keys))
