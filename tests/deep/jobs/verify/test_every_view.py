"""All views of tests.support.truth, through random histories. `tussock verify` finds each equal to Spark's answer."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.truth.model import TABLES, History
from tests.support.truth.views import TOP_N, VIEWS
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verdict

EPOCHS = 6


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, pytest.param(7, marks=pytest.mark.deep)])
def test_every_right_view_is_found_equal(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    history, views = History(seed), {**VIEWS, **{name: sql for name, (sql, _) in TOP_N.items()}}
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute("; ".join(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in views.items()))
        for epoch in range(EPOCHS):
            if statements := history.epoch():
                session.execute("; ".join(statements))
            session.flush(moment=datetime(2012, 12, 28, 7, 30, tzinfo=UTC) + epoch * timedelta(days=4, hours=7))
        found = session.verify()
    assert len(found.views) == len(views)
    assert [check for check in found.views if check.verdict is not Verdict.EQUAL] == []
    assert [check.view for check in found.views if check.open_columns and check.view not in TOP_N] == []
