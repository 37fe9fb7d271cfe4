"""Object stores for the store's tests. `objects` is a local one; `any_store` is each kind in turn."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.s3_servers import BUCKET, moto_server, versitygw_binary, versitygw_server
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store

_stores = count()


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return LocalObjectStore(tmp_path / "store")


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def versitygw_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if (binary := versitygw_binary()) is None:
        pytest.skip(
            "versitygw is not built: GOBIN=$PWD/.tools/bin go install github.com/versity/versitygw/cmd/versitygw@latest"
        )
    with versitygw_server(binary, tmp_path_factory.mktemp("versitygw")) as endpoint:
        yield endpoint


@pytest.fixture(params=["local", "moto", pytest.param("versitygw", marks=pytest.mark.deep)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind: the same contract holds for all."""
    if request.param == "local":
        return open_object_store(str(tmp_path / "store"))
    endpoint = request.getfixturevalue(f"{request.param}_endpoint")
    return open_object_store(f"s3://{BUCKET}/store-{next(_stores)}?endpoint={endpoint}&path_style=true")
