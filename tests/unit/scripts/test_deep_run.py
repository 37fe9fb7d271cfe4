"""The record of the deep tests' last run."""

from pathlib import Path

import msgspec

from scripts.deep_run import DeepRun, report


def test_the_last_run_of_the_deep_tests_is_reported_with_its_commit_and_age(tmp_path: Path) -> None:
    record = tmp_path / "deep.json"
    assert "no run is recorded" in report(record, lambda commit: "")
    record.write_bytes(msgspec.json.encode(DeepRun("0123456789abcdef", "2026-05-04 03:10", 171, False)))
    assert (
        report(record, lambda commit: "12")
        == "deep tests: FAILED on 2026-05-04 03:10 UTC in 171 min, at 012345678 (12 commits ago)"
    )
    assert "not in this branch" in report(record, lambda commit: "")
