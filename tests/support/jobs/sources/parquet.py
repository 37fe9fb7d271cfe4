"""Rows and helpers of test_parquet.py, which is in several lanes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """1,000 rows in 10 row groups; the file's columns have another order than the declared ones."""
    path = tmp_path / "rows.parquet"
    some = range(1000)
    rows = pa.table({"price": [i / 4 for i in some], "id": list(some), "Name": [f"n{i % 7}" for i in some]})
    pq.write_table(rows, path, row_group_size=100)
    return path


TYPES = [
    *(
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ),
    *("decimal(10,2)", "decimal(12,2)", "decimal(12,3)", "decimal(22,2)", "decimal(20,0)"),
]
