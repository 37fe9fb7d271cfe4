"""What can be wrong with topics that are read as a source."""

import shlex

from tussock.jobs.flow.failure import SourceFileError
from tussock.statestore.errors import InputError, RetryableError


class MissingTopicError(InputError):
    """A topic that a source names is not there."""

    def __init__(self, source: str, topic: str, servers: str) -> None:
        super().__init__(source, topic, servers)
        self.source, self.topic, self.servers = source, topic, servers

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: there is no topic {self.topic!r} at {self.servers}, or this user may not describe it. Create the "
            "topic, or correct the options."
        )


class LostOffsetsError(SourceFileError):
    """Records that were to be read are not there any more. `path` is `topic-partition`."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)
        self.path, self.found = path, found

    def __str__(self) -> str:
        return (
            f"partition {self.path}: {self.found}. What was produced there and not taken is lost to this source; rows taken before stay. "
            f"`tussock barrier abandon --skip-file {shlex.quote(self.path)}` goes on with what is there. So that it does not happen again, "
            "let the topic keep its records (retention.ms, retention.bytes) for longer than the time between two runs."
        )


class CompactedTopicError(InputError):
    """A topic whose cleanup.policy is compact: the broker removes records that a later one of the same key replaces."""

    def __init__(self, source: str, topic: str, policy: str, exists: bool) -> None:
        super().__init__(source, topic, policy, exists)
        self.source, self.topic, self.policy, self.exists = source, topic, policy, exists

    def __str__(self) -> str:
        until = (
            "Until then the source is held, and views keep the rows that were taken."
            if self.exists
            else "Nothing was created."
        )
        return (
            f"source {self.source!r}: topic {self.topic!r} has cleanup.policy={self.policy}. The broker removes a record of such a topic "
            "once a later one has the same key, so two views over it would read different records; a source needs every record that was "
            "produced. Set cleanup.policy=delete for the topic if nothing has been removed yet, or let the producers write another topic "
            f"too, which is not compacted, and read that one. {until}"
        )


class MissingOffsetsError(SourceFileError):
    """Offsets inside a range that was to be read have no record. `path` is `topic-partition`."""

    def __init__(self, path: str, first: int, last: int) -> None:
        super().__init__(path, first, last)
        self.path, self.first, self.last = path, first, last

    def __str__(self) -> str:
        missing = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return (
            f"partition {self.path}: no record has {missing}, and later offsets have records. Either the topic was compacted, and "
            "records are lost, or the producers use transactions, whose markers take offsets. For transactions, create the source with "
            "OPTIONS (…, kafka.isolation.level 'read_committed'). To read the remaining records, create it with OPTIONS (…, "
            "missing_offsets 'ignore')."
        )


class KafkaUnavailableError(RetryableError):
    """The brokers do not answer, or refuse."""

    def __init__(self, source: str, servers: str, reason: str) -> None:
        super().__init__(source, servers, reason)
        self.source, self.servers, self.reason = source, servers, reason

    def __str__(self) -> str:
        return f"source {self.source!r}: Kafka at {self.servers} did not answer: {self.reason}. Nothing was taken; try again."


class KafkaNeedsSparkError(InputError):
    """A process without Spark wants to know what a topic has."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: what its topics have is asked through Spark's JVM, by Spark's own client, and this process has not "
            "started one. A run of `tussock epoch`, or a session that has used Spark, takes it in."
        )


class BadKafkaColumnError(InputError):
    """A declared column that is none of a record's."""

    def __init__(self, source: str, column: str, kind: str, known: str) -> None:
        super().__init__(source, column, kind, known)
        self.source, self.column, self.kind, self.known = source, column, kind, known

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, column {self.column!r} {self.kind}: a kafka source has {self.known}, as Spark's reader has them. "
            "Declare none, and parse `value` in the view: from_json(CAST(value AS STRING), '…')."
        )
