"""Count the rejects of a store's sources."""

from tussock.jobs.catalog.fed_tables import fed_by_source
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.sources.ports import Port
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore


def count_rejects(objects: ObjectStore, version: HummockVersion) -> dict[str, int]:
    """Return the number of rejects at the version's epoch, by source. Sources without a table of rejects are omitted.

    Cost: a scan of one narrow column of each table.
    """
    known = {r.id for r in version.catalog.relations_at(version.epoch)}
    table_by_source = {
        source: table for source, table in fed_by_source(version.catalog, Port.REJECTS).items() if table.id in known
    }
    stored = {source: open_table(objects, version, stored_table(table)) for source, table in table_by_source.items()}
    return {source: sum(part.num_rows for part in table.scan(columns=(1,))) for source, table in stored.items()}
