"""Sources that read another store: random changes there against a model in Python, pins, and errors. No Spark.

The other store has a keyed source, `customers`, and the view `pairs` over it, whose stream key is hidden.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.unit.jobs.driver.test_keyed_sources import FIELDS, Model, Record, customers, some_records, write
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.readers import list_readers, list_stores_read
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Literal, Project, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, SetSourceOptions
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.settings.retention import Retention
from tussock.jobs.sources import other_store_epochs
from tussock.jobs.sources.errors import BadOptionError, BadTableKeyError, MissingOptionError, TableColumnsChangedError
from tussock.jobs.sources.other_store import refuse_own_store
from tussock.jobs.sources.other_store_errors import NoOtherStoreError, NoPublishedRelationError, OwnStoreError
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.texts.status import status_text
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.pin import delete_pins
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

PAIR = (Field("v", "int"), Field("s", "string"))
PAIRS = Project(Scan("customers", (2, 3), PAIR), (Column(0, "int"), Column(1, "string")), PAIR)
ALL_PAIRS = Scan("bag", (0, 1), PAIR)
COUNTED = (Field("v", "int"), Field("rows", "bigint"), Field("least", "string"))


def grouped(scan: Scan, v: int, s: int) -> Aggregate:
    calls = AggCall("Count", "bigint", (Literal(1, "int"),)), AggCall("Min", "string", (Column(s, "string"),))
    return Aggregate(scan, (Column(v, "int"),), calls, COUNTED)


def source(name: str, store: Path, relation: str, **options: str) -> CreateSource:
    fields = PAIR if relation == "pairs" else FIELDS
    return CreateSource(name, "tussock", fields, {"store": str(store), "relation": relation} | options)


VIEWS = (
    CreateView("by_key", "SELECT …", grouped(Scan("keyed", (0, 1, 2, 3), FIELDS), 2, 3)),
    CreateView("by_bag", "SELECT …", grouped(ALL_PAIRS, 0, 1)),
    CreateView("copy", "SELECT …", Scan("keyed", (0, 1, 2, 3), FIELDS)),
)


class Theirs:
    """The other store, and the model of its rows."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.chance, self.model = folder, random.Random(seed), Model(by_sequence=True)
        self.meta, self.epochs = new_store(folder / "theirs", units=self.chance.choice([1, 2, 4])), 0
        self.add([(1, 1, 1, "a"), (2, 1, 1, "a"), (3, 1, None, "b")])
        append(self.meta, customers(folder / "in", sequence_by="n"), CreateView("pairs", "SELECT …", PAIRS))
        self.advance()

    def add(self, records: Sequence[Record]) -> None:
        name = f"{self.epochs:04}.parquet"
        self.epochs += 1
        self.model.files[name] = list(records)
        write(self.folder / "in" / name, records)

    def advance(self) -> None:
        advance_store(LocalRunner(), self.meta)
        self.meta.publish(self.meta.read_latest().epoch)

    def change(self) -> None:
        self.add(some_records(self.chance, self.epochs, ["a", "b", "gone"]))
        self.advance()

    def clean(self) -> None:
        """Keep only the newest epoch, and the pinned ones."""
        meta = MetaStore(open_object_store(str(self.folder / "theirs")), "vacuum", clock_ms)
        meta.apply_retention(keep_epochs=1)
        compact_store(meta, full=True)
        clean_store(meta, Retention(keep_epochs=1, keep_ms=0))


def expected(model: Model) -> list[tuple[object, ...]]:
    groups: dict[object, list[str]] = {}
    for _, _, v, s in model.rows():
        groups.setdefault(v, []).append(s)  # type: ignore[arg-type]
    return sorted(((v, len(texts), min(texts)) for v, texts in groups.items()), key=repr)


def require_equal(meta: MetaStore, model: Model) -> None:
    assert rows(meta, "copy") == model.rows()
    assert rows(meta, "by_key") == rows(meta, "by_bag") == expected(model)


def reading_store(folder: Path, **options: str) -> MetaStore:
    meta = new_store(folder / "ours")
    there = folder / "theirs"
    append(meta, source("keyed", there, "customers", key="id", **options), source("bag", there, "pairs", **options))
    append(meta, *VIEWS)
    return meta


def pinned(theirs: Theirs) -> list[tuple[int, str]]:
    return sorted((pin.epoch, pin.holder.split(" of ")[0]) for pin in theirs.meta.all_pins())


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 6), *(pytest.param(n, 30, marks=pytest.mark.deep) for n in range(1, 101))]
)
def test_random_changes_of_another_store_give_the_rows_of_the_model(tmp_path: Path, seed: int, steps: int) -> None:
    theirs = Theirs(tmp_path, seed)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)
    for step in range(steps):
        for _ in range(theirs.chance.choice([0, 1, 1, 3])):
            theirs.change()
        match theirs.chance.choice(["none"] * 4 + ["cleaned", "restarted", "late view"]):
            case "cleaned":
                theirs.clean()
            case "restarted":
                ours = open_store(tmp_path / "ours", f"run {step}")
            case "late view":
                append(ours, CreateView("late", "SELECT …", grouped(ALL_PAIRS, 0, 1)))
                advance_store(LocalRunner(), ours)
                assert rows(ours, "late") == expected(theirs.model)
                append(ours, Drop(RelationKind.VIEW, "late"))
        advance_store(LocalRunner(), ours)
        require_equal(ours, theirs.model)


def test_the_source_pins_the_epoch_that_it_has_read_and_no_other(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    assert pinned(theirs) == []
    for _ in range(3):
        theirs.change()
        advance_store(LocalRunner(), ours)
        assert {holder for _, holder in pinned(theirs)} == {"source keyed", "source bag"}
        assert max(pinned(theirs))[0] == theirs.meta.read_latest().published
    advance_store(LocalRunner(), ours)  # finds nothing new, and removes the pins of earlier epochs
    newest = theirs.meta.read_latest().published
    assert pinned(theirs) == [(newest, "source bag"), (newest, "source keyed")]


def test_a_pinned_epoch_stays_readable_until_its_time_ends(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path, pin_for="1h")
    advance_store(LocalRunner(), ours)
    theirs.change()
    theirs.clean()
    assert pinned(theirs)
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)


def test_a_source_whose_epoch_expired_is_held_and_can_be_created_again(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    before = rows(ours, "copy")
    delete_pins(theirs.meta.objects, *theirs.meta.all_pins())
    theirs.change()
    theirs.clean()
    advance_store(LocalRunner(), ours)
    reason = held_sources(ours.read_latest().catalog)["keyed"]
    assert "no longer keeps" in reason
    assert "DROP SOURCE keyed" in reason
    assert rows(ours, "copy") == before
    for name in ("keyed", "bag"):
        append(ours, Drop(RelationKind.SOURCE, name, cascade=True))
    there = tmp_path / "theirs"
    append(ours, source("keyed", there, "customers", key="id"), source("bag", there, "pairs"), *VIEWS)
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)


def test_a_replaced_relation_is_read_as_the_difference_of_its_old_and_new_rows(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    append(theirs.meta, Drop(RelationKind.VIEW, "pairs"), CreateView("pairs", "SELECT … again", PAIRS))
    theirs.change()
    theirs.clean()
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)
    assert held_sources(ours.read_latest().catalog) == {}


def test_a_relation_that_loses_a_column_holds_the_source_until_it_has_it_again(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    only = Project(Scan("customers", (2,), PAIR[:1]), (Column(0, "int"),), PAIR[:1])
    append(theirs.meta, Drop(RelationKind.VIEW, "pairs"), CreateView("pairs", "SELECT v", only))
    theirs.change()
    advance_store(LocalRunner(), ours)
    assert "column 's': found no such column" in held_sources(ours.read_latest().catalog)["bag"]
    assert rows(ours, "copy") == theirs.model.rows()
    append(theirs.meta, Drop(RelationKind.VIEW, "pairs"), CreateView("pairs", "SELECT …", PAIRS))
    theirs.advance()
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)


def test_a_moved_store_is_read_on_at_its_new_address(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    (tmp_path / "theirs").rename(tmp_path / "elsewhere")
    advance_store(LocalRunner(), ours)
    assert "contains no store" in held_sources(ours.read_latest().catalog)["keyed"]
    theirs.meta = open_store(tmp_path / "elsewhere")
    theirs.change()
    for name, relation, options in (("keyed", "customers", {"key": "id"}), ("bag", "pairs", {})):
        was = source(name, tmp_path / "theirs", relation, **options)
        now = source(name, tmp_path / "elsewhere", relation, **options)
        append(ours, SetSourceOptions(name, was.options, now.options))
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)


def test_another_store_at_the_address_holds_the_source(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    (tmp_path / "theirs").rename(tmp_path / "aside")
    other = Theirs(tmp_path)
    other.change()
    advance_store(LocalRunner(), ours)
    assert "is another one" in held_sources(ours.read_latest().catalog)["keyed"]
    require_equal(ours, theirs.model)


def test_two_runs_at_once_take_each_epoch_once(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    for _ in range(3):
        theirs.change()
        one, other = (open_store(tmp_path / "ours", writer) for writer in ("one", "other"))
        barrier = inject_barrier(one)
        assert barrier is not None
        theirs.change()
        advance_store(LocalRunner(), other)  # finishes the barrier of the other run, and takes the next epoch
        theirs.clean()
        with pytest.raises(LostRaceError):
            run_epoch(LocalRunner(), one, barrier)
        require_equal(other, theirs.model)


def test_a_pinned_epoch_whose_objects_are_gone_holds_the_source_of_the_same_run(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    theirs.change()
    barrier = inject_barrier(ours)
    assert barrier is not None
    version = theirs.meta.read_latest()
    objects = theirs.meta.objects
    lost = {sst.name: objects.get(sst.name) for level in version.levels for sst in level}
    process_cache().clear()
    objects.delete(lost)
    advance_store(LocalRunner(), ours)
    reason = held_sources(ours.read_latest().catalog)["keyed"]
    assert "barrier abandon --repin-file" in reason
    for name, data in lost.items():
        objects.put(name, data)
    advance_store(LocalRunner(), ours)
    require_equal(ours, theirs.model)


@pytest.mark.parametrize(
    ("which", "step"),
    [
        ("ours", 11),
        ("theirs", 5),
        pytest.param("ours", 1, marks=pytest.mark.deep),
        pytest.param("theirs", 1, marks=pytest.mark.deep),
    ],
)
def test_a_run_that_dies_at_any_request_loses_and_repeats_no_row(
    tmp_path: Path, which: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Theirs(tmp_path)
    advance_store(LocalRunner(), reading_store(tmp_path))
    disturbed: list[FaultyObjectStore] = []

    def open_disturbed(uri: str) -> MetaStore:
        objects = FaultyObjectStore(open_object_store(uri))
        objects.kill(nth)
        disturbed.append(objects)
        return MetaStore(objects, "dies", clock_ms)

    for nth in range(0, 200, step):
        theirs.change()
        if nth % 2:
            theirs.clean()
        if which == "theirs":
            monkeypatch.setattr("tussock.jobs.sources.other_store.open_meta", open_disturbed)
        ours = open_disturbed(str(tmp_path / "ours")) if which == "ours" else open_store(tmp_path / "ours")
        try:
            advance_store(LocalRunner(), ours)
            done = True
        except Killed:
            done = False
        monkeypatch.undo()
        ours = open_store(tmp_path / "ours", f"after {nth}")
        advance_store(LocalRunner(), ours)
        require_equal(ours, theirs.model)
        if done:
            break
    assert nth > 3


def test_a_branch_of_the_reading_store_reads_on_by_itself(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    ours.publish(ours.read_latest().epoch)
    branch = ours.open_branch("trial", follows=False)
    theirs.change()
    advance_store(LocalRunner(), branch)
    assert held_sources(branch.read_latest().catalog) == {}
    require_equal(branch, theirs.model)
    theirs.change()
    advance_store(LocalRunner(), ours)
    advance_store(LocalRunner(), branch)
    require_equal(ours, theirs.model)
    require_equal(branch, theirs.model)


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"store": ""}, MissingOptionError, "store"),
        ({"relation": ""}, MissingOptionError, "relation"),
        ({"path": "/a"}, BadOptionError, "no such option"),
        ({"pin_for": "soon"}, BadOptionError, "'12h' or '7d'"),
        ({"relation": "custumers"}, NoPublishedRelationError, "Did you mean 'customers'"),
        ({"store": "/nowhere/at/all"}, NoOtherStoreError, "contains no store"),
        ({"key": "n"}, BadTableKeyError, "whose key is id"),
        ({"key": "x"}, BadTableKeyError, "no column"),
        ({"relation": "pairs"}, TableColumnsChangedError, "column 'id': found no such column"),
    ],
)
def test_a_statement_that_could_not_be_honoured_is_refused(
    tmp_path: Path, options: dict[str, str], error: type[InputError], reason: str
) -> None:
    Theirs(tmp_path)
    wanted = source("s", tmp_path / "theirs", "customers", key="id")
    wanted.options.update(options)

    def create() -> None:
        reader_of(wanted).check(wanted)
        reader_of(wanted).describe(wanted, lambda: pytest.fail("needs no Spark"))

    with pytest.raises(error, match=reason):
        create()


def test_the_key_of_a_view_with_a_hidden_one_is_refused(tmp_path: Path) -> None:
    Theirs(tmp_path)
    wanted = source("s", tmp_path / "theirs", "pairs", key="v")
    with pytest.raises(BadTableKeyError, match="hidden"):
        reader_of(wanted).describe(wanted, lambda: pytest.fail("needs no Spark"))


def test_a_store_does_not_read_itself(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    for place in ("theirs", "link"):
        with pytest.raises(OwnStoreError, match="by its name"):
            refuse_own_store(source("s", tmp_path / place, "customers"), theirs.meta.objects)


def test_the_form_of_stored_rows_is_that_of_the_definition(tmp_path: Path) -> None:
    from tussock.jobs.catalog.definition import output_of

    theirs = Theirs(tmp_path)
    for relation in theirs.meta.read_latest().catalog.live_relations():
        form, output = other_store_epochs.stored_form(relation), output_of(relation)
        assert (form is None) == (output is None)
        if form is not None and output is not None:
            assert (form.table.table_id, form.key) == (output.table_id, output.key)


def test_the_status_of_both_stores_names_the_reader_and_its_epoch(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    ours = reading_store(tmp_path)
    advance_store(LocalRunner(), ours)
    epoch = theirs.meta.read_latest().published
    there, here = list_readers(theirs.meta), list_stores_read(ours, ours.read_latest())
    assert [(r.reader.split(" (")[0], r.epoch) for r in there] == [
        (f"source {name} of {ours.objects.uri}", epoch) for name in ("bag", "keyed")
    ]
    assert [(r.reader, r.place, r.epoch) for r in here] == [
        ("keyed", f"customers of {tmp_path}/theirs", epoch),
        ("bag", f"pairs of {tmp_path}/theirs", epoch),
    ]
    now = datetime.now(UTC)
    assert f"read by source bag of {ours.objects.uri}" in status_text(read_status(theirs.meta, now), 9)
    assert f"source bag reads pairs of {tmp_path}/theirs, up to" in status_text(read_status(ours, now), 9)
