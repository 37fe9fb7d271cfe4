"""Rows of two tables side by side, against dicts: random histories that part, and the blocks that are read."""

import random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.store_model import Row, StoreModel, sealed
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.sst_reader import Rows, SectionReader
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table.row_pairs import Side, read_pairs
from tussock.statestore.table.schema import row_schema, table_layout
from tussock.statestore.table.storage_table import StorageTable

V = 8
NUMBERS = TableSchema(3, "numbers", tuple(ColumnSpec(f"c{i}", "bigint") for i in range(2)), (KeyColumn(0),), (0,))
SCHEMA = row_schema(NUMBERS)
Values = dict[int, int | None]


def changes(values: Values, table_id: int = 3) -> dict[bytes, Row | None]:
    """The rows of some keys, by storage key; None deletes."""
    layout = table_layout(msgspec.structs.replace(NUMBERS, table_id=table_id), V)
    keys = layout.keys_of(pa.table([pa.array(list(values), pa.int64())], names=["c0"]))
    rows = [None if value is None else {"c0": key, "c1": value} for key, value in values.items()]
    return dict(zip(keys.to_pylist(), rows, strict=True))


class History:
    """A store, and the values of its table at each epoch."""

    def __init__(self, model: StoreModel, values: dict[int, Values], table_id: int = 3) -> None:
        self.model, self.values, self.table_id = model, values, table_id

    def commit(self, epoch: int, values: Values) -> None:
        self.model.commit(epoch, [sealed(self.table_id, changes(values, self.table_id), SCHEMA)], 1 << 10)
        after = {**self.values[max(self.values)], **values}
        self.values[epoch] = {key: value for key, value in after.items() if value is not None}

    def branch(self) -> "History":
        rows = {key: dict(of) for key, of in self.model.rows.items()}
        return History(StoreModel(self.model.objects, self.model.version, rows), dict(self.values))

    def side(self, epoch: int) -> Side:
        schema = msgspec.structs.replace(NUMBERS, table_id=self.table_id)
        return Side(StorageTable(schema, self.model.store(BlockCache()), epoch, V), (0, 1))


def pairs_of(one: Side, other: Side) -> dict[int, tuple[int | None, int | None]]:
    """The pairs whose rows differ, by key."""
    found: dict[int, tuple[int | None, int | None]] = {}
    for pairs in read_pairs(one, other):
        sides = []
        for rows, exists in ((pairs.one, pairs.in_one), (pairs.other, pairs.in_other)):
            assert len(exists) == rows.num_rows
            sides.append([row if held else None for row, held in zip(rows.to_pylist(), exists.tolist(), strict=True)])
        for left, right in zip(*sides, strict=True):
            key = (left or right or {"c0": None})["c0"]
            assert key is None or key not in found, "a key came twice"
            if left != right:
                found[key] = (left and left["c1"], right and right["c1"])
    return found


def expected(one: Values, other: Values) -> dict[int, tuple[int | None, int | None]]:
    return {k: (one.get(k), other.get(k)) for k in one.keys() | other.keys() if one.get(k) != other.get(k)}


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 200))])
def test_pairs_of_histories_that_part_are_their_difference(seed: int) -> None:
    rng = random.Random(seed)

    def some(count: int) -> Values:
        return {rng.randrange(600): rng.choice([None, rng.randrange(5)]) for _ in range(count)}

    parent = History(StoreModel(MemoryObjectStore()), {0: {}})
    sides = [parent]
    for epoch in range(1, rng.randrange(4, 11)):
        match rng.randrange(4):
            case 0 if len(sides) == 1 and epoch > 1:
                sides.append(parent.branch())
            case 1 if epoch > 1:
                rng.choice(sides).model.rewrite(rng.choice([50, 5_000]), SCHEMA)
            case _:
                rng.choice(sides).commit(epoch, some(rng.choice([2, 30, 800])))
    one, other = rng.choice(sides), rng.choice(sides)
    at, until = rng.choice(list(one.values)), rng.choice(list(other.values))
    assert pairs_of(one.side(at), other.side(until)) == expected(one.values[at], other.values[until])


@pytest.mark.parametrize("seed", range(3))
def test_tables_with_other_ids_are_compared_in_full(seed: int) -> None:
    rng = random.Random(seed)
    one, other = (History(StoreModel(MemoryObjectStore()), {0: {}}, table_id) for table_id in (3, 9))
    common: Values = dict.fromkeys(rng.sample(range(9_000), 4_000), 1)
    one.commit(1, common)
    other.commit(1, {**common, **{rng.randrange(9_999): 2 for _ in range(50)}})
    other.commit(2, dict.fromkeys(rng.sample(sorted(common), 20)))
    assert pairs_of(one.side(1), other.side(2)) == expected(one.values[1], other.values[2])


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of blocks that are decoded."""
    counts: list[int] = []
    decode = SectionReader.decode_blocks

    def counting(reader: SectionReader, first: int, end: int, *rest: Any) -> Rows:
        counts.append(end - first)
        return decode(reader, first, end, *rest)

    monkeypatch.setattr(SectionReader, "decode_blocks", counting)
    return counts


def test_only_blocks_that_one_side_lacks_are_read(decoded: list[int]) -> None:
    parent = History(StoreModel(MemoryObjectStore()), {0: {}})
    parent.commit(1, dict.fromkeys(range(40_000), 1))
    branch = parent.branch()
    assert pairs_of(parent.side(1), branch.side(1)) == {}
    assert decoded == []
    branch.commit(2, {5: 2, 50_000: 2, 7: None})
    assert pairs_of(parent.side(1), branch.side(2)) == {5: (1, 2), 50_000: (None, 2), 7: (1, None)}
    assert 0 < sum(decoded) <= 12


def test_blocks_that_a_compaction_left_as_they_were_are_not_read(decoded: list[int]) -> None:
    parent = History(StoreModel(MemoryObjectStore()), {0: {}})
    parent.commit(1, {key: key % 9 for key in range(40_000)})
    parent.commit(2, dict.fromkeys(range(40_000, 40_010), 1))
    branch = parent.branch()
    parent.model.rewrite(100_000, SCHEMA)
    branch.commit(3, {5: 2})
    (changed,) = (of for of in branch.model.rows.values() if 3 in of)
    del changed[1]  # no reader of the branch sees epoch 1
    branch.model.rewrite(100_000, SCHEMA)
    names = [{sst.name for level in side.model.version.levels for sst in level} for side in (parent, branch)]
    assert names[0].isdisjoint(names[1])
    assert pairs_of(parent.side(2), branch.side(3)) == {5: (5, 2)}
    assert sum(decoded) < 20


def test_masks_are_arrays() -> None:
    parent = History(StoreModel(MemoryObjectStore()), {0: {}})
    parent.commit(1, {1: 1})
    (pairs,) = read_pairs(parent.side(0), parent.side(1))
    assert isinstance(pairs.in_one, np.ndarray)
    assert pairs.in_one.tolist() == [False]
