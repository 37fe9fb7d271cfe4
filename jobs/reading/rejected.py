"""How many rejects the sources of a store have."""

from tussock.jobs.plan.rejects import rejects_by_source
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore


def rejected(objects: ObjectStore, version: HummockVersion) -> dict[str, int]:
    """By source the records that its table of rejects holds at the version's epoch; sources without such a table are not among them. Cost:
    a scan of one narrow column of each."""
    known = {r.id for r in version.catalog.at(version.epoch)}
    found = {source: table for source, table in rejects_by_source(version.catalog).items() if table.id in known}
    stored = {source: open_table(objects, version, stored_table(table)) for source, table in found.items()}
    return {source: sum(part.num_rows for part in table.scan(columns=(1,))) for source, table in stored.items()}
