"""Marks for tests of features that an older release of Spark or Airflow lacks."""

from importlib.metadata import PackageNotFoundError, version

import pytest


def installed(package: str = "pyspark") -> tuple[int, ...]:
    """The installed release of a package, as (4, 2); () without one."""
    try:
        return tuple(int(part) for part in version(package).split(".")[:2])
    except PackageNotFoundError:
        return ()


def needs_spark(first: str) -> pytest.MarkDecorator:
    """Skip a test before Spark `first`, as in "4.1". `make matrix` counts the skip as a feature the release lacks."""
    return _needs("pyspark", "Spark", first)


def needs_airflow(first: str) -> pytest.MarkDecorator:
    """As `needs_spark`, for a release of Airflow."""
    return _needs("apache-airflow", "Airflow", first)


def _needs(package: str, name: str, first: str) -> pytest.MarkDecorator:
    wanted = tuple(int(part) for part in first.split("."))
    return pytest.mark.skipif(() < installed(package) < wanted, reason=f"needs {name} {first}")
