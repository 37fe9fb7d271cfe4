"""The deep tests: runs them and records the run, or prints when they last ran.

python -m scripts.deep_run              run all and write .tussock/deep.json
python -m scripts.deep_run tests/deep   run some, with any arguments of pytest, and write nothing
python -m scripts.deep_run report       print one line about the last run
"""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
RECORD = ROOT / ".tussock" / "deep.json"


class DeepRun(msgspec.Struct, frozen=True):
    """One run of all deep tests: the commit, the start (UTC), and how it ended."""

    commit: str
    began: str
    minutes: int
    passed: bool


def main() -> int:
    """Run or report. Returns the exit code."""
    if sys.argv[1:] == ["report"]:
        print(report(RECORD, _commits_since))
        return 0
    began, start = datetime.now(UTC), time.monotonic()
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "deep", "--timeout=5400", *sys.argv[1:]], check=False, cwd=ROOT
    ).returncode
    if not sys.argv[1:]:
        RECORD.parent.mkdir(exist_ok=True)
        run = DeepRun(
            _git("rev-parse", "HEAD"), f"{began:%Y-%m-%d %H:%M}", round((time.monotonic() - start) / 60), code == 0
        )
        RECORD.write_bytes(msgspec.json.encode(run))
        print(report(RECORD, _commits_since))
    return code


def report(record: Path, commits_since: Callable[[str], str]) -> str:
    """A line about the recorded run.

    Args:
        record: the file that a run of all deep tests wrote.
        commits_since: gives the number of commits since one, or an empty text if that commit is unknown here.
    """
    if not record.exists():
        return "deep tests: no run is recorded here; start one with `make test-deep`"
    run = msgspec.json.decode(record.read_bytes(), type=DeepRun)
    since = commits_since(run.commit)
    ago = f"{since} commits ago" if since else "a commit that is not in this branch"
    return (
        f"deep tests: {'passed' if run.passed else 'FAILED'} on {run.began} UTC in {run.minutes} min, "
        f"at {run.commit[:9]} ({ago})"
    )


def _commits_since(commit: str) -> str:
    return _git("rev-list", "--count", f"{commit}..HEAD")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
