"""The objects of a branch: its own ones below a prefix of the parent store, and the parent's objects to read.

    branches/<number>/<name>     an object of the branch, in the parent's bucket or folder
    <name>                       the parent's object, if the branch has none and the name is lent

A branch begins as a version of its parent (meta/branch.py), so it reads the objects that this version names: SSTs,
pages, copies of source files, payloads. They keep their names. The name decides which store has an object:

    of an epoch up to the branch's first one, or of a compaction task of the parent     the parent
    of a compaction task of the branch                                                  the branch
    of a later epoch, a page or a payload: the branch if it has the object, else the parent. Such names end in a hash
        of the bytes, so an object of equal name is the same in both
    everything else, such as versions and log entries                                   the branch

This class never writes to the parent, lists it or deletes there. So no code of a branch can change the parent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tussock.statestore.objectstore.base import BadStoreError, ObjectInfo, ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.requests import CountsRequests

BRANCHES = "branches/"
SCHEME = "branch:"
TASKS_PER_BRANCH = 1 << 40
"""The compaction tasks of branch n have the numbers from n times this, and the parent's lower ones."""

T = TypeVar("T")


class BranchMark(msgspec.Struct, frozen=True):
    """The facts that find the objects of a branch."""

    name: str  # letters, digits, dots, underscores and hyphens
    number: int  # unique in the life of the parent, from 1
    epoch: int  # the parent's committed epoch in the branch's first version
    log_start: int  # the first statement of the branch's own log

    def uri_in(self, parent: str) -> str:
        """The URI of the branch in the store at the URI `parent`."""
        return f"{SCHEME}{self.name},{self.number},{self.epoch},{self.log_start}:{parent}"


def branch_prefix(number: int) -> str:
    """The prefix of a branch's own objects in its parent."""
    return f"{BRANCHES}{number:010}/"


def number_of_branch(name: str) -> int | None:
    """The number of the branch that owns an object of the parent's bucket; None for other names."""
    if not name.startswith(BRANCHES):
        return None
    number = name[len(BRANCHES) :].partition("/")[0]
    return int(number) if number.isdecimal() else None


def split_branch_uri(uri: str) -> tuple[BranchMark, str]:
    """The mark in a branch's URI, and the parent's URI. Raises BadStoreError."""
    fields, _, parent = uri.removeprefix(SCHEME).partition(":")
    parts = fields.split(",")
    if len(parts) != 4 or not parent or not all(part.isdecimal() for part in parts[1:]):
        raise BadStoreError(uri, "expected the address of a branch that a command printed, or --branch NAME")
    return BranchMark(parts[0], *map(int, parts[1:])), parent


class BranchObjects:
    """The objects of a branch, as one store. Safe for threads if its parent is."""

    def __init__(self, parent: ObjectStore, mark: BranchMark) -> None:
        self.parent, self.mark = parent, mark
        self.own = store_below(parent, branch_prefix(mark.number))
        self.uri = mark.uri_in(parent.uri)
        if isinstance(parent, CountsRequests):
            self.requests = parent.requests

    def __reduce__(self) -> tuple[type["BranchObjects"], tuple[ObjectStore, BranchMark]]:
        return BranchObjects, (self.parent, self.mark)

    def get(self, name: str) -> bytes:
        return self._read(name, lambda store: store.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._read(name, lambda store: store.get_ranges(name, ranges))

    def head(self, name: str) -> ObjectInfo:
        return self._read(name, lambda store: store.head(name))

    def put(self, name: str, data: bytes) -> None:
        self.own.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.own.put_if_absent(name, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """List the branch's own objects, which are the only ones that it may remove."""
        return self.own.list(prefix, start_after)

    def delete(self, names: Iterable[str]) -> None:
        self.own.delete(names)

    def _read(self, name: str, read: Callable[[ObjectStore], T]) -> T:
        first, *others = self._stores_with(name)
        for other in others:
            try:
                return read(first)
            except ObjectNotFoundError:
                first = other
        return read(first)

    def _stores_with(self, name: str) -> tuple[ObjectStore, ...]:
        """The stores that may have an object, in the order to ask."""
        folder, _, rest = name.partition("/")
        owner = rest.partition("/")[0]
        mark = self.mark
        match folder:
            case "data" if owner.startswith("task-"):
                is_parents = owner < f"task-{mark.number * TASKS_PER_BRANCH:016x}"
                return (self.parent,) if is_parents else (self.own,)
            case "data":
                return (self.parent,) if owner <= f"{mark.epoch:016x}" else (self.own, self.parent)
            case "sources":
                return (self.parent,) if owner < f"{mark.epoch:016x}" else (self.own, self.parent)
            case "meta" if owner in ("page", "payload"):
                return self.own, self.parent
            case "meta" if owner == "manifest":
                return (self.parent,) if rest <= f"manifest/{mark.epoch:020}.json" else (self.own,)
            case "meta" if owner == "barrier":
                return (self.parent,) if rest < f"barrier/{mark.epoch:020}/" else (self.own,)
        return (self.own,)


class StoreBelow:
    """The objects of a store below a prefix, as a store; for stores that cannot open a prefix themselves."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self.uri = f"{store.uri}#{prefix}"

    def get(self, name: str) -> bytes:
        return self._store.get(self._prefix + name)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._store.get_ranges(self._prefix + name, ranges)

    def head(self, name: str) -> ObjectInfo:
        return self._without_prefix(self._store.head(self._prefix + name))

    def put(self, name: str, data: bytes) -> None:
        self._store.put(self._prefix + name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._store.put_if_absent(self._prefix + name, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        listed = self._store.list(self._prefix + prefix, self._prefix + start_after if start_after else "")
        return map(self._without_prefix, listed)

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(self._prefix + name for name in names)

    def _without_prefix(self, info: ObjectInfo) -> ObjectInfo:
        return msgspec.structs.replace(info, name=info.name.removeprefix(self._prefix))


def store_below(store: ObjectStore, prefix: str) -> ObjectStore:
    """The objects of a store below a prefix, as a store that counts its requests with `store`."""
    if isinstance(store, LocalObjectStore):
        below = LocalObjectStore(Path(store.root, prefix))
        below.requests = store.requests
        return below
    return StoreBelow(store, prefix)


def branch_of(objects: ObjectStore) -> BranchMark | None:
    """The mark of a branch; None for any other store."""
    return objects.mark if isinstance(objects, BranchObjects) else None


def first_statement_of(objects: ObjectStore) -> int:
    """The first position of the statement log: 0, or in a branch the end of the parent's log."""
    return objects.mark.log_start if isinstance(objects, BranchObjects) else 0
