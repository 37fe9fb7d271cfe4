"""Which filters a look-up reads, and that its answers do not depend on them."""

from collections.abc import Iterator
from unittest import mock

import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.store_model import StoreModel, sealed, storage_key
from tussock.statestore.hummock import admission, block_source, sst_writer
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.store import HummockStore

SCHEMA = pa.schema([pa.field("n", pa.int64())])
STORED = 60_000
TABLE = 3


@pytest.fixture(scope="module")
def model() -> StoreModel:
    """A store of one large section, with a filter of 1 KB per 640 keys. Keys with even numbers exist."""
    model = StoreModel(MemoryObjectStore())
    with mock.patch.object(sst_writer, "ROWS_PER_BLOCK", 10):
        model.commit(1, [sealed(TABLE, {key_of(2 * n): {"n": n} for n in range(STORED)}, SCHEMA)])
    return model


@pytest.fixture
def read_filters() -> Iterator[list[int]]:
    """The number of filters in each read of them. All sections but tiny ones count as large."""
    counts: list[int] = []
    load = BlockSource.load_filters

    def load_counted(source: BlockSource, requests):  # type: ignore[no-untyped-def]
        counts.append(sum(len(numbers) for _, numbers in requests))
        return load(source, requests)

    with mock.patch.object(BlockSource, "load_filters", load_counted), mock.patch.object(admission, "SAMPLED_BYTES", 0):
        yield counts


def key_of(number: int) -> bytes:
    return storage_key(TABLE, 0, b"%09d" % number)


def look_up(model: StoreModel, numbers: list[int], epoch: int = 1) -> None:
    """Look keys up, and compare the answer with the stored rows."""
    store = HummockStore(model.objects, model.version, BlockCache(1 << 24))
    exists, rows = store.multi_get(TABLE, pa.array([key_of(n) for n in numbers], pa.binary()), epoch)
    assert exists.to_pylist() == [n % 2 == 0 for n in numbers]
    assert rows["n"].to_pylist() == [n // 2 if n % 2 == 0 else None for n in numbers]


def test_a_look_up_of_keys_that_exist_reads_a_sample_of_the_filters(model: StoreModel, read_filters: list[int]) -> None:
    with mock.patch.object(admission, "_BLOCK_BYTES", 1 << 20):
        look_up(model, list(range(0, 2 * STORED, 200)))
    (sampled,) = read_filters  # filters that exclude no key are not read
    assert 5 <= sampled <= 15, "about 64 of the 600 keys are tested"


def test_a_look_up_of_absent_keys_reads_all_filters_that_are_worth_it(
    model: StoreModel, read_filters: list[int]
) -> None:
    with mock.patch.object(admission, "_BLOCK_BYTES", 1 << 20):
        look_up(model, list(range(1, 2 * STORED, 200)))
    assert sum(read_filters) >= STORED // 640, "each filter excludes more than it costs"


def test_sections_of_a_sorted_run_are_sampled_together(read_filters: list[int]) -> None:
    run = StoreModel(MemoryObjectStore())
    with mock.patch.object(sst_writer, "ROWS_PER_BLOCK", 10):
        for epoch in range(1, 11):
            tenth = 7 * epoch % 10
            numbers = range(tenth * STORED // 10, (tenth + 1) * STORED // 10)
            run.commit(epoch, [sealed(TABLE, {key_of(2 * n): {"n": n} for n in numbers}, SCHEMA)])
    with (
        mock.patch.object(admission, "_BLOCK_BYTES", 1 << 20),
        mock.patch.object(admission, "SAMPLED_BYTES", 16 << 10),  # more than the filters of one section
    ):
        look_up(run, list(range(0, 2 * STORED, 200)), 10)
    (sampled,) = read_filters  # filters that exclude no key are not read
    assert 5 <= sampled <= 15, "about 64 of the 600 keys are tested"


def test_filters_with_fewer_keys_than_they_cost_are_not_read(model: StoreModel, read_filters: list[int]) -> None:
    with mock.patch.object(admission, "_BLOCK_BYTES", 0):
        look_up(model, list(range(1, 2 * STORED, 2 * STORED // 50)))
    assert sum(read_filters) == 0


def test_keys_of_loaded_and_of_other_filters_are_found(model: StoreModel, read_filters: list[int]) -> None:
    look_up(model, list(range(0, 2 * STORED, 333)))
    assert read_filters


def test_memory_of_large_filters_has_small_pages() -> None:
    zeros = block_source._zeros_in_small_pages(3 << 20)
    assert len(zeros) == 3 << 20
    assert not zeros.any()
    zeros[5] = 1
