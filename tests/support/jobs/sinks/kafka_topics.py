"""Topics that a pipeline publishes, as a plain read_committed consumer sees them."""

import json
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from tussock.jobs.settings.publishing import KafkaSettings, MessageFormat


@dataclass(frozen=True)
class Topics:
    """The topics of a sink."""

    settings: KafkaSettings

    def messages_in(self, relation: str) -> list[tuple[bytes | None, bytes | None]]:
        """The committed messages of all partitions."""
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": self.settings.to, "group.id": "test", "isolation.level": "read_committed",
             "enable.partition.eof": True, "auto.offset.reset": "earliest"} | self.settings.client
        )  # fmt: skip
        reader.assign([confluent_kafka.TopicPartition(self.settings.topic_prefix + relation, 0, 0)])
        messages = []
        while (message := reader.poll(30)) is not None and message.error() is None:
            messages.append((message.key(), message.value()))
        reader.close()
        return messages

    def rows_of(self, relation: str) -> dict[bytes | None, Any]:
        """The rows that the messages leave, by key. The row before a change must be the one that was there."""
        rows: dict[bytes | None, Any] = {}
        for key, value in self.messages_in(relation):
            row = None if value is None else json.loads(value)
            if self.settings.format is MessageFormat.DEBEZIUM and row is not None:
                assert row["before"] == rows.get(key), "the row before the change"
                row = row["after"]
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        return rows

    def epochs(self) -> list[int]:
        """The epochs whose ends are in the control topic, in order."""
        messages = self.messages_in("tussock_epochs")
        return [int(json.loads(value)["epoch"]) for _, value in messages if value is not None]
