"""The workflows of docs/compare.md: valid YAML, commands that exist, and no secret of the store where a job posts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tussock.jobs import cli
from tussock.jobs.shell.command import build_parser

ROOT = Path(__file__).resolve().parents[3]
GITHUB, GITLAB = (
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/compare.md").read_text(), re.S)
)
POSTS = ("gh pr comment", "curl ")


def steps_of_github() -> list[dict[str, Any]]:
    (job,) = GITHUB["jobs"].values()
    assert not [name for name, value in job["env"].items() if "secrets." in value], "a secret of all steps"
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def commands() -> Iterator[str]:
    for step in steps_of_github():
        yield from step.get("run", "").splitlines()
    for job in ("preview", "comment"):
        yield from (*GITLAB[job]["script"], *GITLAB[job].get("after_script", ()))


def test_the_workflow_of_github_runs_for_pull_requests_of_the_repository_only() -> None:
    assert GITHUB[True] == "pull_request", "YAML 1.1 reads the key `on` as true"
    (job,) = GITHUB["jobs"].values()
    assert job["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    assert GITHUB["permissions"] == {"contents": "read", "pull-requests": "write"}


def test_no_step_that_posts_has_a_secret_of_the_store() -> None:
    steps = steps_of_github()
    with_secrets = [step for step in steps if "secrets." in str(step)]
    posting = [step for step in steps if any(word in step.get("run", "") for word in POSTS)]
    assert len(with_secrets) == 2
    assert len(posting) == 1
    assert [step for step in with_secrets if step in posting] == []
    assert [step for step in with_secrets if "uses" in step] == [], "another's action gets a secret of the store"
    assert GITLAB["preview"]["environment"] == "preview", "the scope of the store's variables"
    assert "environment" not in GITLAB["comment"]
    assert not any(word in line for line in GITLAB["preview"]["script"] for word in POSTS)


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("tussock ")])
def test_each_command_of_the_workflows_exists_with_its_options(line: str) -> None:
    words = shlex.split(re.split(r" > | \|\| ", line.replace('"$BRANCH"', "pr-1"))[0])[1:]
    chosen = build_parser("", "", cli.COMMANDS).parse_args(words)
    assert callable(chosen.run)


def test_a_branch_ends_whatever_happened_and_the_comment_has_no_values_of_rows() -> None:
    (end,) = [step for step in steps_of_github() if step.get("if") == "always()"]
    assert end["run"] == 'tussock branch end shop "$BRANCH"'
    assert GITLAB["preview"]["after_script"] == ['tussock branch end shop "$BRANCH"']
    diffs = [line for line in commands() if "tussock diff" in line]
    assert len(diffs) == 2
    assert all("--samples 0" in line for line in diffs)
