"""The quality gate over Spark DataFrames: what passes, what fails and how it is told, and suites that cannot be used."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.quality import SAMPLE_KEYS, Failure, QualityGate, QualityGateError, QualityRecord, QualitySuiteError, ViewQuality, run_gate

pytestmark = pytest.mark.spark
EPOCH = 1_357_084_800_000 << 16  # 2013-01-02


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "meta": {}}


def suite(folder: Path, *expectations: dict[str, Any], key: list[str] | None = None) -> Path:
    file = folder / "delays.json"
    file.write_text(json.dumps({"name": "delays", "expectations": expectations, "meta": {"key": key} if key else {}}))
    return file


@pytest.fixture
def gate(tmp_path: Path) -> QualityGate:
    return QualityGate(tmp_path / "docs")


@pytest.fixture(scope="module")
def delays(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("AA", 1, 4.0), ("B6", 1, None), ("UA", 2, -3.0)], "carrier string, month int, delay double")


def test_a_view_that_meets_its_suite_passes_and_gets_a_page(gate: QualityGate, delays: DataFrame, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_be_unique", column="carrier"))
    record = run_gate(gate, EPOCH, [("delays", delays, file, ["carrier"])])
    assert record == QualityRecord(EPOCH, (ViewQuality("delays", rows=3, expectations=1),))
    assert record.passed
    assert (tmp_path / "docs/index.html").exists()
    (page,) = (tmp_path / "docs/validations/delays").rglob("*.html")
    assert f"epoch-{EPOCH}" in str(page)


def test_a_failing_expectation_is_told_with_what_was_found_and_the_keys_of_rows(
    gate: QualityGate, delays: DataFrame, tmp_path: Path
) -> None:
    file = suite(
        tmp_path,
        expectation("expect_column_values_to_be_between", column="delay", min_value=0),
        expectation("expect_table_row_count_to_be_between", min_value=10),
        expectation("expect_column_values_to_not_be_null", column="carrier"),
    )
    record = run_gate(gate, EPOCH, [("delays", delays, file, ["carrier", "month"])])
    assert not record.passed
    assert record.views[0].failures == (
        Failure(
            "expect_column_values_to_be_between(column='delay', min_value=0.0)",
            "1 of 3 rows, e.g. -3.0",
            ({"carrier": "UA", "month": "2", "delay": "-3.0"},),
        ),
        Failure("expect_table_row_count_to_be_between(min_value=10)", "3"),
    )
    message = str(QualityGateError(record))
    assert f"epoch {EPOCH} did not pass the quality gate and is not published; readers still see the epoch before." in message
    assert "view 'delays': expect_column_values_to_be_between(column='delay', min_value=0.0): found 1 of 3 rows, e.g. -3.0" in message
    assert "failing rows: carrier=UA, month=2, delay=-3.0" in message


def test_the_key_that_the_suite_names_goes_before_the_views_own(gate: QualityGate, delays: DataFrame, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="delay"), key=["month"])
    (view,) = run_gate(gate, EPOCH, [("delays", delays, file, ["carrier"])]).views
    assert view.failures[0].keys == ({"month": "1", "delay": "None"},)


def test_a_view_of_many_failing_rows_names_a_sample(gate: QualityGate, spark: SparkSession, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_be_between", column="id", max_value=-1))
    (view,) = run_gate(gate, EPOCH, [("delays", spark.range(500).toDF("id"), file, ["id"])]).views
    assert view.failures[0].observed.startswith("500 of 500 rows")
    assert len(view.failures[0].keys) == SAMPLE_KEYS


def test_an_empty_view_passes_what_asks_nothing_of_its_size(gate: QualityGate, delays: DataFrame, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="delay"))
    assert run_gate(gate, EPOCH, [("delays", delays.limit(0), file, ["carrier"])]).passed


def test_later_epochs_add_pages_to_the_same_docs(delays: DataFrame, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="carrier"))
    for day in (0, 1):
        run_gate(QualityGate(tmp_path / "docs"), EPOCH + (day * 86_400_000 << 16), [("delays", delays, file, ["carrier"])])
    assert len(list((tmp_path / "docs/validations/delays").rglob("*.html"))) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "found a list without such a list"),
        ('{"expectations": [{"kwargs": {}}]}', 'found expectation 1: {"kwargs": {}}'),
        ('{"expectations": [{"type": "expect_wonders", "kwargs": {}}]}', "expect_wonders"),
        ('{"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"colum": "delay"}}]}', "column"),
        (
            '{"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "dealy"}}]}',
            "found column 'dealy', expected one of the view's columns: carrier, month, delay",
        ),
    ],
)
def test_a_suite_that_cannot_be_used_is_named_with_the_reason(
    gate: QualityGate, delays: DataFrame, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "delays.json"
    file.write_text(text)
    with pytest.raises(QualitySuiteError) as caught:
        run_gate(gate, EPOCH, [("delays", delays, file, ["carrier"])])
    assert str(caught.value).startswith(f"{file}: found ")
    assert message in str(caught.value)


def test_a_record_survives_its_way_through_the_store() -> None:
    record = QualityRecord(EPOCH, (ViewQuality("delays", 3, 1, (Failure("expect_x()", "1 of 3", ({"carrier": "UA"},)),)),))
    assert msgspec.json.decode(msgspec.json.encode(record), type=QualityRecord) == record
