"""Fields of structs that a file lacks or has in another place, compared with Spark's read under the declared schema."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.delta_by_hand import add, commit, table_of
from tests.support.jobs.sources.nested_fields import NULL, delta_rows
from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.sources.parquet import Split, read_split


def test_a_field_that_a_file_lacks_is_named_unless_it_may_be_missing(tmp_path: Path) -> None:
    path, field = tmp_path / "x.parquet", Field("s", "array<struct<x:bigint,y:struct<z:string>>>")
    pq.write_table(pa.table({"s": pa.array([[{"y": {"q": 1}, "X": 2}]])}), path)
    with pytest.raises(
        SchemaMismatchError,
        match=r"column 's\.element\.y\.z': found no such field \(the struct has q\), expected string",
    ):
        read_split(Split(pinned(path)), (0,), [field], {})
    assert read_split(Split(pinned(path)), (0,), [field], NULL).rows["s"].to_pylist() == [[{"x": 2, "y": {"z": None}}]]


def test_undeclared_fields_are_named_in_the_log_of_the_epoch(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": pa.array([[{"y": {"q": 1, "z": "a"}, "x": 2}]])}), path)
    read = read_split(Split(pinned(path)), (0,), [Field("s", "array<struct<y:struct<z:string>>>")], {})
    assert list(read.undeclared) == ["s.element.y.q int64", "s.element.x int64"]


def test_a_folder_whose_name_holds_an_escape_is_read_as_it_is_named(tmp_path: Path) -> None:
    for name in ("a b", "a%20b", "p%41", "pA", "tab\tname", "back\\slash"):
        place = tmp_path / "lake" / name
        commit(place, 0, table_of([("x", "string")]), *add(place, {"0": pa.table({"x": [name]})}))
        ours = delta_rows(CreateSource("s", "delta", (Field("x", "string"),), {"path": str(place)}))
        assert ours["x"].to_pylist() == [name]
    assert json.loads((tmp_path / "lake" / "a%20b" / "_delta_log" / f"{0:020}.json").read_text().splitlines()[0])
