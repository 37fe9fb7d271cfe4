"""A store's identity and settings: written once by `init` and never changed."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.document import encode_document, read_document
from tussock.statestore.meta.errors import (
    AlreadyInitialisedError,
    BranchGoneError,
    ConditionalPutIgnoredError,
    NotInitialisedError,
    SettingError,
)
from tussock.statestore.meta.mapping import even_mapping
from tussock.statestore.meta.names import PROBE, STORE
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.branch import branch_of

FORMAT = 1  # of all objects under meta/ and data/


class BranchOrigin(msgspec.Struct, frozen=True):
    """The beginning of a branch in its parent."""

    number: int
    name: str
    version: int  # of the parent
    epoch: int  # committed in that version
    follows: bool = False  # takes the parent's epochs, and no input of its own but statements on views


class StoreSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings that are fixed for the life of a store."""

    format: int
    vnode_count: int
    units: int  # number of parallel units in the first mapping
    time_zone: str  # IANA name; the session time zone of all SQL in the store
    origin: BranchOrigin | None = None  # None: not a branch

    def __str__(self) -> str:
        return f"format {self.format}, {self.vnode_count} vnodes, time zone {self.time_zone}"


def initial_version(settings: StoreSettings) -> HummockVersion:
    """Version 0: before any delta, without rows."""
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
    """Create a store with `settings`, after two puts that prove that the server honours put-if-absent.

    An interrupted call leaves a complete store or none, and can be repeated.

    Raises:
        SettingError: a setting is invalid; nothing was written.
        AlreadyInitialisedError: a store exists, perhaps from an earlier call whose answer was lost.
        ConditionalPutIgnoredError: the server cannot commit safely; only the probe object was written.
    """
    even_mapping(settings.vnode_count, settings.units)
    _check_time_zone(settings.time_zone)
    if (settings_there := _readable_settings(objects)) is not None:
        raise AlreadyInitialisedError(objects.uri, settings_there)
    # Keep the probe: if it were deleted, a concurrent `init` could win its second put on a server without conditions.
    objects.put(PROBE, b"first")
    if objects.put_if_absent(PROBE, b"second"):
        raise ConditionalPutIgnoredError(objects.uri)
    # Concurrent calls with equal settings write the same bytes and may both succeed; both get the store they requested.
    if not objects.put_if_absent(STORE, encode_document(settings)):
        raise AlreadyInitialisedError(objects.uri, _readable_settings(objects) or "written just now")
    return settings


def read_settings(objects: ObjectStore) -> StoreSettings:
    """Read the settings of an existing store.

    One GET. Raises NotInitialisedError, DamagedDocumentError, SettingError; BranchGoneError for an ended branch.
    """
    if (settings := read_document(objects, STORE, StoreSettings)) is None:
        if (branch := branch_of(objects)) is not None:
            raise BranchGoneError(branch.name)
        raise NotInitialisedError(objects.uri)
    if settings.format != FORMAT:
        raise SettingError(
            f"the format of {objects.uri}", str(settings.format), f"{FORMAT}; use the release of Tussock that wrote it"
        )
    return settings


def _readable_settings(objects: ObjectStore) -> str | None:
    """Describe an existing store for a message, or return None if no store exists."""
    try:
        return str(read_settings(objects))
    except NotInitialisedError:
        return None


def _check_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise SettingError("the time zone", repr(name), "an IANA name such as UTC or Europe/Berlin") from err
