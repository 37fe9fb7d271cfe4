"""An epoch's requests about the work of other runs: each answer costs a request, so each is requested once."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.faulty_store import FaultyObjectStore
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore

CLOCK_MS = 1_700_000_000_000


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = Session(str(tmp_path / "store"), spark, runner=UnkindShuffle(3))
    session.execute(
        "CREATE TABLE t (k int, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t"
    )
    session.flush()
    return session


def looks(session: Session, epochs: int) -> int:
    """The number of requests for a barrier in force that `advance` makes over `epochs` epochs."""
    store = FaultyObjectStore(session.meta.objects)
    assert len(advance_store(UnkindShuffle(3), MetaStore(store, "counted", lambda: CLOCK_MS))) == epochs
    return sum(
        call == "get" and name.startswith("meta/barrier/") and name.endswith("/00000.json")
        for call, name in store.calls
    )


@pytest.mark.spark
def test_a_run_looks_for_an_open_barrier_once_and_again_before_it_injects_one(session: Session) -> None:
    assert looks(session, epochs=0) == 1
    session.execute("INSERT INTO t VALUES (1)")
    assert looks(session, epochs=1) == 2, "its own look, and the look of MetaStore.inject_barrier"
    session.execute("INSERT INTO t VALUES (2)")
    assert inject_barrier(session.meta) is not None
    assert looks(session, epochs=1) == 1
