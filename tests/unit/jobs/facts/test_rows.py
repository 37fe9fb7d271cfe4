"""Rows and changes for a page, against rows written by hand: looked up by key, searched for, cut off and refused."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.facts import rows as facts
from tussock.jobs.facts.rows import UnsearchableValueError, first_changes, first_rows
from tussock.jobs.reading.read import UnknownColumnError
from tussock.statestore.meta.errors import EpochNotCommittedError
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """The table `t` of 300 rows (k, g, a), and the number of rows per g; two epochs, both published."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    insert(meta, "t", *((k, k % 3, 10 * k) for k in range(300)))
    epoch(meta)
    insert(meta, "t", (300, 7, 5), (301, 0, 5))
    publish_epoch(meta, epoch(meta).epoch)
    return meta


def read(meta: MetaStore, name: str, **wanted: str) -> list[tuple[object, ...]]:
    found = first_rows(meta, name, wanted)
    return sorted(tuple(row.values()) for row in found.rows.to_pylist())


def test_the_first_rows_are_rows_of_the_relation_and_say_that_there_are_more(meta: MetaStore) -> None:
    found = first_rows(meta, "t", {})
    whole = [(k, k % 3, 10 * k) for k in range(300)] + [(300, 7, 5), (301, 0, 5)]
    assert (found.rows.num_rows, found.more, found.is_whole) == (100, True, True)
    assert {tuple(row.values()) for row in found.rows.to_pylist()} <= set(whole)
    assert read(meta, "per_g") == [(0, 101), (1, 100), (2, 100), (7, 1)]


def test_a_value_of_the_key_is_looked_up_and_reads_nothing_else(meta: MetaStore) -> None:
    found = first_rows(meta, "t", {"k": "42"})
    assert ([tuple(row.values()) for row in found.rows.to_pylist()], found.read) == ([(42, 0, 420)], 1)
    assert read(meta, "per_g", c1="7") == [(7, 1)]
    assert read(meta, "per_g", c1="8") == []


def test_other_columns_are_searched_together_with_the_key(meta: MetaStore) -> None:
    assert facts.search_columns(meta.read_latest().catalog.live_relations()[0]) == ("k",), "the page offers the key"
    assert read(meta, "t", a="5") == [(300, 7, 5), (301, 0, 5)]
    assert read(meta, "t", a="5", g="7") == [(300, 7, 5)]
    assert read(meta, "t", k="300", a="6") == []


def test_a_search_ends_in_time_and_admits_it(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_looked_up", lambda *_: None)  # as for a key that is not the distribution
    assert read(meta, "t", k="42") == [(42, 0, 420)]
    monkeypatch.setattr(facts, "SEARCH_S", 0.0)
    found = first_rows(meta, "t", {"k": "-1"})
    assert (found.rows.num_rows, found.more, found.is_whole) == (0, True, False)
    assert 0 < found.read < 302, "the rows of the first batch"


def test_the_changes_of_an_epoch_are_its_deleted_and_inserted_rows(meta: MetaStore) -> None:
    last = meta.read_latest().epoch
    found = first_changes(meta, "per_g", last, {})
    assert sorted(tuple(row.values()) for row in found.rows.to_pylist()) == [
        (0, 100, "delete"),
        (0, 101, "insert"),
        (7, 1, "insert"),
    ]
    first = first_changes(meta, "per_g", meta.read_manifest(last).prev_epoch, {})  # type: ignore[union-attr]
    assert sorted(tuple(row.values()) for row in first.rows.to_pylist()) == [(g, 100, "insert") for g in range(3)]
    only = first_changes(meta, "per_g", last, {"c1": "7"})
    assert [tuple(row.values()) for row in only.rows.to_pylist()] == [(7, 1, "insert")]


def test_questions_without_an_answer_are_named(meta: MetaStore) -> None:
    with pytest.raises(
        UnsearchableValueError, match="The value 'x' cannot be compared with column 'k', whose type is int"
    ):
        first_rows(meta, "t", {"k": "x"})
    with pytest.raises(UnknownColumnError, match="nothing"):
        first_rows(meta, "t", {"nothing": "x"})
    with pytest.raises(EpochNotCommittedError):
        first_changes(meta, "t", meta.read_latest().epoch + 1, {})
