"""The installed package: the wheel's files suffice, from an empty folder to a view that Airflow has published."""

import csv
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "tussock": "tussock/",
    "jobs": "tussock/jobs/",
    "statestore": "tussock/statestore/",
    "plugins": "",
    "dags": "tussock_dags/",
}
"""The wheel's location of each folder's files."""


def build_wheel(folder: Path, checkout: Path = ROOT) -> Path:
    return build("wheel", folder, checkout)


def build(kind: str, folder: Path, checkout: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (made,) = folder.glob("tussock-*")
    return made


def test_the_wheel_holds_each_file_of_the_rooms_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (entries,) = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("entry_points.txt")]
    listing = ["git", "ls-files", "-co", "--exclude-standard", *PLACES]
    tracked = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    there = {name.partition("/")[::2] for name in tracked.stdout.splitlines() if (ROOT / name).is_file()}
    assert held == {PLACES[room] + rest for room, rest in there} - {".airflowignore"}
    assert {
        "tussock/jobs/spark/log4j2.properties",
        "tussock/jobs/shell/template/pipeline.toml",
        "tussock_dags/epoch.py",
        "tussock_steps.py",
    } <= held
    parser = ConfigParser()
    parser.read_string(entries)
    assert dict(parser["airflow.plugins"]) == {
        "tussock_timetables": "tussock_timetable:TussockTimetables",
        "tussock_pages": "tussock_pages:TussockPages",
    }


def test_a_wheel_made_from_the_source_distribution_holds_the_same_files(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("tussock-*")
    wheels = [build_wheel(tmp_path / "first"), build_wheel(tmp_path / "second", unpacked)]
    first, second = (
        {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} for wheel in wheels
    )
    assert first == second


def test_the_wheel_passes_twine_check_and_names_licence_and_pages(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    check = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(opened.read(name))
    assert {text.split(",")[0] for text in metadata.get_all("Project-URL", [])} >= {
        "Homepage",
        "Changelog",
        "Documentation",
        "Security",
    }
    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert "LGPL" not in str(metadata)
    targets = re.findall(r"\]\((.*?)\)|^\[\w+\]: (.*)$", str(metadata.get_payload()), re.MULTILINE)
    assert [link or picture for link, picture in targets if not (link or picture).startswith("https://")] == []
    assert len(targets) > 10


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
