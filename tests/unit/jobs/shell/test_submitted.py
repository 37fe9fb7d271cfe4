"""The script of Spark jobs: the jobs that Airflow's tasks name, and the path that spark-submit gives it."""

import re
import subprocess
import sys
from pathlib import Path

from tussock.jobs.submitted import JOBS

ROOT = Path(__file__).resolve().parents[4]
_NAMED = re.compile(r'\bjob="([a-z-]+)"')


def test_the_script_has_each_job_that_a_task_of_airflow_names() -> None:
    named = {job for file in (ROOT / "plugins").glob("*.py") for job in _NAMED.findall(file.read_text())}
    assert named == JOBS.keys() - {"class-archive"}


def test_rooms_beside_the_script_hide_no_module_of_a_team(tmp_path: Path) -> None:
    """spark-submit puts `jobs/` first on the path. A team's module has the name of a room there."""
    (tmp_path / "quality.py").write_text("OURS = True\n")
    code = "import runpy, sys, contextlib; sys.argv[1:] = ['--help']\nwith contextlib.suppress(SystemExit):\n"
    code += (
        f"    runpy.run_path({str(ROOT / 'jobs/submitted.py')!r}, run_name='__main__')\nimport quality; quality.OURS"
    )
    path = f"import sys; sys.path[:0] = [{str(ROOT / 'jobs')!r}, {str(tmp_path)!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "class-archive" in done.stdout
