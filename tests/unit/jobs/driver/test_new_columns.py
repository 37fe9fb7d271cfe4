"""Sources whose files get new columns: they are ignored, hold the source, or become columns of it. No Spark."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support.jobs.driver.embedded import append, new_store, restate, rows
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner, no_spark
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import (
    AddSourceColumns,
    CreateSource,
    CreateView,
    KeyedBy,
    SetSourceColumns,
    SetSourceOptions,
)
from tussock.jobs.operations.health import columns_of_run
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.new_columns import evolved_fields, widened_fields
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.jobs.statements.star_notes import star_note
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("id", "bigint"), Field("name", "string"))
WITH_CITY = (*FIELDS, Field("city", "string"))
WITH_BOTH = (*WITH_CITY, Field("size", "bigint"))
OPTIONS: dict[str, dict[str, str]] = {"csv": {"header": "true"}, "json": {}, "parquet": {}}


def write(path: Path, format: str, records: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    if format == "json":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif format == "csv":
        pacsv.write_csv(pa.Table.from_pylist(list(records)), path)
    else:
        pq.write_table(pa.Table.from_pylist(list(records)), path)


def source(folder: Path, format: str, columns: str) -> CreateSource:
    options = {"path": str(folder), "columns": columns, **OPTIONS[format]}
    options |= READERS[format].default_options(options)
    return CreateSource("people", format, FIELDS, options)


def begin(tmp_path: Path, format: str, columns: str) -> MetaStore:
    write(tmp_path / "in/1", format, [{"id": 1, "name": "a"}])
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "in", format, columns))
    append(meta, CreateView("narrow", "SELECT *", Scan("people", (0, 1), FIELDS)))
    advance_store(LocalRunner(), meta)
    return meta


def columns_of(meta: MetaStore) -> list[str]:
    (people,) = [r for r in meta.read_latest().catalog.live_relations() if r.name == "people"]
    return [f"{c.name} {c.type}" for c in people.columns]


@pytest.mark.parametrize("format", OPTIONS)
def test_new_columns_become_columns_of_the_source_in_the_epoch_of_their_file(tmp_path: Path, format: str) -> None:
    meta = begin(tmp_path, format, "evolve")
    write(tmp_path / "in/2", format, [{"id": 2, "name": "b", "city": "Bern"}])
    (summary,) = advance_store(LocalRunner(), meta)
    assert "people has the new columns city string" in str(summary)
    write(tmp_path / "in/3", format, [{"id": 3, "name": "c", "city": "Chur", "size": 7}])
    advance_store(LocalRunner(), meta)
    assert columns_of(meta) == ["id bigint", "name string", "city string", "size bigint"]
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2, 3), WITH_BOTH)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None, None), (2, "b", "Bern", None), (3, "c", "Chur", 7)]
    assert rows(meta, "narrow") == [(1, "a"), (2, "b"), (3, "c")]
    assert held_sources(meta.read_latest().catalog) == {}


def test_a_run_knows_the_columns_that_its_files_brought(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    at = PipelineStore(Pipeline("shop", tmp_path, str(tmp_path / "store"), ()), meta)
    for run, column in (("one", "city"), ("two", "size")):
        write(tmp_path / f"in/{run}", "parquet", [{"id": 2, "name": "b", column: 7}])
        advance_store(LocalRunner(), meta, InputRequest(run={"run": run}))
    newest = meta.read_latest().epoch
    assert columns_of_run(at, {"run": "two"}, newest) == ("source people has the new columns size bigint",)
    assert columns_of_run(at, {"run": "one"}, newest) == ("source people has the new columns city bigint",)
    assert columns_of_run(at, {"run": "three"}, newest) == ()


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_later_file_without_the_new_column_has_null_in_it(tmp_path: Path, format: str) -> None:
    meta = begin(tmp_path, format, "evolve")
    write(tmp_path / "in/2", format, [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    write(tmp_path / "in/3", format, [{"id": 3, "name": "c"}])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None), (2, "b", "Bern"), (3, "c", None)]


@pytest.mark.parametrize("columns", ["evolve", "hold"])
@pytest.mark.parametrize("format", ["json", "parquet"])
def test_columns_and_fields_without_a_name_are_ignored(tmp_path: Path, format: str, columns: str) -> None:
    """No statement can name them, and Spark cannot read such a type."""
    meta = begin(tmp_path, format, columns)
    write(tmp_path / "in/2", format, [{"id": 2, "name": "b", "": 7, "nested": [{"": 8}]}])
    advance_store(LocalRunner(), meta)
    assert columns_of(meta) == ["id bigint", "name string"]
    assert rows(meta, "narrow") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("format", OPTIONS)
def test_a_new_column_holds_the_source_until_a_person_adds_it(tmp_path: Path, format: str) -> None:
    meta = begin(tmp_path, format, "hold")
    write(tmp_path / "in/2", format, [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    reason = held_sources(meta.read_latest().catalog)["people"]
    assert "ALTER SOURCE people ADD COLUMNS `city` string" in reason
    assert rows(meta, "narrow") == [(1, "a")]
    append(meta, SetSourceColumns("people", FIELDS, WITH_CITY))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "narrow") == [(1, "a"), (2, "b")]
    assert held_sources(meta.read_latest().catalog) == {}


def test_a_new_column_holds_the_source_until_a_person_ignores_it(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "hold")
    write(tmp_path / "in/2", "parquet", [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    options = source(tmp_path / "in", "parquet", "hold").options
    append(meta, SetSourceOptions("people", options, {**options, "columns": "ignore"}))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "narrow") == [(1, "a"), (2, "b")]
    assert columns_of(meta) == ["id bigint", "name string"]


@pytest.mark.parametrize(
    ("format", "options", "keyed", "reason"),
    [
        ("parquet", {"columns": "grow"}, False, "expected 'ignore' or 'hold' or 'evolve'"),
        ("csv", {"columns": "evolve"}, False, "csv with header 'true'"),
        ("text", {"columns": "evolve"}, False, "without Spark in avro, json, orc, parquet"),
        ("json", {"columns": "evolve", "changes": "debezium"}, True, "an envelope without a schema"),
        ("delta", {"columns": "evolve"}, False, "no such option"),
    ],
)
def test_a_source_that_cannot_know_new_columns_refuses_the_option(
    tmp_path: Path, format: str, options: dict[str, str], keyed: bool, reason: str
) -> None:
    fields = FIELDS[1:] if format == "text" else FIELDS
    given = {"path": str(tmp_path), **options}
    wanted = CreateSource("people", format, fields, given, keyed=KeyedBy((0,)) if keyed else None)
    with pytest.raises(BadOptionError, match=reason):
        reader_of(wanted).check(wanted)


@pytest.mark.parametrize(
    ("options", "text", "found"),
    [
        ({"sep": "|"}, "id|name|x,y\n1|a|3,4\n2|b|5,6\n", ["x,y string"]),
        ({"delimiter": "\\t"}, "id\tname\ta;b;c\n1\ta\t1;2;3\n", ["a;b;c string"]),
        ({"sep": ";", "quote": "'"}, "id;name;city\n1;a;'Bern; old'\n", ["city string"]),
        ({"sep": ";", "quote": ""}, 'id;name;inch\n1;a;"\n', ["inch string"]),
        ({"ignoreLeadingWhiteSpace": "true"}, "id , name , size \n1, a, 7\n", ["size bigint"]),
        ({}, "id , name\n1,a\n", []),
        ({"nullValue": "NA"}, "id,name,size\n1,a,NA\n2,b,7\n", ["size bigint"]),
        ({"comment": "#"}, "# of Monday\nid,name\n1,a\n", []),
        ({"encoding": "UTF-16"}, "id,name,city\n1,a,Bern\n", []),
    ],
)
def test_a_csv_file_brings_the_columns_that_the_options_of_its_source_show(
    tmp_path: Path, options: dict[str, str], text: str, found: list[str]
) -> None:
    """Files whose records are left to Spark bring none: their reader compares the header, and holds the source."""
    path = tmp_path / "1.csv"
    path.write_text(text, options.get("encoding", "UTF-8"))
    people = CreateSource("people", "csv", FIELDS, {"path": str(tmp_path), "header": "true", **options})
    fields = evolved_fields(people, [Item(str(path), path.stat().st_size)])
    assert [f"{f.name} {f.type}" for f in fields[len(FIELDS) :]] == found


def test_a_new_column_has_the_widest_type_of_the_files_that_bring_it(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    sizes = (pa.int32(), pa.int64(), pa.int16())
    for number, kind in enumerate(sizes, 2):
        table = pa.table({"id": [number], "name": ["b"], "size": pa.array([number], kind)})
        pq.write_table(table, tmp_path / f"in/{number}")
    append(meta, CreateView("all_rows", "SELECT *", Scan("people", (0, 1), FIELDS)))
    advance_store(LocalRunner(), meta)
    assert columns_of(meta)[2:] == ["size bigint"]
    fields = (*FIELDS, Field("size", "bigint"))
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 2), (fields[0], fields[2]))))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, None), (2, 2), (3, 3), (4, 4)]
    assert held_sources(meta.read_latest().catalog) == {}


def test_a_json_key_in_other_case_is_no_further_column(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text('{"id": 1, "City": "Bern", "city": "Chur", "a_1": 2, "\\u00e9": 3}\n')
    people = CreateSource("people", "json", FIELDS, {"path": str(tmp_path)})
    fields = evolved_fields(people, [Item(str(path), path.stat().st_size)])
    assert [f.name for f in fields[len(FIELDS) :]] == ["City", "a_1", "\xe9"]


def test_a_column_of_nulls_without_a_type_gets_the_type_of_the_first_file_that_has_one(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    for number, city in enumerate((None, "Bern", None), 2):
        write(tmp_path / f"in/{number}", "parquet", [{"id": number, "name": "b", "city": city}])
        advance_store(LocalRunner(), meta)
        assert held_sources(meta.read_latest().catalog) == {}
        assert ("city string" in columns_of(meta)) == (number > 2)
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None), (2, "b", None), (3, "b", "Bern"), (4, "b", None)]


def test_the_footer_of_an_orc_file_has_its_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "1.orc"
    orc.write_table(pa.table({"ID": [1], "name": ["a"], "city": ["Bern"], "size": [1.5]}), path)
    people = CreateSource("people", "orc", FIELDS, {"path": str(tmp_path)})
    waiting = [Item(str(path), path.stat().st_size)]
    assert evolved_fields(people, waiting) == (*WITH_CITY, Field("size", "double"))


def star(width: int, *, or_replace: bool = False) -> CreateView:
    scan = Scan("people", tuple(range(width)), WITH_BOTH[:width])
    return CreateView("everything", "SELECT * FROM people", scan, or_replace=or_replace)


def relation_of(meta: MetaStore, name: str) -> Relation:
    (relation,) = [r for r in meta.read_latest().catalog.live_relations() if r.name == name]
    return relation


def test_a_note_names_the_columns_that_a_star_lacks_until_the_view_is_replaced(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    append(meta, star(2))
    write(tmp_path / "in/2", "parquet", [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    catalog = meta.read_latest().catalog
    assert "the source had the columns city of people" in star_note(catalog, relation_of(meta, "everything"))
    append(meta, star(3))  # the same words: the view stays
    append(meta, star(3, or_replace=True))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "everything") == [(1, "a", None), (2, "b", "Bern")]
    assert star_note(meta.read_latest().catalog, relation_of(meta, "everything")) == ""


@pytest.mark.parametrize(
    ("sql", "noted"),
    [
        ("SELECT p.* FROM people AS p", True),
        ("SELECT DISTINCT * FROM people", True),
        ("SELECT id, people.* FROM people", True),
        ("SELECT `p`.* FROM people p WHERE id > 2", True),
        ("SELECT o.* FROM people p JOIN other o ON o.id = p.id", False),
        ("SELECT count(*), 2 * id FROM people", False),
        ("SELECT name FROM people -- *", False),
    ],
)
def test_only_a_star_that_covers_the_source_is_noted(tmp_path: Path, sql: str, noted: bool) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    append(meta, CreateView("everything", sql, Scan("people", (0, 1), FIELDS)))
    write(tmp_path / "in/2", "parquet", [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    note = star_note(meta.read_latest().catalog, relation_of(meta, "everything"))
    assert bool(note) == noted, note


KEYED = ("upsert", "operations", "snapshot")


def keyed_source(folder: Path, changes: str, columns: str = "evolve") -> CreateSource:
    options = {"path": str(folder), "columns": columns, "changes": changes}
    options |= {"op_column": "name"} if changes == "operations" else {}
    options |= READERS["parquet"].default_options(options)
    return CreateSource("people", "parquet", FIELDS, options, keyed=KeyedBy((0,)))


@pytest.mark.parametrize("changes", KEYED)
def test_a_keyed_source_takes_new_columns_and_has_null_in_earlier_rows(tmp_path: Path, changes: str) -> None:
    folder = tmp_path / "in"
    write(folder / "1.parquet", "parquet", [{"id": 1, "name": "i"}, {"id": 2, "name": "i"}])
    meta = new_store(tmp_path / "store")
    append(meta, keyed_source(folder, changes))
    append(meta, CreateView("narrow", "SELECT *", Scan("people", (0, 1), FIELDS)))
    advance_store(LocalRunner(), meta)
    write(folder / "2.parquet", "parquet", [{"id": 2, "name": "u", "city": "Bern"}, {"id": 3, "name": "i"}])
    advance_store(LocalRunner(), meta)
    assert columns_of(meta) == ["id bigint", "name string", "city string"]
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    write(folder / "3.parquet", "parquet", [{"id": 4, "name": "i", "city": "Chur", "size": 7}])
    advance_store(LocalRunner(), meta)
    changed = [(1, "i", None), (2, "u", "Bern"), (3, "i", None)]
    assert rows(meta, "wide") == [*([] if changes == "snapshot" else changed), (4, "i", "Chur")]
    assert rows(meta, "people")[-1] == (4, "i", "Chur", 7)
    assert rows(meta, "narrow") == [row[:2] for row in rows(meta, "wide")]
    assert held_sources(meta.read_latest().catalog) == {}


def test_a_correction_of_a_file_before_the_new_column_counts(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "1.parquet", "parquet", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    meta = new_store(tmp_path / "store")
    append(meta, keyed_source(folder, "upsert"))
    advance_store(LocalRunner(), meta)
    write(folder / "2.parquet", "parquet", [{"id": 2, "name": "c", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    restate(meta, "people", folder / "2.parquet", gone=True)
    assert rows(meta, "people") == [(1, "a", None), (2, "b", None)]
    write(folder / "1.parquet", "parquet", [{"id": 1, "name": "d", "city": "Chur"}])
    restate(meta, "people", folder / "1.parquet")
    assert rows(meta, "people") == [(1, "d", "Chur")]


def test_the_columns_of_another_session_and_those_of_files_are_all_added(tmp_path: Path) -> None:
    meta = begin(tmp_path, "parquet", "evolve")
    write(tmp_path / "in/2", "parquet", [{"id": 2, "name": "b", "size": 7, "city": "Bern"}])
    append(meta, AddSourceColumns("people", FIELDS, (Field("city", "string"),)))
    advance_store(LocalRunner(), meta)
    assert columns_of(meta) == ["id bigint", "name string", "city string", "size bigint"]
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2, 3), WITH_BOTH)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None, None), (2, "b", "Bern", 7)]


@pytest.mark.parametrize(
    ("was", "arrow", "now"),
    [
        ("int", pa.int64(), "bigint"),
        ("int", pa.float64(), "double"),
        ("float", pa.float64(), "double"),
        ("decimal(5,2)", pa.decimal128(9, 3), "decimal(9,3)"),
        ("bigint", pa.float64(), "bigint"),  # would lose digits
        ("bigint", pa.int32(), "bigint"),
        ("string", pa.int64(), "string"),
    ],
)
def test_a_wider_type_of_a_file_becomes_the_type_of_the_column(
    tmp_path: Path, was: str, arrow: pa.DataType, now: str
) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"ID": pa.array([1], arrow)}), path)
    people = CreateSource("people", "parquet", (Field("id", was),), {"path": str(tmp_path)})
    assert widened_fields(people, [Item(str(path), path.stat().st_size)]) == (Field("id", now),)


def test_a_session_widens_a_source_that_no_view_reads_without_spark(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "1", "parquet", [{"id": 1, "name": "a"}])
    meta = new_store(tmp_path / "store")
    options = {"path": str(folder), "columns": "evolve", "missing": "null", "retain": "files"}
    append(meta, CreateSource("people", "parquet", (Field("id", "int"), FIELDS[1]), options))
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}), folder / "1")
    advance_store(LocalRunner(), meta)
    write(folder / "2", "parquet", [{"id": 1 << 40, "name": "b", "city": "Bern"}])
    with Session(str(tmp_path / "store"), spark=no_spark, runner="local") as session:
        summary = session.flush()
    assert "people has wider columns: id bigint (was int)" in str(summary)
    assert columns_of(meta) == ["id bigint", "name string", "city string"]
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None), (1 << 40, "b", "Bern")]


def avro_file(schema: object) -> bytes:
    """The header of an Avro file without records."""

    def text(value: bytes) -> bytes:
        size, encoded = len(value) << 1, b""
        while size > 127:
            encoded, size = encoded + bytes([size & 127 | 128]), size >> 7
        return encoded + bytes([size]) + value

    return b"Obj\x01" + bytes([2]) + text(b"avro.schema") + text(json.dumps(schema).encode()) + b"\0" + bytes(16)


def test_the_header_of_an_avro_file_has_its_columns(tmp_path: Path) -> None:
    place = {"type": "record", "name": "Place", "namespace": "org.geo", "fields": [{"name": "x", "type": "double"}]}
    fields = {
        "id": ["null", "long"],
        "name": "string",
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "day": {"type": "int", "logicalType": "date"},
        "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        "tags": {"type": "array", "items": "Kind"},
        "place": ["null", place],
        "other": {"type": "map", "values": "org.geo.Place"},
        "number": ["int", "long"],
        "choice": ["string", "boolean"],
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    path = tmp_path / "1.avro"
    path.write_bytes(avro_file(schema))
    people = CreateSource("people", "avro", FIELDS, {"path": str(tmp_path)})
    found = evolved_fields(people, [Item(str(path), path.stat().st_size)])
    assert [f"{f.name} {f.type}" for f in found[2:]] == [
        "at timestamp",
        "day date",
        "price decimal(9,2)",
        "kind string",
        "tags array<string>",
        "place struct<x:double>",
        "other map<string,struct<x:double>>",
        "number bigint",
        "choice struct<member0:string,member1:boolean>",
    ]


@pytest.mark.parametrize("keyed", [True, False])
def test_an_undo_takes_a_column_back_that_a_file_brought_and_its_file_brings_it_again(
    tmp_path: Path, keyed: bool
) -> None:
    folder = tmp_path / "in"
    write(folder / "1.parquet", "parquet", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    meta = new_store(tmp_path / "store")
    append(meta, keyed_source(folder, "upsert") if keyed else source(folder, "parquet", "evolve"))
    append(meta, CreateView("narrow", "SELECT *", Scan("people", (0, 1), FIELDS)))
    advance_store(LocalRunner(), meta)
    good = meta.read_latest().epoch
    write(folder / "2.parquet", "parquet", [{"id": 3, "name": "c", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    advance_store(LocalRunner(), meta)
    bad = meta.read_latest().epoch

    for to, columns, last in ((good, 2, 2), (bad, 3, 3), (good, 2, 2)):
        run_epoch(LocalRunner(), meta, inject_undo(meta, to, keeps_input=False, run={}))
        assert len(columns_of(meta)) == columns
        assert rows(meta, "narrow") == [(1, "a"), (2, "b"), (3, "c")][:last]
    advance_store(LocalRunner(), meta)
    assert columns_of(meta) == ["id bigint", "name string", "city string"]
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None), (2, "b", None), (3, "c", "Bern")]
    if keyed:
        assert rows(meta, "people") == rows(meta, "wide")
