"""Spark reads files in S3 without Hadoop's module for S3. Views equal Spark's read of the same bytes in a folder."""

import gzip
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import orc
from pyspark.sql import SparkSession

from tests.support.s3_servers import BUCKET
from tussock.jobs.session import Session
from tussock.jobs.sources.listing import server_options

pytestmark = pytest.mark.spark

COLUMNS = "id int, name string"


def orc_bytes() -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]}), sink)
    return sink.getvalue()


#: By source: the format, a name, bytes that only Spark reads, and options.
FILES: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "quoted": ("csv", "a [1] é.csv", b'id,name\n1,"two\nlines"\n2,b\n', {"header": "true", "multiLine": "true"}),
    "packed": ("csv", "b.csv.gz", gzip.compress(b"1;one\n 2;two\n"), {"sep": ";", "ignoreLeadingWhiteSpace": "true"}),
    "documents": ("json", "c.json", json.dumps([{"id": 1, "name": "a"}, {"id": 2}]).encode(), {"multiLine": "true"}),
    "elements": ("xml", "d.xml", b"<r><row><id>1</id><name>a</name></row><row><id>2</id></row></r>", {"rowTag": "row"}),
    "footer": ("orc", "f.orc", orc_bytes(), {}),
}


def test_files_that_only_spark_reads_equal_sparks_read_of_a_folder(
    spark: SparkSession, s3_bucket: tuple[str, Callable[[str, bytes], None]], tmp_path: Path
) -> None:
    uri, put = s3_bucket
    server = "".join(f", {option} '{value}'" for option, value in server_options(uri, {}).items())
    with Session(str(tmp_path / "store"), spark) as session:
        for source, (format, name, content, given) in FILES.items():
            put(f"spark reads/{source}/{name}", content)
            options = "".join(f", {option} '{value}'" for option, value in given.items())
            session.execute(
                f"CREATE SOURCE {source} ({COLUMNS}) USING {format} "
                f"OPTIONS (path 's3://{BUCKET}/spark reads/{source}'{server}{options}); "
                f"CREATE MATERIALIZED VIEW of_{source} AS SELECT * FROM {source}"
            )
        session.flush()
        for source, (format, name, content, given) in FILES.items():
            (tmp_path / source).mkdir()
            (tmp_path / source / name.replace("[1] ", "")).write_bytes(content)
            expected = spark.read.schema(COLUMNS).options(**given).format(format).load(str(tmp_path / source))
            found = sorted(session.read(f"of_{source}").to_pylist(), key=repr)
            assert found == sorted((row.asDict() for row in expected.collect()), key=repr), source
            assert len(found) == 2
        assert session.verify().proven
        put("spark reads/documents/e.json", b'[{"id": "x"}]')
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ((hold,),) = session.flush().held.values()
        assert f"s3://{BUCKET}/spark reads/documents/e.json" in hold.reason
        assert "webhdfs" not in hold.reason


def test_spark_reads_a_delta_table_with_nested_columns(
    spark: SparkSession, s3_bucket: tuple[str, Callable[[str, bytes], None]], tmp_path: Path
) -> None:
    uri, put = s3_bucket
    options = "".join(f", {option} '{value}'" for option, value in server_options(uri, {}).items())
    rows = [{"id": 1, "s": {"x": 5}}, {"id": 2, "s": None}]
    kind = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    table = tmp_path / "table"
    write_deltalake(str(table), pa.Table.from_pylist(rows, kind))
    for file in filter(Path.is_file, table.rglob("*")):
        put(f"spark reads/table/{file.relative_to(table)}", file.read_bytes())
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute(
            f"CREATE SOURCE t USING delta OPTIONS (path 's3://{BUCKET}/spark reads/table'{options}); "
            "CREATE MATERIALIZED VIEW v AS SELECT id, s.x FROM t"
        )
        session.flush()
        assert sorted(session.read("v").to_pylist(), key=repr) == [{"id": 1, "x": 5}, {"id": 2, "x": None}]
        assert session.verify().proven
