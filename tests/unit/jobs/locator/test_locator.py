"""Locators against a dict: the place of each row after random changes, moves and repeats."""

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tussock.jobs.locator.document import KeyPart, folder_of, read_locator, remove_unnamed
from tussock.jobs.locator.edit import LocatorEdit, LostRowError
from tussock.jobs.locator.locator import ROWS, Locator
from tussock.jobs.locator.runs import find_runs
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.types import arrow_type

FOLDER = folder_of("/lake/orders")
Key = tuple[Any, ...]

KEYS: dict[str, tuple[tuple[KeyPart, ...], Any]] = {
    "integers": ((KeyPart("bigint"),), lambda n: (n,)),
    "short integers": ((KeyPart("int"),), lambda n: (n - 100,)),
    "texts": ((KeyPart("string"),), lambda n: (f"customer {n * 7919 % 1000}",)),
    "a shop and a number": ((KeyPart("string"), KeyPart("bigint")), lambda n: (f"shop {n % 3}", n // 3)),
    "descending days, NULL last": (
        (KeyPart("date", descending=True, nulls_last=True),),
        lambda n: (None if n == 0 else date.fromordinal(730_000 + n),),
    ),
    "decimals and doubles": (
        (KeyPart("decimal(10,2)"), KeyPart("double")),
        lambda n: (Decimal(n) / 4, -0.0 if n % 2 else 1.5),
    ),
}


def keys_table(parts: tuple[KeyPart, ...], keys: list[Key]) -> pa.Table:
    columns = [pa.array([key[place] for key in keys], arrow_type(part.type)) for place, part in enumerate(parts)]
    return pa.table(columns, names=[f"k{place}" for place in range(len(parts))])


class Table:
    """A table of a lake as a dict, and its locator."""

    def __init__(self, parts: tuple[KeyPart, ...], objects: ObjectStore | None = None) -> None:
        self.objects, self.parts = objects or MemoryObjectStore(), parts
        self.number: int | None = None
        self.places: dict[Key, tuple[str, int]] = {}
        self.files = 0

    def open_locator(self) -> Locator:
        if self.number is None:
            return Locator.empty(self.objects, FOLDER, self.parts)
        document = read_locator(self.objects, FOLDER, self.number)
        assert document is not None
        return Locator(self.objects, FOLDER, document)

    def change(self, removed: list[Key], written: list[Key]) -> None:
        """Delete rows, write others into a new file, and compare the deletes with the dict."""
        edit = LocatorEdit(self.open_locator())
        deletes = edit.remove_rows(keys_table(self.parts, removed)) if removed else ()
        marked = {(found.file.path, place) for found in deletes for place in found.positions.tolist()}
        assert marked == {self.places.pop(key) for key in removed}
        self.add_file(edit, written)
        self.number = edit.write()

    def add_file(self, edit: LocatorEdit, keys: list[Key]) -> None:
        if keys:
            self.files += 1
            edit.add_file(f"{self.files}.parquet", keys_table(self.parts, keys))
            self.places |= {key: (f"{self.files}.parquet", place) for place, key in enumerate(keys)}

    def located(self, keys: list[Key]) -> list[tuple[str, int] | None]:
        locator = self.open_locator()
        places = locator.locate_keys(locator.encode_keys(keys_table(self.parts, keys)))
        paths = {file.number: file.path for file in locator.read_files()}
        return [
            (paths[file], place) if file >= 0 else None
            for file, place in zip(places.files.tolist(), places.positions.tolist(), strict=True)
        ]

    def check(self, keys: list[Key]) -> None:
        assert self.located(keys) == [self.places.get(key) for key in keys]
        live = {file.path: file.live_rows for file in self.open_locator().read_files()}
        expected: dict[str, int] = {}
        for path, _ in self.places.values():
            expected[path] = expected.get(path, 0) + 1
        assert live == expected
        document = self.open_locator().document
        assert (document.files, document.rows - document.deleted) == (len(live), sum(live.values()))
        self.check_keys_of_files()

    def check_keys_of_files(self) -> None:
        locator = self.open_locator()
        files = locator.read_files()
        found = locator.keys_of_files(files)
        for file in files:
            mine = sorted(
                ((p, key) for key, (path, p) in self.places.items() if path == file.path), key=lambda pair: pair[0]
            )
            encoded = locator.encode_keys(keys_table(self.parts, [key for _, key in mine]))
            assert found[file.number].to_pylist() == encoded.to_pylist()


@pytest.mark.parametrize("kind", KEYS)
def test_each_row_is_found_after_random_updates_deletes_and_inserts(kind: str) -> None:
    parts, key_of = KEYS[kind]
    every = [key_of(n) for n in range(400)]
    table, drawn = Table(parts), random.Random(kind)
    table.change([], every[:300])
    for _ in range(24):  # enough for merges of small SSTs
        removed = drawn.sample(sorted(table.places, key=str), 20)
        absent = [key for key in every if key not in table.places]
        table.change(removed, [*removed[:12], *drawn.sample(absent, min(6, len(absent)))])
        table.check(every)
    assert len(table.open_locator().document.ssts) < 20


def test_a_first_load_in_key_order_is_stored_as_one_run_per_file() -> None:
    table = Table((KeyPart("bigint"),))
    edit = LocatorEdit(table.open_locator())
    for start in range(0, 100_000, 20_000):
        edit.add_file(f"{start}.parquet", pa.table({"k": np.arange(start, start + 20_000)}))
    table.number = edit.write()
    (sst,) = table.open_locator().document.ssts
    assert sst.rows == 5 + 5  # runs and files
    assert table.located([(0,), (59_999,), (60_000,), (99_999,), (100_000,), (-1,)]) == [
        ("0.parquet", 0), ("40000.parquet", 19_999), ("60000.parquet", 0), ("80000.parquet", 19_999), None, None
    ]  # fmt: skip


def test_a_deleted_row_of_a_run_stays_deleted_after_all_is_merged_and_comes_back_elsewhere() -> None:
    table = Table((KeyPart("bigint"),))
    table.change([], [(n,) for n in range(100)])
    table.change([(50,)], [])
    edit = LocatorEdit(table.open_locator())
    table.number = edit.write(compact=True)
    assert len(table.open_locator().document.ssts) == 1
    table.check([(n,) for n in range(100)])
    table.change([], [(50,)])
    table.check([(n,) for n in range(100)])


@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_rows_that_are_gone_for_good_are_forgotten_when_all_is_merged(kind: str) -> None:
    parts, key_of = KEYS[kind]
    table = Table(parts)
    table.change([], [key_of(n) for n in range(50)])  # one run of integers
    for day in range(1, 10):  # a view of the last 50 keys
        table.change(
            [key_of(n) for n in range(50 * day - 50, 50 * day)], [key_of(n) for n in range(50 * day, 50 * day + 50)]
        )
    table.change([key_of(470)], [])
    table.number = LocatorEdit(table.open_locator()).write(compact=True)
    assert [len(rows) for rows in table.open_locator().scan_table(ROWS)] == [49]
    table.check([key_of(n) for n in range(0, 520, 3)])


def test_a_row_that_the_table_does_not_have_is_an_error_and_changes_nothing() -> None:
    table = Table((KeyPart("bigint"),))
    table.change([], [(n,) for n in range(20)])
    before = sorted(info.name for info in table.objects.list(""))
    with pytest.raises(LostRowError, match="no place for 1 rows"):
        LocatorEdit(table.open_locator()).remove_rows(pa.table({"k": [3, 77]}))
    assert sorted(info.name for info in table.objects.list("")) == before


def test_equal_edits_write_equal_objects() -> None:
    table = Table((KeyPart("string"),))
    table.change([], [(f"{n}",) for n in range(50)])
    numbers, names = set(), set()
    for _ in range(2):
        edit = LocatorEdit(table.open_locator())
        edit.remove_rows(pa.table({"k": ["7", "3"]}))
        edit.add_file("new.parquet", pa.table({"k": ["3"]}))
        numbers.add(edit.write("version 2"))
        names.add(tuple(sorted(info.name for info in table.objects.list(""))))
    assert len(numbers) == len(names) == 1


def test_files_that_another_program_replaced_keep_their_rows() -> None:
    table = Table((KeyPart("bigint"),))
    table.change([], [(n,) for n in range(60)])
    table.change([(3,), (4,)], [(3,)])
    locator = table.open_locator()
    edit = LocatorEdit(locator)
    edit.drop_files(locator.read_files())
    table.add_file(edit, sorted(table.places, key=lambda key: -key[0]))
    table.number = edit.write()
    table.check([(n,) for n in range(60)])


def test_a_file_without_remaining_rows_is_reported_and_forgotten() -> None:
    table = Table((KeyPart("bigint"),))
    table.change([], [(n,) for n in range(30)])
    edit = LocatorEdit(table.open_locator())
    (found,) = edit.remove_rows(pa.table({"k": range(30)}))
    assert found.is_whole
    table.number = edit.write()
    assert table.open_locator().read_files() == []


def test_objects_of_earlier_states_are_removed_once_they_are_old(tmp_path: Path) -> None:
    table = Table((KeyPart("bigint"),), LocalObjectStore(tmp_path))
    for start in range(0, 50, 10):
        table.change([], [(n,) for n in range(start, start + 10)])
    assert table.number is not None
    assert remove_unnamed(table.objects, FOLDER, table.number, 0) == 0
    assert remove_unnamed(table.objects, FOLDER, table.number, 1 << 60) == 4
    table.check([(n,) for n in range(60)])


def test_keys_of_several_lengths_and_short_keys_are_in_no_run() -> None:
    positions = np.arange(20)
    assert not len(find_runs(pa.array([b"a" * n for n in range(1, 21)]), positions).starts)
    assert not len(find_runs(pa.array([bytes([n]) for n in range(20)]), positions).starts)
