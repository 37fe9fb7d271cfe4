"""Merges of sorted tables, by slices and by a sort, against Python's sort."""

import random

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore.hummock import merge
from tussock.statestore.hummock.sst_format import DELETE, PUT, block_schema

ROW = pa.schema([("v", pa.int64()), ("s", pa.string())])
Stored = tuple[bytes, int, int, int, str | None]


def table_of(rows: list[Stored], width: int) -> pa.Table:
    kind = pa.binary(width) if width > 0 else pa.binary()
    schema = block_schema(kind, ROW)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("worth_slicing", [0, 1, 10_000])
@pytest.mark.parametrize("seed", range(40))
def test_a_merge_by_slices_is_that_by_a_sort(monkeypatch: pytest.MonkeyPatch, seed: int, worth_slicing: int) -> None:
    monkeypatch.setattr(merge, "_WORTH_SLICING", worth_slicing)
    chance = random.Random(seed)
    width = chance.choice([2, 2, 0])
    ages = list(range(1, chance.randrange(3, 6)))
    large = chance.choice(ages)
    runs = list[list[Stored]]()
    for age in reversed(ages):  # newest first
        keys = [n.to_bytes(2, "big") for n in chance.sample(range(200), 150 if age == large else chance.randrange(9))]
        if not width:
            keys = [key + b"\0\xff" if key[1] % 2 else key + b"\0\xff\xff" for key in keys]
        epochs = {key: sorted(chance.sample((10 * age, 10 * age + 1), chance.choice([1, 2])))[::-1] for key in keys}
        runs.append(
            [
                (key, epoch, chance.choice([PUT, PUT, DELETE]), chance.randrange(9), chance.choice(["a", None]))
                for key in sorted(keys)
                for epoch in epochs[key]
            ]
        )
    tables = [table_of(run, width) for run in runs]
    together = sorted((row for run in runs for row in run), key=lambda row: (row[0], -row[1]))
    assert rows_of(merge.merge_tables(tables)) == together
    until = 10 * chance.choice(ages)
    newest = dict[bytes, Stored]()
    for row in reversed(together):
        if row[1] <= until:
            newest[row[0]] = row
    seen = sorted(row for row in newest.values() if row[2] == PUT)
    assert rows_of(merge._merge_chosen(tables, merge.visible_at(until))) == seen
    assert not len(np.setdiff1d([len(column.chunks) for column in merge.merge_tables(tables).columns], [1]))
