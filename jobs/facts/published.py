"""The sinks of a pipeline: their tables, compared with the history of its store, and the state of each table."""

import shlex
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.settings.home import place_of, recorded_home
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.settings.redaction import without_secrets
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore


class PublishedFacts(msgspec.Struct, frozen=True):
    """The tables of one sink, compared with the store's history."""

    sink: str
    to: str
    epoch: int  # the newest epoch that all its tables have; 0: none
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
    """Compare the records of a sink with the store's history.

    Cost: two LISTs, and two GETs per record (about one per table).
    """
    from tussock.jobs.sinks.ledger import ledger_of
    from tussock.jobs.sinks.lineage import StoreHistory
    from tussock.jobs.sinks.manifest import manifest_epochs

    strange: set[int] = set()
    unknown, owner, trouble, epoch = False, "", "", 0
    try:
        home = recorded_home(meta.objects)
        tables = ledger_of(settings, meta.objects, home)
        lineage = StoreHistory(meta, home, tables)
        others = {record.store for record in lineage.records} - (frozenset() if home is None else home.ids)
        owner = min(others, default="")
        strange = {record.epoch for record in lineage.strangers()}
        written = manifest_epochs(tables)
        epoch = written[-1] if written else 0
        if not lineage.records and written:
            unknown, strange = True, {epoch for epoch in written[-1:] if not lineage.has_epoch(epoch)}
    except (InputError, RetryableError) as err:
        trouble = without_secrets(str(err))
    return PublishedFacts(settings.title, settings.to, epoch, tuple(sorted(strange)), unknown, owner, trouble)


class CopyOfView(msgspec.Struct, frozen=True):
    """One relation in one sink. None: unknown, or not a number of this kind of sink."""

    sink: str
    kind: str
    place: str
    version: str = ""  # empty: the sink does not have the relation yet
    epoch: int = 0
    rows: int | None = None
    files: int | None = None
    deleted_share: float | None = None
    upkeep: datetime | None = None  # its last one
    trouble: str = ""  # why the sink's ledger could not be read


def copies_of_view(meta: MetaStore, publish: Sequence[PublishSettings], relation: str) -> tuple[CopyOfView, ...]:
    """Return the state of a relation in each sink, as of the sink's last publish or upkeep.

    Cost per sink: one LIST and two GETs in its ledger.
    """
    return tuple(_copy_of_view(meta, settings, relation) for settings in publish)


def _copy_of_view(meta: MetaStore, settings: PublishSettings, relation: str) -> CopyOfView:
    from tussock.jobs.sinks.ledger import ledger_of
    from tussock.jobs.sinks.manifest import manifest_epochs, read_manifest, read_upkeep

    copy = CopyOfView(settings.title, settings.kind, settings.to)
    try:
        ledger = ledger_of(settings, meta.objects, recorded_home(meta.objects))
        epochs = manifest_epochs(ledger)
        manifest = read_manifest(ledger, epochs[-1]) if epochs else None
        state = None if manifest is None else manifest.tables.get(relation)
        upkeep = read_upkeep(ledger).get(relation)
    except (InputError, RetryableError) as err:
        return msgspec.structs.replace(copy, trouble=without_secrets(str(err)))
    if manifest is None or state is None:
        return copy
    # If the rows have not changed since, upkeep has read this state or written a later version of it.
    newest = state if upkeep is None or upkeep.written != state.written else upkeep
    return CopyOfView(
        settings.title,
        settings.kind,
        state.table,
        newest.version,
        manifest.holds(relation),
        newest.size.rows,
        newest.size.files,
        newest.size.deleted_share,
        None if upkeep is None else time_of_ms(upkeep.at_ms),
    )
