"""Topics of a real broker as a source, compared with the produced records.

The broker and the reader are restarted, records expire, transactions are aborted. Runs in a separate Spark session,
because Spark's jars do not include the Kafka module.

python -m tests.support.jobs.sources.kafka_alone <empty directory>
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sources.kafka_broker import Broker
from tests.support.waiting import eventually
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.session import Session
from tussock.jobs.sources.kafka_errors import CompactedTopicError, KafkaOptionError, LostOffsetsError, MissingTopicError
from tussock.jobs.spark.session import spark_session
from tussock.jobs.trouble.supersede import abandon_barrier

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


class Cluster:
    """The broker's topics for a producer and an administrator, through the Java client of this session."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.jvm: Any = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self.servers = servers
        self.produced: Counter[tuple[int, str, str]] = Counter()  # (partition, key, value)
        self.admin = self.jvm.org.apache.kafka.clients.admin.Admin.create(self.settings())

    def settings(self, **more: str) -> Any:
        found = self.jvm.java.util.HashMap()
        for name, value in {
            "bootstrap.servers": self.servers,
            **{k.replace("_", "."): v for k, v in more.items()},
        }.items():
            found.put(name, value)
        return found

    def create(self, topic: str, partitions: int) -> None:
        new = self.jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        self.admin.createTopics(self.listed(new)).all().get()

    def listed(self, *values: Any) -> Any:
        found = self.jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    def producer(self, **more: str) -> Any:
        text = "org.apache.kafka.common.serialization.StringSerializer"
        settings = self.settings(key_serializer=text, value_serializer=text, acks="all", **more)
        return self.jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)

    def produce(self, topic: str, *records: tuple[int, str, str], aborted: bool = False, transaction: str = "") -> None:
        producer = self.producer(**({"transactional_id": transaction} if transaction else {}))
        if transaction:
            producer.initTransactions()
            producer.beginTransaction()
        record = self.jvm.org.apache.kafka.clients.producer.ProducerRecord
        for partition, key, value in records:
            producer.send(record(topic, partition, key, value))
        producer.flush()
        if transaction:
            producer.abortTransaction() if aborted else producer.commitTransaction()
        producer.close()
        if not aborted:
            self.produced.update(records)

    def configure(self, topic: str, settings: dict[str, str]) -> None:
        admin = self.jvm.org.apache.kafka.clients.admin
        config = self.jvm.org.apache.kafka.common.config
        place = config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, topic)
        kind = getattr(admin, "AlterConfigOp$OpType").SET
        changes = self.listed(
            *(admin.AlterConfigOp(admin.ConfigEntry(name, value), kind) for name, value in settings.items())
        )
        asked = self.jvm.java.util.HashMap()
        asked.put(place, changes)
        self.admin.incrementalAlterConfigs(asked).all().get()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        place = self.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        asked = self.jvm.java.util.HashMap()
        # A non-static method of the same name may hide this one from py4j, depending on the order in which the JVM
        # lists them.
        lang, array = self.jvm.java.lang, self.gateway.new_array
        loader = lang.Thread.currentThread().getContextClassLoader()
        types, values = array(lang.Class, 1), array(lang.Object, 1)
        types[0], values[0] = lang.Long.TYPE, offset
        kind = lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete", True, loader)
        asked.put(place, kind.getMethod("beforeOffset", types).invoke(None, values))
        self.admin.deleteRecords(asked).all().get()


def found(session: Session, view: str) -> Counter[tuple[int, str, str]]:
    rows = session.query(f"SELECT partition, CAST(key AS STRING) k, CAST(value AS STRING) v FROM {view}")
    return Counter(zip(*(c.to_pylist() for c in rows.columns), strict=True))


def numbered(first: int, count: int) -> list[tuple[int, str, str]]:
    return [(n % 3, f"k{n % 5}", f'{{"id": {n}, "amount": {n / 4}}}') for n in range(first, first + count)]


def main(root: Path) -> None:
    with Broker(root / "broker") as broker, pytest.MonkeyPatch.context() as environment:
        environment.setenv("TUSSOCK_TEST_BROKERS", broker.servers)
        with spark_session(settings={"spark.jars.packages": PACKAGE}) as spark:
            run(root, broker, spark)


def run(root: Path, broker: Broker, spark: SparkSession) -> None:
    records_that_are_not_there(root, broker, spark)
    story(root, broker, spark)


def records_that_are_not_there(root: Path, broker: Broker, spark: SparkSession) -> None:
    """Compacted topics are refused or held. So are offsets without a record, unless the source reads committed
    transactions.
    """
    cluster = Cluster(spark, broker.servers)
    fast = {
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "100",
        "max.compaction.lag.ms": "300",
    }
    for topic in ("plain", "kept", "paid"):
        cluster.create(topic, 1)
        cluster.produce(topic, *((0, f"k{n % 3}", str(n)) for n in range(30)))
    cluster.configure("kept", {"cleanup.policy": "compact", **fast})

    def options(topic: str, more: str = "") -> str:
        return f"USING kafka OPTIONS (kafka.bootstrap.servers '{broker.servers}', subscribe '{topic}'{more})"

    with Session(str(root / "compacted"), spark) as session:
        with pytest.raises(CompactedTopicError, match=r"topic 'kept' has cleanup\.policy=compact.*Nothing was created"):
            session.execute(f"CREATE SOURCE refused {options('kept')}")
        servers = f"kafka.bootstrap.servers '{broker.servers}'"
        with pytest.raises(MissingTopicError, match="topic 'paid-7' does not exist"):
            session.execute(f"""CREATE SOURCE refused USING kafka OPTIONS ({servers}, assign '{{"paid": [0, 7]}}')""")
        with pytest.raises(KafkaOptionError, match="Unclosed group near index 5"):
            session.execute(f"CREATE SOURCE refused USING kafka OPTIONS ({servers}, subscribePattern '(paid')")
        for name, more in (("plain", ""), ("paid", ""), ("committed", ", kafka.isolation.level 'read_committed'")):
            session.execute(f"CREATE SOURCE {name} {options('paid' if name == 'committed' else name, more)}")
            session.execute(f"CREATE MATERIALIZED VIEW v_{name} AS SELECT partition, key, value FROM {name}")
        session.flush()

        def counts() -> list[int]:
            return [session.read(f"v_{name}").num_rows for name in ("plain", "paid", "committed")]

        assert counts() == [30, 30, 30]
        for policy in (
            "compact",
            "compact,delete",
        ):  # held while compacted, later continued
            cluster.configure("plain", {"cleanup.policy": policy})
            cluster.produce("plain", (0, "k9", policy))
            assert f"cleanup.policy={policy}" in session.flush().held["plain"][0].reason
            assert counts()[0] == (30 if policy == "compact" else 31)
            session.execute(
                "CREATE MATERIALIZED VIEW late AS SELECT partition FROM plain"
            )  # it would read the taken records again
            with pytest.raises(LostOffsetsError, match="its topic is now compacted"):
                session.flush()
            abandon_barrier(session.meta, Detour(drop=("late",)))
            cluster.configure("plain", {"cleanup.policy": "delete"})
            session.flush()  # the barrier without the view, then the waiting records
            assert not session.flush().held
        assert counts() == [32, 30, 30]

        # The marker of a transaction uses an offset. Nothing is lost, but only a reader of committed records can
        # tell.
        cluster.produce("paid", (0, "t", "1"), (0, "t", "2"), transaction="pay")
        cluster.produce("paid", (0, "t", "3"), transaction="pay", aborted=True)
        cluster.produce("paid", (0, "t", "4"))
        held = session.flush().held
        assert list(held) == ["paid"]
        assert "partition paid-0: no record has offset 32" in held["paid"][0].reason
        assert counts() == [32, 30, 33]

        # Records that the broker really removed, in a topic that is no longer compacted.
        reader = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": broker.servers, "subscribe": "kept"})

        def compacted() -> bool:
            cluster.produce("kept", (0, "k0", "more"))  # a segment is compacted once it is not the last one
            return reader.load().count() < 30

        eventually("the topic is compacted", compacted, 180, every_s=1)
        left = reader.load().count()
        cluster.configure("kept", {"cleanup.policy": "delete"})
        session.execute(
            f"CREATE SOURCE kept {options('kept')}; CREATE MATERIALIZED VIEW v_kept AS SELECT partition, "
            f"key, value FROM kept"
        )
        assert "partition kept-0: no record has offset" in session.flush().held["kept"][0].reason
        assert session.read("v_kept").num_rows == 0
        first_alone = options("kept", ", max_offsets '1'")
        session.execute(f"CREATE SOURCE one {first_alone}")
        session.execute("CREATE MATERIALIZED VIEW v_one AS SELECT partition FROM one")
        assert "no record at all (partition kept-0 offsets 0 to 0)" in session.flush().held["one"][0].reason
        session.execute("ALTER SOURCE one SET OPTIONS (missing_offsets 'ignore', max_offsets '1000')")
        while "one" in session.flush().held:  # the other source stays held
            pass
        assert session.read("v_one").num_rows == left
        more = ", missing_offsets 'ignore'"
        session.execute(
            f"CREATE SOURCE some {options('kept', more)}; CREATE MATERIALIZED VIEW v_some AS SELECT partition FROM some"
        )
        session.flush()
        assert session.read("v_some").num_rows == left


def story(root: Path, broker: Broker, spark: SparkSession) -> None:
    cluster = Cluster(spark, broker.servers)
    cluster.create("events", 3)
    cluster.produce("events", *numbered(0, 50))
    # The client replaces the variable, as it does for a password.
    servers = "kafka.bootstrap.servers '${env:TUSSOCK_TEST_BROKERS}'"
    options = f"{servers}, subscribe 'events', kafka.isolation.level 'read_committed'"
    with Session(str(root / "store"), spark) as session:
        session.execute(f"CREATE SOURCE s USING kafka OPTIONS ({options}, includeHeaders 'true')")
        session.execute("CREATE MATERIALIZED VIEW copy AS SELECT * FROM s")
        session.execute(
            f"CREATE SOURCE tail USING kafka OPTIONS ({options}, startingOffsets 'latest', max_offsets '7')"
        )
        session.execute("CREATE MATERIALIZED VIEW of_tail AS SELECT partition, key, value FROM tail")
        session.execute(
            "CREATE MATERIALIZED VIEW parsed AS SELECT j.id, j.amount, topic, `timestamp` FROM "
            "(SELECT from_json(CAST(value AS STRING), 'id BIGINT, amount DOUBLE') AS j, topic, `timestamp` FROM s)"
        )
        session.flush()
        assert found(session, "copy") == cluster.produced
        at_first = Counter(cluster.produced)
        assert not found(session, "of_tail")
        require_sparks_own(session, spark, broker)
        assert session.query("SELECT count(*) n, sum(amount) a FROM parsed").to_pylist() == [
            {"n": 50, "a": sum(n / 4 for n in range(50))}
        ]

        # An aborted transaction is never visible. A committed one is, in one of several bounded epochs.
        cluster.produce("events", *numbered(1000, 20), transaction="t", aborted=True)
        cluster.produce("events", *numbered(50, 20), transaction="t")
        epochs, last_epoch = 0, session.meta.read_latest().epoch
        while (epoch := session.flush(max_epoch_bytes=10 * 1024).epoch) != last_epoch:
            epochs, last_epoch = epochs + 1, epoch
            assert not found(session, "copy") - cluster.produced
        assert epochs >= 4, epochs
        assert found(session, "copy") == cluster.produced

        # The reader dies with a pinned barrier, and so does the broker. More records are produced meanwhile.
        cluster.produce("events", *numbered(70, 10))
        assert inject_barrier(session.meta) is not None
        broker.kill()
        session.execute("CREATE TABLE t (id INT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
        broker.start()
        cluster.produce("events", *numbered(80, 10))
    with Session(str(root / "store"), spark) as session:
        advance_store(SparkRunner(spark), session.meta)
        session.execute("CREATE MATERIALIZED VIEW later AS SELECT * FROM s")
        session.flush()
        assert found(session, "copy") == found(session, "later") == cluster.produced
        require_sparks_own(session, spark, broker)

        assert found(session, "of_tail") == cluster.produced - at_first

        # Records expire before they are taken: the source is held, everything else continues, and a person skips
        # them.
        before = found(session, "copy")
        cluster.produce("events", *numbered(90, 12))
        there = (
            session.spark.read.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.servers, "subscribe": "events"})
            .load()
        )
        last = there.where("partition = 0").agg({"offset": "max"}).collect()[0][0]
        cluster.delete_before("events", 0, last)
        session.execute("INSERT INTO t VALUES (2)")
        session.flush()
        held = held_sources(session.meta.read_latest().catalog)
        assert "partition events-0: expected offset" in held["s"], held
        assert "but the first existing offset is" in held["s"], held
        assert found(session, "copy") == before
        assert session.query("SELECT id FROM t ORDER BY id").to_pylist() == [{"id": 1}, {"id": 2}]
        abandon_barrier(session.meta, Detour(skip_files=("events-0",)))
        for _ in range(2):  # the barrier that skips, then the waiting records
            session.flush()
        assert not held_sources(session.meta.read_latest().catalog)
        missing = cluster.produced - found(session, "copy")
        assert {p for p, _, _ in missing} == {0}, missing
        assert sum(missing.values()) == 3, missing

        # A later view would need the expired records.
        session.execute("CREATE MATERIALIZED VIEW too_late AS SELECT * FROM s")
        with pytest.raises(LostOffsetsError, match="events-0"):
            session.flush()
        abandon_barrier(session.meta, Detour(drop=("too_late",)))
        session.flush()

        # A recreated topic is a different one, even if it is longer.
        cluster.admin.deleteTopics(cluster.listed("events")).all().get()
        while "events" in set(cluster.admin.listTopics().names().get()):
            pass
        cluster.create("events", 3)
        kept = found(session, "copy")
        cluster.produce("events", *numbered(2000, 300))
        session.flush()
        assert "dropped and created again" in held_sources(session.meta.read_latest().catalog)["s"]
        assert found(session, "copy") == kept

        broker.kill()
        assert "did not answer" in session.flush().held["s"][0].reason


def require_sparks_own(session: Session, spark: SparkSession, broker: Broker) -> None:
    """Compare every column of every record with Spark's reader."""
    reader = spark.read.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.servers, "kafka.isolation.level": "read_committed"}
    )
    theirs = reader.options(subscribe="events", includeHeaders="true").load().toArrow()
    ours = session.query("SELECT * FROM copy")
    assert ours.column_names == theirs.column_names
    assert Counter(map(repr, ours.to_pylist())) == Counter(map(repr, theirs.to_pylist()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
