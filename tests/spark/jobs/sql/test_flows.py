"""AUTO CDC: random changes against a model in Python, at every epoch, and the statements that are refused.

Spark binds the flows once. The epochs run without it.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.support.spark_types import SparkSession
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.errors import NoRelationError, SqlError, UnsupportedQueryError
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, KeyedBy
from tussock.jobs.sources.base import Restated
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.catalyst import relation_of_ddl
from tussock.jobs.trouble.restate import Restating
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore

pytestmark = pytest.mark.spark

FIELDS = (
    Field("id", "bigint"),
    Field("at", "int"),
    Field("op", "string"),
    Field("name", "string"),
    Field("city", "string"),
)


class Change(NamedTuple):
    """A row of the source. `op`: U, D or T (truncate)."""

    id: int | None
    at: int | None
    op: str
    name: str | None
    city: str | None


Row = tuple[object, ...]
NULLABLE = ("name", "city")


def changes_of(events: Sequence[Change]) -> dict[int, list[Change]]:
    """The changes of each key in order. Python's sort keeps the positions of equal sequences."""
    by_key: dict[int, list[Change]] = {}
    for event in sorted((e for e in events if e.id is not None and e.at is not None), key=lambda e: e.at or 0):
        by_key.setdefault(event.id or 0, []).append(event)
    return by_key


def with_values_kept(changes: list[Change]) -> list[Change]:
    """The changes in which NULL keeps the earlier value, unless a delete came between."""
    result, before = list[Change](), Change(0, 0, "D", None, None)
    for change in changes:
        if change.op != "D" and before.op != "D":
            change = change._replace(**{c: getattr(before, c) for c in NULLABLE if getattr(change, c) is None})
        result.append(change)
        before = change if change.op != "D" else change._replace(name=None, city=None)
    return result


def current_rows(events: Sequence[Change]) -> list[Row]:
    return [(c[-1].id, c[-1].name, c[-1].city) for c in changes_of(events).values() if c[-1].op != "D"]


def current_rows_without_nulls(events: Sequence[Change]) -> list[Row]:
    kept = (with_values_kept(c)[-1] for c in changes_of(events).values())
    return [(c.id, c.name, c.city) for c in kept if c.op != "D"]


def truncated_history(events: Sequence[Change]) -> list[Row]:
    """A truncation deletes each key, before the changes of its sequence."""
    truncations = sorted({e.at for e in events if e.op == "T" and e.at is not None})
    found = list[Row]()
    for key, changes in changes_of([e for e in events if e.op != "T"]).items():
        deletes = [Change(key, at, "D", None, None) for at in truncations]
        found += intervals(sorted([*deletes, *changes], key=lambda e: e.at or 0), NULLABLE)
    return found


def rows_after_truncation(events: Sequence[Change]) -> list[Row]:
    truncated = max((e.at for e in events if e.op == "T" and e.at is not None), default=None)
    return current_rows([e for e in events if e.op != "T" and (truncated is None or (e.at or 0) >= truncated)])


def intervals(changes: list[Change], tracked: Sequence[str]) -> Iterator[Row]:
    """The intervals of one key, event by event."""
    last_of_sequence = {c.at: c for c in changes}
    opened: tuple[int | None, Change] | None = None
    for at, change in last_of_sequence.items():
        same = opened is not None and all(getattr(change, c) == getattr(opened[1], c) for c in tracked)
        if opened is not None and (change.op == "D" or not same):
            yield (change.id, opened[1].name, opened[1].city, opened[0], at)
            opened = None
        if change.op != "D":
            opened = (at if opened is None else opened[0], change)
    if opened is not None:
        yield (opened[1].id, opened[1].name, opened[1].city, opened[0], None)


def history(tracked: Sequence[str], fill: Callable[[list[Change]], list[Change]] = list) -> Callable[..., list[Row]]:
    def of(events: Sequence[Change]) -> list[Row]:
        return [row for changes in changes_of(events).values() for row in intervals(fill(changes), tracked)]

    return of


def history_of_snapshots(events: Sequence[Change]) -> list[Row]:
    """Each sequence is a whole delivery. A key that it lacks was deleted there."""
    versions = sorted({e.at for e in events if e.at is not None and e.id is not None})
    found = list[Row]()
    for key, changes in changes_of(events).items():
        there = {c.at: c for c in changes}
        deliveries = [there.get(v, Change(key, v, "D", None, None)) for v in versions]
        found += intervals(deliveries, NULLABLE)
    return found


def newest_snapshot(events: Sequence[Change]) -> list[Row]:
    newest = max((e.at for e in events if e.at is not None and e.id is not None), default=None)
    return current_rows([e for e in events if e.at == newest])


DELETES, ALL = "APPLY AS DELETE WHEN op = 'D'", "COLUMNS * EXCEPT (op, at)"
#: Name of the target -> the clauses of its flow and its model.
FLOWS: Mapping[str, tuple[str, Callable[[Sequence[Change]], list[Row]]]] = {
    "current": (f"changes KEYS (id) {DELETES} SEQUENCE BY at {ALL}", current_rows),
    "kept": (f"changes KEYS (id) IGNORE NULL UPDATES {DELETES} SEQUENCE BY at {ALL}", current_rows_without_nulls),
    "truncated": (
        f"changes KEYS (id) {DELETES} APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY at COLUMNS (id, name, city)",
        rows_after_truncation,
    ),
    "truncated_history": (
        f"changes KEYS (id) {DELETES} APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY at {ALL} STORED AS SCD TYPE 2",
        truncated_history,
    ),
    "history": (f"changes KEYS (id) {DELETES} SEQUENCE BY at {ALL} STORED AS SCD TYPE 2", history(NULLABLE)),
    "names": (
        f"changes KEYS (id) {DELETES} SEQUENCE BY at {ALL} STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (city)",
        history(("name",)),
    ),
    "kept_history": (
        f"changes KEYS (id) IGNORE NULL UPDATES {DELETES} SEQUENCE BY at {ALL} STORED AS SCD TYPE 2",
        history(NULLABLE, with_values_kept),
    ),
    "snapshots": (f"SNAPSHOT changes KEYS (id) SEQUENCE BY at {ALL} STORED AS SCD TYPE 2", history_of_snapshots),
    "newest": (f"SNAPSHOT changes KEYS (id) SEQUENCE BY at {ALL}", newest_snapshot),
}
OF_SNAPSHOTS = ("snapshots", "newest")


@pytest.fixture(scope="module")
def flow_binder(spark: SparkSession) -> Binder:
    columns = ", ".join(f"{f.name} {f.type}" for f in FIELDS)
    fields, source = FIELDS[:2], CreateSource("keyed", "json", FIELDS[:2], {}, keyed=KeyedBy((0,)))
    specs = tuple(ColumnSpec(f.name, f.type) for f in fields)
    keyed = [
        Relation(kind_id, name, kind, specs, msgspec.Raw(msgspec.json.encode({"statement": statement})))
        for kind_id, name, kind, statement in (
            (2, "keyed", RelationKind.SOURCE, source),
            (3, "pairs", RelationKind.TABLE, CreateTable("pairs", fields, (0,))),
        )
    ]
    return Binder(spark, (relation_of_ddl(1, f"changes ({columns})"), *keyed), "UTC", ("parquet",))


@pytest.fixture(scope="module")
def targets(flow_binder: Binder) -> dict[str, CreateView]:
    """The views of the flows."""
    bound = {n: flow_binder.bind(f"CREATE FLOW f AS AUTO CDC INTO {n} FROM {text}") for n, (text, _) in FLOWS.items()}
    return {name: view for name, view in bound.items() if isinstance(view, CreateView)}


def write(path: Path, events: Sequence[Change]) -> None:
    path.parent.mkdir(exist_ok=True)
    kinds = (pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string())
    columns = [pa.array([e[i] for e in events], kind) for i, kind in enumerate(kinds)]
    pq.write_table(pa.table(columns, names=[f.name for f in FIELDS]), path)


def some_events(chance: random.Random, epoch: int, ops: str) -> list[Change]:
    """Changes of few keys, whose sequences are late, equal, repeated and out of order."""
    return [
        Change(
            chance.choice([None, *range(6)]),
            chance.choice([None, *[max(0, epoch + chance.randrange(-5, 3))] * 20]),
            chance.choice(ops),
            chance.choice([None, "a", "b"]),
            chance.choice([None, "x", "y", "z"]),
        )
        for _ in range(chance.randrange(1, 12))
    ]


def require_equal(meta: MetaStore, names: Sequence[str], files: Mapping[str, list[Change]]) -> None:
    events = [event for events in files.values() for event in events]
    for name in names:
        assert rows(meta, name) == sorted(FLOWS[name][1](events), key=repr), name


@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 100))])
def test_targets_equal_the_model_at_every_epoch(
    tmp_path: Path, targets: dict[str, CreateView], seed: int, snapshots: bool
) -> None:
    chance, folder = random.Random(seed), tmp_path / "in"
    names = [n for n in FLOWS if (n in OF_SNAPSHOTS) == snapshots]
    ops = "U" if snapshots else "UUUUUUUUUUUUDDT"
    meta = new_store(tmp_path / "store", units=1 + seed % 2)
    files: dict[str, list[Change]] = {"f00.parquet": some_events(chance, 0, ops)}
    write(folder / "f00.parquet", files["f00.parquet"])
    options = {"path": str(folder), "retain": chance.choice(["files", "none"])}
    append(meta, CreateSource("changes", "parquet", FIELDS, options), *(targets[n] for n in names))
    advance_store(LocalRunner(), meta)
    require_equal(meta, names, files)
    for epoch in range(1, 10 if seed < 2 else 20):
        match chance.choice(["new"] * 5 + ["repeated", "withdrawn", "restarted"]):
            case "withdrawn" if options["retain"] == "files" and files:
                name = chance.choice(sorted(files))
                del files[name]
                if Restating(meta, "changes", Restated(str(folder / name), gone=True)).begin_restating() is not None:
                    next_epoch(LocalRunner(), meta)
                (folder / name).unlink()
            case "restarted":
                meta = open_store(tmp_path / "store", f"run {epoch}")
            case kind:
                name = f"f{epoch:02}.parquet"
                again = kind == "repeated" and bool(files)
                files[name] = list(chance.choice([*files.values()])) if again else some_events(chance, epoch, ops)
                write(folder / name, files[name])
        advance_store(LocalRunner(), meta)
        require_equal(meta, names, files)


@pytest.mark.parametrize("name", ["current", "history", "names"])
def test_targets_equal_those_of_sparks_own_statement(tmp_path: Path, targets: dict[str, CreateView], name: str) -> None:
    """Spark 4.3 computed the recorded rows (tests/support/record_auto_cdc.py)."""
    recorded = json.loads(Path(__file__).with_name("auto_cdc_of_spark.json").read_text())
    events = [Change(*change) for change in recorded["changes"]]
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    append(meta, CreateSource("changes", "parquet", FIELDS, {"path": str(folder)}), targets[name])
    for n in range(3):
        write(folder / f"{n}.parquet", events[n::3])
        advance_store(LocalRunner(), meta)
    assert rows(meta, name) == sorted(map(tuple, recorded[name]), key=repr)


def test_a_late_change_sends_only_the_intervals_of_its_key(tmp_path: Path, targets: dict[str, CreateView]) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", [Change(k, at, "U", f"{k} {at}", None) for k in range(50) for at in range(0, 100, 10)])
    meta = new_store(tmp_path / "store")
    source = CreateSource("changes", "parquet", FIELDS, {"path": str(folder)})
    append(meta, source, targets["history"])
    advance_store(LocalRunner(), meta)
    assert len(rows(meta, "history")) == 500
    write(folder / "b.parquet", [Change(7, 55, "U", "late", None)])
    (summary,) = advance_store(LocalRunner(), meta)
    assert [row for row in rows(meta, "history") if row[0] == 7 and row[3] in (50, 55)] == [
        (7, "7 50", None, 50, 55),
        (7, "late", None, 55, 60),
    ]
    assert {name: counts.rows_out for name, counts in summary.rows.items()}["history"] == 3


@pytest.mark.parametrize("scd", [1, 2])
def test_a_column_is_the_condition_of_deletes_and_truncations(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    relation = relation_of_ddl(1, "own_changes (id bigint, at int, deleted boolean, emptied boolean)")
    fields = tuple(Field(c.name, c.type) for c in relation.columns)
    target = Binder(spark, (relation,), "UTC", ("parquet",)).bind(
        "CREATE FLOW f AS AUTO CDC INTO t FROM own_changes KEYS (id) APPLY AS DELETE WHEN deleted "
        f"APPLY AS TRUNCATE WHEN emptied SEQUENCE BY at COLUMNS (id) STORED AS SCD TYPE {scd}"
    )
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    append(meta, CreateSource("own_changes", "parquet", fields, {"path": str(folder)}), target)
    changes = [(1, 1, False, None), (None, 2, None, True), (2, 3, None, None), (3, 3, None, None), (3, 4, True, False)]
    folder.mkdir()
    kinds = (pa.int64(), pa.int32(), pa.bool_(), pa.bool_())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*changes, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, names=[f.name for f in fields]), folder / "a.parquet")
    advance_store(LocalRunner(), meta)
    assert rows(meta, "t") == ([(2,)] if scd == 1 else [(1, 1, 2), (2, 3, None), (3, 3, 4)])


HEAD = "CREATE FLOW f AS AUTO CDC INTO t FROM"


@pytest.mark.parametrize(
    ("text", "error", "reason", "at"),
    [
        (f"{HEAD} changes KEYS (idd) SEQUENCE BY at", SqlError, "'idd' is no column of 'changes'", "idd)"),
        (f"{HEAD} changes KEYS (id, ID) SEQUENCE BY at", SqlError, "'ID' is named twice", "ID)"),
        (f"{HEAD} changes KEYS (id) APPLY AS DELETE WHEN opp = 1 SEQUENCE BY at", SqlError, "opp", "opp ="),
        (
            f"{HEAD} changes KEYS (id) APPLY AS DELETE WHEN op SEQUENCE BY at",
            SqlError,
            "expected a condition",
            "op SEQ",
        ),
        (f"{HEAD} changes KEYS (id) SEQUENCE BY array(at)", SqlError, "expected a number", "array"),
        (f"{HEAD} changes KEYS (id) SEQUENCE BY rand()", UnsupportedQueryError, "another value", "rand"),
        (f"{HEAD} other KEYS (id) SEQUENCE BY at", NoRelationError, "no relation `other`", "other"),
        (f"{HEAD} keyed KEYS (id) SEQUENCE BY at", SqlError, "keeps only the newest row", "keyed"),
        (f"{HEAD} pairs KEYS (id) SEQUENCE BY at", SqlError, "APPEND ONLY", "pairs"),
        (f"{HEAD} changes KEYS (id) SEQUENCE BY at COLUMNS (name)", SqlError, "COLUMNS omits 'id'", "id)"),
        (
            f"{HEAD} changes KEYS (id) SEQUENCE BY at TRACK HISTORY ON name",
            SqlError,
            "needs STORED AS SCD TYPE 2",
            "TRACK",
        ),
        (f"{HEAD} changes KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 3", SqlError, "expected 1", "3"),
        (f"{HEAD} SNAPSHOT changes KEYS (id) APPLY AS DELETE WHEN true", SqlError, "a snapshot lacks", "WHEN"),
        ("CREATE STREAMING TABLE t", SqlError, "CREATE FLOW name AS AUTO CDC INTO t", ""),
    ],
)
def test_a_flow_that_cannot_be_maintained_is_refused_at_its_place(
    flow_binder: Binder, text: str, error: type[SqlError], reason: str, at: str
) -> None:
    with pytest.raises(error) as raised:
        flow_binder.bind(text)
    assert reason in str(raised.value)
    place = raised.value.place
    assert place is not None
    assert place.column == (text.index(at) if at else len(text)) + 1


def test_the_other_spelling_of_spark_is_the_same_view(flow_binder: Binder, targets: dict[str, CreateView]) -> None:
    text = FLOWS["history"][0].replace("changes KEYS", "STREAM(changes) KEYS")
    other = flow_binder.bind(f"CREATE OR REFRESH STREAMING TABLE history FLOW AUTO CDC FROM {text}")
    assert isinstance(other, CreateView)
    assert other.plan == targets["history"].plan
