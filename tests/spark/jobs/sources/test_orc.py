"""Every type of ORC files under every declared type: read like Spark and Arrow, or held."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import orc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.sources.orc import OrcFiles, orc_reads_as
from tussock.jobs.sources.pairing import reads_as
from tussock.statestore.types import arrow_type

TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"),
    *("decimal(10,2)", "decimal(12,2)", "decimal(5,1)", "decimal(20,0)", "decimal(38,2)"),
    *("array<bigint>", "array<smallint>", "map<string,bigint>", "map<string,tinyint>"),
    *(
        "struct<a:bigint,b:string>",
        "struct<b:string>",
        "struct<B:string,z:int,A:int>",
        "struct<a:tinyint,b:string>",
        "struct<a:string>",
    ),
)
WRITTEN = {
    "boolean": pa.array([True, None]),
    "int8": pa.array([-128, 127], pa.int8()),
    "int16": pa.array([-(2**15), None], pa.int16()),
    "int32": pa.array([2**31 - 1, -(2**31)], pa.int32()),
    "int64": pa.array([2**53 + 1, -(2**63)], pa.int64()),
    "float": pa.array([0.1, -3e38], pa.float32()),
    "double": pa.array([0.1, -1.7e308], pa.float64()),
    "string": pa.array(["x", "12"]),
    "binary": pa.array([b"x", None]),
    "decimal": pa.array([Decimal("-123.45"), None], pa.decimal128(10, 2)),
    "wide": pa.array([Decimal(10**37), None], pa.decimal128(38, 0)),
    "list": pa.array([[2**31 - 1], None], pa.list_(pa.int32())),
    "map": pa.array([[("k", 2**31 - 1)], None], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": 2**31 - 1, "b": "x"}, None], pa.struct([("a", pa.int32()), ("b", pa.string())])),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", WRITTEN)
def test_a_type_reads_as_the_declared_one_only_if_spark_keeps_every_value(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Accepted files give Spark's values, with the file's number of NULLs and texts.

    A file whose values would change is held.
    """
    path, values = tmp_path / "x.orc", WRITTEN[name]
    accepted = [t for t in TYPES if orc_reads_as(values.type, arrow_type(t))]
    orc.write_table(pa.table({f"x{i}": values for i in range(len(TYPES))}), path)
    if accepted:
        declared = ", ".join(f"x{TYPES.index(t)} {t}" for t in accepted)
        read = spark.read.schema(declared).orc(str(path)).toArrow()
        for kind, column in zip(accepted, read.columns, strict=True):
            if not pa.types.is_struct(values.type):  # fields are matched by name, and may be missing
                assert column.to_pylist() == values.cast(arrow_type(kind)).to_pylist(), kind
            else:
                wanted = [f.name for f in arrow_type(kind)]
                kept = [v and {n: v.get(n.lower()) for n in wanted} for v in values.to_pylist()]
                assert column.to_pylist() == kept, kind
    fields = [Field(f"x{i}", t) for i, t in enumerate(TYPES)]
    for field in fields:
        if field.type in accepted:
            OrcFiles().require_types(pinned(path), [field], {})
        else:
            with pytest.raises(SchemaMismatchError, match="next run reads it"):
                OrcFiles().require_types(pinned(path), [field], {})


@pytest.mark.spark
def test_every_type_that_spark_reads_unchanged_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    """The rule holds no file needlessly: it accepts every pair of numbers that Parquet sources accept and Spark's ORC
    reader keeps.
    """
    for name in ("int8", "int16", "int32", "int64", "float", "double", "decimal", "string"):
        for kind in TYPES[:15]:
            if reads_as(WRITTEN[name].type, arrow_type(kind)) and not orc_reads_as(
                WRITTEN[name].type, arrow_type(kind)
            ):
                path = tmp_path / "x.orc"
                orc.write_table(pa.table({"x": WRITTEN[name]}), path)
                try:
                    kept = spark.read.schema(f"x {kind}").orc(str(path)).toArrow()["x"].to_pylist()
                except (PySparkException, Py4JJavaError):
                    continue
                assert kept != WRITTEN[name].cast(arrow_type(kind)).to_pylist(), (name, kind)


@pytest.mark.spark
def test_local_times_and_intervals_are_numbers_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads a timestamp as one of them with an error, or as another value, so such a file is held."""
    texts = {
        "timestamp_ntz": "TIMESTAMP_NTZ '2024-01-31 23:59:59.000001'",
        "interval day to second": "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "interval year to month": "INTERVAL '1-2' YEAR TO MONTH",
    }
    spark.sql(f"SELECT {', '.join(f'{t} AS x{n}' for n, t in enumerate(texts.values()))}").coalesce(1).write.orc(
        str(tmp_path / "o")
    )
    (written,) = (tmp_path / "o").glob("*.orc")
    orc.write_table(
        pa.table({f"x{n}": pa.array([0], pa.timestamp("us")) for n in range(len(texts))}), tmp_path / "t.orc"
    )
    fields = [Field(f"x{n}", kind) for n, kind in enumerate(texts)]
    OrcFiles().require_types(pinned(written), fields, {})
    for field in fields:
        with pytest.raises(SchemaMismatchError, match=f"expected {field.type}"):
            OrcFiles().require_types(pinned(tmp_path / "t.orc"), [field], {})
