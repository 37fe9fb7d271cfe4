"""Compare the tables that a pipeline publishes with the history of its store."""

import shlex
from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.settings.home import place_of, recorded_home
from tussock.jobs.settings.tables import PublishSettings
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.store import MetaStore


class PublishedFacts(msgspec.Struct, frozen=True):
    """The folder of published tables, compared with the store's history."""

    to: str
    strange: tuple[int, ...]  # epochs that tables may contain and the store does not have
    unknown: bool  # the tables have no record of their history
    owner: str  # the identity of another store that publishes to the folder; empty if no other store does
    trouble: str  # why the folder could not be read; empty if it was read

    @property
    def at(self) -> datetime | None:
        """The moment of the newest strange epoch."""
        return epoch_moment(max(self.strange)) if self.strange else None


class CopyFacts(msgspec.Struct, frozen=True):
    """A store at another place than it records: it was moved or copied."""

    recorded: str
    found: str
    store: str  # its address, quoted for a shell


def find_copy(meta: MetaStore) -> CopyFacts | None:
    """Return None if the store is at its recorded place, or has recorded none.

    Cost: one GET, and one local file look-up.
    """
    home, place = recorded_home(meta.objects), place_of(meta.objects)
    if home is None or home.is_at(place):
        return None
    return CopyFacts(home.address, place.address, shlex.quote(meta.objects.uri))


def compare_published(meta: MetaStore, settings: PublishSettings) -> PublishedFacts:
    """Compare the folder's records with the store's history.

    Cost: one LIST, and two GETs per record (about one per table).
    """
    from tussock.jobs.delta.location import location_of
    from tussock.jobs.sinks.lineage import StoreHistory
    from tussock.jobs.sinks.manifest import manifest_epochs

    strange: set[int] = set()
    unknown, owner, trouble = False, "", ""
    try:
        tables, home = location_of(settings.to).objects, recorded_home(meta.objects)
        lineage = StoreHistory(meta, home, tables)
        others = {record.store for record in lineage.records} - (frozenset() if home is None else home.ids)
        owner = min(others, default="")
        strange = {record.epoch for record in lineage.strangers()}
        if not lineage.records and (written := manifest_epochs(tables)):
            unknown, strange = True, {epoch for epoch in written[-1:] if not lineage.has_epoch(epoch)}
    except (InputError, RetryableError) as err:
        trouble = str(err)
    return PublishedFacts(settings.to, tuple(sorted(strange)), unknown, owner, trouble)
