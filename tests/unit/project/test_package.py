"""The installed package: the wheel's files suffice, from an empty folder to a view that Airflow has published."""

import re
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from pathlib import Path

from tests.support.package import ROOT, build, build_wheel

PLACES = {
    "tussock": "tussock/",
    "jobs": "tussock/jobs/",
    "statestore": "tussock/statestore/",
    "plugins": "",
    "dags": "tussock_dags/",
}
"""The wheel's location of each folder's files."""


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
