"""The part of a Kafka cluster that the sink uses, in this process: transactions, identities of topics, one partition.

Deep tests compare it with a real broker, because they run the same tests over both.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from tussock.jobs.sinks import kafka

LIMIT_BYTES = 1_000_000  # of a message, in the client and in the brokers


class Error:
    """See KafkaError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._name.lower()

    def retriable(self) -> bool:
        return False


def failure(name: str) -> confluent_kafka.KafkaException:
    return confluent_kafka.KafkaException(Error(name))


@dataclass
class Topic:
    """A topic; the messages of aborted transactions are None."""

    config: dict[str, str]
    is_known: bool = False  # to the broker that is asked, which learns of a topic after the controller
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    messages: list[tuple[bytes | None, bytes | None] | None] = field(default_factory=list)


def answered(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Cluster:
    """The topics; the methods are those of AdminClient."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.producers: dict[str, object] = {}

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=dict(self.by_name))

    def create_topics(self, topics: list[Any], operation_timeout: float = 0) -> dict[str, "Future[None]"]:
        for new in topics:
            if new.topic in self.by_name:
                raise failure("TOPIC_ALREADY_EXISTS")
            self.by_name[new.topic] = Topic(new.config)
        return {new.topic: answered(None) for new in topics}

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, "Future[Any]"]:
        (name,) = topics.topic_names
        topic, future = self.by_name[name], Future[Any]()
        if topic.is_known:
            future.set_result(SimpleNamespace(topic_id=topic.identity))
        else:
            future.set_exception(failure("UNKNOWN_TOPIC_OR_PART"))
        topic.is_known = True
        return {name: future}

    def delete_topics(self, names: list[str], operation_timeout: float = 0) -> dict[str, "Future[None]"]:
        for name in names:
            del self.by_name[name]
        return {name: answered(None) for name in names}


class Producer:
    """A transactional producer of a cluster."""

    def __init__(self, cluster: Cluster, settings: dict[str, Any]) -> None:
        self._cluster, self._name = cluster, settings["transactional.id"]
        self._waiting: list[tuple[str, bytes | None, bytes | None]] = []

    def init_transactions(self, timeout: float = 0) -> None:
        self._cluster.producers[self._name] = self

    def begin_transaction(self) -> None:
        self._waiting = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, on_delivery: Any = None) -> None:
        if len(value or b"") > LIMIT_BYTES:
            raise failure("MSG_SIZE_TOO_LARGE")
        self._waiting.append((topic, key, value))

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self) -> None: ...

    def commit_transaction(self, timeout: float = 0) -> None:
        if self._cluster.producers[self._name] is not self:
            raise failure("_FENCED")
        for topic, key, value in self._waiting:
            self._cluster.by_name[topic].messages.append((key, value))
        self._waiting = []

    def abort_transaction(self, timeout: float = 0) -> None:
        for topic, *_ in self._waiting:
            if topic in self._cluster.by_name:
                self._cluster.by_name[topic].messages.append(None)
        self._waiting = []


@dataclass(frozen=True)
class Received:
    """A message, or the end of a partition."""

    record: tuple[bytes | None, bytes | None] | None

    def key(self) -> bytes | None:
        assert self.record is not None
        return self.record[0]

    def value(self) -> bytes | None:
        assert self.record is not None
        return self.record[1]

    def partition(self) -> int:
        return 0

    def error(self) -> Error | None:
        return None if self.record is not None else Error("_PARTITION_EOF")


class Consumer:
    """A read_committed consumer of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._answers: Iterator[Received] = iter(())

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, len(self._cluster.by_name[place.topic].messages)

    def assign(self, places: list[Any]) -> None:
        records = [r for place in places for r in self._cluster.by_name[place.topic].messages[place.offset :]]
        self._answers = iter([*(Received(record) for record in records if record is not None), Received(None)])

    def poll(self, timeout: float) -> Received | None:
        return next(self._answers, None)

    def close(self) -> None: ...


@contextmanager
def replaced_client() -> Iterator[Callable[[], Cluster]]:
    """Within the block, Kafka's client works on a cluster of this process."""
    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "AdminClient", lambda settings: cluster)
        patch.setattr(kafka, "Producer", lambda settings: Producer(cluster, settings))
        for holder in (kafka, confluent_kafka):
            patch.setattr(holder, "Consumer", lambda settings: Consumer(cluster))
        yield lambda: cluster
