"""Run SELECT queries over a version: Spark's own query, in which every relation is a frame over the state store."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tussock.jobs.catalog.definition import functions_of, output_of
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import RelationAt
from tussock.jobs.logical.text_lengths import METADATA_KEY
from tussock.jobs.reading.read import warn_of_age
from tussock.jobs.reading.reader import (
    NOTHING_IN_FLIGHT,
    NoStoredRowsError,
    RowsInFlight,
    ViewPart,
    changes_frame,
    ordered_frame,
    relation_frame,
)
from tussock.jobs.spark.session import sql_session
from tussock.jobs.sql.plain_view import plain_view_of, register_view
from tussock.jobs.sql.qualified_names import query_rows
from tussock.jobs.sql.sandbox import table_of
from tussock.jobs.sql.time_travel import CHANGE_COLUMNS
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion

#: Maps a statement's version and another epoch to the version on which to read that epoch. Raises EpochExpiredError.
VersionOf = Callable[[HummockVersion, int], HummockVersion]


class FunctionInQueryError(InputError):
    """A query calls a Python function, but these run only in materialized views."""

    name: str

    def __str__(self) -> str:
        return (
            f"function {self.name!r} is the user's Python code, which runs only in materialized views, not in queries. "
            "Call it in a CREATE MATERIALIZED VIEW, and query that view."
        )


@dataclass(frozen=True, slots=True)
class QueryInput:
    """The rows that a query reads.

    Args:
        version: any version that contains the epochs of `sight`. Its SSTs must stay until the last action on a frame
            over it is done, as for `relation_frame`.
        relations: the relations that the query reads; may include others.
        time_zone: the store's.
        at: the relations that it reads at other epochs, by their names in its text.
        version_of: maps `version` and one of those epochs to the version on which to read it; see
            `StoredRows.version_of`.
        in_flight: changes to include, if the epoch of `sight` is in flight in `version`.
        parts: for ordered views, by their names in the text: the rows to read, in order. Others are read whole, in any
            order.
    """

    store_uri: str
    version: HummockVersion
    sight: Sight
    relations: Collection[str]
    time_zone: str
    at: Sequence[RelationAt]
    version_of: VersionOf
    in_flight: RowsInFlight
    parts: Mapping[str, ViewPart] = field(default_factory=dict)

    def at_other_epoch(self, other: RelationAt) -> "QueryInput":
        """Return the input of a query of one relation at another epoch."""
        name = other.relation.name
        return replace(
            self,
            version=self.version_of(self.version, other.epoch),
            sight=other.seen or Sight(other.epoch),
            relations=[name],
            at=(),
            in_flight=NOTHING_IN_FLIGHT,
            parts={name: self.parts[other.name]} if other.name in self.parts else {},
        )


def query_frame(spark: SparkSession, sql: str, read: QueryInput) -> DataFrame:
    """Return a query in its own Spark session, without name clashes.

    Warns: PausedViewWarning, HeldViewWarning.
    Raises: NoStoredRowsError if the query reads a source; EpochExpiredError if the version no longer contains an epoch
        of `read.at`; Spark's own errors.
    """
    try:
        return query_rows(query_session(spark, read), sql)
    except AnalysisException as err:
        catalog = read.version.catalog
        missing = (err.getMessageParameters() or {}).get("relationName", "").replace("`", "").lower()
        if err.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and missing in {
            r.name for r in catalog.relations_at(read.sight.epoch)
        }:
            raise NoStoredRowsError(missing) from err
        routine = (err.getMessageParameters() or {}).get("routineName", "").strip("`").lower()
        if err.getCondition() == "UNRESOLVED_ROUTINE" and any(
            f.name == routine for f in functions_of(catalog.live_relations())
        ):
            raise FunctionInQueryError(routine) from err
        raise


def query_session(spark: SparkSession, read: QueryInput) -> SparkSession:
    """Return a new Spark session with a view for each stored relation, and for each of `read.at` at its epoch.

    Plain views become their queries, together with the relations that they read. Otherwise as `query_frame`.
    """
    session = sql_session(spark, read.time_zone)
    for other in read.at:
        _frame_at(session, read.at_other_epoch(other), other).createOrReplaceTempView(quote_name(other.name))
    _make_known(session, read)
    return session


def _frame_at(session: SparkSession, read: QueryInput, other: RelationAt) -> DataFrame:
    relation = other.relation
    if other.since is not None:
        check_readable(read.version, other.since)
        changes = changes_frame(session, read.store_uri, read.version, relation, other.since, other.epoch)
        bounds = zip(CHANGE_COLUMNS[1:], (other.since, other.epoch), strict=True)
        return changes.select("*", *(F.lit(epoch).cast(c.type).alias(c.name) for c, epoch in bounds))
    known = _make_known(session, read)
    frame = session.table(quote_name(relation.name))
    for name in known:  # the frame keeps their plans; these names belong to another epoch
        session.catalog.dropTempView(name)
    return frame


def _make_known(session: SparkSession, read: QueryInput) -> list[str]:
    """Create Spark views of the visible relations, and of the relations that plain views among them read.

    Returns their names.
    """
    known, uri, version = [], read.store_uri, read.version
    for relation in relations_read(version, read.sight, read.relations):
        warn_of_age(relation, read.sight)
        if relation.kind is RelationKind.PLAIN_VIEW:
            register_view(session, plain_view_of(relation))
        elif output_of(relation) is not None:
            part, epoch = read.parts.get(relation.name), read.sight.epoch_of(relation.name)
            if part is None:
                frame = relation_frame(session, uri, version, relation, epoch, in_flight=read.in_flight)
            else:
                frame = ordered_frame(session, uri, version, relation, epoch, part)
            with_lengths(frame, relation).createOrReplaceTempView(quote_name(relation.name))
        else:
            continue
        known.append(relation.name)
    return known


def relations_read(version: HummockVersion, sight: Sight, names: Collection[str]) -> list[Relation]:
    """Return the visible relations of these names, and the ones that plain views among them read, inputs first."""
    there, wanted = sight.visible_relations(version.catalog), set(names)
    for relation in reversed(there):  # readers always come after their inputs
        if relation.name in wanted and relation.kind is RelationKind.PLAIN_VIEW:
            wanted.update(plain_view_of(relation).uses)
    return [relation for relation in there if relation.name in wanted]


def with_lengths(frame: DataFrame, relation: Relation) -> DataFrame:
    """Mark a relation's char and varchar columns for Spark, which then pads the operands of char comparisons."""
    lengths = table_of(relation).lengths if relation.kind is RelationKind.TABLE else ()
    for column, declared in lengths:
        name = relation.columns[column].name
        frame = frame.withMetadata(name, {METADATA_KEY: declared})
    return frame
