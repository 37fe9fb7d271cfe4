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
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.settings.publishing import TableEngine
from tussock.jobs.sinks.base import BeatenError, Difference, Outline, Sink, SinkState, WholeRows
from tussock.jobs.sinks.delta_merge import OPERATION, REMOVED, WRITTEN, merge_source
from tussock.jobs.sinks.delta_outline import app_of, checked_columns, delta_schema, kept_hours, merge_key, properties_of
from tussock.jobs.sinks.delta_state import held_by, next_app, open_table, read_table, replacements_of, size_of
from tussock.jobs.sinks.manifest import SinkSize
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.jobs.spark.session import sql_session

_TXN = "spark.databricks.delta.write.txn"


class DeltaSparkSink(Sink):
    """A relation's Delta table. Not thread-safe. Requires: a session with delta_packages.with_delta."""

    engine = TableEngine.SPARK

    def __init__(self, spark: SparkSession, location: Location, outline: Outline) -> None:
        checked_columns(outline, (OPERATION,))
        self.place = location.table_uri(folder_name(outline.name))
        self._url = location.delta_url(folder_name(outline.name))
        self.key = merge_key(outline)
        self._spark, self._outline = sql_session(spark, "UTC"), outline  # its settings belong to the current write
        self._table: DeltaTable | None = None  # the state that `read_state` read

    def read_state(self) -> SinkState | None:
        self._table = table = open_table(self._url, self.place)
        return None if table is None else held_by(table, self._outline, self.engine, self.place)

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """See Sink. Requires: `read_state` was the last call, and returned a state."""
        assert self._table is not None
        if not (difference.only_new or self.key):
            return None
        with self._write_once(app_of(replacements_of(self._table)), epoch):
            if difference.only_new:
                self._spark.createDataFrame(difference.written).write.format("delta").mode("append").save(self.place)
            else:
                self._merge_difference(difference)
        return self._newest_version()

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Spark's workers copy the rows from the store to the table.

        Requires: `read_state` was the last call.
        """
        with self._write_once(next_app(self._table, epoch), epoch):
            frame = self._with_comments(rows.frame(self._spark))
            frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.place)
        self._set_properties()
        return self._newest_version()

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        if self.read_state() is None:
            return "no table yet"
        with self._translating_errors():
            table = SparkTable.forPath(self._spark, self.place)
            merged = table.optimize().executeCompaction().collect()[0]
            table.vacuum(kept_hours(keep_ms))
        return f"merged {merged.metrics.numFilesRemoved} files into {merged.metrics.numFilesAdded}"

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. No effect: versions of a Delta table are not named after epochs."""

    def measure(self) -> SinkSize:
        return size_of(self._open_table())

    def read_rows(self) -> pa.RecordBatchReader:
        return read_table(open_table(self._url, self.place), self.place, delta_schema(self._outline))

    def _merge_difference(self, difference: Difference) -> None:
        source = self._spark.createDataFrame(merge_source(difference)).alias("s")
        same = " AND ".join(f"t.{quote_name(name)} <=> s.{quote_name(name)}" for name in self.key)
        values: dict[str, str | Column] = {
            quote_name(column.name): f"s.{quote_name(column.name)}" for column in self._outline.columns
        }
        merge = SparkTable.forPath(self._spark, self.place).alias("t").merge(source, same)
        merge.whenMatchedDelete(REMOVED).whenMatchedUpdate(WRITTEN, values).whenNotMatchedInsert(
            WRITTEN, values
        ).execute()

    def _with_comments(self, frame: DataFrame) -> DataFrame:
        return frame.select(
            [frame[quote_name(f.name)].alias(f.name, metadata=_field_metadata(f)) for f in delta_schema(self._outline)]
        )

    def _set_properties(self) -> None:
        """Set the table's properties in a separate commit, if they differ."""
        wanted = properties_of(self._outline, self.engine)
        if self._open_table().metadata().configuration.items() >= wanted.items():
            return
        listed = ", ".join(f"{string_text(name)} = {string_text(value)}" for name, value in wanted.items())
        with self._translating_errors():
            self._spark.sql(f"ALTER TABLE delta.{quote_name(self.place)} SET TBLPROPERTIES ({listed})")

    def _newest_version(self) -> str:
        return str(self._open_table().version())

    def _open_table(self) -> DeltaTable:
        table = open_table(self._url, self.place)
        assert table is not None, "the table has just been written"
        return table

    @contextmanager
    def _write_once(self, app: str, epoch: int) -> Iterator[None]:
        """Skip a write in the block if the table has recorded this epoch or a later one."""
        for name, value in (("AppId", app), ("Version", str(epoch)), ("Version.autoReset.enabled", "true")):
            self._spark.conf.set(_TXN + name, value)
        with self._translating_errors():
            yield

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            with jvm_errors_as_ours():
                yield
        except DeltaConcurrentModificationException as err:
            raise BeatenError from err


def _field_metadata(field: pa.Field) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in (field.metadata or {}).items()}
