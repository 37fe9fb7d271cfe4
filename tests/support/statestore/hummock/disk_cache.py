"""Rows and helpers of test_disk_cache.py, which is in several lanes."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.remote_store import RemoteStore, make_store
from tussock.statestore.meta.version import HummockVersion

ROWS = 40_000
ALL = range(ROWS)


@pytest.fixture(autouse=True)
def _no_warning_unless_expected() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.fixture(scope="module")
def stored() -> tuple[MemoryObjectStore, HummockVersion]:
    objects = MemoryObjectStore()
    return objects, make_store(objects, ROWS)


@pytest.fixture
def remote(stored: tuple[MemoryObjectStore, HummockVersion]) -> RemoteStore:
    return RemoteStore(stored[0])


@pytest.fixture
def version(stored: tuple[MemoryObjectStore, HummockVersion]) -> HummockVersion:
    return stored[1]


def cache_path(parent: Path) -> Path:
    return parent / f"tussock-cache-{os.geteuid()}" / "sst-pieces"
