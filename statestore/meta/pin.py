"""Pins: objects that say a reader is at work at an epoch.

A pin counts only if the floor is still at or below its epoch after the pin is written. Whoever drops old rows raises the floor first
and lists the pins then: it sees the pin, or the reader sees the new floor.
"""

import msgspec

from statestore.meta.document import decode_document, encode_document
from statestore.meta.names import PINS, pin_name
from statestore.objectstore.base import ObjectNotFoundError, ObjectStore


class Pin(msgspec.Struct, frozen=True):
    """A reader's claim on an epoch. `holder` is unique to the pin."""

    epoch: int
    holder: str


def write_pin(objects: ObjectStore, pin: Pin) -> None:
    """Make a pin visible; it does not count before the floor has been checked."""
    objects.put(pin_name(pin.epoch, pin.holder), encode_document(pin))


def delete_pin(objects: ObjectStore, pin: Pin) -> None:
    """Let go of an epoch; harmless when repeated."""
    objects.delete([pin_name(pin.epoch, pin.holder)])


def list_pins(objects: ObjectStore) -> tuple[Pin, ...]:
    """All pins, by epoch. A LIST and a GET each: for compaction and vacuum, not for commits. Raises DamagedDocumentError."""
    pins = []
    for found in objects.list(PINS):
        try:
            pins.append(decode_document(found.name, objects.get(found.name), Pin))
        except ObjectNotFoundError:
            continue  # let go since the listing
    return tuple(pins)
