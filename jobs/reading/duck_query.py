"""SELECTs over stored rows by DuckDB, in this process and without a JVM. The dialect is DuckDB's, not Spark's."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from tussock.jobs.catalog.definition import output_of
from tussock.jobs.logical.misspelt import find_misspelling
from tussock.jobs.logical.quoting import quote_identifier
from tussock.jobs.logical.relation_names import relation_key, split_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.reading.duck_syntax import duck_parser
from tussock.jobs.reading.duck_zones import require_same_rules
from tussock.jobs.reading.reader import NoStoredRowsError
from tussock.jobs.reading.stored_rows import StoredRows, rows_at
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.local_disk import local_folder
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore

#: Words of a query that may convert between instants and local times without a column of instants.
_CONVERTS = re.compile(r"timestamptz|zone|now\s*\(|current_|today|localtime", re.IGNORECASE)
_INSTANT = re.compile(r"\btimestamp\b")  # the type of instants, also within a nested type


class DuckQueryError(InputError):
    """DuckDB cannot run a query."""

    reason: str

    def __str__(self) -> str:
        return (
            f"DuckDB cannot run this query: {self.reason}\n"
            "It must be one SELECT in DuckDB's SQL, over tables and materialized views. For Spark's SQL, run "
            "tussock query without --duckdb."
        )


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """A relation as DuckDB reads it: each scan is a new stream of batches, and ends when no more rows are needed.

    `failed`: receives the errors of scans, because DuckDB passes on only their texts.
    """

    objects: ObjectStore
    version: HummockVersion
    relation: Relation
    epoch: int
    failed: list[TussockError]

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Arrow's protocol for streams."""
        rows = rows_at(self.objects, self.version, self.relation, self.epoch)
        scan = pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))
        return scan.__arrow_c_stream__(requested_schema)

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except TussockError as err:
            self.failed.append(err)
            raise


@contextmanager
def duck_rows(
    objects: ObjectStore, stored: StoredRows, sql: str, time_zone: str, epoch: int | Sight | None = None
) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows of a SELECT in DuckDB's SQL, batch by batch. Batches must be read inside the block.

    Args:
        time_zone: the store's.
        epoch: None: the published one.

    Warns: PausedViewWarning, HeldViewWarning.
    Raises: DuckQueryError, also from the reader; SqlError for a misspelt keyword; UnknownRelationError;
        NotThereYetError for a relation that waits for its first epoch; NoStoredRowsError for a source or a plain view;
        EpochNotCommittedError, EpochExpiredError; DuckZoneError; errors of the scans, such as MissingSstError.
    Cost: a scan of each relation per mention, until no more rows are needed. No file and no network is accessible.
    """
    failed: list[TussockError] = []
    with stored.open_sight(epoch) as (version, sight), _open_connection(time_zone) as connection:
        with _raising_errors(failed):
            try:
                statements = connection.extract_statements(sql)
            except duckdb.ParserException:
                live = version.catalog.live_relations()
                _require_syntax(sql, {name.lower() for r in live for name in (r.name, *(c.name for c in r.columns))})
                raise
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise DuckQueryError("found another statement, or several")
            names = _names_in(connection, sql)
        visible = {r.name for r in sight.visible_relations(version.catalog)}
        read = [r for r in sight.visible_relations(version.catalog) if r.name in names]
        if _CONVERTS.search(sql) or any(_INSTANT.search(c.type) for r in read for c in r.columns):
            require_same_rules(version.catalog.resolve_zone(time_zone))
        for name in sorted(names & visible):
            relation = stored.find_visible(version, sight, name)
            if output_of(relation) is None:
                raise NoStoredRowsError(relation.name, relation.kind)
            connection.register(name, ScannedRows(objects, version, relation, sight.epoch_of(relation.name), failed))
            _name_by_schema(connection, name)
        with _raising_errors(failed):
            try:
                answer = connection.sql(sql).to_arrow_reader()
            except duckdb.CatalogException:
                for name in sorted(names - visible):
                    stored.find_visible(version, sight, name)  # names near ones, or the statement that waits
                raise
        yield pa.RecordBatchReader.from_batches(answer.schema, _yield_batches(answer, failed))


def _names_in(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The relations that a query names."""
    try:
        return {_relation_named(name) for name in connection.get_table_names(sql, qualified=True)}
    except duckdb.BinderException:  # USING, NATURAL, ASOF, UNPIVOT and others need the columns of the relations
        ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        return {relation_key(name) for name in _find_relations(json.loads(tree))}


def _find_relations(tree: object) -> Iterator[str]:
    """The names in a serialized query that no WITH around them defines.

    As DuckDB resolves them: a WITH query reads the ones before it, and itself only in the repeated part of a recursion.
    """
    parts: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while parts:
        node, defined = parts.pop()
        if isinstance(node, list):
            parts += [(part, defined) for part in node]
        if not isinstance(node, dict):
            continue
        for query in node.get("cte_map", {}).get("map", ()):
            parts.append((query["value"], defined))
            defined |= {query["key"].lower()}
        if node.get("type") == "BASE_TABLE" and (node["schema_name"] or node["table_name"].lower() not in defined):
            yield ".".join(filter(None, (node["schema_name"], node["table_name"])))
        repeats = {node["cte_name"].lower()} if node.get("type") == "RECURSIVE_CTE_NODE" else frozenset[str]()
        for key, part in node.items():
            if key != "cte_map":
                parts.append((part, defined | repeats if key == "right" else defined))


def _relation_named(text: str) -> str:
    """The relation of a name from DuckDB: `a.orders AS o`, with quotes around some parts."""
    return relation_key(text.partition(" AS ")[0].replace('"', ""))


def _name_by_schema(connection: duckdb.DuckDBPyConnection, relation: str) -> None:
    """Let a query find a registered relation by its schema too."""
    schema, name = map(quote_identifier, split_name(relation))
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    connection.execute(f"CREATE VIEW {schema}.{name} AS FROM temp.{quote_identifier(relation)}")


def _yield_batches(rows: pa.RecordBatchReader, failed: Sequence[TussockError]) -> Iterator[pa.RecordBatch]:
    with _raising_errors(failed):
        yield from rows


@contextmanager
def _raising_errors(failed: Sequence[TussockError]) -> Iterator[None]:
    """Raise the error of a scan, if one has failed, or else DuckDB's. Its streams raise OSError."""
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as err:
        if failed:
            raise failed[0] from err
        raise DuckQueryError(str(err)) from err


def _require_syntax(sql: str, names: Collection[str]) -> None:
    """Raise SqlError for a misspelt keyword, if that explains why DuckDB cannot parse a text."""
    with duck_parser() as (fails, keywords):
        if (failed := fails(sql)) is None:
            return
        source = SourceText(sql)
        if (misspelling := find_misspelling(source, failed, fails, keywords, names)) is not None:
            raise misspelling.to_error(source)


@contextmanager
def _open_connection(time_zone: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        folder = str(local_folder() or "").replace("'", "''")
        for setting in (
            f"SET TimeZone = '{time_zone}'",
            f"SET temp_directory = '{folder}'",
            "SET python_enable_replacements = false",  # read only registered relations, never the caller's variables
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            connection.execute(setting)
        yield connection
