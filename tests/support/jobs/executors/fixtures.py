"""Each executor under test gets a new bucket."""

import pytest

from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore


@pytest.fixture
def objects(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return LocalObjectStore(tmp_path_factory.mktemp("store"))
