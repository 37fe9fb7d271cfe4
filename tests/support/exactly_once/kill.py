"""Rows and helpers of test_kill.py, which is in several lanes."""

from pathlib import Path

from tests.support.exactly_once import workload
from tests.support.exactly_once.fixtures import Case
from tests.support.truth.compare import assert_same_answer


def assert_undisturbed(case: Case, store: Path) -> None:
    """The store's newest version is the undisturbed run's, to the last SST's hash, and its rows are Spark's."""
    meta = workload.open_meta(store)
    assert meta.read_latest() == case.undisturbed
    assert meta.open_barrier() is None
    for name, expected in case.rows.items():
        assert_same_answer(workload.read(meta, name), expected, name)
