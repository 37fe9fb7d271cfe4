"""The document of a locator: one state of it, written once.

    publish/locators/<table>/<number, 16 hex digits>.json    the document; its number is a hash of its bytes
    publish/locators/<table>/newest.json                     a hint: the number of the newest state
    publish/locators/<table>/data/<hash>.sst                 rows of the three tables of locator.py

A document names the SSTs of its state. It is written before the commit of the table that it describes, and that commit
contains the document's number. So the commit makes rows and locator visible together, and a document that no commit
names has no effect.
"""

import hashlib
from collections.abc import Collection

import msgspec

from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.meta.document import encode_document, read_document
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore

FOLDER = "publish/locators"
_NEWEST = "newest.json"
_MANY_SSTS = 16
_NUMBER_BITS = 63  # numbers fit into the version of a Delta transaction, which is signed


class KeyPart(msgspec.Struct, frozen=True):
    """A column of the key: its type, and its order as in KeyColumn."""

    type: str
    descending: bool = False
    nulls_last: bool = False


class LocatorDocument(msgspec.Struct, frozen=True):
    """One state of a locator.

    Args:
        key: the columns of the table's key, in key order.
        step: how many states came before; the epoch of the state's rows in the SSTs.
        next_file: the number of the next file.
        ssts: newest first.
        files, rows, deleted: of the table: its files, all rows in them, and the deleted ones among these.
        note: the sink's own text, such as the table's version that this state describes.
    """

    key: tuple[KeyPart, ...]
    step: int
    next_file: int
    ssts: tuple[SstInfo, ...]
    files: int = 0
    rows: int = 0
    deleted: int = 0
    note: str = ""

    @property
    def is_worn(self) -> bool:
        """Return whether upkeep should merge the SSTs."""
        return len(self.ssts) > _MANY_SSTS


def folder_of(table: str) -> str:
    """Return the folder of a table's locators, by the table's address."""
    return f"{FOLDER}/{hashlib.sha256(table.encode()).hexdigest()[:32]}"


def key_parts(table: TableSchema) -> tuple[KeyPart, ...]:
    """Return the key of a state table."""
    return tuple(KeyPart(table.columns[key.column].type, key.descending, key.nulls_last) for key in table.key)


def key_columns(parts: tuple[KeyPart, ...]) -> tuple[KeyColumn, ...]:
    """Return the order of the key's columns."""
    return tuple(KeyColumn(place, part.descending, part.nulls_last) for place, part in enumerate(parts))


def write_locator(objects: ObjectStore, folder: str, document: LocatorDocument) -> int:
    """Write a document. Returns its number. One PUT; a repeat changes nothing."""
    data = encode_document(document)
    number = int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> (64 - _NUMBER_BITS)
    objects.put(document_name(folder, number), data)
    return number


def read_locator(objects: ObjectStore, folder: str, number: int) -> LocatorDocument | None:
    """Return a document; None if it does not exist. One GET. Raises DamagedDocumentError."""
    return read_document(objects, document_name(folder, number), LocatorDocument)


class _Newest(msgspec.Struct, frozen=True):
    number: int


def write_newest(objects: ObjectStore, folder: str, number: int) -> None:
    """Record the number of the newest state. A hint: only the table decides. One PUT."""
    objects.put(f"{folder}/{_NEWEST}", encode_document(_Newest(number)))


def read_newest(objects: ObjectStore, folder: str) -> int | None:
    """Return the number that `write_newest` recorded; None if there is none. One GET."""
    newest = read_document(objects, f"{folder}/{_NEWEST}", _Newest)
    return None if newest is None else newest.number


def document_name(folder: str, number: int) -> str:
    """Return the name of a document's object."""
    return f"{folder}/{number:016x}.json"


def remove_unnamed(objects: ObjectStore, folder: str, number: int, before_ms: int) -> int:
    """Remove the objects of a locator that a state does not name. Returns their number.

    Args:
        number: of the state that the table names.
        before_ms: Unix ms; younger objects stay, because a running publish may have written them.

    Cost: one LIST, and one GET.
    """
    document = read_locator(objects, folder, number)
    if document is None:
        return 0
    needed = {f"{folder}/{_NEWEST}", document_name(folder, number), *(sst.name for sst in document.ssts)}
    names = [i.name for i in objects.list(f"{folder}/") if i.name not in needed and 0 < i.modified_ms < before_ms]
    objects.delete(names)
    return len(names)


def remove_unused(objects: ObjectStore, used: Collection[str], before_ms: int) -> int:
    """Remove whole locators. Returns the number of their objects.

    Args:
        used: the folders of the locators that stay (`folder_of`).
        before_ms: Unix ms; locators with a younger object stay.

    Cost: one LIST.
    """
    by_folder: dict[str, list[ObjectInfo]] = {}
    for info in objects.list(f"{FOLDER}/"):
        by_folder.setdefault("/".join(info.name.split("/")[:3]), []).append(info)
    names = [
        info.name
        for folder, infos in by_folder.items()
        if folder not in used and 0 < max(info.modified_ms for info in infos) < before_ms
        for info in infos
    ]
    objects.delete(names)
    return len(names)
