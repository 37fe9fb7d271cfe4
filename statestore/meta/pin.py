"""Pins: objects that say a reader is at work at an epoch, on the SSTs of a version.

A pin counts only if its epoch is still readable after the pin is written. A process that drops old rows raises the floor first, and only
afterwards lists the pins: it sees the pin, or the reader sees the new floor. The same holds for the SSTs of the version: vacuum looks up
the newest version first, and only afterwards lists the pins.

A pin has a lease, so that a reader that died does not keep the store from shrinking. Only the process that raises the floor judges it,
by its own clock; all others honour every pin that is there. A clock that is wrong ends a lease early or late; the reader then finds
its pin gone, or an SST missing, and never a wrong row, since the version it reads is fixed and its SSTs never change.
"""

import msgspec

from tussock.statestore.meta.document import decode_document, encode_document
from tussock.statestore.meta.errors import PinLapsedError
from tussock.statestore.meta.names import PINS, pin_name, pins_on
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

LEASE_MS = 6 * 60 * 60 * 1000  # of a pin, unless its reader says otherwise


class Pin(msgspec.Struct, frozen=True):
    """A reader's claim on an epoch and on the SSTs of a version. `holder` is unique to the reader's claim, with `renewal` to the object."""

    epoch: int
    holder: str
    version: int  # id of the version whose SSTs stay; read the epoch there
    expires_ms: int  # Unix ms from which on the one who raises the floor may remove it
    renewal: int = 0
    onward: bool = False  # objects of epochs after `epoch` stay as well, in a version or not: a train reads them before they are committed

    @property
    def name(self) -> str:
        """Of the object."""
        return pin_name(self.epoch, self.holder, self.renewal)


def write_pin(objects: ObjectStore, pin: Pin) -> None:
    """Make a pin visible; it does not count before the floor has been checked."""
    objects.put(pin.name, encode_document(pin))


def delete_pins(objects: ObjectStore, *pins: Pin) -> None:
    """Let go; harmless when repeated."""
    objects.delete([pin.name for pin in pins])


def drop_pin(objects: ObjectStore, pin: Pin) -> None:
    """Let go of a pin, and of the renewal before it; harmless when repeated."""
    before = (msgspec.structs.replace(pin, renewal=pin.renewal - 1),) if pin.renewal else ()
    delete_pins(objects, pin, *before)


def renew_pin(objects: ObjectStore, pin: Pin, expires_ms: int) -> Pin:
    """A pin on the same epoch and version with a new lease, in the place of `pin`. Raises PinLapsedError where somebody removed `pin`."""
    renewed = msgspec.structs.replace(pin, expires_ms=expires_ms, renewal=pin.renewal + 1)
    write_pin(objects, renewed)
    if not pin_stands(objects, pin):
        delete_pins(objects, renewed)
        raise PinLapsedError(pin.epoch, pin.holder)
    if (
        pin.renewal
    ):  # `pin` itself stays until the next renewal: a listing under way may have passed the new one's place
        delete_pins(objects, msgspec.structs.replace(pin, renewal=pin.renewal - 1))
    return renewed


def pin_stands(objects: ObjectStore, pin: Pin) -> bool:
    """Whether nobody has removed it. One HEAD."""
    try:
        objects.head(pin.name)
    except ObjectNotFoundError:
        return False
    return True


def list_pins(objects: ObjectStore, epoch: int | None = None) -> tuple[Pin, ...]:
    """All pins, by epoch, or those on one epoch. A LIST and a GET each: for compaction and vacuum, not for commits. Raises
    DamagedDocumentError.

    A pin that is renewed meanwhile is seen: the renewal lists after what it renews, which stays until the renewal after it.
    """
    pins = []
    for found in objects.list(PINS if epoch is None else pins_on(epoch)):
        try:
            pins.append(decode_document(found.name, objects.get(found.name), Pin))
        except ObjectNotFoundError:
            continue  # let go since the listing
    return tuple(pins)
