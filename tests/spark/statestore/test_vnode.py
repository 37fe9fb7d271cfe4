"""Vnodes against the xxhash package, Java's rules worked out in plain Python, and Spark itself."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.vnode import EDGES, column
from tussock.statestore.vnode import xxhash64


@pytest.mark.spark
def test_the_hash_equals_sparks_for_every_type_and_composites(spark: Any) -> None:
    groups = [[name] for name in EDGES]
    groups += [
        ["bigint", "string"],
        ["string", "double", "decimal(38,0)"],
        ["int", "binary", "boolean", "date", "float"],
    ]
    for names in groups:
        places = np.arange(max(len(EDGES[name]) for name in names))
        columns = [column(name).take(pa.array(places % len(EDGES[name]))) for name in names]
        table = pa.table(columns, [f"c{i}" for i in range(len(names))])
        typed = spark.createDataFrame(table).selectExpr(
            *(f"CAST(c{i} AS {name}) AS c{i}" for i, name in enumerate(names))
        )
        rows = typed.selectExpr("*", "xxhash64(*) AS h").toArrow()
        # Hash the rows that came back: their order need not be ours.
        ours = xxhash64([rows[name] for name in table.column_names]).astype(np.int64)
        assert rows.schema.field(0).type == table.schema.field(0).type
        assert ours.tolist() == rows["h"].to_pylist(), names


@pytest.mark.spark
def test_the_hash_of_arrays_structs_and_maps_equals_sparks(spark: Any) -> None:
    made = [
        "slice(array(c0, NULL, c0, c0), 1, pmod(hash(c0), 5))",
        "array(slice(array(c0, c0), 1, pmod(hash(c0), 3)), array(), NULL)",
        "named_struct('a', c0, 'b', array(named_struct('c', c0, 'd', CAST(1 AS int))))",
    ]
    for name in ("int", "double", "decimal(38,0)", "string", "date"):
        typed = spark.createDataFrame(pa.table([column(name)], ["c0"])).selectExpr(f"CAST(c0 AS {name}) AS c0")
        rows = typed.selectExpr("c0", *(f"{text} AS n{i}" for i, text in enumerate(made)))
        hashed = rows.selectExpr(
            "*", "xxhash64(*) AS h", *(f"xxhash64(n{i}) AS h{i}" for i in range(len(made)))
        ).toArrow()
        every = [hashed[name] for name in rows.columns]
        assert xxhash64(every).astype(np.int64).tolist() == hashed["h"].to_pylist(), name
        for i in range(len(made)):
            assert xxhash64([hashed[f"n{i}"]]).astype(np.int64).tolist() == hashed[f"h{i}"].to_pylist(), (name, made[i])
