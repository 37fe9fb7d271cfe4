"""A folder or a bucket's prefix as a place of sinks: each relation's table commits separately, in its own folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tussock.jobs.delta.location import Location, folder_name
from tussock.jobs.sinks.base import Outline, Sink, SinkPlace
from tussock.jobs.sinks.manifest import TableState


@dataclass(frozen=True, slots=True)
class FolderPlace(SinkPlace):
    """See SinkPlace. `make_sink`: creates the sink of a relation."""

    location: Location
    make_sink: Callable[[Location, Outline], Sink]

    def sink_of(self, outline: Outline) -> Sink:
        return self.make_sink(self.location, outline)

    def has_table(self, relation: str, state: TableState) -> bool:
        """See SinkPlace. Returns whether the table's folder contains anything. Cost: one LIST."""
        return next(iter(self.location.objects.list(f"{folder_name(relation)}/")), None) is not None

    def finish_epoch(self, epoch: int, tables: Mapping[str, TableState], *, complete: bool) -> None:
        """See SinkPlace. No effect: each table is visible once it is written."""
