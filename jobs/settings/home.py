"""A store's identity, and the place that it belongs to: so that a copy of a store does not pass for the original.

An identity in the store alone would be copied with it. So the store records its place next to the identity. A process that is about to
write outside of the store (published tables, events) compares that record with the place at which it found the store:

    same address               it is this store. Its files may be new ones: it was restored in place
    another address, same mark the same store by another name, or moved as a whole
    neither                    it was moved or copied, and a person has to choose (`tussock store moved`, `tussock store clone`)

The address of a folder is its host and its real path; of a bucket, its endpoint, name and prefix. The mark belongs to
the file `meta/store.json`, which is written once: its inode and time in a folder, the time of its PUT in a bucket. No copy has the same.
"""

import os
import secrets
import shlex
import socket
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tussock.statestore.errors import InputError
from tussock.statestore.meta.document import encode_document, read_document
from tussock.statestore.meta.names import STORE
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

NAME = "publish/home.json"
_BEFORE = "publish/identity.json"  # of earlier releases: an identity without a place

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class StorePlace(NamedTuple):
    """The place of a store."""

    address: str
    mark: str  # empty: the place gives none that a copy would lack


class Home(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store's identity and its place, as recorded in it."""

    id: str
    address: str
    mark: str
    before: tuple[str, ...] = ()  # identities that the store had at earlier places; it inherits their tables

    @property
    def ids(self) -> frozenset[str]:
        """Whose tables the store may write: its own, and those of its earlier identities."""
        return frozenset((self.id, *self.before))

    def is_at(self, place: StorePlace) -> bool:
        """Whether the store at `place` is the one that recorded this."""
        return self.address == place.address or (place.mark != "" and self.mark == place.mark)


class _Identity(msgspec.Struct, frozen=True):
    id: str


class CopiedStoreError(InputError):
    """A store that stands at another place than it records was to write outside of itself."""

    def __init__(self, uri: str, recorded: str, found: str) -> None:
        super().__init__(uri, recorded, found)
        self.uri, self.recorded, self.found = uri, recorded, found

    def __str__(self) -> str:
        store = shlex.quote(self.uri)
        return (
            f"{self.uri} was copied or moved: it records that it belongs at {self.recorded}, and it was opened at {self.found}. "
            "Nothing was written outside of the store, because the store at the recorded place may still write there. If this store takes "
            f"the place of that one, run `tussock store moved --store {store}`. If both are to be used, run "
            f"`tussock store clone --store {store}`, and give the copy's pipeline its own name and its own `[publish] to`."
        )


def home_of(objects: ObjectStore) -> Home:
    """The store's identity, for a process that is about to write outside of the store. Drawn if the store has none yet.

    Raises CopiedStoreError. Cost: a GET, a look at one file (in a bucket a HEAD), and a PUT after the store was created, restored
    or renamed.
    """
    place, known = place_of(objects), recorded_home(objects)
    if known is None:
        objects.put_if_absent(NAME, encode_document(Home(_identity_of_before(objects) or _drawn(), *place)))
        known = recorded_home(objects)
        assert known is not None
    if not known.is_at(place):
        raise CopiedStoreError(objects.uri, known.address, place.address)
    if known.address == place.address:
        is_as_recorded = known.mark == place.mark  # or was restored in place
    else:  # a folder that was renamed: what is copied from here on is of here
        is_as_recorded = not place.address.startswith("file://") or _path(known.address) == _path(place.address)
    if not is_as_recorded:
        objects.put(NAME, encode_document(msgspec.structs.replace(known, address=place.address, mark=place.mark)))
    return known


def recorded_home(objects: ObjectStore) -> Home | None:
    """The record in the store; None if it has none yet. One GET."""
    return read_document(objects, NAME, Home)


def moved_here(objects: ObjectStore) -> Home:
    """Record that the store takes the place of the one that it records. Without effect if it stands there.

    It draws another identity, which inherits the tables of the earlier one. From its first publish on, a store that was left at the
    recorded place is refused there.
    """
    place, known = place_of(objects), recorded_home(objects)
    if known is None or known.is_at(place):
        return home_of(objects)
    return _recorded(objects, Home(_drawn(), *place, before=(*known.before, known.id)))


def cloned_here(objects: ObjectStore) -> Home:
    """Draw another identity that has nothing to do with the recorded one, and record this place."""
    return _recorded(objects, Home(_drawn(), *place_of(objects)))


def place_of(objects: ObjectStore) -> StorePlace:
    """The place of a store. Cost: a look at one file; in a bucket a HEAD."""
    parts = urlsplit(objects.uri)
    if parts.scheme == "file":
        real = os.path.realpath(unquote(parts.path))
        return StorePlace(f"file://{socket.gethostname()}{real}", _mark_of_file(f"{real}/{STORE}"))
    try:
        written = objects.head(STORE).modified_ms
    except ObjectNotFoundError:
        written = 0
    return StorePlace(_address_in_bucket(objects.uri), str(written) if written else "")


def _path(address: str) -> str:
    """Without the host, by whose names a shared folder has several addresses."""
    return address.partition("://")[2].partition("/")[2]


def _mark_of_file(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return ""
    # A tree of hard links (cp -al) is a copy that shares the inode.
    return f"{found.st_ino}-{found.st_mtime_ns}" if found.st_nlink == 1 else ""


def _address_in_bucket(uri: str) -> str:
    """Without what may differ between two addresses of one bucket: region, style, the slash at the end."""
    parts = urlsplit(uri)
    endpoint = dict(parse_qsl(parts.query)).get("endpoint", "").rstrip("/").lower()
    local = f" of {socket.gethostname()}" if urlsplit(endpoint).hostname in _LOOPBACK else ""  # each host has its own
    where = f"{parts.scheme.replace('s3a', 's3')}://{parts.netloc}/{unquote(parts.path).strip('/')}"
    return f"{where} at {endpoint}{local}" if endpoint else where


def _identity_of_before(objects: ObjectStore) -> str:
    known = read_document(objects, _BEFORE, _Identity)
    return "" if known is None else known.id


def _drawn() -> str:
    return secrets.token_hex(16)


def _recorded(objects: ObjectStore, home: Home) -> Home:
    objects.put(NAME, encode_document(home))
    return home
