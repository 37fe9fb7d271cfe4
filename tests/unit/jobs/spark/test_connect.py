"""A session of Spark Connect is refused before any work."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tussock.jobs.session import Session
from tussock.jobs.spark.session import ConnectSessionError


@pytest.mark.parametrize("late", [False, True], ids=["given", "started on first use"])
def test_a_session_of_spark_connect_is_refused_with_a_remedy(tmp_path: Path, late: bool) -> None:
    remote = ConnectSession.__new__(ConnectSession)  # without a server
    given: ConnectSession | Callable[[], ConnectSession] = (lambda: remote) if late else remote
    with pytest.raises(ConnectSessionError, match="pass a classic session"):
        _ = Session(str(tmp_path / "store"), given).spark  # type: ignore[arg-type]
