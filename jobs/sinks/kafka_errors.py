"""Errors of Kafka's client as this project's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException

from tussock.jobs.sinks.base import BeatenError, ForeignTableError
from tussock.statestore.errors import InputError, RetryableError


class BrokersUnavailableError(RetryableError):
    """The brokers cannot be reached, or do not answer in time."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} does not answer: {self.reason}. No message of this publish is visible to read_committed "
            "readers. Check the addresses and the brokers, then run `tussock publish` again: it catches up in one step."
        )


class BrokersDeniedError(InputError):
    """The brokers refuse the credentials, or the user lacks a permission."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} denies access: {self.reason}. Credentials are properties in [publish.client], such as "
            'sasl.password = "${KAFKA_PASSWORD}". The user may create, describe, write and read the topics, and use '
            "transactional ids that begin with tussock-. Then run `tussock publish` again."
        )


class KeylessTopicError(InputError, hides_row_values=True):
    """A relation without a visible key cannot be published as upserts."""

    relation: str

    def __str__(self) -> str:
        return (
            f"{self.relation!r} has no visible key, and messages of the format upsert need one. Select the key in the "
            'view, set `format = "debezium"`, or omit the relation from `[publish] relations`.'
        )


class ForeignTopicError(ForeignTableError):
    """The topic of a published relation contains messages of another store or program."""

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.finding}. It was not changed. Set another `topic_prefix` in `[publish]` of "
            "pipeline.toml, or remove the topic if its messages are no longer needed: the next publish writes it anew."
        )


class BrokersRefusedError(InputError):
    """The brokers refused a message or a request for another reason."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} refused a message or a request: {self.reason}. No message of this publish is visible to "
            "read_committed readers. Correct the cause, then run `tussock publish` again."
        )


class LongTransactionError(InputError, hides_row_values=True):
    """The brokers ended a transaction that lasted too long, such as that of a first load. `limit_ms`: its time."""

    place: str
    limit_ms: int

    def __str__(self) -> str:
        return (
            f"{self.place}: the publish took longer than its transaction may last ({self.limit_ms / 1000:g} seconds), "
            "so the brokers ended it. No message of it is visible to read_committed readers. Set a longer time in "
            f'[publish.client] of pipeline.toml, such as "transaction.timeout.ms" = {3 * self.limit_ms}, and allow it '
            "in the brokers' `transaction.max.timeout.ms`. Then run `tussock publish` again."
        )


class RegistrySettingsError(InputError):
    """The client of the schema registry refuses a property."""

    registry: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the client of the schema registry {self.registry} refuses its properties: {self.reason}. Correct "
            "`registry_client` in [publish] of pipeline.toml, whose properties are those of SchemaRegistryClient in "
            "the package confluent-kafka. Then run `tussock publish` again."
        )


class RegistryUnavailableError(RetryableError):
    """The schema registry cannot be reached, or fails."""

    registry: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the schema registry {self.registry} does not answer: {self.reason}. No message of this publish is "
            "visible to read_committed readers. Check `registry` in [publish] and the registry, then run "
            "`tussock publish` again."
        )


class RegistryRefusedError(InputError):
    """The schema registry refuses a schema or the user."""

    registry: str
    subject: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the schema registry {self.registry} refuses the schema of the subject {self.subject!r}: {self.reason}. "
            "No message of this publish is visible to read_committed readers. If the schema is not compatible with an "
            "earlier one, name the view's columns as before, or change the subject's compatibility in the registry. "
            "Credentials are properties in `registry_client`, such as basic.auth.user.info. Then run "
            "`tussock publish` again."
        )


_FENCED = (
    "_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "INVALID_TXN_STATE",
    "CONCURRENT_TRANSACTIONS",
    "_STATE",
    "_FATAL",  # each call after a fatal error
    "_PURGE_QUEUE",  # messages of a transaction that was lost
    "_PURGE_INFLIGHT",
)
"""Another publisher began a transaction, which ended this one."""


_OF_CONNECTIONS = ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT")


class ConnectionErrors:
    """The errors of connections, which the client reports beside its calls: these only time out."""

    def __init__(self) -> None:
        self._first: dict[str, Any] = {}

    def note(self, error: Any) -> None:
        """The client's `error_cb`."""
        self._first.setdefault(error.name(), error)

    def cause_of(self, error: Any) -> Any:
        """Return the error of a connection that explains a time-out, or else the error itself."""
        if error.name() not in _TIME_OUTS:
            return error
        return next((self._first[name] for name in _OF_CONNECTIONS if name in self._first), error)


_TIME_OUTS = ("_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")


def kafka_error(place: str, error: Any) -> Exception:
    """Return the error of a KafkaError."""
    name, reason = error.name(), str(error.str()).rstrip(".")
    if name in _FENCED:
        return BeatenError()
    if "AUTH" in name or name == "_SSL":
        return BrokersDeniedError(place, reason)
    if error.retriable() or name in (*_TIME_OUTS, "_RESOLVE"):
        return BrokersUnavailableError(place, reason)
    return BrokersRefusedError(place, reason)


@contextmanager
def translating_errors(place: str, connections: ConnectionErrors | None = None) -> Iterator[None]:
    """Translate errors of the client. `connections`: of its connections."""
    try:
        yield
    except KafkaException as err:
        error = err.args[0]
        raise kafka_error(place, error if connections is None else connections.cause_of(error)) from err
    except TimeoutError as err:
        raise BrokersUnavailableError(place, str(err) or "the request timed out") from err
