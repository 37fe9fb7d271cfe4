"""Epochs over each kind of store and source folder, with drivers that die at random requests: rows equal the model."""

import os
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import NOW, append, rows
from tests.support.jobs.plan.catalogs import counted, view
from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.statestore.fixtures import *  # noqa: F403
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = [pytest.mark.deep, pytest.mark.kill, pytest.mark.timeout(3600)]
SEEDS = int(os.environ.get("STORE_SEEDS", "100"))
OF_FILES, OF_COUNTS = (Field("k", "bigint"), Field("g", "int")), (Field("g", "int"), Field("n", "bigint"))
REQUESTS = ("get", "put", "put_if_absent", "list", "delete")


def beside(uri: str, name: str) -> str:
    """The address of another folder in the same bucket."""
    place, question, options = uri.partition("?")
    return f"{place}-{name}{question}{options}"


def test_epochs_equal_the_model_though_drivers_die_at_any_request(any_store: ObjectStore) -> None:
    kills = sum(run_history(any_store, seed) for seed in range(SEEDS))
    print(f"{SEEDS} seeds, {kills} kills")
    assert kills > SEEDS


def run_history(base: ObjectStore, seed: int) -> int:
    """Let files arrive and drivers die. Returns the number of deaths."""
    draw, counts, kills = random.Random(seed), Counter[int](), 0
    objects = open_object_store(beside(base.uri, f"{seed}"))
    folder = open_object_store(beside(base.uri, f"{seed}-files"))
    MetaStore.init(objects, units=2)
    place, question, options = folder.uri.partition("?")
    source = CreateSource("s", "parquet", OF_FILES, {"path": f"{place}/*.parquet{question}{options}"})
    append(
        MetaStore(objects, "author", lambda: NOW),
        source,
        view("per_g", counted(Scan("s", (0, 1), OF_FILES), 1)),
        view("sizes", counted(Scan("per_g", (0, 1), OF_COUNTS), 1)),
    )
    for step in range(5):
        for number in range(draw.randrange(1, 3)):
            groups = [draw.randrange(8) for _ in range(draw.randrange(1, 30))]
            counts.update(groups)
            keys = pa.array(range(len(groups)), pa.int64())
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"k": keys, "g": pa.array(groups, pa.int32())}), sink)
            folder.put(f"{step}-{number}.parquet", sink.getvalue().to_pybytes())
        while True:
            meta = MetaStore(objects, f"run {step} {kills}", lambda: NOW)
            try:
                with dying(tuple((type(objects), name) for name in REQUESTS), draw.randrange(90)):
                    for summary in advance_store(LocalRunner(), meta):
                        publish_epoch(meta, summary.epoch)
            except KilledError:
                kills += 1
                continue
            break
        publish_epoch(meta, meta.read_latest().epoch)
        assert dict(rows(meta, "per_g")) == counts, (seed, step)
        assert rows(meta, "sizes") == sorted(Counter(counts.values()).items(), key=repr), (seed, step)
    return kills
