"""`tussock preview` infers columns like Spark, without it, and prints a statement that works as pasted."""

import bz2
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.preview import CSV, TYPES
from tussock.jobs import cli
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.sources.describe import LeftOutColumnWarning, describe_source
from tussock.jobs.sources.preview import CannotPreviewError, preview_source


def _parquet_without_columns() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({}), out)
    return out.getvalue()


PARQUET_WITHOUT_COLUMNS = _parquet_without_columns()


def fields_of(path: Path, format: str = "") -> dict[str, str]:
    return {f.name: f.type for f in preview_source(str(path), format=format).source.fields}


def test_the_columns_of_csv_have_the_narrowest_type_of_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    assert fields_of(path) == TYPES
    assert preview_source(str(path)).source.options == {"path": str(path), "header": "true", "escape": '"'}


@pytest.mark.parametrize("suffix", ["csv", "json"])
@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("unit_price", ("12.50", "3"), "decimal(18,2)"),
        ("unitPrice", ("0.1", "-0.2"), "decimal(18,2)"),
        ("total", ("0.1234", "5.5"), "decimal(18,4)"),
        ("TAXES", ("1.5", ""), "decimal(18,2)"),
        ("fees", ("1.5", "2.0"), "decimal(18,2)"),
        ("amount", ("1e-7", "1.5"), "double"),
        ("amount", ("0.12345678", "1.5"), "double"),
        ("amount", ("3", "4"), "bigint"),
        ("temperature", ("12.50", "3.25"), "double"),
        ("tipping_point", ("0.5", "0.25"), "double"),
        ("latitude", ("52.52", "13.41"), "double"),
    ],
)
def test_prices_are_decimals(tmp_path: Path, suffix: str, name: str, values: tuple[str, ...], kind: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        path.write_text("".join(f"{value},x\n" for value in (name, *values)))
    else:
        path.write_text("".join(f'{{"{name}": {value or "null"}}}\n' for value in values))
    found = preview_source(str(path))
    assert found.source.fields[0].type == kind
    assert any(f"would be rounded: {name} {kind}." in note for note in found.notes) is kind.startswith("decimal")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a;b\n1;2\n", {"header": "true", "sep": ";"}),
        ("a\tb\n1\t2\n", {"header": "true", "sep": "\\t"}),
        ("a,b\n1,'x,y'\n2,'z'\n", {"header": "true", "quote": "'"}),
        ("1,2\n3,4\n", {}),
        ('a,b\n1,"x\ny"\n', {"header": "true", "multiLine": "true"}),
    ],
)
def test_the_dialect_of_csv_becomes_options(tmp_path: Path, text: str, options: dict[str, str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    found = preview_source(str(path)).source
    assert {k: v for k, v in found.options.items() if k != "path"} == options
    assert [f.name for f in found.fields] == (["a", "b"] if "header" in options else ["c1", "c2"])


def test_records_with_another_number_of_fields_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    found = preview_source(str(path))
    assert fields_of(path) == {"a": "bigint", "b": "bigint"}
    assert "Sampled records with another number of fields: 1." in found.notes[0]


def test_json_and_parquet_keep_their_nested_columns(tmp_path: Path) -> None:
    rows = [{"id": 1, "t": {"a": [1, 2]}, "at": "2026-01-01T08:00:00Z", "no": "01/02/2026"}, {"id": 2.5, "Ü": True}]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, rows)))
    types = {"id": "double", "t": "struct<a:array<bigint>>", "at": "timestamp", "no": "string", "Ü": "boolean"}
    assert fields_of(tmp_path / "a.json") == types
    (tmp_path / "b.txt").write_text(json.dumps(rows))
    assert fields_of(tmp_path / "b.txt", "json") == types
    assert preview_source(str(tmp_path / "b.txt"), format="json").source.options["multiLine"] == "true"
    columns = {"d": pa.array([1], pa.decimal128(8, 2)), "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    assert fields_of(tmp_path / "c.parquet") == {"d": "decimal(8,2)", "m": "map<string,int>"}


def test_packed_files_and_several_files_are_sampled(tmp_path: Path) -> None:
    (tmp_path / "2026-01-01.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n"))
    (tmp_path / "2026-01-02.csv.gz").write_bytes(gzip.compress(b"a,b\n1.5,y\n"))
    (tmp_path / "2026-01-03.csv.gz").write_bytes(gzip.compress(b"a,c\n1,z\n"))
    found = preview_source(f"{tmp_path}/*.csv.gz")
    assert {f.name: f.type for f in found.source.fields} == {"a": "double", "b": "string"}
    assert (found.files, found.rows.num_rows) == (3, 1)
    notes = " ".join(found.notes)
    assert f"{tmp_path}/2026-01-03.csv.gz has other columns: a, c." in notes
    assert f"With the path {tmp_path}/{{start:%Y-%m-%d}}.csv.gz, a scheduled run reads the file of its day." in notes
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(b"a\n1\n"))
    assert fields_of(tmp_path / "a.csv.bz2") == {"a": "bigint"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"a,b\n\xff,1\n", "found bytes that are not UTF-8 at byte 4, expected a text in UTF-8"),
        ("a.csv", b"a,A\n1,2\n", "found two columns named 'A', expected different names"),
        ("a.xyz", b"a", "expected a name that ends in .csv"),
        ("a.json", b"{broken\n", 'a.json", at byte'),
        ("a.json", b"1\n2\n", "found json values that are no objects, or objects without keys"),
        ("a.json", b"{}\n", "found json values that are no objects, or objects without keys"),
        ("a.csv.gz", gzip.compress(b"a\n1\n")[:9], "found no text, expected records"),
        ("a.csv.gz", b"no gzip", "found bytes that cannot be unpacked"),
        ("a.csv.bz2", b"no bzip2", "found bytes that cannot be unpacked"),
        ("a.csv", b"\n\n", "found no text, expected records"),
        ("a.parquet", PARQUET_WITHOUT_COLUMNS, "found no column of a supported type"),
    ],
)
def test_files_without_columns_are_refused_with_the_reason(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CannotPreviewError) as caught:
        preview_source(str(tmp_path / name))
    assert message in str(caught.value)


def test_new_starts_a_pipeline_over_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)
    (tmp_path / "in/day=1").mkdir(parents=True)
    (tmp_path / "in/day=1/a.csv").write_text("id,order\n1,x\n")
    assert cli.main(["new", "events", "--from", "in/day=*/*.csv"]) == 0
    assert "tussock read --pipeline events day_count" in capsys.readouterr().out
    made = load_pipeline(tmp_path / "pipelines/events")
    assert made.data == str(tmp_path / "in")
    assert made.quality is None
    assert "path '${data}/day=*/*.csv', header 'true'" in (made.folder / "sources.sql").read_text()
    assert cli.main(["preview", "in/day=1/a.csv", "--name", "Lines"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 file, 13 bytes\n\nid  order\n1   x\n")
    assert f"CREATE SOURCE lines (\n    id bigint,\n    order string\n) USING csv OPTIONS (path '{tmp_path}/in" in said


def test_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"id": 1, "": 7, "nested": [{"": 8}]}]), path)
    preview = preview_source(str(path))
    assert [f.name for f in preview.source.fields] == ["id"]
    assert preview.notes[:2] == (
        "Column '' is left out: its name is empty, so that no statement can name it.",
        "Column 'nested' is left out: a field of its struct has an empty name, which Spark cannot read in a type.",
    )
    with pytest.warns(LeftOutColumnWarning) as warned:
        created = describe_source(
            CreateSource("a", "parquet", (), {"path": str(path)}), lambda: pytest.fail("the footer has the columns")
        )
    assert [f.name for f in created.fields] == ["id"]
    assert "column '': its name is empty" in str(warned[0].message)
