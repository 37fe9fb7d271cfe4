"""Store dumps of the databases that sources read, before a run pins its input."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.statement_log import pending_catalog
from tussock.jobs.sources.jdbc import FORMAT, store_dump
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def store_dumps(meta: MetaStore, spark: "Callable[[], AbstractContextManager[SparkSession]]") -> int:
    """Store a dump of each source of a database, also of sources that wait for their first epoch.

    Args:
        spark: opens the Spark application that reads the databases.

    Returns: the number of sources; a following branch has none. Cost: reads the catalog, and starts Spark if there is
    a source.
    """
    if meta.follows:
        return 0
    relations = pending_catalog(meta, meta.read_latest()).live_relations()
    statements = [source_of(r) for r in relations if r.kind is RelationKind.SOURCE]
    sources = [s for s in statements if s is not None and s.format == FORMAT]
    if sources:
        with spark() as session:
            for source in sources:
                store_dump(source, session)
    return len(sources)
