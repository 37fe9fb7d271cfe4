"""The query of the pipeline `orders` by Spark."""

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).resolve().parents[3]


def test_spark_computes_the_answer_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at = importlib.util.spec_from_file_location("query", ROOT / "pipelines/orders/query.py")
    assert at is not None
    assert at.loader is not None
    query = importlib.util.module_from_spec(at)
    at.loader.exec_module(query)
    spark = MagicMock()
    spark.sql.return_value.toArrow.return_value = pa.table({"orders": [3]})
    monkeypatch.setattr("tussock.jobs.spark.session.spark_session", lambda **_: nullcontext(spark))
    answer = query.ask_spark(tmp_path)
    assert [call[0] for call in spark.sql.return_value.method_calls] == ["toArrow"]
    assert answer == [(3,)]
