"""The state of a Kafka cluster's topics, requested through Spark's JVM with the Kafka client of Spark's reader.

A Python client would need its own options for the same servers, certificates and logins. Here one set of options,
Spark's `kafka.…`, serves both. The calls belong to `org.apache.kafka.clients.admin.Admin`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.kafka_errors import (
    KafkaDeniedError,
    KafkaNeedsSparkError,
    KafkaOptionError,
    KafkaUnavailableError,
    MissingTopicError,
)
from tussock.jobs.sources.run_ends import end_of
from tussock.statestore.errors import TussockError

CLIENT = "kafka."
"""The prefix of options for the Kafka client."""
SERVERS = f"{CLIENT}bootstrap.servers"
_PROVIDERS = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}
_VARIABLE = re.compile(rf"\$\{{({'|'.join(_PROVIDERS)}):")
_ANY_VARIABLE = re.compile(r"\$\{(\w+):")
_PACKAGE = "org.apache.kafka.common.config.provider"
_OF_OPTIONS = ("ConfigException", "IllegalArgumentException", "LoginException", "NoSuchFileException")
_OF_AWAY = ("TimeoutException", "DisconnectException", "NetworkException", "BrokerNotAvailableException")
_EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+Exception): ([^\n]*)")
_NO_HOST = "No resolvable bootstrap urls"  # a ConfigException of the client, although a name server may be away
_ANSWER_MS = 30_000  # time limit for brokers, unless the options set another


@dataclass(frozen=True, slots=True)
class PartitionNow:
    """The current state of a partition."""

    topic: str
    partition: int
    topic_id: str  # changes if the topic is dropped and created again; constant with old brokers
    first: int  # the first existing offset
    end: int  # after the last readable record; with read_committed, after the last decided transaction
    policy: str = ""  # the topic's cleanup.policy; empty if this user may not read it


def partitions_now(source: CreateSource, *, again: bool = False) -> dict[tuple[str, int], PartitionNow]:
    """Return the partitions of a source's topics, by topic and number.

    Args:
        again: query the brokers even if this run has done so.

    Raises: errors of kafka_errors.py. Cost: four requests to the brokers; one more with `subscribePattern`.
    """
    return end_of(("kafka", source.name), lambda: _ask_cluster(source), again=again)


def wanted_partitions(source: CreateSource) -> dict[str, list[int]] | None:
    """Return the partitions of the option `assign`; None if whole topics are read."""
    if "assign" not in source.options:
        return None
    partitions: dict[str, list[int]] = json.loads(source.options["assign"])
    return partitions


def _ask_cluster(source: CreateSource) -> dict[tuple[str, int], PartitionNow]:
    jvm = _spark_jvm(source)
    with _open_admin(source, jvm) as admin, _translating_errors(source):
        topics = _wanted_topics(source, admin, jvm)
        described = admin.describeTopics(_java_list(jvm, topics)).allTopicNames().get()
        ids: dict[tuple[str, int], str] = {}
        places = jvm.java.util.HashMap(), jvm.java.util.HashMap()
        spec, assigned = jvm.org.apache.kafka.clients.admin.OffsetSpec, wanted_partitions(source)
        for topic in topics:
            description = described.get(topic)
            for info in description.partitions():
                if assigned is None or info.partition() in assigned[topic]:
                    place = jvm.org.apache.kafka.common.TopicPartition(topic, info.partition())
                    places[0].put(place, spec.earliest())
                    places[1].put(place, spec.latest())
                    ids[topic, info.partition()] = str(description.topicId())
        for topic, wanted in (assigned or {}).items():
            if missing := [number for number in wanted if (topic, number) not in ids]:
                raise MissingTopicError(source.name, f"{topic}-{missing[0]}", source.options[SERVERS])
        first, end = (admin.listOffsets(asked, _isolation_level(source, jvm)).all().get() for asked in places)
        ends = {(p.topic(), p.partition()): int(end.get(p).offset()) for p in end.keySet()}
        firsts = {(p.topic(), p.partition()): int(first.get(p).offset()) for p in first.keySet()}
        policies = _cleanup_policies(topics, admin, jvm)
        return {key: PartitionNow(*key, ids[key], firsts[key], ends[key], policies[key[0]]) for key in sorted(ids)}


def _cleanup_policies(topics: Sequence[str], admin: Any, jvm: Any) -> dict[str, str]:
    """Return the cleanup.policy of each topic; empty if this user may not read its settings."""
    from py4j.protocol import Py4JJavaError

    kinds = getattr(jvm.org.apache.kafka.common.config, "ConfigResource$Type")
    places = {topic: jvm.org.apache.kafka.common.config.ConfigResource(kinds.TOPIC, topic) for topic in topics}
    answers = admin.describeConfigs(_java_list(jvm, list(places.values()))).values()
    policy_by_topic = {}
    for topic, place in places.items():
        try:
            policy_by_topic[topic] = str(answers.get(place).get().get("cleanup.policy").value())
        except Py4JJavaError as err:
            if "AuthorizationException" not in str(err.java_exception):
                raise
            policy_by_topic[topic] = ""
    return policy_by_topic


def _wanted_topics(source: CreateSource, admin: Any, jvm: Any) -> list[str]:
    options = source.options
    if (assigned := wanted_partitions(source)) is not None:
        return sorted(assigned)
    if "subscribe" in options:
        return sorted({name.strip() for name in options["subscribe"].split(",") if name.strip()})
    pattern = jvm.java.util.regex.Pattern.compile(options["subscribePattern"])
    return sorted(name for name in admin.listTopics().names().get() if pattern.matcher(name).matches())


def _isolation_level(source: CreateSource, jvm: Any) -> Any:
    level = source.options.get("kafka.isolation.level", "read_uncommitted").upper()
    named = jvm.org.apache.kafka.common.IsolationLevel.valueOf(level)
    return jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(named)


def client_settings(source: CreateSource) -> dict[str, str]:
    """Return the settings of the Kafka client.

    A value may name a variable or a file instead of containing a credential: `${env:NAME}`. The client replaces it, by
    Kafka's own providers, in each process.
    """
    own = {k[len(CLIENT) :]: v for k, v in source.options.items() if k.lower().startswith(CLIENT)}
    used = sorted({variable for value in own.values() for variable in _VARIABLE.findall(value)})
    if not used or "config.providers" in own:
        return own
    classes = {f"config.providers.{name}.class": f"{_PACKAGE}.{_PROVIDERS[name]}" for name in used}
    return {**own, "config.providers": ",".join(used), **classes}


def unknown_provider(source: CreateSource) -> tuple[str, str] | None:
    """Return an option with a reference that the client would take literally, and its provider, such as `airflow`."""
    if f"{CLIENT}config.providers" in source.options:
        return None
    named = ((option, name) for option, value in source.options.items() for name in _ANY_VARIABLE.findall(value))
    return next((one for one in named if one[1] not in _PROVIDERS), None)


@contextmanager
def _open_admin(source: CreateSource, jvm: Any) -> Iterator[Any]:
    settings = jvm.java.util.HashMap()
    settings.put("default.api.timeout.ms", str(_ANSWER_MS))
    settings.put("request.timeout.ms", str(_ANSWER_MS // 2))
    for name, value in client_settings(source).items():
        settings.put(name, value)
    with _translating_errors(source):
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        yield admin
    finally:
        admin.close()


@contextmanager
def _translating_errors(source: CreateSource) -> Iterator[None]:
    """Turn the client's exceptions into errors of the source."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as err:  # which PySpark makes of Java's, such as that of a pattern
        raise error_of(source, "IllegalArgumentException", str(err).partition("\n")[0]) from err
    except Py4JJavaError as err:
        cause = err.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise error_of(source, str(cause.getClass().getSimpleName()), str(cause.getMessage())) from err


def error_of(source: CreateSource, kind: str, reason: str) -> TussockError:
    """Return the error of an exception of Kafka's client. `kind`: the class of its cause, without the package."""
    servers, reason = source.options[SERVERS], reason.rstrip(".")
    if kind == "UnknownTopicOrPartitionException":
        return MissingTopicError(
            source.name, source.options.get("subscribe", source.options.get("assign", "")), servers
        )
    if kind.endswith(("AuthenticationException", "AuthorizationException")):
        return KafkaDeniedError(source.name, servers, f"{kind}: {reason}")
    if kind in _OF_OPTIONS and _NO_HOST not in reason:
        return KafkaOptionError(source.name, f"{kind}: {reason}")
    return KafkaUnavailableError(source.name, servers, f"{kind}: {reason}")


def away_error(source: CreateSource, text: str) -> SourceAwayError | None:
    """Return the error of brokers that deny access or are away, from the text of a failed read; None for others."""
    for kind, reason in _EXCEPTION.findall(text):
        if isinstance(error := error_of(source, kind, reason), KafkaDeniedError) or kind in _OF_AWAY:
            return SourceAwayError(source.name, "", str(error))
    return None


def _spark_jvm(source: CreateSource) -> Any:
    """Return Spark's JVM. Raises KafkaNeedsSparkError."""
    import sys

    context = sys.modules["pyspark"].SparkContext._active_spark_context if "pyspark" in sys.modules else None
    if context is None:
        raise KafkaNeedsSparkError(source.name)
    return context._jvm


def _java_list(jvm: Any, values: Sequence[Any]) -> Any:
    array_list = jvm.java.util.ArrayList()
    for value in values:
        array_list.add(value)
    return array_list


def starting_offsets(source: CreateSource) -> Mapping[str, Mapping[str, int]] | str:
    """Return the option `startingOffsets`: earliest, latest, or offsets by topic and partition.

    -2 means earliest, -1 latest.
    """
    text = source.options.get("startingOffsets", "earliest")
    if text in ("earliest", "latest"):
        return text
    offsets_by_topic: Mapping[str, Mapping[str, int]] = json.loads(text)
    return offsets_by_topic
