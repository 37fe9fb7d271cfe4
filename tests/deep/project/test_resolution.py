"""The package beside an installed Airflow: pip finds versions of all requirements and moves none of Airflow's pins.

Airflow publishes its constraints beside its releases, and an installer's index may lack them. The test makes them in
the same way: it resolves an Airflow with a few providers alone, and the resulting versions are the pins.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.package import build_wheel

UV = Path(sys.executable).with_name("uv")
#: With the provider for Amazon, whose boto3 and the extra `s3` share their dependencies.
AIRFLOW = "apache-airflow[amazon,fab,standard]=={release}"


def resolved(folder: Path, lines: list[str], constraints: Path | None = None) -> Path:
    """A file of pins for requirements, of wheels alone; pyspark has none, and is read from its source's metadata."""
    wanted, found = folder / "wanted.in", folder / f"found-{len(list(folder.iterdir()))}.txt"
    wanted.write_text("\n".join(lines))
    sources = ["--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "pyspark-client"]
    command = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        "--python-version",
        "3.11",
        "--no-header",
        "--no-annotate",
        *sources,
    ]
    command += [str(wanted), "-o", str(found), *([] if constraints is None else ["-c", str(constraints)])]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return found


def pins(file: Path) -> dict[str, str]:
    return dict(line.split("==") for line in file.read_text().splitlines() if "==" in line)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", ["3.1.8", "3.2.2", "3.3.2"])
def test_the_package_moves_no_pin_of_an_airflow(release: str, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "dist")
    (tmp_path / "pins").mkdir()
    airflow = AIRFLOW.format(release=release)
    alone = resolved(tmp_path / "pins", [airflow])
    both = resolved(tmp_path / "pins", [airflow, f"tussock[all,openlineage] @ {wheel.as_uri()}"], alone)
    before, after = pins(alone), pins(both)
    assert {name: after.get(name) for name in before} == before
    assert {"pyspark", "great-expectations", "deltalake", "boto3"} <= after.keys()
