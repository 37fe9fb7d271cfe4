"""Snapshots in Parquet, for readers without table formats: one complete file per epoch in which rows changed.

    <to>/<relation>/<epoch>.parquet

The newest file is the sink's state. A file appears completely or not at all. Each change costs a copy of the whole
relation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.jobs.delta.location import Location, folder_name, location_of
from tussock.jobs.reading.written_rows import write_parquet
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.base import (
    Difference,
    ForeignTableError,
    Outline,
    Publisher,
    Sink,
    SinkPlace,
    SinkState,
    WholeRows,
)
from tussock.jobs.sinks.folder import FolderPlace
from tussock.jobs.sinks.manifest import SinkSize
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.types import arrow_type, type_name

_END = ".parquet"
_STORE = b"tussock.store"  # metadata key of a snapshot: the identity of its store


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """See OpenPlace."""
    yield FolderPlace(location_of(settings.to), ParquetSink)


class ParquetSink(Sink):
    """A relation's snapshots."""

    key: tuple[str, ...] = ()

    def __init__(self, location: Location, outline: Outline) -> None:
        self._location, self._outline, self._folder = location, outline, folder_name(outline.name)
        self.place = location.table_uri(self._folder)
        self._schema = pa.schema([(column.name, arrow_type(column.type)) for column in outline.columns])

    def read_state(self) -> SinkState | None:
        """See Sink. Cost: one LIST of the snapshots, and the footer of the last one."""
        names = self._list_names()
        if not names:
            return None
        schema = pq.read_schema(self._location.open_file(names[-1]))
        owner = (schema.metadata or {}).get(_STORE, b"").decode()
        if owner and owner not in self._outline.stores:
            raise ForeignTableError(
                self.place, f"contains snapshots of another store (identity {owner}, expected {self._outline.store})"
            )
        fits = [(f.name, type_name(f.type)) for f in schema] == [(f.name, type_name(f.type)) for f in self._schema]
        return SinkState(_epoch_of(names[-1]), names[-1].rpartition("/")[2], fits)

    def apply(self, difference: Difference, epoch: int) -> None:
        """See Sink. Returns None: a file does not support differences."""

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink.

        If two publishers write the file of one epoch, it does not matter which file stays: the rows are the same.
        """
        name = f"{self._folder}/{epoch:020}{_END}"
        with self._location.new_file(name) as file:
            write_parquet(rows.batches(), file, {_STORE: self._outline.store.encode()})
        return name.rpartition("/")[2]

    def forget(self, has: Callable[[int], bool]) -> None:
        self._location.objects.delete([name for name in self._list_names() if not has(_epoch_of(name))])

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. The newest snapshot stays, as do the ones that were the newest during the last `keep_ms`."""
        names = self._list_names()
        going = [name for name, after in pairwise(names) if epoch_ms(_epoch_of(after)) <= now_ms - keep_ms]
        self._location.objects.delete(going)
        return f"removed {len(going)} snapshots"

    def measure(self) -> SinkSize:
        """See Sink. Cost: one LIST, and the footer of the last snapshot."""
        names = self._list_names()
        footer = pq.read_metadata(self._location.open_file(names[-1]))
        return SinkSize(footer.num_rows, len(names), 0)

    def read_rows(self) -> pa.RecordBatchReader:
        if not (names := self._list_names()):
            return self._schema.empty_table().to_reader()
        return pq.read_table(self._location.open_file(names[-1])).to_reader()

    def _list_names(self) -> list[str]:
        return [info.name for info in self._location.objects.list(f"{self._folder}/") if info.name.endswith(_END)]


def _epoch_of(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(_END))
