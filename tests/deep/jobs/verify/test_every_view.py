"""All views of tests.support.truth, through random histories. `tussock verify` finds each equal to Spark's answer.

The second history has two schemas that share all names.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.truth.schemas import ONE, TWO, Histories, create_tables, create_views, place_views
from tests.support.truth.views import TOP_N, VIEWS
from tussock.jobs.logical.relation_names import split_name
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verdict

EPOCHS = 6


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, pytest.param(7, marks=pytest.mark.deep)])
def test_every_right_view_is_found_equal(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    schemas = TWO if seed % 2 else ONE
    cases = {**VIEWS, **{name: sql for name, (sql, _) in TOP_N.items()}}
    history, views = Histories(seed, schemas), place_views(cases, schemas, seed)
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute(create_tables(schemas))
        session.execute(create_views(views))
        for epoch in range(EPOCHS):
            if statements := history.epoch():
                session.execute("; ".join(statements))
            session.flush(moment=datetime(2012, 12, 28, 7, 30, tzinfo=UTC) + epoch * timedelta(days=4, hours=7))
        found = session.verify()
    assert len(found.views) == len(views)
    assert [check for check in found.views if check.verdict is not Verdict.EQUAL] == []
    assert [check.view for check in found.views if check.open_columns and split_name(check.view)[1] not in TOP_N] == []
