"""A child and the Spark of its parent."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.jobs.forks.test_programs import in_child
from tussock.jobs.session import Session
from tussock.statestore.forks import InheritedError


def test_a_child_is_told_that_the_spark_of_its_parent_does_not_work_there(tmp_path: Path, spark: SparkSession) -> None:
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute("CREATE TABLE t (k int, PRIMARY KEY (k)); INSERT INTO t VALUES (1)")
        session.flush()

        def query() -> str:
            assert session.read("t").num_rows == 1, "without Spark"
            with pytest.raises(InheritedError) as raised:
                session.query("SELECT k FROM t")
            return str(raised.value)

        assert re.match(r"The parent process used Spark .* Open a session in the child, or", in_child(query))
        assert session.query("SELECT k FROM t").num_rows == 1
