"""A jdbc source over a real Postgres server, whose driver is not among Spark's jars."""

from pathlib import Path

import pytest

from tests.support.postgres import find_programs
from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
@pytest.mark.skipif(find_programs() is None, reason="no Postgres server on this machine")
def test_a_source_of_a_postgres_server_has_its_rows_at_every_run(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sources.jdbc_alone", tmp_path, "org.postgresql#postgresql")
