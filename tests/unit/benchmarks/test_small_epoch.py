"""The small-epoch benchmark: it measures the stated steps, on a store with the expected content."""

import multiprocessing
import time
from pathlib import Path

import pytest

from benchmarks.cpu import cpu_seconds_between, tree_usage
from benchmarks.report import Figure


def test_a_figure_is_judged_by_its_budget_from_both_sides() -> None:
    assert [Figure("x", value, "s", at_most=1.0).verdict for value in (0.9, 1.0, 1.1)] == ["ok", "ok", "MISSED"]
    assert [Figure("x", value, "s", 2.0, at_most=3.0).verdict for value in (1.9, 2.5, 3.1)] == [
        "MISSED",
        "ok",
        "MISSED",
    ]
    assert (Figure("x", 1.0, "s").verdict, Figure("x", 1.0, "s", 2.0, at_most=3.0).budget) == ("", ">= 2 s <= 3 s")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_cpu_seconds_count_children_that_run_and_children_that_have_ended() -> None:
    before = tree_usage()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spent = pool.apply(_burn, (0.3,))
        running = cpu_seconds_between(before, tree_usage())
        pool.close()
        pool.join()
    assert running >= 0.9 * spent
    assert cpu_seconds_between(before, tree_usage()) >= running


def _burn(seconds: float) -> float:
    while time.process_time() < seconds:
        sum(range(1_000))
    return time.process_time()
