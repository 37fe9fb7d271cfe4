"""The locators that a pipeline's sinks use, by the places of their tables. Others are removed with the vacuum."""

from collections.abc import Iterable

from tussock.jobs.delta.location import folder_name, location_of
from tussock.jobs.locator.document import folder_of, remove_unused
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.meta.store import MetaStore

_SETTLED_MS = 3_600_000  # younger objects may belong to a publish with other settings that still runs


def locator_folder(kind: str, place: str) -> str:
    """Return the folder of a table's locator. `place`: of the table."""
    return folder_of(f"{kind} {place}")


def drop_locators(meta: MetaStore, sinks: Iterable[PublishSettings], now_ms: int) -> int:
    """Remove the locators of tables that no sink writes any more. Returns the number of objects.

    Args:
        sinks: all sinks of the pipeline.

    A sink that returns to such a table makes its locator again from the key columns. Cost: one LIST.
    """
    catalog, used = meta.read_latest().catalog, set[str]()
    for sink in sinks:
        if sink.is_folder:
            chosen = None if sink.relations is None else {relation_key(name) for name in sink.relations}
            names = [r.name for r in catalog.live_relations() if chosen is None or r.name in chosen]
            location = location_of(sink.to)
            used |= {locator_folder(sink.kind, location.table_uri(folder_name(name))) for name in names}
    return remove_unused(meta.objects, used, now_ms - _SETTLED_MS)
