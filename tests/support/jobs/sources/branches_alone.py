"""Branches that follow a parent over topics of a real broker and over a database, with Spark.

The rows of each source come from lists that the test keeps beside it. Runs in a separate Spark session, because Spark's
jars include neither the Kafka module nor Postgres' driver.

python -m tests.support.jobs.sources.branches_alone <empty directory>
"""

import os
import sys
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sources.kafka_alone import Cluster
from tests.support.jobs.sources.kafka_broker import Broker
from tests.support.postgres import PostgresServer
from tests.support.runners import here
from tussock.jobs.barriers.follow import BranchConflictError
from tussock.jobs.driver.merge import merge_branch, plan_merge
from tussock.jobs.session import Session
from tussock.jobs.spark.session import spark_session

PACKAGES = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__},org.postgresql:postgresql:42.7.4"
Row = tuple[Any, ...]


class Feed(ABC):
    """A source `s` with a text `p`, and its rows. `text`: the expression of `p` over the source."""

    text: ClassVar[str]

    @abstractmethod
    def create(self) -> str:
        """CREATE SOURCE s."""

    @abstractmethod
    def change(self, turn: int) -> None: ...

    @abstractmethod
    def texts(self) -> Counter[str]:
        """The values of `p` now."""


class Topic(Feed):
    text = "CAST(value AS STRING)"

    def __init__(self, spark: SparkSession, servers: str, name: str) -> None:
        self.cluster, self.servers, self.name = Cluster(spark, servers), servers, name
        self.cluster.create(name, 2)

    def create(self) -> str:
        options = f"kafka.bootstrap.servers '{self.servers}', subscribe '{self.name}'"
        return f"CREATE SOURCE s USING kafka OPTIONS ({options})"

    def change(self, turn: int) -> None:
        self.cluster.produce(self.name, *((n % 2, f"k{n}", f"p{(n + turn) % 4}") for n in range(5)))

    def texts(self) -> Counter[str]:
        found = Counter[str]()
        for (_, _, value), times in self.cluster.produced.items():
            found[value] += times
        return found


class Database(Feed):
    text = "p"

    def __init__(self, server: PostgresServer, host: str, folder: Path, watermark: bool) -> None:
        self.server, self.host, self.folder = server, host, folder
        self.more = "changes 'upsert', watermark_column 'at'" if watermark else "changes 'snapshot'"
        self.table = "newer" if watermark else "whole"
        self.deletes = not watermark
        server.execute("postgres", f"CREATE TABLE {self.table} (id int PRIMARY KEY, p text, at int)")

    def create(self) -> str:
        place = f"path '{self.folder}', url 'jdbc:postgresql://{self.host}:5432/postgres', user 'owner'"
        options = f"{place}, password '${{airflow:db.password}}', dbtable '{self.table}', {self.more}"
        return f"CREATE SOURCE s (id int, p string, at int, PRIMARY KEY (id)) USING jdbc OPTIONS ({options})"

    def change(self, turn: int) -> None:
        values = ", ".join(f"({(turn * 3 + n) % 11}, 'p{(n + turn) % 4}', {turn})" for n in range(5))
        insert = (
            f"INSERT INTO {self.table} VALUES {values} ON CONFLICT (id) DO UPDATE SET p = excluded.p, at = excluded.at"
        )
        self.server.execute("postgres", insert)
        if self.deletes:
            self.server.execute("postgres", f"DELETE FROM {self.table} WHERE id = {turn % 11}")

    def texts(self) -> Counter[str]:
        return Counter(p for (p,) in self.server.read("postgres", f"SELECT p FROM {self.table}"))


def counts(session: Session, view: str) -> Counter[str]:
    return Counter({str(row["p"]): int(row["n"]) for row in session.read(view).to_pylist()})


def follow_and_merge(root: Path, spark: SparkSession, feed: Feed) -> None:
    """A branch changes a view and adds one, follows six epochs, one or two at a time, and is merged."""
    view = f"CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT {feed.text} AS p, count(*) AS n FROM s"
    with Session(str(root / "store"), spark, runner=here(spark)) as parent:
        parent.execute(feed.create())
        parent.execute(f"{view} GROUP BY 1")
        feed.change(0)
        parent.flush()
        branch = parent.branch("b")
        branch.execute(f"{view} WHERE {feed.text} <> 'p1' GROUP BY 1")
        branch.execute(f"CREATE MATERIALIZED VIEW raw AS SELECT {feed.text} AS p FROM s")
        for turn in range(1, 7):
            feed.change(turn)
            parent.flush()
            assert counts(parent, "v") == feed.texts()
            if turn % 2:
                branch.flush()
                require_changed(branch, feed)
        feed.change(7)
        parent.flush()
        branch.flush()
        parent.meta.publish(merge_branch(branch.meta, plan_merge(branch.meta)).epoch)
        parent.meta.end_branch("b")
        require_changed(parent, feed)
        feed.change(8)
        parent.flush()
        require_changed(parent, feed)


def require_changed(session: Session, feed: Feed) -> None:
    expected = feed.texts()
    assert Counter(str(row["p"]) for row in session.read("raw").to_pylist()) == expected
    del expected["p1"]
    assert counts(session, "v") == expected


def lost_offsets(root: Path, spark: SparkSession, feed: Topic) -> None:
    """Records that expired after the parent took them end the following of views that read them."""
    with Session(str(root / "store"), spark, runner=here(spark)) as parent:
        parent.execute(feed.create())
        parent.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT CAST(value AS STRING) AS p, count(*) AS n FROM s GROUP BY 1"
        )
        feed.change(0)
        parent.flush()
        changed, same = parent.branch("changed"), parent.branch("same")
        changed.execute(f"CREATE MATERIALIZED VIEW raw AS SELECT {feed.text} AS p FROM s")
        changed.flush()
        before = Counter(str(row["p"]) for row in changed.read("raw").to_pylist())
        feed.change(1)
        parent.flush()
        feed.cluster.delete_before(feed.name, 0, 4)
        same.flush()
        assert counts(same, "v") == feed.texts(), "it reads nothing again"
        with pytest.raises(
            BranchConflictError, match=r"cannot be read again: .*End it with `tussock branch end changed"
        ):
            changed.flush()
        assert Counter(str(row["p"]) for row in changed.read("raw").to_pylist()) == before


def main(root: Path) -> None:
    host = f"127.{os.getpid() % 200 + 1}.7.7"  # a loopback address without another server
    os.environ["AIRFLOW_CONN_DB"] = f"postgres://owner:secret@{host}:5432/postgres"
    with (
        PostgresServer(f"listen_addresses='{host}'\n") as server,
        Broker(root / "broker") as broker,
        spark_session(settings={"spark.jars.packages": PACKAGES}) as spark,
    ):
        follow_and_merge(root / "snapshot", spark, Database(server, host, root / "dumps", watermark=False))
        follow_and_merge(root / "watermark", spark, Database(server, host, root / "newer", watermark=True))
        follow_and_merge(root / "topic", spark, Topic(spark, broker.servers, "events"))
        lost_offsets(root / "lost", spark, Topic(spark, broker.servers, "short"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
