"""Rows and helpers of test_measures.py, which is in several lanes."""

from collections.abc import Sequence
from itertools import count

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.s3_servers import BUCKET, Seen
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LevelRunner
from tussock.statestore.meta.manifest import SealedManifest
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.requests import Requests


def store_in_s3(endpoint: str, name: str, units: int = 2) -> MetaStore:
    """A table and a view over it, not created yet."""
    objects, ids = (
        open_object_store(f"s3://{BUCKET}/{name}?endpoint={endpoint}&path_style=true"),
        count(1_700_000_000_000),
    )
    MetaStore.init(objects, units=units)
    meta = MetaStore(objects, "w", lambda: next(ids))
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    return meta


def run_and_compare(runner: LevelRunner, meta: MetaStore, seen: list[Seen]) -> SealedManifest:
    """Run the waiting input, and compare the requests in its manifest with the requests that the server received."""
    barrier = inject_barrier(meta)
    assert barrier is not None
    del seen[:]
    run_epoch(runner, meta, barrier)
    sealed = next(i for i, one in enumerate(seen) if one.method == "PUT" and "/meta/manifest/" in one.path)
    found = meta.read_manifest(barrier.epoch)
    assert found is not None
    assert found.requests == requests_of(seen[:sealed])
    assert found.requests.bytes_out >= sum(sst.size for sst in found.ssts) > 0
    return found


def requests_of(seen: Sequence[Seen]) -> Requests:
    """As S3 charges them."""
    gets = [one for one in seen if one.method in ("GET", "HEAD") and "list-type" not in one.query]
    puts = [one for one in seen if one.method == "PUT"]
    lists, deletes = (sum(mark in one.query for one in seen) for mark in ("list-type", "delete"))
    found = sum(one.bytes_out for one in gets if one.method == "GET" and not one.failed)
    return Requests(len(gets), len(puts), lists, deletes, found, sum(one.bytes_in for one in puts))
