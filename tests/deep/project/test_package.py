"""The installed package: the wheel's files suffice, from an empty folder to a view that Airflow has published."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.package import ROOT, build_wheel


class Installation:
    """A Python with the wheel in a separate folder; its processes cannot find the checkout."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "venv/bin"
        foreign = ("AIRFLOW", "TUSSOCK_", "PYTHON", "SPARK_HOME", "VIRTUAL_ENV", "SHOP_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env["PATH"] = f"{self.bin}:{os.defpath}:/usr/local/bin"
        lock = (ROOT / "requirements.lock").read_text()
        constraints = folder / "constraints.txt"
        constraints.write_text(re.sub(r" *\\\n( *--hash=\S+( \\)?\n)+", "\n", lock))
        uv = [str(Path(sys.executable).with_name("uv")), "--quiet"]
        self.run(*uv, "venv", "--python", sys.executable, str(folder / "venv"), cwd=folder)
        wheel = f"{build_wheel(folder / 'dist')}[all]"
        self.run(
            *uv,
            "pip",
            "install",
            "--python",
            str(self.bin / "python"),
            "--constraint",
            str(constraints),
            wheel,
            "apache-airflow-providers-fab",
            cwd=folder,
        )

    def run(self, *command: str, cwd: Path) -> str:
        run = subprocess.run(command, cwd=cwd, env=self.env, capture_output=True, text=True)
        assert run.returncode == 0, f"{' '.join(command)}:\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
        return run.stdout


def daily(text: str) -> dict[str, tuple[int, float]]:
    return {row["day"]: (int(row["orders"]), float(row["revenue"])) for row in csv.DictReader(text.splitlines())}


@pytest.mark.deep
@pytest.mark.airflow
@pytest.mark.timeout(3600)
def test_from_an_empty_folder_to_a_view_that_a_separate_airflow_has_published(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    assert here.run(
        str(here.bin / "python"), "-c", "import tussock.jobs; print(tussock.jobs.__file__)", cwd=tmp_path
    ).startswith(str(here.bin.parent))
    project = tmp_path / "project"
    project.mkdir()
    said = here.run("tussock", "new", "shop", cwd=project)
    for line in re.findall(r"^  (tussock .*?) +#", said, re.M):  # the next steps that it lists, from a subfolder
        shown = here.run(*line.split(), cwd=project / "pipelines/shop/data")
    assert shown.startswith("day ")
    (setting,) = re.findall(r"export (TUSSOCK_PIPELINES=\S+)\)", said)
    here.env.update([setting.split("=", 1)])
    before = daily(here.run("tussock", "read", "--pipeline", "shop", "daily_sales", "--csv", cwd=tmp_path))
    assert {day: orders for day, (orders, _) in before.items()} == {f"2026-01-0{day}": 12 for day in (1, 2, 3)}

    orders = project / "pipelines/shop/data/orders"
    (orders / "2026-01-04.csv").write_text("id,at,product,quantity\n37,2026-01-04 08:00:00,cheese,2\n")
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    *_, on_a_schedule = re.findall(r"```bash\n(.*?)```", tutorial, re.DOTALL)
    script = f"set -e\n{on_a_schedule}airflow dags list-import-errors\nairflow plugins\nairflow dags test upkeep_shop\n"
    said = here.run("bash", "-c", script, cwd=project)
    assert {"epoch_shop", "upkeep_shop"} <= set(re.findall(r"^\w+_shop", said, re.M))
    assert "No data found" in said, "no import error"
    assert "tussock_timetable.IntervalsUntil" in said
    assert "already registered" not in said
    after = daily(here.run("tussock", "read", "--pipeline", "shop", "daily_sales", "--csv", cwd=tmp_path))
    assert after == {**before, "2026-01-04": (1, pytest.approx(9.80))}
    (by_duckdb,) = re.findall(r"^\$ (python -c .*duckdb.*)$", tutorial, re.M)
    table = re.findall(r"│ (\S+) │ +(\d+) │ +([\d.]+) │", here.run("bash", "-c", by_duckdb, cwd=project))
    assert {day: (int(orders), float(revenue)) for day, orders, revenue in table} == after
