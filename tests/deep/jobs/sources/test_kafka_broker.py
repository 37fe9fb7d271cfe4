"""Topics of a real broker; Spark's jars include neither the broker nor the Kafka module."""

from pathlib import Path

import pytest

from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
def test_topics_of_a_real_broker_are_taken_exactly_once_or_held_by_name(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sources.kafka_alone", tmp_path, "org.apache.spark#spark-sql-kafka-0-10_2.13")
