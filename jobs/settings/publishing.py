"""Settings of `[[publish]]`: one struct per kind of sink, with the keys that this kind reads.

A new kind is a struct here, its line in KINDS, and its file in `jobs/sinks/` with its line in `jobs/sinks/kinds.py`.
Airflow imports this module whenever it parses DAG files, so it imports neither Spark nor Arrow.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from tussock.jobs.settings.redaction import has_credential
from tussock.jobs.settings.values import (
    CRON_OR_NONE,
    SPAN,
    TABLE,
    YES,
    CronOrNone,
    PipelineError,
    Span,
    Text,
    Texts,
    converted_value,
    describe_value,
)

DEFAULT_KIND = "delta"
AIRFLOW_CONNECTION = "airflow:"  # the start of `to`, before the name of an Airflow connection
_WEEK_MS = 7 * 86_400_000
SINK_NAME = Meta(pattern=r"^[a-z][a-z0-9_]*$", description="a lower-case letter, then lower-case letters, digits and _")


class TableEngine(StrEnum):
    """The writer of Delta tables."""

    DELTALAKE = "deltalake"  # the Python package, in the calling process
    SPARK = "spark"


class PublishSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=""):
    """The keys that all kinds of sinks have. The tag of a subclass is its kind.

    Args:
        to: the place. In a loaded pipeline, a folder is an absolute path, or an address as of a store.
        relations: None: all materialized views.
        name: empty: the kind; see `title`.
        upkeep: None: in the pipeline's upkeep.
    """

    is_folder: ClassVar[bool] = False  # `to` is a folder or a bucket's prefix, which also holds the sink's ledger
    login: ClassVar[str] = "Use the standard credentials of the object store, such as AWS_ACCESS_KEY_ID"

    to: Text
    relations: Texts | None = None
    name: Annotated[str, SINK_NAME] | None = None
    upkeep: Annotated[CronOrNone, CRON_OR_NONE] | None = None

    @property
    def kind(self) -> str:
        """The kind: a key of KINDS."""
        return str(self.__struct_config__.tag)

    @property
    def title(self) -> str:
        """The name of the sink, unique in its pipeline."""
        return self.name or self.kind

    @property
    def keep_ms(self) -> int:
        """How long the sink's earlier states, and the manifests of their epochs, stay."""
        return _WEEK_MS


class _WithStates(PublishSettings, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=""):
    """A sink that keeps earlier states of its tables readable."""

    keep: Annotated[Span, SPAN] = Span(_WEEK_MS)

    @property
    def keep_ms(self) -> int:
        return int(self.keep)


class DeltaSettings(_WithStates, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="delta"):
    """Delta tables, in one folder each.

    `deletion_vectors`: new tables mark old rows by deletion vectors. Without them, files with old rows are rewritten.
    """

    is_folder: ClassVar[bool] = True

    engine: Annotated[TableEngine, Meta(description='"deltalake" or "spark"')] = TableEngine.DELTALAKE
    deletion_vectors: Annotated[bool, YES] = True


class ParquetSettings(_WithStates, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="parquet"):
    """One Parquet file per relation and epoch."""

    is_folder: ClassVar[bool] = True


class IcebergSettings(_WithStates, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="iceberg"):
    """Iceberg tables, in one folder each, in the namespace of a catalog.

    Args:
        catalog: properties by pyiceberg's names, and `name`; empty: a SQL catalog in the folder.
        partition_by: partitions by relation, such as `days(at), bucket(16, id)`.
        sort_by: the order of the rows in each new file by relation, such as `shop, at DESC`.
        format_version: of new tables. Tables of format 3 mark deleted rows by deletion vectors.
    """

    is_folder: ClassVar[bool] = True

    namespace: Text = "tussock"
    catalog: Annotated[dict[str, str], TABLE] = msgspec.field(default_factory=dict)
    partition_by: Annotated[dict[str, str], TABLE] = msgspec.field(default_factory=dict)
    sort_by: Annotated[dict[str, str], TABLE] = msgspec.field(default_factory=dict)
    format_version: Annotated[Literal[2, 3], Meta(description="2 or 3")] = 2


class PostgresSettings(PublishSettings, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="postgres"):
    """Tables of a Postgres database.

    Args:
        to: an address of libpq without a password (`postgresql://user@host/db`, `service=name`), or `airflow:NAME`.
    """

    login: ClassVar[str] = "Set PGPASSWORD or PGPASSFILE"

    schema: Annotated[str, Meta(min_length=1, description="the name of a schema")] = "public"


class MessageFormat(StrEnum):
    """The form of the messages of a topic."""

    UPSERT = "upsert"  # the row of each key; a tombstone for a removed one
    DEBEZIUM = "debezium"  # the row before and after each change


class KafkaSettings(PublishSettings, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="kafka"):
    """Topics of a Kafka cluster.

    Args:
        to: the bootstrap servers, `host:port,host:port`, or `airflow:NAME`.
        client: other properties of librdkafka, such as the security protocol.
        registry: the address of a schema registry. Upserts then are Avro; empty: JSON.
        registry_client: other properties of Confluent's client for the registry, such as a login.
    """

    login: ClassVar[str] = "Write credentials in [publish.client]"

    format: Annotated[MessageFormat, Meta(description='"upsert" or "debezium"')] = MessageFormat.UPSERT
    topic_prefix: Annotated[str, Meta(description="a string")] = ""
    client: Annotated[dict[str, Any], TABLE] = {}
    registry: Annotated[str, Meta(pattern="^(https?://.+)?$", description="an http address")] = ""
    registry_client: Annotated[dict[str, Any], TABLE] = {}

    @property
    def brokers(self) -> frozenset[str]:
        """The brokers by which its cluster is found."""
        servers = str(self.client.get("bootstrap.servers", self.to))
        return frozenset(server.strip().lower() for server in servers.split(","))


def _require_published(sink: IcebergSettings, file: str, key: str) -> None:
    """Require that the layouts name relations of the sink, if it lists them."""
    known = None if sink.relations is None else {name.lower() for name in sink.relations}
    for setting, layouts in (("partition_by", sink.partition_by), ("sort_by", sink.sort_by)):
        for name in layouts:
            if known is not None and name.lower() not in known:
                raise PipelineError(file, f"{key}.{setting}", f"the relation {name!r}", "a relation of `relations`")


def _require_reachable(sink: DeltaSettings, file: str, key: str) -> None:
    """Require that the writer of the tables can reach their place."""
    scheme = sink.to.partition("://")[0]
    if sink.engine is TableEngine.SPARK and scheme in ("gs", "az", "hdfs"):
        expected = f'"deltalake", since this engine writes to a folder or to s3://, and not to {scheme}://'
        raise PipelineError(file, f"{key}.engine", '"spark"', expected)
    if scheme == "hdfs" and not sink.deletion_vectors:
        expected = "true, because the deltalake package cannot rewrite files in HDFS"
        raise PipelineError(file, f"{key}.deletion_vectors", "false", expected)


KINDS: Mapping[str, type[PublishSettings]] = {
    "delta": DeltaSettings,
    "iceberg": IcebergSettings,
    "parquet": ParquetSettings,
    "postgres": PostgresSettings,
    "kafka": KafkaSettings,
}
"""The kinds of sinks, by the value of `kind`."""


def writes_with_spark(settings: PublishSettings) -> bool:
    """Return whether the sink runs in a Spark application."""
    return isinstance(settings, DeltaSettings) and settings.engine is TableEngine.SPARK


def read_publish(value: Any, file: str) -> tuple[PublishSettings, ...]:
    """Return the sinks of `[publish]` or `[[publish]]`, as in the file. Raises PipelineError.

    Args:
        value: the table, the list of tables, or None.
    """
    sinks: list[PublishSettings] = []
    for key, entry in publish_entries(value):
        if not isinstance(entry, dict):
            raise PipelineError(file, key, describe_value(entry), "a table")
        kind = entry.get("kind", DEFAULT_KIND)
        if not isinstance(kind, str) or kind not in KINDS:
            raise PipelineError(file, f"{key}.kind", describe_value(kind), expected_kinds())
        sink: PublishSettings = converted_value(entry, KINDS[kind], file, key)
        if has_credential(sink.to):
            raise PipelineError(file, f"{key}.to", "a password", f"an address without one. {sink.login}")
        if isinstance(sink, KafkaSettings) and sink.registry and sink.format is not MessageFormat.UPSERT:
            raise PipelineError(file, f"{key}.registry", "a registry", 'format = "upsert". Envelopes are JSON')
        names = Counter(name.lower() for name in sink.relations or ())
        if twice := next((name for name in sink.relations or () if names[name.lower()] > 1), ""):
            raise PipelineError(file, f"{key}.relations", f"{twice!r} twice", "each relation once")
        if isinstance(sink, IcebergSettings):
            _require_published(sink, file, key)
        if isinstance(sink, DeltaSettings):
            _require_reachable(sink, file, key)
        sinks.append(sink)
    _require_apart(sinks, file)
    return tuple(sinks)


def publish_entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each entry with its key in messages: `publish`, or `publish.NAME` in a list."""
    if not isinstance(value, list):
        yield from [] if value is None else [("publish", value)]
        return
    for entry in value:
        yield f"publish.{entry_title(entry)}", entry


def entry_title(entry: Any) -> str:
    """Return the name of a sink whose entry is not checked yet."""
    return str(entry.get("name") or entry.get("kind") or DEFAULT_KIND) if isinstance(entry, dict) else "?"


def expected_kinds() -> str:
    """Return the kinds as text."""
    *most, last = (f'"{kind}"' for kind in KINDS)
    return f"{', '.join(most)} or {last}"


def _require_apart(sinks: Sequence[PublishSettings], file: str) -> None:
    """Require a name for each sink, a folder that no other sink has, and other topics than those of another one."""
    titles: set[str] = set()
    by_folder: dict[str, str] = {}
    for sink in sinks:
        if sink.title in titles:
            raise PipelineError(file, "publish", f"two sinks named {sink.title!r}", "another `name` for each sink")
        titles.add(sink.title)
        if sink.is_folder and (other := by_folder.setdefault(sink.to.rstrip("/"), sink.title)) != sink.title:
            raise PipelineError(
                file, f"publish.{sink.title}.to", f"the folder of {other!r}", "a folder without another sink"
            )
    topics = [sink for sink in sinks if isinstance(sink, KafkaSettings)]
    for first, second in combinations(topics, 2):
        if first.topic_prefix == second.topic_prefix and first.brokers & second.brokers:
            prefix = f"{second.topic_prefix!r} on the brokers of {first.title!r}, which has the same"
            raise PipelineError(file, f"publish.{second.title}.topic_prefix", prefix, "another prefix for each sink")
