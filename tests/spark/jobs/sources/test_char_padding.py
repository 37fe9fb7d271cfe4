"""Trailing spaces of char(n), compared with Spark's own reader."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.spark_types import SparkSession
from tussock.jobs.delta.delta_columns import NOTE
from tussock.jobs.session import Session
from tussock.jobs.sources.char_padding import pad_column
from tussock.statestore.types import arrow_type

CASES: dict[str, tuple[str, list[Any]]] = {
    "char(3)": ("string", ["ab", "", None, "abc", "abcdef", "é", "😀", "a ", " a"]),
    "varchar(3)": ("string", ["ab", None]),
    "struct<a:char(2),b_c:varchar(9),n:struct<d:char(3)>>": (
        "struct<a:string,b_c:string,n:struct<d:string>>",
        [{"a": "x", "b_c": "y", "n": {"d": "z"}}, {"a": None, "b_c": None, "n": None}, None],
    ),
    "array<char(2)>": ("array<string>", [["a", None], [], None, ["abc"]]),
    "map<char(2),array<struct<v:char(4),k:decimal(10,2)>>>": (
        "map<string,array<struct<v:string,k:decimal(10,2)>>>",
        [[("a", [{"v": "b", "k": None}])], [], None],
    ),
    "array<map<char(1),int>>": ("array<map<string,int>>", [[[("", 1)]], None]),
}


@pytest.mark.spark
@pytest.mark.parametrize("note", CASES)
def test_values_have_the_spaces_that_spark_adds(note: str, spark: SparkSession, tmp_path: Path) -> None:
    kind, values = CASES[note]
    column = pa.chunked_array([pa.array(values, arrow_type(kind)), pa.array(values[:1], arrow_type(kind))])
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": column}), tmp_path / "t" / "x.parquet")
    spark.sql(f"CREATE TABLE of_chars (x {note}) USING parquet LOCATION '{tmp_path}/t'")
    try:
        theirs = spark.table("of_chars").toArrow()["x"].to_pylist()
    finally:
        spark.sql("DROP TABLE of_chars")
    assert pad_column(column, note).to_pylist() == theirs
    assert pad_column(column.slice(1, 2), note).to_pylist() == theirs[1:3]


@pytest.mark.spark
def test_rows_of_a_delta_table_come_and_go_with_their_spaces(tmp_path: Path) -> None:
    """A DELETE and an UPDATE identify rows by value, or replace files. Both must find the padded rows."""
    place, nested = tmp_path / "t", pa.struct([("c", pa.string()), ("v", pa.string())])
    rows = pa.table(
        {
            "p": ["k", "k", "kk"],
            "c": ["ab", "abcdef", None],
            "v": ["x", "y", "z"],
            "s": pa.array([{"c": "q", "v": "r"}, None, None], nested),
        }
    )
    write_deltalake(str(place), rows, partition_by=["p"])
    log = place / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    notes = {"p": "char(3)", "c": "char(5)", "v": "varchar(5)", "s": "struct<c:char(2),v:varchar(2)>"}
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for field in schema["fields"]:
                field["metadata"][NOTE] = notes[field["name"]]
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    with Session(str(tmp_path / "store"), runner="local") as session:
        session.execute(
            f"CREATE SOURCE s USING delta OPTIONS (path '{place}'); CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
        )
        session.flush()
        first = {"p": "k  ", "c": "ab   ", "v": "x", "s": {"c": "q ", "v": "r"}}
        others = [{"p": "k  ", "c": "abcdef", "v": "y", "s": None}, {"p": "kk ", "c": None, "v": "z", "s": None}]
        assert sorted(session.read("v").to_pylist(), key=lambda r: r["v"]) == [first, *others]
        table = DeltaTable(str(place))
        table.delete("v = 'x'")
        session.flush()
        assert sorted(session.read("v").to_pylist(), key=lambda r: r["v"]) == others
