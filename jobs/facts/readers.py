"""Pipelines that read the relations of this store, and the stores that its own sources read."""

from datetime import datetime

import msgspec

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.sources.describe import place_text
from tussock.jobs.sources.other_store import FORMAT, newest_pin
from tussock.jobs.sources.other_store_epochs import reader_of_pin
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class ReaderFacts(msgspec.Struct, frozen=True):
    """A source of one store that reads a relation of another."""

    reader: str  # the source and its store, or only the source if it is this store's
    place: str  # the relation and its store; empty if it is this store's
    epoch: int  # that it has read up to
    at: datetime  # of that epoch
    until: datetime  # the end of its pin, unless it is renewed


def list_readers(meta: MetaStore) -> tuple[ReaderFacts, ...]:
    """Return the sources of other stores that read this one. Cost: one LIST, and one GET per pin."""
    newest = dict[str, Pin]()
    for pin in meta.all_pins():
        reader = reader_of_pin(pin)
        if reader and (reader not in newest or _order_of(newest[reader]) < _order_of(pin)):
            newest[reader] = pin
    return tuple(_facts_of(reader, "", pin) for reader, pin in sorted(newest.items()))


def list_stores_read(meta: MetaStore, version: HummockVersion) -> tuple[ReaderFacts, ...]:
    """Return this store's sources that have a pin in another store. Cost: per source, as `list_readers` there."""
    reads = list[ReaderFacts]()
    for relation in version.catalog.live_relations():
        source = source_of(relation)
        if source is None or source.format != FORMAT:
            continue
        try:
            pin = newest_pin(source, meta.objects)
        except (InputError, RetryableError):  # the source's own facts contain the reason
            continue
        if pin is not None:
            reads.append(_facts_of(relation.name, place_text(source), pin))
    return tuple(reads)


def _order_of(pin: Pin) -> tuple[int, int]:
    return pin.epoch, pin.expires_ms


def _facts_of(reader: str, place: str, pin: Pin) -> ReaderFacts:
    return ReaderFacts(reader, place, pin.epoch, epoch_moment(pin.epoch), time_of_ms(pin.expires_ms))
