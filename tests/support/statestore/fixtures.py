"""Object stores for the store's tests. `objects` is a local one; `any_store` is each kind in turn."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.cloud_servers import ACCOUNT, azurite, fake_gcs_server, find_emulator, memory_server
from tests.support.hdfs_server import webhdfs_server
from tests.support.s3_servers import BUCKET, moto_server, versitygw_binary, versitygw_server
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store

__all__ = [
    "any_store",
    "azurite_endpoint",
    "fakegcs_endpoint",
    "google_endpoint",
    "hdfs_endpoint",
    "moto_endpoint",
    "versitygw_endpoint",
]  # `objects` only where a conftest names it
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


@pytest.fixture(scope="session")
def google_endpoint() -> Iterator[str]:
    with memory_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def hdfs_endpoint() -> Iterator[str]:
    with webhdfs_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def fakegcs_endpoint() -> Iterator[str]:
    if (program := find_emulator("fake-gcs-server")) is None:
        pytest.skip("fake-gcs-server is not installed: see tests/support/cloud_servers.py")
    with fake_gcs_server(program) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azurite_endpoint() -> Iterator[str]:
    if (program := find_emulator("azurite-blob")) is None:
        pytest.skip("Azurite is not installed: see tests/support/cloud_servers.py")
    with azurite(program) as endpoint:
        yield endpoint


def _uri_of(kind: str, endpoint: str) -> str:
    match kind:
        case "google" | "fakegcs":
            return f"gs://{BUCKET}/store-{next(_stores)}?endpoint={endpoint}"
        case "hdfs":
            return f"hdfs://localhost/store-{next(_stores)}?endpoint={endpoint}"
        case "azurite":
            return f"az://{BUCKET}/store-{next(_stores)}?account={ACCOUNT}&endpoint={endpoint}"
        case _:
            return f"s3://{BUCKET}/store-{next(_stores)}?endpoint={endpoint}&path_style=true"


_DEEP = [pytest.param(kind, marks=pytest.mark.deep) for kind in ("versitygw", "fakegcs", "azurite")]


@pytest.fixture(params=["local", "moto", "google", "hdfs", *_DEEP])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind: the same contract holds for all."""
    if request.param == "local":
        return open_object_store(str(tmp_path / "store"))
    return open_object_store(_uri_of(request.param, request.getfixturevalue(f"{request.param}_endpoint")))
