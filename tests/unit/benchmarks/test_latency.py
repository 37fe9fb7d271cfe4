"""The object store with injected latency: the same objects, slower, and every request counted."""

import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.store.latency import LatencyObjectStore, open_latency, read_log, register
from tussock.statestore.objectstore.base import BadStoreError, ObjectNotFoundError
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import SCHEMES_VARIABLE, open_object_store


@pytest.fixture(autouse=True)
def _known_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCHEMES_VARIABLE, "")
    register()


def test_a_uri_opens_the_same_store_here_and_in_another_process(tmp_path: Path) -> None:
    store = open_object_store(f"latency+file://{tmp_path}/a%20b?ms=1&mbps=50&log={tmp_path}/log")
    assert isinstance(store, LatencyObjectStore)
    store.put("x", b"here")
    assert open_object_store(store.uri).uri == store.uri == pickle.loads(pickle.dumps(store)).uri
    program = (
        "from tussock.statestore.objectstore.open import open_object_store as o; "
        f"print(o({store.uri!r}).get('x').decode())"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "here\n"
    )
    counts = read_log(tmp_path / "log")
    assert dict(counts.requests) == {"put": 1, "get": 1}
    assert dict(counts.sizes) == {"put": 4, "get": 4}


def test_options_of_the_store_below_stay_with_it() -> None:
    assert open_latency("latency+s3://b/p?endpoint=http://h:9000&ms=5").uri == (
        "latency+s3://b/p?endpoint=http://h:9000&path_style=true&ms=5&mbps=100"
    )


def test_each_request_costs_latency_and_bytes_and_the_requests_of_one_call_run_concurrently(
    tmp_path: Path,
) -> None:
    inner = LocalObjectStore(tmp_path)
    inner.put("x", bytes(4_000_000))
    store = LatencyObjectStore(inner, ms=20, mbps=100)
    began = time.perf_counter()
    store.get("x")  # 20 ms, and 40 ms for its bytes
    first = time.perf_counter()
    store.get_ranges("x", [(i * 200_000, 10) for i in range(16)])  # too far apart to be one request: 16 at once
    second = time.perf_counter()
    assert first - began >= 0.06
    assert 0.02 <= second - first < 0.2
    assert store.counts.requests["get"] == 17
    assert store.counts.sizes["get"] == 4_000_160


def test_a_missing_object_costs_a_request_as_well(tmp_path: Path) -> None:
    store = LatencyObjectStore(LocalObjectStore(tmp_path), ms=1, mbps=100)
    with pytest.raises(ObjectNotFoundError):
        store.get("x")
    assert store.put_if_absent("x", b"1")
    assert not store.put_if_absent("x", b"2")
    assert [info.name for info in store.list("")] == ["x"]
    store.delete(["x"])
    assert dict(store.counts.requests) == {"get": 2, "put_if_absent": 2, "list": 1, "delete": 1}


@pytest.mark.parametrize("options", ["ms=abc", "ms=-1", "mbps=0"])
def test_options_without_sense_are_refused(options: str) -> None:
    with pytest.raises(BadStoreError, match="ms"):
        open_latency(f"latency+file:///a?{options}")
