"""Fixtures and options of all tests."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.lanes import lane_objection
from tests.support.sample import in_sample
from tests.support.without_jvm import MARKS, RefusesJava, WithoutJvm
from tussock.jobs.settings.row_values import prints_for_owners

# Tests of S3 stores must not meet cached blocks of an earlier run on this host.
os.environ.setdefault("TUSSOCK_DISK_CACHE", "off")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases", action="store_true", help="rewrite case files and golden files; review the difference as code"
    )
    parser.addoption(
        "--no-jvm", action="store_true", help="omit all tests that need Spark, Airflow or separate processes"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A busy machine makes an example slow. Only timeouts of tests end slow ones.
    settings.register_profile("busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
    folder = tempfile.TemporaryDirectory(prefix="tussock-no-java-")
    config.add_cleanup(folder.cleanup)
    config.pluginmanager.register(RefusesJava(Path(folder.name)))
    if config.getoption("--no-jvm"):
        config.pluginmanager.register(WithoutJvm())
        config.option.markexpr = f"not ({' or '.join(MARKS)})"


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """A test of a task of Airflow decides whether its process prints rows. The next one begins anew."""
    yield
    prints_for_owners()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names bytes that are no text by their number: gzip stores the second, and parallel runs must agree on names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and not val.isascii() else None


@pytest.hookimpl(tryfirst=True)  # before -m removes the deep tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by the fixtures they use, and the cases outside the sample of a test marked `sampled(n)` as deep.

    Raises pytest.UsageError for a test in a wrong lane.
    """
    cases: Counter[str] = Counter()
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and item.get_closest_marker("deep") is None:
            test = item.nodeid.partition("[")[0]
            if not in_sample(cases[test], sampled.args[0]):
                item.add_marker(pytest.mark.deep)
            cases[test] += 1
    objections = [lane_objection(item.nodeid, {mark.name for mark in item.iter_markers()}) for item in items]
    if found := "\n".join(filter(None, objections)):
        raise pytest.UsageError(found)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One small local Spark session in UTC: the independent judge."""
    from tests.support.local_spark import local_session

    session = local_session()
    yield session
    session.stop()
