"""Topics of a Kafka cluster: one topic per relation, and all changes of an epoch in one transaction.

    <prefix><relation>          the changes as messages (kafka_messages.py)
    <prefix>tussock_epochs      a control record per epoch, in one partition: the epoch, its digest, each topic's state

The control record is part of the transaction. A reader with `isolation.level=read_committed` therefore sees the
messages of an epoch once and completely, or none of them. A publisher continues from the last control record.

Two publishers have the same transactional id. The broker ends the transaction of the first when the second begins, so
only one of them can commit; the other reads the new state and finds nothing to do.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tussock.jobs.settings.connections import UnreadableConnectionError, read_connection
from tussock.jobs.settings.publishing import AIRFLOW_CONNECTION, KafkaSettings, MessageFormat, PublishSettings
from tussock.jobs.sinks.base import (
    BeatenError,
    Difference,
    Outline,
    Publisher,
    Sink,
    SinkPlace,
    SinkState,
    UnpublishableNameError,
    UnreadableSinkError,
    WholeRows,
)
from tussock.jobs.sinks.kafka_errors import (
    ConnectionErrors,
    ForeignTopicError,
    KeylessTopicError,
    LongTransactionError,
    kafka_error,
    translating_errors,
)
from tussock.jobs.sinks.kafka_messages import JsonRows, MessageForm, Messages, RowCodec, TopicRows
from tussock.jobs.sinks.manifest import SinkSize, TableState
from tussock.statestore.decoding import decode_json

CONTROL = "tussock_epochs"
WAIT_S = 30
TRANSACTION_MS = 600_000  # unless the settings have another; brokers limit it
_NO_IDENTITY = "AAAAAAAAAAAAAAAAAAAAAA"  # of a topic, from brokers before 2.8
_NO_GROUP = "GROUP_AUTHORIZATION_FAILED"  # no group is used, since offsets are given
_LOOK_BACK = 16  # messages before the end of the control topic; half of them may be the ends of transactions


class TopicState(msgspec.Struct, frozen=True):
    """A topic as of a control record.

    Args:
        topic: its identity (`KafkaPlace.identity_of`).
        format: of the last message of each key.
        shape: a digest of its columns, key and format. All topics share one record, whose size brokers limit.
    """

    epoch: str
    digest: str
    version: int
    topic: str
    format: MessageFormat
    shape: str
    rows: int


class ControlRecord(msgspec.Struct, frozen=True):
    """The end of an epoch in all topics."""

    epoch: str
    digest: str
    store: str
    tables: dict[str, TopicState]


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """See OpenPlace."""
    assert isinstance(settings, KafkaSettings)
    connections = ConnectionErrors()
    client = client_properties(settings) | {"error_cb": connections.note}
    with translating_errors(settings.to, connections):
        place = KafkaPlace(settings, client, publisher)
    try:
        yield place
    finally:
        place.end()


def client_properties(settings: KafkaSettings) -> dict[str, Any]:
    """Return the properties of Kafka's client, of which `[publish.client]` precedes those of an Airflow connection.

    Raises UnreadableConnectionError.
    """
    to = settings.to
    servers = _connection_properties(to) if to.startswith(AIRFLOW_CONNECTION) else {"bootstrap.servers": to}
    return {"client.id": "tussock", "log_level": 2} | servers | settings.client


def _connection_properties(to: str) -> dict[str, Any]:
    properties = read_connection(name := to.removeprefix(AIRFLOW_CONNECTION))
    servers = properties.extra.get("bootstrap.servers") or f"{properties.host}:{properties.port}".strip(":")
    if not servers:
        raise UnreadableConnectionError(name, "has no brokers: neither bootstrap.servers in its extras nor a host")
    login = {"sasl.username": properties.user, "sasl.password": properties.password} if properties.user else {}
    return login | dict(properties.extra) | {"bootstrap.servers": servers}


class KafkaPlace(SinkPlace):
    """The topics of a cluster, in one transaction. See SinkPlace."""

    def __init__(self, settings: KafkaSettings, client: dict[str, Any], publisher: Publisher) -> None:
        self.settings, self.publisher, self._client = settings, publisher, client
        self.tables: dict[str, TopicState] = {}
        self._failure: Exception | None = None
        self._admin = AdminClient(client)
        name = f"tussock-{publisher.home.id}-{settings.title}"
        properties = {"transaction.timeout.ms": TRANSACTION_MS, "linger.ms": 20} | client
        self._limit_ms = int(properties["transaction.timeout.ms"])
        self._producer = Producer(properties | {"transactional.id": name, "partitioner": "murmur2_random"})
        try:
            self._producer.init_transactions(WAIT_S)  # the transaction of another publisher ends here
        finally:
            self._producer.poll(0)  # reports errors of connections
        # Only now, since the other publisher may have committed topics that it created meanwhile.
        self.topics = set(self._admin.list_topics(timeout=WAIT_S).topics)
        self._producer.begin_transaction()
        self._begun_s = monotonic()
        self.last = self._read_control()

    def sink_of(self, outline: Outline) -> "KafkaSink":
        """See SinkPlace. Raises KeylessTopicError, UnpublishableNameError, UnpublishableColumnError."""
        return KafkaSink(self, outline)

    def has_table(self, relation: str, state: TableState) -> bool:
        with translating_errors(self.settings.to):
            known = self.written_state(relation)
        return known is not None and known.epoch == state.written

    def finish_epoch(self, epoch: int, tables: Mapping[str, TableState], *, complete: bool) -> None:
        """See SinkPlace. A message that could not be sent holds back all topics, since the transaction is lost."""
        if self._failure is not None:
            raise self._failure
        digest = self.publisher.digest_of(epoch)
        last = self.last
        if not self.tables and last is not None and (last.epoch, last.digest) == (str(epoch), digest):
            return
        states = ({} if last is None else last.tables) | self.tables
        # A dropped relation may be created again, and continues its topic.
        states = {name: state for name, state in states.items() if self.topic_of(name) in self.topics}
        record = ControlRecord(str(epoch), digest, self.publisher.home.id, states)
        with self._in_transaction():
            self.require_topic(self.topic_of(CONTROL), 1)
            self._send(self.topic_of(CONTROL), b"epoch", msgspec.json.encode(record))
            self._producer.commit_transaction(WAIT_S)

    def end(self) -> None:
        """Leave the changes that are not committed invisible."""
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(WAIT_S)

    def topic_of(self, name: str) -> str:
        """Return the topic of a relation."""
        return f"{self.settings.topic_prefix}{name}"

    def written_state(self, relation: str) -> TopicState | None:
        """Return the state of a relation's topic; None if this sink did not write the topic that has its name now."""
        known = self.tables.get(relation) or (None if self.last is None else self.last.tables.get(relation))
        if known is None or (topic := self.topic_of(relation)) not in self.topics:
            return None
        identity = self.identity_of(topic)
        is_same = known.topic == identity if identity else self.has_message(topic)
        return known if is_same else None

    def identity_of(self, topic: str) -> str:
        """Return what distinguishes a topic from an earlier one of its name; empty if the brokers do not tell."""
        until = monotonic() + WAIT_S
        while True:
            futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=WAIT_S)
            try:
                identity = str(futures[topic].result(WAIT_S).topic_id)
                return "" if identity == _NO_IDENTITY else identity
            except KafkaException as err:  # a broker knows a topic a moment after the controller has created it
                if err.args[0].name() != "UNKNOWN_TOPIC_OR_PART" or monotonic() > until:
                    raise
                self._producer.poll(0.1)

    def has_message(self, topic: str) -> bool:
        """Return whether an existing topic contains a committed message."""
        return topic in self.topics and any(True for _ in self.read_messages(topic))

    def require_topic(self, topic: str, partitions: int = -1) -> None:
        """Create a topic if it does not exist, compacted if the last message of a key is enough."""
        if topic in self.topics:
            return
        compacted = self.settings.format is MessageFormat.UPSERT and topic != self.topic_of(CONTROL)
        config = {"cleanup.policy": "compact"} if compacted else {"retention.ms": "-1"}
        futures = self._admin.create_topics([NewTopic(topic, partitions, -1, config=config)], operation_timeout=WAIT_S)
        try:
            futures[topic].result(WAIT_S)
        except KafkaException as err:
            if err.args[0].name() != "TOPIC_ALREADY_EXISTS":  # another publisher has just created it
                raise
        self.topics.add(topic)

    def send(self, topic: str, messages: Messages) -> None:
        """Add messages to the transaction."""
        for key, value in messages:
            self._send(topic, key, value)

    def _send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(topic, key=key, value=value, on_delivery=self._note_failure)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(1)  # until the broker has taken some

    def _note_failure(self, error: Any, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = self._explain_loss(kafka_error(self.settings.to, error))

    @contextmanager
    def sending(self) -> Iterator[None]:
        """An error in the block loses the transaction."""
        try:
            with self._in_transaction():
                yield
        except Exception as err:
            self._failure = self._failure or err
            raise

    @contextmanager
    def _in_transaction(self) -> Iterator[None]:
        try:
            with translating_errors(self.settings.to):
                yield
        except BeatenError as err:
            raise self._explain_loss(err) from err

    def _explain_loss(self, error: Exception) -> Exception:
        """Return the cause of an error: brokers end a long transaction as they end one that another begins."""
        is_late = 1000 * (monotonic() - self._begun_s) >= self._limit_ms
        return (
            LongTransactionError(self.settings.to, self._limit_ms)
            if is_late and isinstance(error, BeatenError)
            else error
        )

    def read_messages(self, topic: str, start: Callable[[int, int], int] | None = None) -> Iterator[Message]:
        """Yield the committed messages of a topic. `start`: of the first and the end offset, the first one to read."""
        reader = Consumer(
            self._client | {"group.id": "tussock", "isolation.level": "read_committed", "enable.auto.commit": False}
            | {"enable.partition.eof": True}
        )  # fmt: skip
        try:
            partitions = reader.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            left = set()
            for number in partitions:
                first, end = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)
                if first < end:
                    left.add(TopicPartition(topic, number, first if start is None else start(first, end)))
            reader.assign(list(left))
            open_partitions = {part.partition for part in left}
            while open_partitions:
                if (message := reader.poll(WAIT_S)) is None:
                    raise TimeoutError(f"topic {topic!r} sent nothing for {WAIT_S} seconds")
                if (error := message.error()) is None:
                    yield message
                elif error.name() == "_PARTITION_EOF":
                    open_partitions.discard(message.partition())
                elif not error.retriable() and error.name() != _NO_GROUP:
                    raise KafkaException(error)
        finally:
            reader.close()

    def _read_control(self) -> ControlRecord | None:
        """Return the last control record. Reads further back if the newest transactions were aborted."""
        back, topic = _LOOK_BACK, self.topic_of(CONTROL)
        while topic in self.topics:
            reached_start = True

            def start(first: int, end: int, back: int = back) -> int:
                nonlocal reached_start
                reached_start = end - back <= first
                return max(first, end - back)

            messages = [message.value() for message in self.read_messages(topic, start)]
            if messages and messages[-1] is not None:
                return decode_json(messages[-1], ControlRecord)
            if reached_start:
                return None
            back *= 8
        return None


class KafkaSink(Sink):
    """A relation's topic. See Sink."""

    def __init__(self, place: KafkaPlace, outline: Outline) -> None:
        if not outline.key and place.settings.format is MessageFormat.UPSERT:
            raise KeylessTopicError(outline.name)
        if outline.name == CONTROL:
            raise UnpublishableNameError(outline.name, f"topic {place.topic_of(CONTROL)!r} contains the ends of epochs")
        self._place, self._outline = place, outline
        self._topic = place.topic_of(outline.name)
        self.place = f"kafka://{place.settings.to}/{self._topic}"
        self.key = outline.key
        self._form = MessageForm(place.settings.format, outline, outline.key, self._make_codec())
        columns = [(column.name, column.type) for column in outline.columns]
        encoding = "avro" if place.settings.registry else place.settings.format.value
        shape = msgspec.json.encode((columns, outline.key, encoding))
        self._shape = hashlib.sha256(shape).hexdigest()[:32]
        self._known: TopicState | None = None

    def _make_codec(self) -> RowCodec:
        """Return how rows become bytes. Raises UnpublishableColumnError."""
        if not self._place.settings.registry:
            return JsonRows()
        from tussock.jobs.sinks.kafka_avro import AvroRows, SchemaRegistry

        return AvroRows(SchemaRegistry(self._place.settings), self._topic, self._outline, self.key)

    def read_state(self) -> SinkState | None:
        place, last = self._place, self._place.last
        if last is not None and last.store not in self._outline.stores:
            finding = f"belongs to another store (identity {last.store}, expected {self._outline.store})"
            raise ForeignTopicError(self.place, finding)
        with translating_errors(self.place):
            self._known = known = place.written_state(self._outline.name)
            if known is None and place.has_message(self._topic):
                finding = f"contains messages, but {place.topic_of(CONTROL)!r} does not show that this sink wrote them"
                raise ForeignTopicError(self.place, finding)
        if known is None:
            return None
        return SinkState(int(known.epoch), str(known.version), known.shape == self._shape, known.digest)

    def apply(self, difference: Difference, epoch: int) -> str | None:
        known = self._known
        assert known is not None
        with self._place.sending():
            self._place.send(self._topic, self._form.of_change(difference, epoch))
            new = difference.written.num_rows
            return self._record(epoch, known.rows + 2 * new - difference.changes.num_rows)

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Rows of the topic that the relation does not have are removed by messages."""
        with self._place.sending():
            self._place.require_topic(self._topic)
            left = self._read_rows()
            count = 0
            for batch in rows.batches():
                self._place.send(self._topic, self._form.of_rows(pa.Table.from_batches([batch]), left, epoch))
                count += batch.num_rows
            self._place.send(self._topic, self._form.of_lost(left, epoch))
            return self._record(epoch, count)

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. No effect: topics contain a history, also of lost epochs."""

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. No effect: brokers remove old messages."""
        return "nothing to do, brokers remove old messages"

    def measure(self) -> SinkSize:
        return SinkSize() if self._known is None else SinkSize(self._known.rows)

    def read_rows(self) -> pa.RecordBatchReader:
        raise UnreadableSinkError(self._place.settings.title, self._place.settings.kind)

    def _read_rows(self) -> TopicRows:
        """Return the rows that the committed messages leave. A topic that is not known has none."""
        if self._known is None:
            return TopicRows(self._form.format)
        rows = TopicRows(self._known.format)
        for message in self._place.read_messages(self._topic):
            rows.add_message(message.key(), message.value())
        return rows

    def _record(self, epoch: int, rows: int) -> str:
        place, version = self._place, 1 if self._known is None else self._known.version + 1
        identity, digest = place.identity_of(self._topic), place.publisher.digest_of(epoch)
        state = TopicState(str(epoch), digest, version, identity, self._form.format, self._shape, rows)
        self._known = place.tables[self._outline.name] = state
        return str(version)
