"""Branches over topics of a real broker and over a real Postgres server by dumps, on Spark."""

from pathlib import Path

import pytest

from tests.support.postgres import find_programs
from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
@pytest.mark.skipif(find_programs() is None, reason="no Postgres server on this machine")
def test_a_branch_follows_the_topics_and_dumps_of_its_parent_and_merges(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sources.branches_alone", tmp_path, "org.apache.spark#spark-sql-kafka-0-10_2.13")
