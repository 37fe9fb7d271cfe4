"""A Delta table written by Spark with delta-spark.

For tables in a file system that Spark reaches, and for projects that write all their tables with Spark. A table's epoch
is its transaction identifier, as with the other engine (delta_rs.py). Spark checks it: a write whose txnVersion is
already recorded is skipped. Not for buckets: delta-spark's commits to S3 are safe for only one driver at a time.

The table's state is read without Spark.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession

from tussock.jobs.delta.location import Location, folder_name
from tussock.jobs.logical.quoting import quoted, string_text
from tussock.jobs.settings.tables import TableEngine
from tussock.jobs.sinks.base import BeatenError, Difference, Outline, SinkState, WholeRows
from tussock.jobs.sinks.delta_merge import OPERATION, REMOVED, WRITTEN, merge_source
from tussock.jobs.sinks.delta_outline import app_of, checked_columns, delta_schema, kept_hours, merge_key, properties_of
from tussock.jobs.sinks.delta_state import held_by, next_app, open_table, replacements_of
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.jobs.spark.session import sql_session

_TXN = "spark.databricks.delta.write.txn"


class DeltaSparkSink:
    """A relation's Delta table. Not thread-safe. Requires: a session with delta_packages.with_delta."""

    engine = TableEngine.SPARK

    def __init__(self, spark: SparkSession, location: Location, outline: Outline) -> None:
        checked_columns(outline, (OPERATION,))
        self.place = location.uri(folder_name(outline.name))
        self._url = location.delta_url(folder_name(outline.name))
        self.key = merge_key(outline)
        self._spark, self._outline = sql_session(spark, "UTC"), outline  # its settings belong to the current write
        self._table: DeltaTable | None = None  # the state that `held` read

    def held(self) -> SinkState | None:
        """See Sink."""
        self._table = table = open_table(self._url, self.place)
        return None if table is None else held_by(table, self._outline, self.engine, self.place)

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """See Sink. Requires: `held` was the last call, and returned a state."""
        assert self._table is not None
        if not (difference.only_new or self.key):
            return None
        with self._once(app_of(replacements_of(self._table)), epoch):
            if difference.only_new:
                self._spark.createDataFrame(difference.written).write.format("delta").mode("append").save(self.place)
            else:
                self._merge(difference)
        return self._version()

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Spark's workers copy the rows from the store to the table. Requires: `held` was the last call."""
        with self._once(next_app(self._table, epoch), epoch):
            frame = self._with_comments(rows.frame(self._spark))
            frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.place)
        self._set_properties()
        return self._version()

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink."""
        if self.held() is None:
            return "no table yet"
        with self._translated():
            table = SparkTable.forPath(self._spark, self.place)
            merged = table.optimize().executeCompaction().collect()[0]
            table.vacuum(kept_hours(keep_ms))
        return f"merged {merged.metrics.numFilesRemoved} files into {merged.metrics.numFilesAdded}"

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. No effect: versions of a Delta table are not named after epochs."""

    def _merge(self, difference: Difference) -> None:
        source = self._spark.createDataFrame(merge_source(difference)).alias("s")
        same = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in self.key)
        values: dict[str, str | Column] = {
            quoted(column.name): f"s.{quoted(column.name)}" for column in self._outline.columns
        }
        merge = SparkTable.forPath(self._spark, self.place).alias("t").merge(source, same)
        merge.whenMatchedDelete(REMOVED).whenMatchedUpdate(WRITTEN, values).whenNotMatchedInsert(
            WRITTEN, values
        ).execute()

    def _with_comments(self, frame: DataFrame) -> DataFrame:
        return frame.select(
            [frame[quoted(f.name)].alias(f.name, metadata=_metadata(f)) for f in delta_schema(self._outline)]
        )

    def _set_properties(self) -> None:
        """Set the table's properties in a separate commit, if they differ."""
        wanted = properties_of(self._outline, self.engine)
        if self._opened().metadata().configuration.items() >= wanted.items():
            return
        listed = ", ".join(f"{string_text(name)} = {string_text(value)}" for name, value in wanted.items())
        with self._translated():
            self._spark.sql(f"ALTER TABLE delta.{quoted(self.place)} SET TBLPROPERTIES ({listed})")

    def _version(self) -> str:
        return str(self._opened().version())

    def _opened(self) -> DeltaTable:
        table = open_table(self._url, self.place)
        assert table is not None, "the table has just been written"
        return table

    @contextmanager
    def _once(self, app: str, epoch: int) -> Iterator[None]:
        """Skip a write in the block if the table has recorded this epoch or a later one."""
        for name, value in (("AppId", app), ("Version", str(epoch)), ("Version.autoReset.enabled", "true")):
            self._spark.conf.set(_TXN + name, value)
        with self._translated():
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with jvm_errors_as_ours():
                yield
        except DeltaConcurrentModificationException as err:
            raise BeatenError from err


def _metadata(field: pa.Field) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in (field.metadata or {}).items()}
