"""A train that is stopped: epochs before the failing one stay committed, and later ones leave no trace."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.driver.embedded import append, new_store
from tests.support.jobs.plan.catalogs import table
from tests.support.waiting import eventually
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.driver.train import Train
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.errors import InputError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore import syncs

pytestmark = pytest.mark.spark

_BIDS = pa.schema([("g", pa.int64()), ("price", pa.int64())])


def _write(data: Path, number: int, divisor: int = 1) -> None:
    data.mkdir(exist_ok=True)
    rows = [{"g": g, "price": divisor * (10 * number + g)} for g in range(5)]
    pq.write_table(pa.Table.from_pylist(rows, _BIDS), data / f"{number}.parquet")


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    """A view over a source; each epoch takes one file."""
    data = tmp_path / "bids"
    _write(data, 0)
    session = Session(str(tmp_path / "store"), spark)
    session.execute(f"CREATE SOURCE bids (g bigint, price bigint) USING parquet OPTIONS (path '{data}')")
    session.execute(
        "CREATE MATERIALIZED VIEW shares AS SELECT g, sum(100 div (price + 1)) AS s, count(*) AS n FROM bids GROUP BY g"
    )
    session.flush()
    return session


def _counted(session: Session) -> int:
    (answer,) = session.query("SELECT max(n) AS n FROM shares", epoch=session.meta.read_latest().epoch).to_pylist()
    return int(answer["n"])


def test_an_input_that_stops_an_epoch_leaves_those_before_it_committed_and_its_barrier_in_force(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    for number in (1, 2, 4):
        _write(tmp_path / "bids", number)
    bad = pa.table({"g": [1], "price": [-1]}, schema=_BIDS)  # divides by zero
    pq.write_table(bad, tmp_path / "bids" / "3.parquet")
    with pytest.raises(InputError, match="shares"):
        advance_store(SparkRunner(spark), session.meta, settings=EpochSettings(max_bytes=1))
    assert _counted(session) == 3  # files 0, 1 and 2
    held = session.meta.open_barrier()
    assert held is not None
    (pinned,) = (f.path for document in held.splits.values() for f in files_of(document))
    assert pinned.endswith("3.parquet")
    assert session.meta.all_pins() == ()
    abandon_barrier(session.meta, Detour(skip_files=(pinned,)))
    advance_store(SparkRunner(spark), session.meta, settings=EpochSettings(max_bytes=1))
    assert _counted(session) == 4


def test_a_train_that_another_driver_overtakes_reports_it_and_counts_nothing_twice(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(1, 5):
        _write(tmp_path / "bids", number)
    other = MetaStore(session.meta.objects, "another driver", lambda: 1_800_000_000_000)

    def ride() -> None:
        with Train(SparkRunner(spark), session.meta, depth=2) as train:
            barrier = train.next_barrier(settings=EpochSettings(max_bytes=1))
            assert barrier is not None
            train.run(barrier)
            train.drain_epochs()
            drafted = train.next_barrier(settings=EpochSettings(max_bytes=1))
            assert drafted is not None
            theirs = inject_barrier(other, settings=EpochSettings(max_bytes=1))
            assert theirs is not None
            run_epoch(SparkRunner(spark), other, theirs)
            train.run(drafted)

    with pytest.raises(LostRaceError, match="draft"):
        ride()
    assert _counted(session) == 3
    assert session.meta.all_pins() == ()
    advance_store(SparkRunner(spark), session.meta, settings=EpochSettings(max_bytes=1))
    assert _counted(session) == 5


def test_a_checkpoint_that_ended_before_it_was_awaited_is_counted(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    _write(tmp_path / "bids", 1)
    with Train(SparkRunner(spark), session.meta) as train:
        barrier = train.next_barrier(settings=EpochSettings(max_bytes=1))
        assert barrier is not None
        train.run(barrier)
        eventually("the checkpoint ends", lambda: not train.count_pending())
    assert [summary.epoch for summary in train.done] == [barrier.epoch]


def test_a_checkpoint_that_ends_between_its_count_and_the_wait_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta, counts = new_store(tmp_path / "store"), [0, 1]
    append(meta, table("t"))
    with Train(LocalRunner(), meta) as train:
        barrier = train.next_barrier()
        assert barrier is not None
        train.run(barrier)
        eventually("the checkpoint ends", lambda: not train.count_pending())
        with monkeypatch.context() as patch:
            patch.setattr(Train, "count_pending", lambda _: counts.pop())
            train.drain_epochs()
    assert counts == [], "it was counted as running"
    assert [summary.epoch for summary in train.done] == [barrier.epoch]


def test_a_train_that_ends_with_a_spark_error_commits_its_finished_epochs_and_leaves_no_pin(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(1, 3):
        _write(tmp_path / "bids", number)
    broken = RuntimeError("Spark is gone")

    def ride() -> None:
        with Train(SparkRunner(spark), session.meta, keep=0) as train:  # every checkpoint pins a version for the next
            for _ in range(2):
                barrier = train.next_barrier(settings=EpochSettings(max_bytes=1))
                assert barrier is not None
                train.run(barrier)
            raise broken

    with pytest.raises(RuntimeError, match="Spark is gone"):
        ride()
    assert _counted(session) == 3
    assert session.meta.all_pins() == ()


def test_the_number_of_epochs_in_flight_has_the_requested_limit(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(1, 6):
        _write(tmp_path / "bids", number)
    under_way: list[int] = []
    with Train(SparkRunner(spark), session.meta, depth=1, keep=0) as train:
        while (barrier := train.next_barrier(settings=EpochSettings(max_bytes=1))) is not None:
            train.run(barrier)
            under_way.append(train.count_pending())
            train.next_barrier(settings=EpochSettings(max_bytes=1))  # a draft that is discarded
    assert max(under_way) <= 1
    assert len(train.done) == 5
    assert _counted(session) == 6


def test_a_commit_is_reported_when_it_is_durable(tmp_path: Path) -> None:
    meta = new_store(tmp_path)
    append(meta, table("a"))
    durable = list[bool]()

    def progress(line: str) -> None:
        if "committed version" in line:  # in the committing thread
            durable.append(not syncs._of_thread.pending)

    advance_store(LocalRunner(), meta, settings=EpochSettings(), progress=progress)
    assert durable == [True]
