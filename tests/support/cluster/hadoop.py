"""A real YARN and HDFS on this machine, for tests: Hadoop's mini clusters in one JVM (MiniHadoop.java)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.cluster import ROOT, SPARK_HOME, worker_python
from tests.support.waiting import eventually
from tussock.jobs.operations.code_archive import build_archive

HERE = Path(__file__).resolve().parent
JARS = ROOT / ".tools" / "minicluster"
START_S = 900  # a machine with many other programs needs more than the 20 s of an idle one
SETTINGS = {
    "spark.master": "yarn",
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "700m",
    "spark.yarn.am.memory": "400m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
}


@dataclass(frozen=True, slots=True)
class Hadoop:
    """A running YARN and HDFS.

    Args:
        folder: contains Hadoop's and Spark's settings for a client.
        hdfs: `hdfs://host:port`.
        webhdfs: `http://host:port` of the name node.
        code: the zip of the project's code.
    """

    folder: Path
    hdfs: str
    webhdfs: str
    code: Path

    def environment(self) -> dict[str, str]:
        """This process's environment with the settings of a client."""
        return {
            **os.environ,
            "HADOOP_CONF_DIR": str(self.folder),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER_URL": "yarn",
            "TUSSOCK_CODE": str(self.code),
            "PYSPARK_PYTHON": str(self.folder / "python/bin/python"),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def submit(self, *arguments: str) -> list[str]:
        """A spark-submit command with the code. `arguments`: further options, the application, its arguments."""
        return [str(SPARK_HOME / "bin/spark-submit"), "--py-files", str(self.code), *arguments]


def _class_path() -> str:
    """The jars, fetched once. Those of Bouncy Castle come before Spark's, whose Hadoop has others in it."""
    if not JARS.is_dir():
        if (maven := shutil.which("mvn")) is None:
            pytest.skip("Maven, which fetches Hadoop's mini clusters, is not installed")
        command = [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        folder = JARS.with_name("minicluster.fetched")
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            pytest.skip(f"Hadoop's mini clusters cannot be fetched here: {done.stdout[-300:]}")
        folder.rename(JARS)
    own = [str(jar) for jar in sorted(JARS.glob("*.jar")) if not jar.name.startswith("slf4j")]
    return os.pathsep.join([*sorted(own, key=lambda jar: "/bc" not in jar), f"{SPARK_HOME}/jars/*"])


@contextmanager
def running_hadoop(folder: Path, node_managers: int = 2) -> Iterator[Hadoop]:
    """Start YARN with some node managers, and HDFS; stop both at the end. Takes about 20 s on an idle machine.

    Args:
        folder: an empty working folder.
    """
    python = worker_python(folder / "python")
    spark = {**SETTINGS, "spark.pyspark.python": str(python), "spark.yarn.stagingDir": f"file://{folder}/staging"}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in spark.items()))
    java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    opens = "--add-opens=java.base/java.lang=ALL-UNNAMED"
    command = [str(java), "-Xmx900m", opens, "-cp", _class_path(), str(HERE / "MiniHadoop.java")]
    out = folder / "hadoop.out"
    # Containers inherit the environment of the node managers. They must not find this checkout.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with out.open("wb") as sink, (folder / "hadoop.err").open("wb") as errors:
        server = subprocess.Popen(
            [*command, str(node_managers), str(folder)],
            env=inherited,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=errors,
        )
        try:
            eventually("Hadoop is up", lambda: server.poll() is not None or "READY" in out.read_text(), START_S)
            assert server.poll() is None, (folder / "hadoop.err").read_text()[-3000:]
            hdfs, webhdfs = out.read_text().partition("READY ")[2].split()[:2]
            yield Hadoop(folder, hdfs, webhdfs, build_archive(folder / "code"))
        finally:
            assert server.stdin is not None
            server.stdin.close()  # it ends, and with it the containers
            try:
                server.wait(60)
            finally:
                server.kill()
