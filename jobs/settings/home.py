"""A store's identity and place. They prevent a copy of a store from passing as the original.

A copy of a store contains the original's identity. The store therefore records its place next to the identity. Before
a process writes outside of the store (published tables, events), it compares the record with the place of the store:

    same address                  it is this store. Its files may be new if it was restored in place
    another address, same mark    it is this store under another name, or moved as a whole
    neither                       it was moved or copied. `tussock store moved` or `tussock store clone` decides

The address of a folder is its host and its real path. The address of a bucket is its endpoint, name and prefix. The
mark identifies the file `meta/store.json`, which is written once: by inode and time in a folder, and by the time of its
PUT in a bucket. A copy always has another mark.
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
from tussock.statestore.objectstore.branch import branch_of

NAME = "publish/home.json"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class StorePlace(NamedTuple):
    """The place of a store."""

    address: str
    mark: str  # empty if the place has no mark that distinguishes a copy


class Home(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store's identity and place, as recorded in the store."""

    id: str
    address: str
    mark: str
    before: tuple[str, ...] = ()  # identities of the store at earlier places; it may write their tables

    @property
    def ids(self) -> frozenset[str]:
        """The identities whose tables the store may write: its own and its earlier ones."""
        return frozenset((self.id, *self.before))

    def is_at(self, place: StorePlace) -> bool:
        """Return whether the store at `place` wrote this record."""
        return self.address == place.address or (place.mark != "" and self.mark == place.mark)


class CopiedStoreError(InputError, hides_row_values=True):
    """A store that is not at its recorded place tried to write outside of itself."""

    uri: str
    recorded: str
    place: str

    def __str__(self) -> str:
        store = shlex.quote(self.uri)
        return (
            f"{self.uri} was copied or moved: it records that it belongs at {self.recorded}, and it was opened at "
            f"{self.place}. Nothing was written outside of the store, because the store at the recorded place may "
            f"still write there. If this store replaces that one, run `tussock store moved --store {store}`. If both "
            f"stay in use, run `tussock store clone --store {store}`, and give the copy's pipeline its own name and "
            "its own `[publish] to`."
        )


class BranchWritesOutsideError(InputError, hides_row_values=True):
    """A branch tried to write outside of itself."""

    branch: str

    def __str__(self) -> str:
        return (
            f"branch {self.branch!r} writes nothing outside of itself, because its tables and events would replace "
            f"those of its parent. Nothing was written. Run `tussock branch merge {self.branch}`: the parent then "
            "publishes the rows."
        )


def home_of(objects: ObjectStore) -> Home:
    """Return the store's identity before a write outside of the store. Create it if the store has none.

    Raises CopiedStoreError, BranchWritesOutsideError.

    Cost: a GET and a stat of one file (a HEAD in a bucket), and a PUT after the store was created, restored or renamed.
    """
    if (branch := branch_of(objects)) is not None:
        raise BranchWritesOutsideError(branch.name)
    place, known = place_of(objects), recorded_home(objects)
    if known is None:
        objects.put_if_absent(NAME, encode_document(Home(_draw_identity(), *place)))
        known = recorded_home(objects)
        assert known is not None
    if not known.is_at(place):
        raise CopiedStoreError(objects.uri, known.address, place.address)
    if known.address == place.address:
        is_as_recorded = known.mark == place.mark  # different if the store was restored in place
    else:  # a renamed folder: record the new address, so that later copies are recognized
        is_as_recorded = not place.address.startswith("file://") or _path_without_host(
            known.address
        ) == _path_without_host(place.address)
    if not is_as_recorded:
        objects.put(NAME, encode_document(msgspec.structs.replace(known, address=place.address, mark=place.mark)))
    return known


def recorded_home(objects: ObjectStore) -> Home | None:
    """Return the record in the store, or None if it has none yet. Cost: one GET."""
    return read_document(objects, NAME, Home)


def moved_here(objects: ObjectStore) -> Home:
    """Record that this store replaces the store at the recorded place. No effect if it is at that place.

    The store gets a new identity, which inherits the tables of the old one. After its first publish, a store at the
    earlier place can no longer publish to these tables.
    """
    place, known = place_of(objects), recorded_home(objects)
    if known is None or known.is_at(place):
        return home_of(objects)
    return _record_home(objects, Home(_draw_identity(), *place, before=(*known.before, known.id)))


def cloned_here(objects: ObjectStore) -> Home:
    """Record this place and a new identity that is unrelated to the old one."""
    return _record_home(objects, Home(_draw_identity(), *place_of(objects)))


def place_of(objects: ObjectStore) -> StorePlace:
    """Return the place of a store. Cost: a stat of one file; a HEAD in a bucket."""
    if (real := folder_of(objects)) is not None:
        return StorePlace(f"file://{socket.gethostname()}{real}", _mark_of_file(f"{real}/{STORE}"))
    try:
        written = objects.head(STORE).modified_ms
    except ObjectNotFoundError:
        written = 0
    return StorePlace(_address_in_bucket(objects.uri), str(written) if written else "")


def folder_of(objects: ObjectStore) -> str | None:
    """Return the real path of a store in a folder; None for one in a bucket."""
    parts = urlsplit(objects.uri)
    return os.path.realpath(unquote(parts.path)) if parts.scheme == "file" else None


def _path_without_host(address: str) -> str:
    """Return the path without the host: a shared folder has another address on each host."""
    return address.partition("://")[2].partition("/")[2]


def _mark_of_file(path: str) -> str:
    try:
        stat = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return ""
    # A tree of hard links (cp -al) is a copy with the same inode.
    return f"{stat.st_ino}-{stat.st_mtime_ns}" if stat.st_nlink == 1 else ""


def _address_in_bucket(uri: str) -> str:
    """Return the address without parts that may differ for the same bucket: region, style, trailing slash."""
    parts = urlsplit(uri)
    endpoint = dict(parse_qsl(parts.query)).get("endpoint", "").rstrip("/").lower()
    local = f" of {socket.gethostname()}" if urlsplit(endpoint).hostname in _LOOPBACK else ""  # differs per host
    where = f"{parts.scheme.replace('s3a', 's3')}://{parts.netloc}/{unquote(parts.path).strip('/')}"
    return f"{where} at {endpoint}{local}" if endpoint else where


def _draw_identity() -> str:
    return secrets.token_hex(16)


def _record_home(objects: ObjectStore, home: Home) -> Home:
    objects.put(NAME, encode_document(home))
    return home
