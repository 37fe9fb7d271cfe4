"""The queries' texts. Nexmark's are its pipeline's; the others are in the jar of Spark's own tests.

Ivy, a part of Spark, downloads the jar as it downloads any Spark package, and keeps it, so one download suffices.
"""

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark
import pytest

from tussock.jobs.logical.script import split_script

_ARTIFACT = "spark-sql_2.13"
_VIEW = re.compile(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) AS\n(.*)", re.DOTALL)
_MODULE = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tussock" module="queries"/>
  <dependencies>
    <dependency org="org.apache.spark" name="{_ARTIFACT}" rev="{pyspark.__version__}" transitive="false">
      <artifact name="{_ARTIFACT}" type="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""

#: A suite's name -> its folder in the jar, or its pipeline's file of views.
SUITES = {
    "tpch": "tpch",
    "tpcds": "tpcds",
    "tpcds_27": "tpcds-v2.7.0",
    "ssb": "ssb",
    "nexmark": "pipelines/nexmark/views.sql",
}
ROOT = Path(__file__).parents[3]
JARS = ROOT / ".tussock" / "jars"


def tests_jar() -> Path:
    """The jar of Spark's tests. Skips the test if it cannot be downloaded. Cost: 50 MB once, 5 s."""
    jar = JARS / f"{_ARTIFACT}-{pyspark.__version__}-tests.jar"
    if not jar.exists():
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=JARS
        ) as own:  # several processes may fetch it, and each sees it whole or not at all
            Path(own, "ivy.xml").write_text(_MODULE)
            ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
            command = [
                "java",
                "-jar",
                str(ivy),
                "-warn",
                "-ivy",
                "ivy.xml",
                "-retrieve",
                "[artifact]-[revision]-[classifier].[ext]",
            ]
            ran = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=300, check=False)
            if not (fetched := Path(own, jar.name)).exists():
                pytest.skip(f"the jar of Spark's tests cannot be fetched here: {(ran.stdout + ran.stderr)[-500:]}")
            fetched.replace(jar)
    return jar


def queries(suite: str) -> dict[str, str]:
    """A suite's queries by name (`q1`, `q14a`; `q1_1` for SSB's 1.1), in the order of their numbers."""
    if SUITES[suite].endswith(".sql"):
        return views_of(ROOT / SUITES[suite])
    folder = SUITES[suite] + "/"
    with zipfile.ZipFile(tests_jar()) as jar:
        paths = [n for n in jar.namelist() if n.startswith(folder) and n.endswith(".sql")]
        texts = {"q" + Path(p).stem.removeprefix("q").replace(".", "_"): jar.read(p).decode() for p in paths}
    return {name: texts[name].rstrip().rstrip(";") for name in sorted(texts, key=_number)}


def views_of(script: Path) -> dict[str, str]:
    """The query of each view of a script, by name, in its order."""
    found = (_VIEW.search(statement.text) for statement in split_script(script.read_text()))
    return {match[1]: match[2] for match in found if match is not None}


def _number(name: str) -> tuple[int, str]:
    match = re.fullmatch(r"q(\d+)(.*)", name)
    assert match is not None, name
    return int(match[1]), match[2]
