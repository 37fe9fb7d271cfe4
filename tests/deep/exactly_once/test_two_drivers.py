"""Two epoch jobs on one store: one commits, the other reports that it lost, and nothing is half visible."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.exactly_once.fixtures import CHILD_TIMEOUT_S, Case
from tests.support.exactly_once.kill import assert_undisturbed
from tests.support.exactly_once.points import Fault


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    [
        "before put_if_absent meta/version",  # both have run everything
        pytest.param("before put_if_absent meta/barrier", marks=pytest.mark.deep),
        pytest.param("before put_if_absent meta/manifest", marks=pytest.mark.deep),
    ],
)
@pytest.mark.deep
def test_one_of_two_jobs_commits_and_the_other_reports_that_it_lost(
    point: str, case: Case, store: Path, start_job: Callable[..., "subprocess.Popen[str]"]
) -> None:
    jobs = [
        start_job(Fault(point, "meet", others=2)) for _ in range(2)
    ]  # neither continues before both have reached it
    answers = [(job.communicate(timeout=CHILD_TIMEOUT_S), job.returncode) for job in jobs]
    codes = [code for _, code in answers]
    assert sorted(codes) == [0, 3], answers
    (_, told), (out, _) = (answers[codes.index(c)][0] for c in (3, 0))
    assert "lost: epoch" in told
    assert "committed version" in out
    assert_undisturbed(case, store)


@pytest.mark.deep
@pytest.mark.kill
@pytest.mark.spark
def test_two_jobs_that_run_freely_commit_every_epoch_once(
    case: Case, store: Path, start_job: Callable[..., "subprocess.Popen[str]"]
) -> None:
    jobs = [start_job() for _ in range(2)]
    answers = [(job.communicate(timeout=CHILD_TIMEOUT_S), job.returncode) for job in jobs]
    assert all(code in (0, 3) for _, code in answers), answers
    assert any(code == 0 for _, code in answers), answers
    assert_undisturbed(case, store)
