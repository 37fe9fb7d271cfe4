"""The lineage of published views and tables."""

from collections.abc import Mapping

import msgspec

from tussock.jobs.facts.lineage import LineageFacts, TableCopy, copies_of, exposures_of, lineage_of
from tussock.jobs.operations.publication import Publication, around_publish
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.exposures import read_exposures
from tussock.jobs.sinks.manifest import TableState


def published_lineage(store: PipelineStore, published: Publication) -> LineageFacts:
    """Return the lineage of a publish's views since the previous publish. Cost: as facts.lineage.lineage_of."""
    before, _ = around_publish(store.meta, published.epoch)
    lineage = lineage_of(
        store.meta, store.pipeline.name, [view.name for view in published.views], before.published, published.epoch
    )
    exposures = exposures_of(
        store.meta, store.pipeline.name, lineage.outputs, read_exposures(store.pipeline.folder), published.epoch
    )
    return msgspec.structs.replace(lineage, exposures=exposures)


def table_lineage(store: PipelineStore, epoch: int, tables: Mapping[str, TableState]) -> tuple[TableCopy, ...]:
    """Return the tables outside of the store that an epoch wrote, with the relations that they copy."""
    places = {
        relation: (state.table, state.version) for relation, state in tables.items() if state.written == str(epoch)
    }
    return copies_of(store.meta, store.pipeline.name, epoch, places)
