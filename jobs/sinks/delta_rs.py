"""A Delta table written by the deltalake package: no JVM, and conditional PUTs for commits on S3.

A table's epoch is its transaction identifier (`txn` of Delta's protocol: appId of `app_of`, version = epoch), which is
committed with the rows. The package records such identifiers but does not check them. Each write therefore reads the
table's state, compares, and commits on exactly that state. The package's own retries are disabled: a commit by another
writer in between is an error, and the write starts again.

Cost of a merge: Delta rewrites each data file that contains a changed or removed row.
"""

from collections.abc import Callable

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tussock.jobs.delta.location import Location, folder_name
from tussock.jobs.logical.quoting import quote_identifier
from tussock.jobs.settings.publishing import TableEngine
from tussock.jobs.sinks.base import Difference, Outline, Sink, SinkState, WholeRows
from tussock.jobs.sinks.delta_merge import OPERATION, REMOVED, WRITTEN, merge_source
from tussock.jobs.sinks.delta_outline import app_of, checked_columns, delta_schema, kept_hours, merge_key, properties_of
from tussock.jobs.sinks.delta_state import (
    held_by,
    next_app,
    open_table,
    read_table,
    replacements_of,
    size_of,
    translating_errors,
)
from tussock.jobs.sinks.manifest import SinkSize
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import BadStoreError


class DeltaRsSink(Sink):
    """A relation's Delta table. Not thread-safe."""

    engine = TableEngine.DELTALAKE

    def __init__(self, location: Location, outline: Outline) -> None:
        checked_columns(outline, (OPERATION,))
        self.place = location.table_uri(folder_name(outline.name))
        self._location = location
        self._url = location.delta_url(folder_name(outline.name))
        self._mirror: TemporaryFolder | None = None  # of a table in HDFS
        self.key = merge_key(outline)
        self._outline = outline
        self._options = location.delta_options
        self._table: DeltaTable | None = None

    def read_state(self) -> SinkState | None:
        self._table = self._open_table()
        return None if self._table is None else held_by(self._table, self._outline, self.engine, self.place)

    def _open_table(self, *, rows: bool = False) -> DeltaTable | None:
        """Return the newest state of the table; None if it does not exist. `rows`: its rows will be read, too.

        The package cannot open a table in HDFS, and gets a copy of its log.
        """
        if not self._location.is_in_hdfs:
            return open_table(self._url, self.place, self._options)
        self._mirror = self._location.mirror_log(folder_name(self._outline.name), rows=rows)
        return open_table(self._mirror.name, self.place)

    def _require_writable(self) -> None:
        """Raise BadStoreError if the package cannot write the table."""
        if self._location.is_in_hdfs:
            reason = (
                "the deltalake package cannot write to HDFS, and only tables with deletion vectors need no such write. "
                "Publish with deletion_vectors = true to a new folder"
            )
            raise BadStoreError(self.place, reason)

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """See Sink. Requires: `read_state` was the last call, and returned a state."""
        self._require_writable()
        table = self._table
        assert table is not None
        if not (difference.only_new or self.key):
            return None
        commit = _commit_properties(app_of(replacements_of(table)), epoch)
        with translating_errors(self.place, "write"):
            if difference.only_new:
                write_deltalake(table, difference.written, mode="append", commit_properties=commit)
            else:
                self._merge_difference(table, difference, commit)
            return self._set_properties(table)

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Requires: `read_state` was the last call."""
        self._require_writable()
        commit = _commit_properties(next_app(self._table, epoch), epoch)
        with translating_errors(self.place, "write"):
            schema = delta_schema(self._outline)
            content = pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows.batches()))
            if self._table is None:
                write_deltalake(
                    self._url,
                    content,
                    mode="error",
                    name=self._outline.name,
                    description=self._outline.comment or None,
                    storage_options=self._options or None,
                    commit_properties=commit,
                )
                self._table = DeltaTable(self._url, storage_options=self._options or None)
            else:
                write_deltalake(
                    self._table, content, mode="overwrite", schema_mode="overwrite", commit_properties=commit
                )
            return self._set_properties(self._table)

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. Files of the last hour always stay, because a running publish may need them."""
        if self.read_state() is None or (table := self._table) is None:
            return "no table yet"
        self._require_writable()
        with translating_errors(self.place, "tidy up"):
            merged = table.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            removed = table.vacuum(retention_hours=kept_hours(keep_ms), dry_run=False, enforce_retention_duration=False)
            table.cleanup_metadata()
            return f"merged {merged['numFilesRemoved']} files into {merged['numFilesAdded']}, removed {len(removed)}"

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. No effect: versions of a Delta table are not named after epochs."""

    def measure(self) -> SinkSize:
        assert self._table is not None
        return size_of(self._table)

    def read_rows(self) -> pa.RecordBatchReader:
        return read_table(self._open_table(rows=True), self.place, delta_schema(self._outline))

    def _merge_difference(self, table: DeltaTable, difference: Difference, commit: CommitProperties) -> None:
        same = " AND ".join(
            f"(t.{quote_identifier(name)} IS NOT DISTINCT FROM s.{quote_identifier(name)})" for name in self.key
        )
        values = {
            quote_identifier(column.name): f"s.{quote_identifier(column.name)}" for column in self._outline.columns
        }
        merge = table.merge(
            merge_source(difference), same, source_alias="s", target_alias="t", commit_properties=commit
        )
        merge.when_matched_delete(REMOVED).when_matched_update(values, WRITTEN).when_not_matched_insert(
            values, WRITTEN
        ).execute()

    def _set_properties(self, table: DeltaTable) -> str:
        """Return the version of the state just written. Then set the table's properties if they differ."""
        version = str(table.version())
        wanted = properties_of(self._outline, self.engine)
        if table.metadata().configuration.items() & wanted.items() != wanted.items():
            table.alter.set_table_properties(
                wanted, raise_if_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0)
            )
        return version


def _commit_properties(app: str, epoch: int) -> CommitProperties:
    """Return commit properties that record the epoch, and allow a commit only on the state it was computed from."""
    return CommitProperties(
        app_transactions=[Transaction(app, epoch)], max_commit_retries=0, custom_metadata={"tussock.epoch": str(epoch)}
    )
