"""The figures of docs/performance.md follow the result files of benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks.report import Comparison, Series, write_json
from scripts import performance_page

OLD = {
    "benchmark": "train",
    "what": "old",
    "ours": {"name": "a", "value": 1},
    "theirs": {"name": "b", "value": 2},
    "unit": "s",
    "ratio": 2,
}
OTHER = {**OLD, "benchmark": "restate"}


def test_a_result_replaces_the_figures_of_its_benchmark(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    write_json(file, [Comparison("new", Series("a", (2.0, 1.0, 3.0)), Series("b", (6.0, 6.0)))], {"which": "train"})
    kept, new = performance_page.taken([OLD, OTHER], [json.loads(file.read_text())])
    assert kept == OTHER
    assert (new["what"], new["ours"], new["theirs"], new["ratio"]) == (
        "new",
        {"name": "a", "value": 2.0},
        {"name": "b", "value": 6.0},
        3.0,
    )
    assert str(new["measured"]).endswith("cores, median of 3")


def test_a_result_of_all_benchmarks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    write_json(file, [], {"which": "all"})
    with pytest.raises(ValueError, match="one benchmark"):
        performance_page.taken([], [json.loads(file.read_text())])
