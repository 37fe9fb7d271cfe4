"""Errors of topics that are read as a source."""

import shlex

from tussock.jobs.chunks.failure import SourceFileError
from tussock.statestore.errors import InputError, RetryableError


def _causes_of(source: str) -> str:
    return (
        "Either the topic was compacted, and records are lost, or the producers use transactions, whose markers occupy "
        "offsets. For transactions, create the source with OPTIONS (…, kafka.isolation.level 'read_committed'). To "
        f"read the remaining records, run ALTER SOURCE {source} SET OPTIONS (missing_offsets 'ignore')."
    )


class MissingTopicError(InputError):
    """A source names a topic that does not exist."""

    source: str
    topic: str
    servers: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: topic {self.topic!r} does not exist at {self.servers}, or this user may not "
            "describe it. Create the topic, or correct the options."
        )


class LostOffsetsError(SourceFileError, hides_row_values=True):
    """A range of records has been removed from a topic before it was read.

    Args:
        path: `topic-partition`.
    """

    path: str
    finding: str

    def __str__(self) -> str:
        return (
            f"partition {self.path}: {self.finding}. The records that were not read are lost to this source; rows "
            "already read stay. To continue with the remaining records, run `tussock barrier abandon --skip-file "
            f"{shlex.quote(self.path)}`. To prevent this, let the topic keep its records (retention.ms, "
            "retention.bytes) for longer than the time between two runs."
        )


class CompactedTopicError(InputError, hides_row_values=True):
    """A topic has the cleanup.policy compact. The broker removes a record once a later one has the same key."""

    source: str
    topic: str
    policy: str
    exists: bool

    def __str__(self) -> str:
        until = (
            "Until then the source is held, and views keep the rows that were already read."
            if self.exists
            else "Nothing was created."
        )
        return (
            f"source {self.source!r}: topic {self.topic!r} has cleanup.policy={self.policy}. The broker removes a "
            "record of such a topic once a later one has the same key, and two views over it would read different "
            "records. A source needs every record that was produced. If nothing has been removed yet, set "
            "cleanup.policy=delete for the topic. Otherwise let the producers also write another topic, which is not "
            f"compacted, and read that one. {until}"
        )


class MissingOffsetsError(SourceFileError, hides_row_values=True):
    """Some offsets inside a pinned range have no record.

    Args:
        path: `topic-partition`.
    """

    source: str
    path: str
    first: int
    last: int

    def __str__(self) -> str:
        missing = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return (
            f"partition {self.path}: no record has {missing}, but later offsets have records. {_causes_of(self.source)}"
        )


class EmptyRangeError(SourceFileError, hides_row_values=True):
    """A task of Spark found no record in its part of the pinned offsets.

    Args:
        ranges: the pinned offsets. The task does not know which of them were its part.
    """

    source: str
    ranges: str

    def __str__(self) -> str:
        return f"pinned offsets have no record at all ({self.ranges}). {_causes_of(self.source)}"


class KafkaDeniedError(InputError):
    """The brokers refuse the login of a source, or the user lacks a permission."""

    source: str
    servers: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: Kafka at {self.servers} denies access: {self.reason}. The login consists of "
            "options, such as kafka.sasl.jaas.config, in which ${env:NAME} is a variable. The user needs to describe "
            "and read the topics (`kafka-acls --add --operation Describe --operation Read`), and for "
            "subscribePattern to describe the topics that match. The next run tries again."
        )


class KafkaOptionError(InputError):
    """Kafka's client refuses the options of a source."""

    source: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: Kafka's client refuses the options that begin with kafka.: {self.reason}. "
            "Correct the option in the CREATE SOURCE statement. The next run tries again."
        )


class KafkaUnavailableError(RetryableError):
    """The brokers do not answer."""

    source: str
    servers: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: Kafka at {self.servers} did not answer: {self.reason}. Nothing was read. Check "
            "kafka.bootstrap.servers and the brokers. The next run tries again."
        )


class KafkaNeedsSparkError(InputError):
    """A process without Spark requested a topic's offsets."""

    source: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: topics are listed by Spark's own Kafka client, which needs Spark's JVM, and this "
            "process has not started one. A run of `tussock epoch`, or a session that has used Spark, reads the "
            "topics."
        )


class BadKafkaColumnError(InputError, hides_row_values=True):
    """A source declares a column that Kafka records do not have."""

    source: str
    column: str
    kind: str
    known: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, column {self.column!r} {self.kind}: a kafka source has {self.known}, "
            "as in Spark's reader. Declare no columns, and parse `value` in the view: "
            "from_json(CAST(value AS STRING), '…')."
        )
