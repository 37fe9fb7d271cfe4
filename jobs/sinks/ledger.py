"""The ledger of a sink: objects with the manifests of its epochs, the records of its history, and its last upkeep.

    <to>/_tussock/…                                    a sink in a folder or bucket: its readers can read it too
    <store>/publish/sinks/<identity>/<name>/_tussock/… any other sink

The identity is the store's (tussock.jobs.settings.home): a copy of a store starts with empty ledgers.
"""

from tussock.jobs.delta.location import location_of
from tussock.jobs.settings.home import Home
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.branch import StoreBelow

LEDGERS = "publish/sinks/"


def ledger_of(settings: PublishSettings, store: ObjectStore, home: Home | None) -> ObjectStore:
    """Return the ledger of a sink. Raises BadStoreError for a folder that cannot be one."""
    if settings.is_folder:
        return location_of(settings.to).objects
    return StoreBelow(store, f"{LEDGERS}{'' if home is None else home.id}/{settings.title}/")
