"""Delta tables as sources, without a JVM.

The deltalake package writes them. At every epoch they are compared with that package's read of the version that was
taken. Tables that Spark writes: delta_alone.py.
"""

import json
import random
import shutil
import struct
import uuid
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.support.zone_rules import ruled_by_python
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import HeldSourcesError, require_not_held
from tussock.jobs.catalog.definition import SourceDefinition, definition_of
from tussock.jobs.delta.delta_log import DeltaPlace
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, SetSourceOptions
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources import delta, file_portions, snapshot_cuts
from tussock.jobs.sources.base import Division, TimeZones
from tussock.jobs.sources.delta import DeltaTables
from tussock.jobs.sources.delta_errors import MissingDeltaTableError
from tussock.jobs.sources.delta_files import DeltaEngine, DeltaPart, PinnedVersions
from tussock.jobs.sources.delta_taken import TAKEN_VERSIONS
from tussock.jobs.sources.describe import describe_source
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadPathError,
    BadTableKeyError,
    TableColumnsChangedError,
    UnskippableItemError,
)
from tussock.jobs.sources.listing import split_bucket
from tussock.jobs.sources.parquet import Split
from tussock.jobs.sources.snapshot_cuts import SnapshotCut
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.errors import InputError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("p", pa.string())])
COPY = CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1, 2), FIELDS))
COUNTED = CreateView(
    "counted",
    "SELECT p, count(*) n FROM s GROUP BY p",
    Aggregate(
        Scan("s", (2,), FIELDS[2:]),
        (Column(0, "string"),),
        (AggCall("Count", "bigint", ()),),
        (Field("p", "string"), Field("n", "bigint")),
    ),
)
ALL = CreateView(
    "everything",
    "SELECT count(*) n FROM s",
    Aggregate(Scan("s", (), ()), (), (AggCall("Count", "bigint", ()),), (Field("n", "bigint"),)),
)


def source(place: Path, fields: tuple[Field, ...] = FIELDS, **options: str) -> CreateSource:
    return CreateSource("s", "delta", fields, {"path": str(place), **options})


def table(*rows_: tuple[int, float | None, str | None]) -> pa.Table:
    return pa.table([[r[i] for r in rows_] for i in range(3)], schema=SCHEMA)


def counted(rows_: list[tuple[object, ...]]) -> Counter[str]:
    return Counter(map(repr, rows_))


def by_the_package(place: Path, version: int) -> list[tuple[object, ...]]:
    found = DeltaTable(place, version=version).to_pyarrow_table().select(["id", "v", "p"])
    return list(zip(*(c.to_pylist() for c in found.columns), strict=True))


def taken(meta: MetaStore) -> int:
    """The table's version that the committed epoch has taken."""
    version = meta.read_latest()
    (relation,) = [r for r in version.catalog.live_relations() if r.name == "s"]
    from tussock.jobs.reading.reader import open_table

    found = TAKEN_VERSIONS.read_newest(open_table(meta.objects, version, relation.state_tables[0]))
    assert found is not None
    return found.version


def require_equal(meta: MetaStore, place: Path, views: tuple[str, ...] = ("copy", "counted", "everything")) -> None:
    expected = by_the_package(place, taken(meta))
    groups = Counter(row[2] for row in expected)
    wanted = {"copy": expected, "counted": list(groups.items()), "everything": [(len(expected),)]}
    for view in views:
        assert counted(rows(meta, view)) == counted(wanted[view]), (view, taken(meta))


class Writer:
    """Makes random changes of a table, as users would."""

    def __init__(self, place: Path, seed: int, feed: bool, partitioned: bool) -> None:
        self.place, self.random = place, random.Random(seed)
        configuration = {"delta.enableChangeDataFeed": "true"} if feed else {}
        by = ["p"] if partitioned else None
        write_deltalake(place, self._rows(), partition_by=by, configuration=configuration)

    def _rows(self) -> pa.Table:
        draw = self.random
        made = [
            (draw.randrange(12), draw.choice((0.0, -0.0, 1.5, float("nan"), None)), draw.choice(("a", "b %/c", None)))
            for _ in range(8)
        ]
        return table(*made)

    def change(self) -> str:
        found, draw, at = DeltaTable(self.place), self.random, self.random.randrange(12)
        kind = draw.choice(("append", "append", "update", "delete", "merge", "overwrite", "optimize", "restore"))
        if kind == "append":
            write_deltalake(self.place, self._rows(), mode="append")
        elif kind == "update":
            found.update(predicate=f"id < {at}", updates={"v": draw.choice(("v + 1", "v"))})
        elif kind == "delete":
            found.delete(f"id = {at}")
        elif kind == "merge":
            new = table(*((i, 9.5, "m") for i in range(at, at + 3)))
            merge = found.merge(new, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
        elif kind == "overwrite":
            write_deltalake(self.place, self._rows(), mode="overwrite")
        elif kind == "optimize":
            found.optimize.compact()
        else:
            found.restore(draw.randrange(found.version())) if found.version() else None
        return kind


@pytest.mark.parametrize(("feed", "partitioned"), [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.sampled(2)
def test_views_equal_the_table_at_the_version_that_each_epoch_took(
    tmp_path: Path, feed: bool, partitioned: bool
) -> None:
    place = tmp_path / "lake" / "the table"
    writer = Writer(place, 7 + 2 * feed + partitioned, feed, partitioned)
    meta = new_store(tmp_path / "store")
    append(meta, source(place), COPY)
    runner = UnkindShuffle(3)
    for turn in range(14):
        for _ in range(writer.random.randrange(3)):
            writer.change()
        if turn == 6:
            append(meta, COUNTED, ALL)  # a later view begins with the taken version
        advance_store(runner, meta)
        require_not_held(meta.read_latest().catalog)
        require_equal(meta, place, ("copy", "counted", "everything") if turn >= 6 else ("copy",))
        assert taken(meta) == DeltaTable(place).version()


def test_an_epoch_takes_as_many_versions_as_its_bytes_allow_and_at_least_one(tmp_path: Path) -> None:
    place = tmp_path / "t"
    writer = Writer(place, 1, True, False)
    meta = new_store(tmp_path / "store")
    append(meta, source(place), COPY, COUNTED, ALL)
    advance_store(LocalRunner(), meta)
    while DeltaTable(place).version() < 5:
        writer.change()
    versions = []
    while taken(meta) < DeltaTable(place).version():
        barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=1))
        assert barrier is not None
        run_epoch(LocalRunner(), meta, barrier)
        versions.append(taken(meta))
        require_equal(meta, place)
    assert versions == [1, 2, 3, 4, 5]


def written_in_files(place: Path, files: int, rows_each: int) -> list[tuple[object, ...]]:
    """Write a table of some files, each with two row groups. Returns its rows by the paths of their files."""
    for number in range(files):
        ids = range(number * rows_each, (number + 1) * rows_each)
        properties = WriterProperties(max_row_group_size=rows_each // 2 + 1)
        write_deltalake(
            place, table(*((i, float(i), "ab"[i % 2]) for i in ids)), mode="append", writer_properties=properties
        )
    names = sorted(DeltaTable(place).get_add_actions().column("path").to_pylist())
    return [row for name in names for row in by_position(place / name)]


def by_position(file: Path) -> list[tuple[object, ...]]:
    return list(zip(*(c.to_pylist() for c in pq.read_table(file).columns), strict=True))


def epoch_over(meta: MetaStore, rows_of_limit: int | None) -> bool:
    """Run one epoch that may read as many rows. Returns whether something waited."""
    settings = EpochSettings(max_bytes=None if rows_of_limit is None else rows_of_limit * file_portions.ROW_BYTES)
    barrier = inject_barrier(meta, settings=settings)
    if barrier is not None:
        run_epoch(LocalRunner(), meta, barrier)
    return barrier is not None


@pytest.mark.parametrize(("limit", "epochs"), [(7, 4 * 3 + 1), (20, 4 + 1), (1_000, 1 + 1)])
def test_a_large_first_version_is_taken_in_portions_of_files_and_rows(
    limit: int, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_cuts, "LEAST_PORTION_BYTES", 1)
    place, meta = tmp_path / "table", new_store(tmp_path / "store")
    last = (99, 9.0, "new")
    all_rows = [*written_in_files(place, files=4, rows_each=20), last]
    append(meta, source(place), COPY, COUNTED)
    sizes = [0]
    while epoch_over(meta, limit):
        there = rows(meta, "copy")
        sizes.append(len(there))
        assert sizes[-2] < sizes[-1] <= sizes[-2] + limit
        assert counted(there) == counted(all_rows[: len(there)]), "rows of the first files, each once"
        assert counted(rows(meta, "counted")) == counted(list(Counter(row[2] for row in there).items()))
        if len(sizes) == 2:  # the portions stay those of one version
            append(meta, msgspec.structs.replace(COPY, name="late"))
            write_deltalake(place, table(last), mode="append")
    assert len(sizes) == epochs + 1
    assert counted(rows(meta, "copy")) == counted(rows(meta, "late")) == counted(all_rows)


def test_the_limit_of_an_epoch_may_change_between_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cuts, "LEAST_PORTION_BYTES", 1)
    place, meta = tmp_path / "table", new_store(tmp_path / "store")
    all_rows = written_in_files(place, files=3, rows_each=20)
    append(meta, source(place), COPY)
    for limit, there in ((7, 7), (3, 10), (30, 20), (25, 40), (None, 60)):
        assert epoch_over(meta, limit)
        assert counted(rows(meta, "copy")) == counted(all_rows[:there])
    assert not epoch_over(meta, None)


def test_with_a_key_a_view_needs_no_state_besides_its_rows(tmp_path: Path) -> None:
    place = tmp_path / "t"
    write_deltalake(place, table((1, 1.0, "a"), (2, 2.0, "b")), configuration={"delta.enableChangeDataFeed": "true"})
    meta = new_store(tmp_path / "store")
    append(meta, source(place, key="ID"), COPY, ALL)
    advance_store(LocalRunner(), meta)
    for number in range(4):
        DeltaTable(place).update(predicate="id = 1", new_values={"v": f"{number}.5"})
        if number == 2:
            write_deltalake(place, table((3, None, None)), mode="append")
        if number % 2:
            advance_store(LocalRunner(), meta)
            require_equal(meta, place, ("copy", "everything"))
    (copy,) = [r for r in meta.read_latest().catalog.live_relations() if r.name == "copy"]
    assert [t.name for t in copy.state_tables] == ["rows"]
    assert [c.name for c in copy.columns] == ["id", "v", "p"]


class Apart(LocalRunner):
    """Runs each unit, however small the epoch is."""

    def may_unite(self, task: EpochTask) -> bool:
        return False


@pytest.mark.parametrize("key", [{}, {"key": "ID"}], ids=["by value", "by key"])
@pytest.mark.parametrize("runner", [LocalRunner(), Apart()], ids=["united", "apart"])
def test_a_file_that_is_written_again_costs_the_rows_that_differ(
    tmp_path: Path, key: dict[str, str], runner: LocalRunner
) -> None:
    place = tmp_path / "t"
    rows = [(n, float("nan") if n % 3 else -0.0, None if n % 2 else "a") for n in range(100)]
    write_deltalake(place, table(*rows))
    meta = new_store(tmp_path / "store", units=3)
    append(meta, source(place, **key), COPY, ALL)
    advance_store(runner, meta)
    DeltaTable(place).update(predicate="id = 7", new_values={"v": "0.5"})
    (done,) = advance_store(runner, meta)
    assert done.rows["s"].rows_out == 2, "99 rows are in both files"
    require_equal(meta, place, ("copy", "everything"))


def gone_by_vacuum(place: Path) -> None:
    DeltaTable(place).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def reason(meta: MetaStore) -> str:
    advance_store(LocalRunner(), meta)
    with pytest.raises(HeldSourcesError, match="Everything else was taken and committed") as raised:
        require_not_held(meta.read_latest().catalog)
    return raised.value.reasons["s"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", table((1, 1.0, "a"), (2, 2.0, "b"), (2, 2.0, "b")))
    return tmp_path / "t"


@pytest.fixture
def meta(tmp_path: Path, place: Path) -> MetaStore:
    made = new_store(tmp_path / "store")
    append(made, source(place), COPY)
    advance_store(LocalRunner(), made)
    require_equal(made, place, ("copy",))
    return made


def test_a_removed_and_vacuumed_file_holds_the_source_until_it_is_back(
    meta: MetaStore, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place, tmp_path / "kept")
    DeltaTable(place).delete("id = 1")
    gone_by_vacuum(place)
    before = rows(meta, "copy")
    why = reason(meta)
    for said in ("since version 0, the last one read, cannot be read", ".parquet is gone", "DROP SOURCE s"):
        assert said in why
    assert rows(meta, "copy") == before
    for file in (tmp_path / "kept").glob("*.parquet"):
        shutil.copy(file, place)
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    require_equal(meta, place, ("copy",))


def test_old_files_that_a_delta_vacuum_removes_are_not_needed(meta: MetaStore, place: Path) -> None:
    for number in range(3):
        DeltaTable(place).update(new_values={"v": f"{number}.5"})
        advance_store(LocalRunner(), meta)
        gone_by_vacuum(place)
    require_equal(meta, place, ("copy",))
    append(meta, COUNTED)
    advance_store(LocalRunner(), meta)
    require_equal(meta, place, ("copy", "counted"))


def test_a_log_that_was_cleaned_up_past_the_taken_version_holds_the_source(meta: MetaStore, place: Path) -> None:
    for _ in range(2):
        write_deltalake(place, table((5, None, None)), mode="append")
    DeltaTable(place).create_checkpoint()
    (place / "_delta_log" / f"{1:020}.json").unlink()
    assert f"{1:020}.json is gone" in reason(meta)


@pytest.mark.parametrize("longer", [False, True])
def test_a_table_that_was_dropped_and_made_anew_is_not_taken_for_the_old_one(
    meta: MetaStore, place: Path, longer: bool
) -> None:
    shutil.rmtree(place)
    write_deltalake(place, table((1, 1.0, "a")))
    for _ in range(2 * longer):
        DeltaTable(place).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    before = rows(meta, "copy")
    assert "was dropped and created again" in reason(meta)
    assert rows(meta, "copy") == before


def test_a_new_column_changes_nothing_and_a_changed_one_holds_the_source(meta: MetaStore, place: Path) -> None:
    wider = table((7, 7.0, "c")).append_column("new", pa.array([1]))
    write_deltalake(place, wider, mode="append", schema_mode="merge")
    advance_store(LocalRunner(), meta)
    require_equal(meta, place, ("copy",))
    before = rows(meta, "copy")
    write_deltalake(place, pa.table({"id": [1], "v": ["text"], "p": ["a"]}), mode="overwrite", schema_mode="overwrite")
    why = reason(meta)
    assert "version 2 of the Delta table" in why, why
    assert "column 'v': found string" in why, why
    assert rows(meta, "copy") == before


def test_a_source_with_older_columns_reads_null_if_a_file_lacks_one(tmp_path: Path, place: Path) -> None:
    write_deltalake(place, table((7, 7.0, "c")).append_column("new", pa.array([1])), mode="append", schema_mode="merge")
    fields = (*FIELDS, Field("new", "bigint"))
    meta = new_store(tmp_path / "other")
    append(
        meta, source(place, fields), CreateView("copy", "SELECT * FROM s", Scan("s", (0, 3), (fields[0], fields[3])))
    )
    advance_store(LocalRunner(), meta)
    assert rows(meta, "copy") == [(1, None), (2, None), (2, None), (7, 1)]


def test_no_version_can_be_skipped(meta: MetaStore, place: Path) -> None:
    write_deltalake(place, table((7, 7.0, "c")), mode="append")
    with pytest.raises(UnskippableItemError, match="later versions of the table change the rows of earlier ones"):
        abandon_barrier(meta, Detour(skip_files=(f"{place} from version 1",)))
    advance_store(LocalRunner(), meta)
    require_equal(meta, place, ("copy",))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"key": "id, no"}, BadTableKeyError, "'no' is not a column of the source, which has id, v, p"),
        ({"key": "v"}, BadTableKeyError, "'v' has the type double"),
        ({"key": " "}, BadTableKeyError, "names no column"),
        ({"header": "true"}, BadOptionError, "a delta source has no such option; its options are path, key"),
        ({"path": "/x/*"}, BadPathError, "a Delta table is one folder"),
        ({"path": "/x/none"}, MissingDeltaTableError, "no Delta table at /x/none"),
    ],
)
def test_an_invalid_source_is_refused(place: Path, options: dict[str, str], error: type[InputError], says: str) -> None:
    made = CreateSource("s", "delta", (), {"path": str(place), **options})
    with pytest.raises(error, match=says):
        describe_source(made, lambda: pytest.fail("no Spark is needed"))


def test_the_columns_are_the_tables_own(place: Path) -> None:
    made = source(place, ())
    assert DeltaTables().describe(made, lambda: pytest.fail("no Spark is needed")) == FIELDS
    with pytest.raises(TableColumnsChangedError, match="'x': found no such column"):
        DeltaTables().describe(source(place, (Field("x", "int"),)), lambda: pytest.fail("no Spark is needed"))


def test_killed_at_any_request_the_rows_are_those_of_one_version(tmp_path: Path) -> None:
    place = tmp_path / "t"

    def story(objects: FaultyObjectStore | None, folder: Path) -> None:
        meta = open_store(folder) if objects is None else MetaStore(objects, "killed", _clock())
        advance_store(LocalRunner(), meta)

    write_deltalake(place, table((1, 1.0, "a"), (2, 2.0, "b")), configuration={"delta.enableChangeDataFeed": "true"})
    base = tmp_path / "base"
    append(new_store(base), source(place), COPY, COUNTED, ALL)
    advance_store(LocalRunner(), open_store(base))
    DeltaTable(place).update(predicate="id = 1", new_values={"v": "7.5"})
    write_deltalake(place, table((1, 7.5, "a")), mode="append")
    DeltaTable(place).delete("id = 2")
    calls: list[tuple[str, str]] = []
    number = deaths = 0
    while number <= len(calls):
        folder = tmp_path / f"store-{number}"
        shutil.copytree(base, folder)
        objects = FaultyObjectStore(open_object_store(str(folder)))
        if number < len(calls):
            objects.kill(number)
        try:
            story(objects, folder)
        except Killed:
            deaths += 1
            story(None, folder)
        calls = calls or list(objects.calls)
        meta = open_store(folder)
        require_equal(meta, place)
        assert taken(meta) == 3
        shutil.rmtree(folder)
        number = next_death(calls, number)
    assert deaths > 2


def _clock() -> Callable[[], int]:
    moments = iter(range(1_800_000_000_000, 1_900_000_000_000))
    return lambda: next(moments)


def test_only_the_feed_is_read_if_it_is_on_and_nothing_of_an_optimize(tmp_path: Path) -> None:
    place, reader = tmp_path / "t", DeltaTables()
    many = table(*((i, 1.0, "a") for i in range(20_000)))
    write_deltalake(place, many, configuration={"delta.enableChangeDataFeed": "true"})
    meta = new_store(tmp_path / "store")
    append(meta, source(place), ALL)
    advance_store(LocalRunner(), meta)
    DeltaTable(place).update(predicate="id = 7", new_values={"v": "2.0"})
    barrier = inject_barrier(meta)
    assert barrier is not None
    (document,) = barrier.splits.values()
    assert [p.path.partition("/")[0] for p in DeltaPlace(*split_bucket(str(place)), {}).read_commit(1).pieces] == [
        "_change_data"
    ]  # type: ignore[union-attr]
    assert 0 < reader.items(document)[0].nbytes < 5_000
    run_epoch(LocalRunner(), meta, barrier)
    write_deltalake(place, table((-1, None, None)), mode="append")
    advance_store(LocalRunner(), meta)
    DeltaTable(place).optimize.compact()
    barrier = inject_barrier(meta)
    assert barrier is not None
    assert [item.nbytes for document in barrier.splits.values() for item in reader.items(document)] == [0]
    run_epoch(LocalRunner(), meta, barrier)
    require_equal(meta, place, ("everything",))


def test_a_table_in_any_store_is_read_like_one_in_a_folder(place: Path, any_store: ObjectStore, tmp_path: Path) -> None:
    address, _, query = any_store.uri.partition("?")
    put_all(place, any_store)
    meta = new_store(tmp_path / "views")
    append(meta, CreateSource("s", "delta", FIELDS, {"path": f"{address}/the table?{query}".rstrip("?")}), COPY)
    advance_store(LocalRunner(), meta)
    assert counted(rows(meta, "copy")) == counted(by_the_package(place, 0))
    DeltaTable(place).delete("id = 1")
    put_all(place, any_store)
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    assert counted(rows(meta, "copy")) == counted(by_the_package(place, 1))


def put_all(place: Path, store: ObjectStore) -> None:
    for file in place.rglob("*"):
        if file.is_file():
            store.put(f"the table/{file.relative_to(place)}", file.read_bytes())


def clone_of(place: Path, clone: Path, form: str) -> dict[str, Any]:
    """A shallow clone of a table in Spark's form: its log names the other table's files.

    `form`: the prefix of local addresses, `file:` or `file://`. Returns the action of its one file.
    """
    log = [json.loads(line) for line in (place / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in log if "metaData" in action]
    (add,) = [action["add"] for action in log if "add" in action]
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    add |= {"path": f"{form}{place}/{add['path']}"}
    commit(clone, 0, {"protocol": protocol}, {"metaData": metadata | {"id": "a clone"}}, {"add": add})
    return add


def commit(place: Path, version: int, *actions: dict[str, Any]) -> None:
    (place / "_delta_log").mkdir(parents=True, exist_ok=True)
    (place / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    "form", ["../secret/{}", "%2E%2E/secret/{}", "{folder}/secret/{}", "file://{folder}/secret/{}"]
)
@pytest.mark.parametrize("later", [False, True], ids=["at first", "later"])
def test_a_log_that_names_a_file_outside_of_the_table_holds_its_source(tmp_path: Path, form: str, later: bool) -> None:
    write_deltalake(str(tmp_path / "secret"), table((7, 7.0, "card number")))
    write_deltalake(str(tmp_path / "t"), table((1, 1.0, "a")))
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "t"), COPY)
    if later:
        advance_store(LocalRunner(), meta)
    (add,) = [json.loads(line)["add"] for line in log_lines(tmp_path / "secret") if '"add"' in line]
    commit(tmp_path / "t", 1, {"add": add | {"path": form.format(add["path"], folder=tmp_path)}})
    advance_store(LocalRunner(), meta)
    with pytest.raises(HeldSourcesError, match=r"outside of the table's folder.*set the option clone_of"):
        require_not_held(meta.read_latest().catalog)
    assert rows(meta, "copy") == ([(1, 1.0, "a")] if later else [])


@pytest.mark.parametrize("checkpoint", [False, True], ids=["log", "checkpoint"])
@pytest.mark.parametrize("kind", ["absolute", "prefix"])
def test_a_deletion_vector_outside_of_the_table_holds_its_source(tmp_path: Path, kind: str, checkpoint: bool) -> None:
    write_deltalake(str(tmp_path / "t"), table((1, 1.0, "a"), (2, 2.0, "b")))
    lines = [json.loads(line) for line in log_lines(tmp_path / "t")]
    (metadata,) = [line["metaData"] for line in lines if "metaData" in line]
    (add,) = [line["add"] for line in lines if "add" in line]
    vector = stored_vector(tmp_path / "secret", 1)
    if kind == "absolute":
        vector |= {"storageType": "p", "pathOrInlineDv": f"file://{tmp_path}/secret/deletion_vector_{ID}.bin"}
    else:
        vector |= {"storageType": "u", "pathOrInlineDv": f"../secret/{z85(ID.bytes)}"}
    commit(tmp_path / "t", 0, protocol(), {"metaData": metadata}, {"add": add | {"deletionVector": vector}})
    assert pa.table(DeltaTable(str(tmp_path / "t")).deletion_vectors()).num_rows == 1, "the package reads it"
    if checkpoint:
        DeltaTable(str(tmp_path / "t")).create_checkpoint()
        (tmp_path / "t" / "_delta_log" / f"{0:020}.json").unlink()
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "t"), COPY)
    advance_store(LocalRunner(), meta)
    with pytest.raises(HeldSourcesError, match="outside of the table's folder"):
        require_not_held(meta.read_latest().catalog)
    append(meta, changed_options(meta, clone_of=str(tmp_path / "secret")))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "copy") == [(1, 1.0, "a")]


def changed_options(meta: MetaStore, **more: str) -> SetSourceOptions:
    (relation,) = [r for r in meta.read_latest().catalog.live_relations() if r.name == "s"]
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    known = definition.statement.options
    return SetSourceOptions("s", known, {**known, **more})


def log_lines(place: Path) -> list[str]:
    return (place / "_delta_log" / f"{0:020}.json").read_text().splitlines()


def protocol() -> dict[str, Any]:
    features = ["deletionVectors"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": features, "writerFeatures": features}}


ID = uuid.UUID("0badc0de-0000-4000-8000-00000000cafe")


def stored_vector(folder: Path, *positions: int) -> dict[str, Any]:
    """Write a deletion vector as a file of its own. Returns its descriptor without its place."""
    data = bitmap(*positions)
    folder.mkdir()
    stored = b"\1" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{ID}.bin").write_bytes(stored)
    return {"offset": 1, "sizeInBytes": len(data), "cardinality": len(positions)}


def deletion_vector(*positions: int) -> dict[str, Any]:
    """An inline deletion vector: a roaring bitmap of one container, in Z85."""
    data = bitmap(*positions)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(data + b"\0" * (-len(data) % 4)),
        "sizeInBytes": len(data),
        "cardinality": len(positions),
    }


def bitmap(*positions: int) -> bytes:
    container = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16) + struct.pack(
        f"<{len(positions)}H", *positions
    )
    return struct.pack("<IQI", 1681511377, 1, 0) + container


def z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    numbers = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(digits[number // 85**place % 85] for number in numbers for place in (4, 3, 2, 1, 0))


@pytest.mark.parametrize("form", ["file:", "file://"])
def test_a_shallow_clone_is_read_across_its_first_deletion_vector(tmp_path: Path, form: str) -> None:
    write_deltalake(str(tmp_path / "t"), table((1, 1.0, "a"), (2, 2.0, "b"), (3, 3.0, "c")))
    add = clone_of(tmp_path / "t", tmp_path / "clone", form)
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "clone", clone_of=str(tmp_path / "t")), COPY)
    advance_store(LocalRunner(), meta)
    remove = {
        "path": add["path"],
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": add["size"],
    }
    commit(tmp_path / "clone", 1, {"remove": remove}, {"add": add | {"deletionVector": deletion_vector(1)}})
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    truth = DeltaTable(str(tmp_path / "clone")).deletion_vectors()
    assert pa.table(truth)["selection_vector"].to_pylist() == [[True, False, True]]
    assert rows(meta, "copy") == [(1, 1.0, "a"), (3, 3.0, "c")]


def test_a_file_is_measured_once_however_many_portions_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cuts, "LEAST_PORTION_BYTES", 1)
    measured: list[str] = []
    measure = delta.measure_parquet
    monkeypatch.setattr(delta, "measure_parquet", lambda f, options: measured.append(f.path) or measure(f, options))
    place, meta = tmp_path / "table", new_store(tmp_path / "store")
    written_in_files(place, files=2, rows_each=20)
    append(meta, source(place), COPY)
    while epoch_over(meta, 3):
        pass
    assert len(rows(meta, "copy")) == 40
    assert max(Counter(measured).values()) <= 2, "in its own epoch, and perhaps in the one that ends before it"


def test_a_row_that_no_epoch_may_read_holds_the_source_with_its_size(tmp_path: Path) -> None:
    place, meta = tmp_path / "table", new_store(tmp_path / "store")
    write_deltalake(place, table((1, 1.0, "a" * (40 << 20)), (2, 2.0, "b")))
    append(meta, source(place), COPY)
    epoch_over(meta, 1)
    with pytest.raises(HeldSourcesError, match="a record of 41,9") as raised:
        require_not_held(meta.read_latest().catalog)
    assert "--skip-file" not in str(raised.value), "no file of a table can be skipped"


def test_rows_outside_of_a_portion_are_dropped_if_their_whole_file_is_read(tmp_path: Path) -> None:
    """So Spark reads a file that only it can read."""
    place = tmp_path / "table"
    write_deltalake(place, table(*((i, float(i), "a") for i in range(20))))
    made, snapshot = source(place), DeltaPlace("", str(place).lstrip("/"), {}).read_snapshot()
    assert snapshot is not None
    of = PinnedVersions(str(place), snapshot.id, 0, 0, start=SnapshotCut(0, 5), end=SnapshotCut(0, 9))
    zones = TimeZones(ruled_by_python("UTC"), ruled_by_python)
    (part,) = DeltaEngine().divide(made, msgspec.Raw(msgspec.json.encode(of)), Division(1, zones)).parts
    decoded = msgspec.json.decode(part, type=DeltaPart)
    for split in (decoded.split, Split(decoded.split.file)):
        one = msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(decoded, split=split)))
        assert DeltaEngine().read(made, one, (0,)).rows.column(0).to_pylist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("kind", "declared", "values", "expected"),
    [
        (pa.float32(), "double", [0.1], [float(np.float32(0.1))]),  # as Spark casts the float
        (pa.float32(), "float", [0.1, float("nan")], [float(np.float32(0.1)), float("nan")]),
        (pa.binary(), "binary", [b"a", None], [b"\\u0061", None]),  # as the package writes it into the log
    ],
)
def test_a_partition_value_is_one_value_in_the_snapshot_and_in_each_change(
    tmp_path: Path, kind: pa.DataType, declared: str, values: list[Any], expected: list[Any]
) -> None:
    place, fields = tmp_path / "t", (Field("id", "bigint"), Field("p", declared))
    view = CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1), fields))

    def write(first: int) -> None:
        ids = pa.array(range(first, first + len(values)), pa.int64())
        write_deltalake(place, pa.table({"id": ids, "p": pa.array(values, kind)}), mode="append", partition_by=["p"])

    write(0)
    meta = new_store(tmp_path / "store")
    append(meta, source(place, fields), view)
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    assert counted(rows(meta, "copy")) == counted(list(enumerate(expected)))
    write(10)
    DeltaTable(place).delete("id < 10")
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    assert counted(rows(meta, "copy")) == counted(list(enumerate(expected, 10)))
