"""The time zone of a store, by its recorded rules."""

from tussock.jobs.catalog.statement_log import pending_catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.zones import RuledZone, digest_of, is_utc


def store_zone(meta: MetaStore) -> RuledZone:
    """The store's time zone by the rules of its newest version, else by the rules that wait in the log.

    It has no rules if no statement was logged yet. Cost: before the first epoch, a read of the log.
    """
    name, version = meta.settings.time_zone, meta.read_latest()
    zone = version.catalog.resolve_zone(name)
    if digest_of(zone) or is_utc(name):
        return zone
    return pending_catalog(meta, version).resolve_zone(name)
