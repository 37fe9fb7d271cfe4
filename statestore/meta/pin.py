"""Pins: objects that protect an epoch and the SSTs of a version for an active reader.

A pin counts only if its epoch is still readable after the pin is written. A process that drops old rows first raises
the floor and then lists the pins. It therefore sees the pin, or the reader sees the new floor. The same holds for SSTs:
vacuum first reads the newest version and then lists the pins.

A pin has a lease, so that a dead reader does not block cleanup forever. Only the process that raises the floor checks
leases, by its own clock; all others honour every existing pin. A wrong clock ends a lease early or late. The reader
then finds its pin or an SST missing, but never reads a wrong row, because its version is fixed and SSTs never change.
"""

import msgspec

from tussock.statestore.meta.document import decode_document, encode_document
from tussock.statestore.meta.errors import PinLapsedError
from tussock.statestore.meta.names import PINS, pin_name, pins_on
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

LEASE_MS = 6 * 60 * 60 * 1000  # default of a pin


class Pin(msgspec.Struct, frozen=True):
    """A reader's claim on an epoch and the SSTs of a version.

    `holder` identifies the claim; `holder` and `renewal` together identify the object.
    """

    epoch: int
    holder: str
    version: int  # id of the version that protects the SSTs; read the epoch on this version
    expires_ms: int  # Unix ms after which the process that raises the floor may remove the pin
    renewal: int = 0
    # Also protect objects of epochs after `epoch`, in a version or not: a train reads them before they are committed.
    onward: bool = False

    @property
    def name(self) -> str:
        """Name of the object."""
        return pin_name(self.epoch, self.holder, self.renewal)


def write_pin(objects: ObjectStore, pin: Pin) -> None:
    """Write a pin. It does not count until the floor has been checked."""
    objects.put(pin.name, encode_document(pin))


def delete_pins(objects: ObjectStore, *pins: Pin) -> None:
    """Delete pins. Idempotent."""
    objects.delete([pin.name for pin in pins])


def drop_pin(objects: ObjectStore, pin: Pin) -> None:
    """Delete a pin and the renewal before it. Idempotent."""
    before = (msgspec.structs.replace(pin, renewal=pin.renewal - 1),) if pin.renewal else ()
    delete_pins(objects, pin, *before)


def renew_pin(objects: ObjectStore, pin: Pin, expires_ms: int) -> Pin:
    """Replace `pin` by one on the same epoch and version with a new lease.

    Raises PinLapsedError if `pin` was removed.
    """
    renewed = msgspec.structs.replace(pin, expires_ms=expires_ms, renewal=pin.renewal + 1)
    write_pin(objects, renewed)
    if not pin_stands(objects, pin):
        delete_pins(objects, renewed)
        raise PinLapsedError(pin.epoch, pin.holder)
    # Keep `pin` until the next renewal: a concurrent listing may have passed the position of the new one.
    if pin.renewal:
        delete_pins(objects, msgspec.structs.replace(pin, renewal=pin.renewal - 1))
    return renewed


def pin_stands(objects: ObjectStore, pin: Pin) -> bool:
    """Whether the pin still exists. One HEAD."""
    try:
        objects.head(pin.name)
    except ObjectNotFoundError:
        return False
    return True


def list_pins(objects: ObjectStore, epoch: int | None = None) -> tuple[Pin, ...]:
    """List all pins by epoch, or the pins on one epoch. Raises DamagedDocumentError.

    A concurrently renewed pin is seen: the renewal sorts after its predecessor, which stays until the next renewal.

    Cost: a LIST and one GET per pin. For compaction and vacuum, not for commits.
    """
    pins = []
    for info in objects.list(PINS if epoch is None else pins_on(epoch)):
        try:
            pins.append(decode_document(info.name, objects.get(info.name), Pin))
        except ObjectNotFoundError:
            continue  # deleted since the listing
    return tuple(pins)
