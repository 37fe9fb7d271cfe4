"""A driver that was overtaken and whose SSTs were removed has lost; it must not report damage."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.exactly_once.workload import open_meta, read
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LevelsToRun
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.session import Session
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.errors import LostRaceError


class _Slow(UnkindShuffle):
    """Something happens before its levels run."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(3)
        self._meanwhile = meanwhile

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        self._meanwhile()
        process_cache().clear()  # it is another process
        return super().run(levels)


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = Session(str(tmp_path / "store"), spark, units=2, runner=UnkindShuffle(7))
    session.execute(
        "CREATE TABLE t (k int, v int, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS v FROM t"
    )
    session.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    session.flush()
    return session


@pytest.mark.spark
def test_a_driver_whose_ssts_were_compacted_away_behind_its_back_has_lost(session: Session, tmp_path: Path) -> None:
    session.execute("UPDATE t SET v = v + 1")
    slow = open_meta(tmp_path / "store", "slow")
    barrier = inject_barrier(slow)
    assert barrier is not None

    def others_at_work() -> None:
        session.flush()  # the same barrier
        compact_store(session.meta, full=True)
        session.execute("INSERT INTO t VALUES (3, 30)")
        session.flush()
        session.meta.apply_retention(keep_epochs=1)
        assert vacuum_store(session.meta).garbage

    with pytest.raises(LostRaceError) as raised:
        run_epoch(_Slow(others_at_work), slow, barrier)
    assert str(barrier.epoch) in raised.value.lost
    assert "lost: epoch" in str(raised.value)
    assert read(session.meta, "s").to_pylist() == [{"v": 62}]


@pytest.mark.spark
def test_a_missing_sst_is_damage_unless_another_driver_committed(session: Session, tmp_path: Path) -> None:
    session.execute("UPDATE t SET v = v + 1")
    meta = open_meta(tmp_path / "store", "alone")
    barrier = inject_barrier(meta)
    assert barrier is not None

    def lose_an_sst() -> None:
        meta.objects.delete([found.name for found in meta.objects.list("data/")])

    with pytest.raises(MissingSstError):
        run_epoch(_Slow(lose_an_sst), meta, barrier)
