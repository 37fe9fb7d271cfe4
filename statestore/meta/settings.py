"""A store's identity and settings: written once by `init`, read by everybody, never changed."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.document import encode_document, read_document
from tussock.statestore.meta.errors import (
    AlreadyInitialisedError,
    ConditionalPutIgnoredError,
    NotInitialisedError,
    SettingError,
)
from tussock.statestore.meta.mapping import even_mapping
from tussock.statestore.meta.names import PROBE, STORE
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore

FORMAT = 1  # of everything under meta/ and data/


class StoreSettings(msgspec.Struct, frozen=True):
    """What holds for the whole life of a store."""

    format: int
    vnode_count: int
    units: int  # parallel units of the first mapping
    time_zone: str  # IANA name; the session time zone of all its SQL

    def __str__(self) -> str:
        return f"format {self.format}, {self.vnode_count} vnodes, time zone {self.time_zone}"


def initial_version(settings: StoreSettings) -> HummockVersion:
    """Version 0: no delta, no rows."""
    return HummockVersion(
        id=0,
        epoch=0,
        published=0,
        min_readable_epoch=0,
        log_end=0,
        levels=((),),
        catalog=Catalog(),
        mapping=even_mapping(settings.vnode_count, settings.units),
    )


def create_store(objects: ObjectStore, settings: StoreSettings) -> StoreSettings:
    """Write `settings` where no store is, after proving with two puts that the server honours put-if-absent.

    Killed or refused at any point it leaves a whole store or none, and can be called again.

    Raises:
        SettingError: a setting cannot be taken; nothing was written.
        AlreadyInitialisedError: a store is there, perhaps from a call of ours whose answer was lost.
        ConditionalPutIgnoredError: the server cannot commit safely; all that is left there is the probe.
    """
    even_mapping(settings.vnode_count, settings.units)
    _check_time_zone(settings.time_zone)
    if (found := _readable_settings(objects)) is not None:
        raise AlreadyInitialisedError(objects.uri, found)
    # The probe stays: if it were deleted, another `init` at the same time could see its own second put win.
    objects.put(PROBE, b"first")
    if objects.put_if_absent(PROBE, b"second"):
        raise ConditionalPutIgnoredError(objects.uri)
    # Two calls at once with the same settings write the same bytes and may both succeed: each gets the store it asked for.
    if not objects.put_if_absent(STORE, encode_document(settings)):
        raise AlreadyInitialisedError(objects.uri, _readable_settings(objects) or "written just now")
    return settings


def read_settings(objects: ObjectStore) -> StoreSettings:
    """The settings of the store that is there. One GET. Raises NotInitialisedError, DamagedDocumentError, SettingError."""
    if (settings := read_document(objects, STORE, StoreSettings)) is None:
        raise NotInitialisedError(objects.uri)
    if settings.format != FORMAT:
        raise SettingError(
            f"the format of {objects.uri}", str(settings.format), f"{FORMAT}; use the release of Tussock that wrote it"
        )
    return settings


def _readable_settings(objects: ObjectStore) -> str | None:
    """What is known about the store that is there, for a message; None: there is none."""
    try:
        return str(read_settings(objects))
    except NotInitialisedError:
        return None


def _check_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise SettingError("the time zone", repr(name), "an IANA name such as UTC or Europe/Berlin") from err
