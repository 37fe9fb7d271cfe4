"""Random histories of inserts, updates and deletes: after every epoch each view equals Spark's SELECT on the same rows.

The quick run takes one view in twelve and the views that those read, with epochs in this process and a train on Spark.
The deep run takes all of them, with many histories, on Spark. Odd seeds have two schemas that share all names.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tests.support.sample import sample
from tests.support.truth.compare import assert_same_answer
from tests.support.truth.schemas import (
    OF_BOTH,
    ONE,
    TWO,
    Histories,
    Judge,
    PlacedView,
    create_tables,
    create_views,
    judge_of,
    place_views,
)
from tests.support.truth.views import TOP_N, VIEWS
from tussock.jobs.barriers.moment import InputRequest, micros_of
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.driver.train import Train
from tussock.jobs.logical.relation_names import split_name
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.session import Session
from tussock.statestore.types import arrow_type

EPOCHS = int(os.environ.get("TUSSOCK_TRUTH_EPOCHS", "20"))
QUICK_EPOCHS = 8
TRAIN_EPOCHS = 12
DEEP_SEEDS = 12
DEEP_PAIRS = 5_000  # of a view and an epoch, at least, that a deep run compares

EVERYTHING: dict[str, str] = {**VIEWS, **{name: sql for name, (sql, _) in TOP_N.items()}}


def read(session: Session, name: str, epoch: int | None = None) -> pa.Table:
    """A relation's rows at an epoch (None: the committed one), straight from the state store.

    At the newest epoch, their number must equal the version's.
    """
    version = session.meta.read_latest()
    at = version.epoch if epoch is None else epoch
    (relation,) = [r for r in version.catalog.relations_at(at) if r.name == name]
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in relation.columns])
    rows = pa.concat_tables([schema.empty_table(), *scan_relation(session.meta.objects, version, relation, at)])
    assert at < version.epoch or version.rows[relation.id] == rows.num_rows, f"{name}: rows that its version counts"
    return rows


@pytest.mark.spark
def test_a_sample_of_the_views_equals_spark_after_every_epoch(spark: SparkSession, tmp_path: Path) -> None:
    _follow(0, _with_what_they_read(sample(list(EVERYTHING), 12)), spark, tmp_path, QUICK_EPOCHS, here(spark))


@pytest.mark.spark
def test_views_of_two_schemas_that_share_names_equal_spark(spark: SparkSession, tmp_path: Path) -> None:
    views = _with_what_they_read(("joined_three", "scalar_of_group", "with_cte_in_union", "view_join"))
    _follow(7, views, spark, tmp_path, 4, here(spark))  # a seed that fills all tables early


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, DEEP_SEEDS))
def test_every_view_equals_spark_after_every_epoch(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    pairs = _follow(seed, EVERYTHING, spark, tmp_path)
    assert pairs * (DEEP_SEEDS - 1) >= DEEP_PAIRS, f"{pairs} views and epochs were compared here; more seeds are needed"


def _schemas_of(seed: int) -> Sequence[str]:
    return TWO if seed % 2 else ONE


def _follow(
    seed: int,
    cases: Mapping[str, str],
    spark: SparkSession,
    tmp_path: Path,
    epochs: int = EPOCHS,
    runner: LevelRunner | None = None,
) -> int:
    """Maintain views through one random history; return the number of compared pairs of view and epoch."""
    schemas, pairs = _schemas_of(seed), 0
    history, views = Histories(seed, schemas), place_views(cases, schemas, seed)
    with (
        Session(str(tmp_path / "store"), spark, units=2 + seed % 3, runner=runner or "spark") as session,
        judge_of(spark, schemas, tmp_path / "judge", _read_by_some(cases)) as judge,
    ):
        session.execute(create_tables(schemas))
        waiting = _waiting(views)
        session.execute(create_views(view for view in views if view not in waiting))
        for epoch in range(epochs):
            if statements := history.epoch():
                session.execute("; ".join(statements))
            if epoch == epochs // 3:
                session.execute(create_views(waiting))
            session.flush(moment=(moment := _moment(epoch)))
            when = f"seed {seed}, epoch {epoch}: {statements}"
            pairs += _compare_all(session, judge, history.rows(), views, moment, when)
    return pairs


@pytest.mark.spark
@pytest.mark.parametrize("seed", [20, *(pytest.param(s, marks=pytest.mark.deep) for s in range(21, 25))])
def test_every_view_equals_spark_at_every_epoch_of_a_train(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Epochs read the sealed rows of earlier epochs in flight, also with DML and with views created meanwhile."""
    schemas, depth, keep = _schemas_of(seed), 2 + seed % 3, seed % 2
    cases = EVERYTHING if seed > 20 else _with_what_they_read(sample(list(EVERYTHING), 12))
    history, views = Histories(seed, schemas), place_views(cases, schemas, seed)
    ran: list[tuple[int, datetime, str, dict[str, pa.Table]]] = []
    with (
        Session(str(tmp_path / "store"), spark, units=2 + seed % 3) as session,
        judge_of(spark, schemas, tmp_path / "judge", _read_by_some(cases)) as judge,
    ):
        session.execute(create_tables(schemas))
        waiting = _waiting(views)
        session.execute(create_views(view for view in views if view not in waiting))
        with Train(SparkRunner(spark), session.meta, depth, keep) as train:
            for number in range(TRAIN_EPOCHS):
                statements = history.epoch()
                if number == TRAIN_EPOCHS // 2:
                    statements += [create_views(waiting)]
                if statements:
                    session.execute("; ".join(statements))
                moment = _moment(2 * number)
                if (barrier := train.next_barrier(InputRequest(moment=micros_of(moment)))) is not None:
                    train.run(barrier)
                    ran.append((barrier.epoch, moment, f"{statements}", history.rows()))
        assert [summary.epoch for summary in train.done] == [epoch for epoch, *_ in ran]
        assert session.meta.all_pins() == ()
        for epoch, moment, made, rows in ran[:: 1 if seed > 20 else 3] + ran[-1:]:
            when = f"seed {seed}, epoch {epoch} of a train: {made}"
            _compare_all(session, judge, rows, views, moment, when, epoch)


def _moment(epoch: int) -> datetime:
    """The value of now() in an epoch: each epoch passes some of the rows' dates and times."""
    return datetime(2012, 12, 28, 7, 30, tzinfo=UTC) + epoch * timedelta(days=4, hours=7)


def _read_by(case: str) -> set[str]:
    """The views that a view reads itself."""
    return set(re.findall(r"\w+", {**EVERYTHING, **OF_BOTH}[case])) & EVERYTHING.keys()


def _read_by_some(cases: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*(_read_by(case) for case in (*cases, *OF_BOTH)))


def _with_what_they_read(names: Iterable[str]) -> dict[str, str]:
    chosen = set(names)
    while more := {below for name in chosen for below in _read_by(name)} - chosen:
        chosen |= more
    return {name: sql for name, sql in EVERYTHING.items() if name in chosen}


def _waiting(views: Sequence[PlacedView]) -> list[PlacedView]:
    """One view in five and its readers: created over existing rows, and so backfilled."""
    cases = list(dict.fromkeys(view.case for view in views))
    waiting = set(cases[::5])
    for case in cases:
        if _read_by(case) & waiting:
            waiting.add(case)
    return [view for view in views if view.case in waiting]


def _compare_all(
    session: Session,
    judge: Judge,
    rows: dict[str, pa.Table],
    views: Sequence[PlacedView],
    moment: datetime,
    when: str,
    epoch: int | None = None,
) -> int:
    """Compare the tables and all existing views; return the number of views."""
    for table, expected in rows.items():
        judge.hold(table, expected)
        assert_same_answer(read(session, table, epoch), expected, f"table {table} at {when}")
    catalog = session.meta.read_latest().catalog
    live = {r.name for r in (catalog.live_relations() if epoch is None else catalog.relations_at(epoch))}
    doubles = [d for table, held in rows.items() if split_name(table)[1] == "t" for d in held["d"].to_pylist()]
    scale = max(1.0, sum(abs(d) for d in doubles if d is not None and abs(d) < float("inf")))
    for view in (compared := [view for view in views if view.name in live]):
        only = TOP_N[view.case][1] if view.case in TOP_N else None
        own = scale if "double" in view.case else 1.0
        what = f"{view.name} (USE {view.used}; {view.sql}) at {when}"
        assert_same_answer(read(session, view.name, epoch), judge.answer(view, moment), what, only, own)
    return len(compared)
