"""The work of an epoch, as manifests and versions record it.

Each number is compared with an independent count.
"""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tests.support.jobs.facts.measures import requests_of, run_and_compare, store_in_s3
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.s3_servers import BUCKET, Seen, moto_server
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.logical.nodes import Call, Column, Literal
from tussock.jobs.logical.statements import Delete
from tussock.jobs.task.hot_key import FEWEST_ROWS, hot_key
from tussock.statestore.meta.manifest import RowCounts, manifest_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.requests import requests_so_far
from tussock.statestore.vnode import vnodes_of


@pytest.mark.parametrize("runner", [LocalRunner(), UnkindShuffle(2)], ids=["local", "each task twice"])
def test_a_version_has_the_row_count_of_each_relation(tmp_path: Path, runner: LocalRunner) -> None:
    """Under random inserts and deletes, with views created later."""
    meta, draw, keys = new_store(tmp_path / "store", units=3), random.Random(7), set[int]()
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    for step in range(8):
        new = {draw.randrange(1_000) for _ in range(draw.randrange(40))} - keys
        insert(meta, "t", *((k, k % 5, 1) for k in sorted(new)))
        least = draw.randrange(300)
        append(meta, Delete("t", Call("LessThan", "boolean", (Column(0, "int"), Literal(least, "int")))))
        keys = {k for k in keys | new if k >= least}
        if step == 4:
            append(meta, view("per_a", counted(scan("t"), 2)))
        epoch(meta, runner)
        version = open_store(tmp_path / "store").read_latest()
        found = {r.name: version.rows[r.id] for r in version.catalog.live_relations()}
        assert found == {r.name: len(rows(meta, r.name)) for r in version.catalog.live_relations()}, f"step {step}"
        assert found["t"] == len(keys)


def test_row_counts_are_unknown_if_an_epoch_was_not_counted(meta: MetaStore) -> None:
    """An epoch in between does not record its changes."""
    assert len(meta.read_latest().rows) == 2
    barrier = inject_barrier(meta)
    assert barrier is not None
    meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, (), {"t": RowCounts(1, 1)})))
    assert meta.read_latest().rows == {}
    insert(meta, "t", (9, 9, 9))
    epoch(meta)
    assert meta.read_latest().rows == {}, "it stays so, for there is nothing to add to"


def test_the_rows_and_bytes_of_units_add_up_to_those_of_relations(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=3)
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    insert(meta, "t", *((k, k % 50, 1) for k in range(5_000)))
    done = epoch(meta)
    (found,) = list_epochs(meta, 1)
    assert [work.unit for work in found.units] == [0, 1, 2]
    assert sum(work.rows for work in found.units) == sum(counts.rows_in for counts in done.rows.values())
    assert all(0 < work.seconds < done.seconds["run"] for work in found.units)
    assert sum(work.seconds for work in found.units) <= done.seconds["run"] + 0.002, (
        "units run one after the other here"
    )
    assert all(work.bytes >= work.rows * 8 for work in found.units)


def test_a_hot_key_is_found_with_its_share(tmp_path: Path) -> None:
    """Three in four rows have one key.

    A join processes them all; an aggregation gets them from its senders as one row.
    """
    draw = random.Random(1)
    groups = [7 if draw.random() < 0.75 else draw.randrange(1_000, 9_000) for _ in range(20_000)]
    chunk = pa.table(
        {
            "c0": pa.array(groups, pa.int32()),
            "c1": pa.array(range(20_000), pa.int64()),
            "w": pa.array([1] * 20_000, pa.int64()),
        }
    )
    found = hot_key(1, chunk, (0,), 256)
    assert found is not None
    (key, most), *_ = Counter(groups).most_common(1)
    assert found.values == (str(key),)
    assert found.share == pytest.approx(most / len(groups), abs=0.01)
    assert (found.vnode, found.rows) == (vnodes_of([pa.array([7], pa.int32())], 256)[0], 20_000)
    assert hot_key(1, chunk.slice(0, FEWEST_ROWS - 1), (0,), 256) is None, "too few to say"
    assert hot_key(1, chunk, (), 256) is None, "rows without a key go to one unit anyway"


def test_an_epoch_counts_the_requests_that_the_server_sees(tmp_path: Path) -> None:
    """All requests up to its manifest, of the driver and of the units, by kind and with their bytes."""
    seen: list[Seen] = []
    with moto_server(seen) as endpoint:
        meta = store_in_s3(endpoint, "local")
        for step in range(3):
            insert(meta, "t", *((k, k % 7, step) for k in range(100 * step, 100 * step + 50)))
            run_and_compare(LocalRunner(), meta, seen)


def test_a_store_counts_the_requests_that_the_server_sees() -> None:
    seen: list[Seen] = []
    with moto_server(seen) as endpoint:
        objects = open_object_store(f"s3://{BUCKET}/store?endpoint={endpoint}&path_style=true")
        del seen[:]
        use(objects)
        assert requests_so_far(objects) == requests_of(seen)


def test_a_local_store_counts_as_a_bucket_would(tmp_path: Path) -> None:
    objects = open_object_store(str(tmp_path / "store"))
    with moto_server() as endpoint:
        bucket = open_object_store(f"s3://{BUCKET}/store?endpoint={endpoint}&path_style=true")
        use(objects)
        use(bucket)
        assert requests_so_far(objects) == requests_so_far(bucket)


def use(objects: ObjectStore) -> None:
    """Each operation, including missing objects and lost answers."""
    for number in range(5):
        objects.put(f"a/{number}", bytes(100 * number))
    assert len(objects.get("a/3")) == 300
    assert [len(part) for part in objects.get_ranges("a/4", [(0, 10), (200, 10), (-10, 10)])] == [10, 10, 10]
    assert objects.put_if_absent("a/5", b"mine")
    assert not objects.put_if_absent("a/5", b"other"), "which reads it back"
    assert objects.head("a/1").size == 100
    with pytest.raises(ObjectNotFoundError):
        objects.get("a/none")
    assert len(list(objects.list("a/"))) == 6
    objects.delete([f"a/{number}" for number in range(6)])
