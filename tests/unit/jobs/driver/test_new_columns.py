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

from tests.support.jobs.driver.embedded import append, new_store, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy, SetSourceColumns, SetSourceOptions
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.new_columns import evolved_fields
from tussock.jobs.sources.registry import READERS, reader_of
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


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_later_file_without_the_new_column_has_null_in_it(tmp_path: Path, format: str) -> None:
    meta = begin(tmp_path, format, "evolve")
    write(tmp_path / "in/2", format, [{"id": 2, "name": "b", "city": "Bern"}])
    advance_store(LocalRunner(), meta)
    append(meta, CreateView("wide", "SELECT *", Scan("people", (0, 1, 2), WITH_CITY)))
    write(tmp_path / "in/3", format, [{"id": 3, "name": "c"}])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "wide") == [(1, "a", None), (2, "b", "Bern"), (3, "c", None)]


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
        ("text", {"columns": "evolve"}, False, "without Spark in json, orc, parquet"),
        ("avro", {"columns": "hold"}, False, "without Spark in json, orc, parquet"),
        ("parquet", {"columns": "evolve", "changes": "upsert"}, True, "stay as they were created"),
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


def test_the_footer_of_an_orc_file_has_its_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "1.orc"
    orc.write_table(pa.table({"ID": [1], "name": ["a"], "city": ["Bern"], "size": [1.5]}), path)
    people = CreateSource("people", "orc", FIELDS, {"path": str(tmp_path)})
    waiting = [Item(str(path), path.stat().st_size)]
    assert evolved_fields(people, waiting) == (*WITH_CITY, Field("size", "double"))
