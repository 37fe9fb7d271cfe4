"""A Spark standalone cluster and an S3 server as local processes, to test a pipeline under cluster conditions.

    python scripts/cluster.py                          start, print the usage, stop everything on Ctrl-C
    python scripts/cluster.py -- COMMAND [ARGUMENT …]  run one command with the cluster in its environment, then stop

One master and two workers run from the pip-installed pyspark, in their own folder. The S3 server is versitygw if it is
built (`.tools/bin/versitygw`, $VERSITYGW or the PATH), else moto. The workers' Python has the project's dependencies
but not the project. So workers have only the code that a job brings, as on any other machine.

The environment of the command:
    SPARK_MASTER_URL                          spark://127.0.0.1:…
    TUSSOCK_CLUSTER_STORE                     s3://tussock?endpoint=…&path_style=true: an empty bucket
    TUSSOCK_CODE                              the zip of the project's code, for --py-files
    PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON     the Python of the workers and of the driver
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY  of the S3 server; the workers have them in their own environment
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path

import boto3
import pyspark

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "plugins"))

from tussock.jobs.operations.code_archive import build_archive  # noqa: E402

HOST = "127.0.0.1"
BUCKET = "tussock"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "cluster",
    "AWS_SECRET_ACCESS_KEY": "cluster-secret",
    "AWS_EC2_METADATA_DISABLED": "true",  # else a process without credentials waits for a metadata server
}
START_TIMEOUT_S = 90.0  # a JVM starts slowly on a busy machine
STOP_TIMEOUT_S = 10.0
SPARK_HOME = Path(pyspark.__file__).parent


class ClusterError(Exception):
    """A process of the cluster did not start. The message ends with the last lines of its log."""

    def __init__(self, name: str, waited_for: str, log: str) -> None:
        super().__init__(name, waited_for, log)
        self.name, self.waited_for, self.log = name, waited_for, log

    def __str__(self) -> str:
        return f"{self.name} did not start: waited for {self.waited_for}. The end of its log:\n{self.log}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster.

    Args:
        master: `spark://host:port`.
        endpoint: the S3 server's address.
        python: the workers' Python, with the project's dependencies but without the project.
        code: the zip of the project's code at the start.
        folder: working folder of the processes; `<name>.log` contains the output of each.
    """

    master: str
    endpoint: str
    python: Path
    code: Path
    folder: Path

    def store(self, prefix: str = "") -> str:
        """The address of a store in the S3 server's bucket."""
        return f"s3://{BUCKET}{'/' if prefix else ''}{prefix}?endpoint={self.endpoint}&path_style=true"

    def environment(self) -> dict[str, str]:
        """This process's environment with the variables of the cluster, for a process that submits jobs."""
        return {
            **os.environ,
            **CREDENTIALS,
            "SPARK_MASTER_URL": self.master,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "TUSSOCK_CLUSTER_STORE": self.store(),
            "TUSSOCK_CODE": str(self.code),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def submit(self, *arguments: str) -> list[str]:
        """A spark-submit command for this cluster with the code.

        `arguments`: further options, the application, its arguments.
        """
        return [
            str(SPARK_HOME / "bin" / "spark-submit"),
            "--master",
            self.master,
            "--py-files",
            str(self.code),
            *arguments,
        ]


@contextmanager
def running_cluster(
    folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g", hosts: Sequence[str] = (HOST,)
) -> Iterator[Cluster]:
    """Start an S3 server with an empty bucket, a master, and `workers` workers of `cores` cores; stop all at the end.

    Args:
        folder: empty or missing; the working folder of the processes.
        memory: of each worker, for its executors.
        hosts: addresses of this machine, which the workers take in turns. Each stands for a host.

    Raises: ClusterError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    python = worker_python(folder / "python")
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3_server(folder))
        environment = _daemon_environment()
        command = _spark_class("master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
        master = stack.enter_context(_daemon("master", command, folder, environment))
        address = _wait_for_line(master, r"Starting Spark master at (spark://\S+)")
        started = []
        for number in range(workers):
            host = hosts[number % len(hosts)]
            place = ("--host", host, "--webui-port", "0", "--work-dir", str(folder / f"worker{number}.work"))
            command = _spark_class("worker.Worker", *place, "--cores", str(cores), "--memory", memory, address)
            there = environment | {"SPARK_LOCAL_IP": host}
            started.append(stack.enter_context(_daemon(f"worker{number}", command, folder, there)))
        for worker in started:
            _wait_for_line(worker, r"(Successfully registered with master)")
        yield Cluster(address, endpoint, python, build_archive(folder / "code"), folder)


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Start an S3 server with the empty bucket BUCKET; yield its address. Raises ClusterError."""
    port = _free_port()
    endpoint = f"http://{HOST}:{port}"
    with _daemon("s3", _s3_command(folder, port), folder, {**os.environ, **CREDENTIALS}) as server:
        _wait_for_port(server, port)
        key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
        )
        client.create_bucket(Bucket=BUCKET)
        yield endpoint


def worker_python(folder: Path) -> Path:
    """Create a Python with this one's packages, but without its editable installs.

    Python does not read `.pth` files in a path that a `.pth` file adds.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "dependencies.pth").write_text(get_path("purelib") + "\n")
    return folder / "bin" / "python"


# --- processes ---


@dataclass(frozen=True, slots=True)
class _Daemon:
    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def alive(self) -> bool:
        return self.process.poll() is None

    def error(self, waited_for: str) -> ClusterError:
        lines = self.log.read_text(errors="replace").splitlines()
        return ClusterError(self.name, waited_for, "\n".join(lines[-15:]))


@contextmanager
def _daemon(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[_Daemon]:
    """Start a process in its own session, so that its children (a worker's executors, their Pythons) end with it."""
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        yield _Daemon(name, process, log)
    finally:
        _signal_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        _signal_group(process, signal.SIGKILL)  # remaining processes of the group
        process.wait()


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # the group has ended
        os.killpg(process.pid, number)


def _wait_for_line(daemon: _Daemon, pattern: str) -> str:
    """Wait until a line of the log matches. Return the first group of `pattern`."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and daemon.alive():
        if (found := re.search(pattern, daemon.log.read_text(errors="replace"))) is not None:
            return found[1]
        time.sleep(0.1)
    raise daemon.error(f"a line like {pattern!r}")


def _wait_for_port(daemon: _Daemon, port: int) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and daemon.alive():
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise daemon.error(f"port {port}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _spark_class(name: str, *arguments: str) -> list[str]:
    return [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]


def _daemon_environment() -> dict[str, str]:
    """The environment of master, workers and executors: credentials, and nothing of this checkout."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    return {**kept, **CREDENTIALS, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}


def _s3_command(folder: Path, port: int) -> list[str]:
    candidates = (os.environ.get("VERSITYGW", ""), str(ROOT / ".tools" / "bin" / "versitygw"), "versitygw")
    binary = next((found for c in candidates if c and (found := shutil.which(c))), None)
    if binary is None:
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    data, sidecar = folder / "s3.data", folder / "s3.sidecar"  # not every file system has extended attributes
    data.mkdir()
    sidecar.mkdir()
    login = ("--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    return [binary, *login, "--port", f"{HOST}:{port}", "--quiet", "posix", "--sidecar", str(sidecar), str(data)]


# --- the command ---

_USE = """\
Spark  {master}
S3     {endpoint}, bucket {bucket}
logs   {folder}

In another terminal:

  export AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={secret} AWS_EC2_METADATA_DISABLED=true
  export FLIGHTS_STORE='{store}'
  export PYSPARK_PYTHON={python} PYSPARK_DRIVER_PYTHON={driver}
  python pipelines/flights/load.py --days 3
  tussock apply flights
  spark-submit --master {master} --py-files {code} \\
      jobs/submitted.py epoch --pipeline pipelines/flights --interval 2013-01-01 2013-01-02
  tussock epoch --pipeline flights --interval 2013-01-01 2013-01-02    # publishes the epoch, like the DAG's last task
  tussock query --pipeline flights 'SELECT * FROM worst_routes'

Ctrl-C stops everything and removes it."""


def main() -> int:
    """Run the cluster until Ctrl-C, or for one command. Return that command's exit code."""
    parser = argparse.ArgumentParser(description="Run a Spark standalone cluster and an S3 server as local processes.")
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=1, help="cores per worker (default: %(default)s)")
    parser.add_argument("--memory", default="1g", help="memory per worker (default: %(default)s)")
    parser.add_argument(
        "command", nargs="*", metavar="COMMAND", help="run this command on the cluster, then stop; put `--` before it"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop the processes on SIGTERM, too
    with tempfile.TemporaryDirectory(prefix="tussock-cluster-") as folder:
        try:
            with running_cluster(Path(folder), chosen.workers, chosen.cores, chosen.memory) as cluster:
                if chosen.command:
                    return subprocess.run(chosen.command, env=cluster.environment(), check=False).returncode
                print(usage_of(cluster), flush=True)
                signal.pause()
        except ClusterError as err:
            print(f"error: {err}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopping", flush=True)
    return 0


def usage_of(cluster: Cluster) -> str:
    """Instructions to run the flights pipeline on the cluster."""
    return _USE.format(
        master=cluster.master,
        endpoint=cluster.endpoint,
        bucket=BUCKET,
        folder=cluster.folder,
        key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        store=cluster.store("flights"),
        python=cluster.python,
        driver=sys.executable,
        code=cluster.code,
    )


if __name__ == "__main__":
    sys.exit(main())
