"""DataFrames over stored rows, and views created from them.

Each frame is a LogicalRDD over stored rows. It is one leaf of any plan that is built on
it, and Spark keeps the RDD's number through self-joins, aliases and unions. The binder finds the relation of a leaf by
that number.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.catalog.definition import stores_rows
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.reading.query import with_lengths
from tussock.jobs.reading.reader import NoStoredRowsError, relation_frame, typed_frame
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.spark.session import sql_session
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.plain_view import plain_view_of, register_view
from tussock.jobs.sql.sandbox import items, table_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import Sight, published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class FrameOfAnEpochError(InputError):
    """A view cannot be created from the rows of one epoch."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"the DataFrame reads table({self.name!r}, epoch={self.epoch}), but a view follows its relations from "
            f"epoch to epoch. Nothing was created. Build the DataFrame on table({self.name!r}), without an epoch."
        )


class OutdatedFrameError(InputError):
    """A view cannot be created from a DataFrame over a relation that has changed since."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"the DataFrame reads {self.name!r} as of epoch {self.epoch}, but it was dropped, replaced or altered "
            "since. Nothing was created. If that change waits in the log, run an epoch (Session.flush); then build "
            f"the DataFrame on table({self.name!r}) again."
        )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The relation that a LogicalRDD represents."""

    relation: Relation
    epoch: int
    fixed: bool  # the user chose the epoch


class Frames:
    """The DataFrames of one session over one store.

    They stay readable until `close`: each requested epoch is pinned, so compaction keeps its rows and vacuum its
    objects.
    """

    def __init__(self, meta: MetaStore, stored: StoredRows, spark: SparkSession, time_zone: str) -> None:
        self._meta, self._stored = meta, stored
        self.session = sql_session(spark, time_zone)
        self._pins = ExitStack()
        self._versions: dict[int, HummockVersion] = {}  # by pinned epoch
        self._made: dict[tuple[int, int, bool], DataFrame] = {}  # by relation, epoch and `fixed`
        self._leaves: dict[int, _Leaf] = {}  # by the RDD's number

    def close(self) -> None:
        """Release the pins."""
        self._pins.close()

    def table(self, name: str, epoch: int | None) -> DataFrame:
        """See Session.table."""
        sight = self._pin_published() if epoch is None else Sight(epoch)
        if sight.epoch not in self._versions:
            self._versions[sight.epoch] = self._pins.enter_context(self._meta.open_for_reading(sight.epoch))
        relation = self._stored.find_visible(self._versions[sight.epoch], sight, name)
        return self._frame_of(relation, sight, epoch is not None)

    def _pin_published(self) -> Sight:
        """Return the published sight, on a pinned version."""
        latest = self._meta.read_latest()
        if latest.published in self._versions and self._versions[latest.published].held == latest.held:
            return published_sight(latest)
        version, sight = self._pins.enter_context(self._stored.open_sight())
        self._versions[sight.epoch] = version
        return sight

    def _frame_of(self, relation: Relation, sight: Sight, fixed: bool) -> DataFrame:
        if relation.kind is RelationKind.PLAIN_VIEW:
            return self._of_query(relation, sight, fixed)
        epoch = sight.epoch_of(relation.name)
        if (relation.id, epoch, fixed) not in self._made:
            self._made[relation.id, epoch, fixed] = self._rows_frame(
                relation, self._versions[sight.epoch], epoch, fixed
            )
        return self._made[relation.id, epoch, fixed]

    def _of_query(self, relation: Relation, sight: Sight, fixed: bool) -> DataFrame:
        """Return a plain view's rows, over frames of the relations that it reads.

        Their leaves stay, so views can be created from it.
        """
        view = plain_view_of(relation)
        there = sight.visible_relations(self._versions[sight.epoch].catalog)
        used = [r for r in there if r.name in view.uses and r.kind is not RelationKind.FUNCTION]
        for other in used:
            self._frame_of(other, sight, fixed).createOrReplaceTempView(quote_name(other.name))
        register_view(self.session, view)
        frame = self.session.table(quote_name(view.name))
        for name in (view.name, *(r.name for r in used)):  # the frame keeps the plans of these views
            self.session.catalog.dropTempView(name)
        return frame

    def _rows_frame(self, relation: Relation, version: HummockVersion, epoch: int, fixed: bool) -> DataFrame:
        if not stores_rows(relation):
            rows = _no_rows(self.session, relation)
        else:
            rows = with_lengths(
                relation_frame(self.session, self._meta.objects.uri, version, relation, epoch), relation
            )
        required = table_of(relation).required_columns if relation.kind is RelationKind.TABLE else ()
        jvm = self.session._jvm
        assert jvm is not None, "a classic Spark session always has its JVM"
        schema = getattr(jvm, "org.apache.spark.sql.types.StructType")()
        for i, field in enumerate(rows._jdf.schema().fields()):
            schema = schema.add(field.name(), field.dataType(), i not in required, field.metadata())
        frame = self.session._jsparkSession.internalCreateDataFrame(rows._jdf.queryExecution().toRdd(), schema, False)
        self._leaves[frame.queryExecution().analyzed().rdd().id()] = _Leaf(relation, epoch, fixed)
        return DataFrame(frame, self.session)

    def view(
        self, binder: Binder, catalog: Catalog, name: str, dataframe: DataFrame, if_not_exists: bool
    ) -> CreateView:
        """Return the view of a DataFrame's query. Raises as Session.create_view."""
        analyzed = dataframe._jdf.queryExecution().analyzed()
        read = self._read_by(analyzed)
        live = {r.name: r for r in catalog.live_relations()}
        for leaf in read.values():
            relation = live.get(leaf.relation.name)
            if leaf.fixed:
                raise FrameOfAnEpochError(leaf.relation.name, leaf.epoch)
            if relation is None or (relation.id, relation.columns) != (leaf.relation.id, leaf.relation.columns):
                raise OutdatedFrameError(leaf.relation.name, leaf.epoch)
        return binder.bind_frame(
            name, analyzed, {number: leaf.relation.name for number, leaf in read.items()}, if_not_exists
        )

    def _read_by(self, analyzed: JavaObject) -> dict[int, _Leaf]:
        """Return the frames of this session that a plan reads, including its subqueries."""
        plans = [analyzed, *items(analyzed.subqueriesAll())]
        leaves = [
            leaf for plan in plans for leaf in items(plan.collectLeaves()) if leaf.productPrefix() == "LogicalRDD"
        ]
        numbers = {leaf.rdd().id() for leaf in leaves}
        return {number: self._leaves[number] for number in numbers if number in self._leaves}


def _no_rows(spark: SparkSession, source: Relation) -> DataFrame:
    """Return a frame with a source's columns, to build views on.

    Running it raises NoStoredRowsError: a source has no stored rows.
    """
    name = source.name

    def refuse_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise NoStoredRowsError(name)
        yield from batches

    return typed_frame(spark.range(0, 1, 1, 1), refuse_rows, source.columns)
