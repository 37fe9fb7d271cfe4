"""`make unit` works before Java is installed: tests are collected without pyspark, and none of them starts Java."""

import os

import pytest


@pytest.mark.spark
def test_java_starts_in_a_test_with_a_mark() -> None:
    assert "tussock-no-java" not in os.environ.get("JAVA_HOME", "")
