"""An Apache Kafka broker of one node (KRaft), in a separate JVM.

Ivy fetches the classes of `org.apache.kafka:kafka_2.13`. spark-submit starts it, because it runs any main class with
packages.
"""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.waiting import eventually

VERSION = "3.9.2"  # the version of the client in Spark's reader
PACKAGE = f"org.apache.kafka:kafka_2.13:{VERSION}"
_START_S = 180


class Broker:
    """A broker with its data in a folder; it can be stopped, killed and started again."""

    def __init__(self, folder: Path, passwords: Mapping[str, str] | None = None) -> None:
        """`passwords`: of users, who need a login and rights; `admin` has all rights. None: everybody has them."""
        self._folder = folder
        self.port, controller = _free_port(), _free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._running: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "log.cleaner.backoff.ms": "500",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        if passwords is not None:
            users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
            login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            settings |= {
                "listeners": f"CLIENT://{self.servers},INNER://127.0.0.1:{(inner := _free_port())},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"CLIENT://{self.servers},INNER://127.0.0.1:{inner}",
                "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "INNER",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.client.plain.sasl.jaas.config": f"{login} {users};",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:admin",
            }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = ("--cluster-id", "4L6g3nShT-eMCtK--X86sw", "--config", str(self._settings))
        ran = self._submit("kafka.tools.StorageTool", "format", *cluster)
        assert ran.wait(_START_S) == 0, (folder / "log").read_text()[-3000:]

    def _submit(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        command = [
            str(home / "bin" / "spark-submit"),
            "--packages",
            PACKAGE,
            "--driver-memory",
            "512m",
            "--class",
            main,
            "spark-internal",
        ]
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment)

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._running = self._submit("kafka.Kafka", str(self._settings))
        eventually(f"the broker answers (log: {self._folder / 'log'})", self._answers, _START_S)

    def _answers(self) -> bool:
        assert self._running is not None
        assert self._running.poll() is None, (self._folder / "log").read_text()[-3000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def pid(self) -> int:
        """The process of the running broker."""
        assert self._running is not None
        return self._running.pid

    def kill(self) -> None:
        """Kill it, as a power failure would."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
