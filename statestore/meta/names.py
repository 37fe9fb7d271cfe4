"""Object names in the bucket. Numbers are padded, so that listings are in numeric order.

meta/store.json                            identity and settings, written once
meta/probe.json                            proof from `init` that the server honours put-if-absent
meta/version/<id>.json                     version deltas; each name is used once
meta/version_pack/<first id>.pack          old deltas, packed by vacuum (packs.py); never deleted
meta/snapshot/<id>.json                    whole versions at intervals; may be deleted, since deltas replace them
meta/root/<id>.json                        large versions, with the names of their pages; may be deleted likewise
meta/page/<id>/<hash>.json                 parts of large versions; <id> is that of the root that first named the page
meta/head.json                             a hint to the newest snapshot; never trusted
meta/barrier/<prev epoch>/<attempt>.json   barriers; the highest attempt is in force
meta/manifest/<epoch>.json                 sealed manifests
meta/log/<position>.json                   the DML and DDL log, dense from 0; each name is used once
meta/log_pack/<first position>.pack        old entries, packed by vacuum; never deleted
meta/client/<hash of client id>.json       the lowest position at which an entry of this client id can be
meta/payload/<hash>                        data that is too large for a log entry
meta/pin/<epoch>/<hash>-<renewal>.json     active readers; the hash is the holder's; renewals sort in order
data/<epoch, 16 hex>/<hash>.sst            SSTs that an epoch flushed
data/task-<id, 16 hex>/<hash>.sst          SSTs that a compaction task merged
sources/<epoch, 16 hex>/<hash>/<name>      copies of source files, made for the epoch after this one
branches/<number>/…                        a branch: objects with all of these names (objectstore/branch.py)

The prefix of packs sorts after the prefix of the objects that they replace: a copy of a store that reads the names in
order contains the pack of an object that was gone when it came to it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore

STORE = "meta/store.json"
PROBE = "meta/probe.json"
HEAD = "meta/head.json"
PINS = "meta/pin/"
PAYLOADS = "meta/payload/"
DATA = "data/"
SOURCES = "sources/"
VERSIONS = "meta/version/"
VERSION_PACKS = "meta/version_pack/"
SNAPSHOTS = "meta/snapshot/"
ROOTS = "meta/root/"
PAGES = "meta/page/"
MANIFESTS = "meta/manifest/"
BARRIERS = "meta/barrier/"
ENTRIES = "meta/log/"
STATEMENT_PACKS = "meta/log_pack/"
CLAIMS = "meta/client/"

_NUMBERED = re.compile(r"meta/[a-z_]+/([0-9]{20})\.json")
_PAGE = re.compile(r"meta/page/([0-9]{20})/([0-9a-f]{32})\.json")
_BARRIER = re.compile(r"meta/barrier/([0-9]{20})/[^/]+")
_COPY = re.compile(r"sources/([0-9a-f]{16})/[^/]+/[^/]+")
_OBJECT = re.compile(r"data/(?P<task>task-)?(?P<number>[0-9a-f]{16})/[^/]+")


def version_name(version_id: int) -> str:
    return f"meta/version/{version_id:020}.json"


def snapshot_name(version_id: int) -> str:
    return f"meta/snapshot/{version_id:020}.json"


def root_name(version_id: int) -> str:
    return f"{ROOTS}{version_id:020}.json"


def page_name(version_id: int, content: str) -> str:
    return f"{PAGES}{version_id:020}/{content}.json"


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """The facts in a page's name."""

    root: int  # the root that first named it
    content: str  # hash of its bytes


def page_origin(name: str) -> PageOrigin | None:
    """The facts in a page's name, or None for other names."""
    match = _PAGE.fullmatch(name)
    return None if match is None else PageOrigin(int(match[1]), match[2])


def barrier_name(prev_epoch: int, attempt: int) -> str:
    return f"meta/barrier/{prev_epoch:020}/{attempt:05}.json"


def epoch_of_barrier(name: str) -> int | None:
    """The previous epoch in a barrier's name, or None for other names."""
    return int(match[1]) if (match := _BARRIER.fullmatch(name)) is not None else None


def manifest_name(epoch: int) -> str:
    return f"meta/manifest/{epoch:020}.json"


def log_name(position: int) -> str:
    return f"meta/log/{position:020}.json"


def client_name(client_id: str) -> str:
    return f"meta/client/{hash_of(client_id.encode())}.json"


def payload_name(data: bytes) -> str:
    return PAYLOADS + hash_of(data)


def pin_name(epoch: int, holder: str, renewal: int) -> str:
    return f"{pins_on(epoch)}{hash_of(holder.encode())}-{renewal:06}.json"


def pins_on(epoch: int) -> str:
    """Prefix of the pins on an epoch."""
    return f"{PINS}{epoch:020}/"


def data_prefix(epoch: int) -> str:
    """Prefix of the SSTs of an epoch."""
    return f"{DATA}{epoch:016x}/"


def task_prefix(task_id: int) -> str:
    """Prefix of the SSTs of a compaction task."""
    return f"{DATA}task-{task_id:016x}/"


def source_copy_name(epoch: int, what: str, leaf: str) -> str:
    """Name of a copy of a source's file.

    `epoch` precedes the epoch that takes the file. `what` identifies the file and its content.
    """
    return f"{SOURCES}{epoch:016x}/{hash_of(what.encode())}/{leaf}"


def epoch_of_copy(name: str) -> int | None:
    """The epoch in a copy's name, or None for other names."""
    match = _COPY.fullmatch(name)
    return None if match is None else int(match[1], 16)


@dataclass(frozen=True, slots=True)
class SstOwner:
    """The epoch or compaction task that alone may commit an object of data/."""

    kind: Literal["epoch", "task"]
    number: int


def origin_of(name: str) -> SstOwner | None:
    """The owner of an object by its name, or None if this release does not know the name."""
    match = _OBJECT.fullmatch(name)
    if match is None:
        return None
    return SstOwner("task" if match["task"] else "epoch", int(match["number"], 16))


def number_in(name: str) -> int | None:
    """The number in the name of a numbered meta object, or None for other names."""
    return int(match[1]) if (match := _NUMBERED.fullmatch(name)) is not None else None


def list_numbered(
    objects: ObjectStore, prefix: str, read_number: Callable[[str], int | None] = number_in
) -> Iterator[tuple[int, ObjectInfo]]:
    """Yield the store's objects below a prefix in the order of their names, each with the number in its name.

    Other files, such as `.DS_Store` or a copy by an editor, are skipped: they hide no object that follows.

    Args:
        read_number: the number in a name, or None for other names.

    Raises: errors of the listing.
    """
    for info in objects.list(prefix):
        if (number := read_number(info.name)) is not None:
            yield number, info


def hash_of(data: bytes) -> str:
    """A collision-resistant hash for names: 32 hex digits."""
    return blake2b(data, digest_size=16).hexdigest()
