"""Tests of what an older release of Spark lacks."""

from importlib.metadata import PackageNotFoundError, version

import pytest


def installed() -> tuple[int, ...]:
    """The installed release of pyspark, as (4, 2); () without one."""
    try:
        return tuple(int(part) for part in version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return ()


def needs_spark(first: str) -> pytest.MarkDecorator:
    """Skip a test before Spark `first`, as in "4.1". `make matrix` counts such a skip as a feature that the release lacks."""
    wanted = tuple(int(part) for part in first.split("."))
    return pytest.mark.skipif(() < installed() < wanted, reason=f"needs Spark {first}")
