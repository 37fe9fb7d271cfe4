"""Packs the old objects of the logs, for vacuum. packs.py defines packs, and why readers and writers notice them."""

import logging
from collections.abc import Callable, Iterator

from tussock.statestore.errors import DamagedError
from tussock.statestore.meta import packs
from tussock.statestore.meta.delta import EpochCommitted, VersionDelta
from tussock.statestore.meta.document import decode_document
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.names import list_numbered
from tussock.statestore.meta.packs import Pack, PackedLog, encode_pack, statement_packs, version_packs
from tussock.statestore.meta.statement_log import LogEntry
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore

log = logging.getLogger(__name__)

# The newest documents of a log stay objects, so that a process which looks at the store now and then finds them there.
UNPACKED = 1024

#: Decodes a document, given its name and bytes. Returns its mark, if it has one. Raises DamagedDocumentError.
Marks = Callable[[str, bytes], int | None]


def pack_logs(objects: ObjectStore, version: HummockVersion, *, dry_run: bool) -> Iterator[tuple[ObjectInfo, str]]:
    """Pack old versions and statements, and yield the objects that are packed, which may be removed, with a reason.

    Args:
        version: the newest version, or an earlier one.
        dry_run: write nothing, and yield the objects that would be packed.

    Cost: a LIST of the objects, and a GET for each that is packed now, or for the pack of objects that a killed vacuum
    left. Raises errors of the object store. Damage ends it with a warning; scrub reports it.
    """
    for packed_log, until, marks, what in (
        (version_packs(objects), version.id + 1, _epoch_of, "version"),
        (statement_packs(objects), version.log_end, _no_mark, "statement"),
    ):
        try:
            end = _pack_blocks(packed_log, until - UNPACKED, marks, dry_run=dry_run)
            yield from _find_leftovers(packed_log, end, what, dry_run=dry_run)
        except DamagedError as err:
            log.warning("old objects below %s are not packed, because %s", packed_log.singles, err)


def packed_epoch(objects: ObjectStore) -> int | None:
    """The last epoch up to which the deltas of all epochs are packed; None without a pack. Some HEADs, and one GET."""
    packed_log = version_packs(objects)
    end = packed_log.find_end()
    return packed_log.mark_of(end - packs.PACK_SIZE) if end > packed_log.origin else None


def _epoch_of(name: str, data: bytes) -> int | None:
    change = decode_document(name, data, VersionDelta).change
    return change.epoch if isinstance(change, EpochCommitted) else None


def _no_mark(name: str, data: bytes) -> None:
    decode_document(name, data, LogEntry)


def _pack_blocks(packed_log: PackedLog, until: int, marks: Marks, *, dry_run: bool) -> int:
    """Pack all whole blocks below `until`. Returns the first number that is not packed."""
    first = packed_log.find_end()
    while first + packs.PACK_SIZE <= until:
        if not dry_run:
            _write_pack(packed_log, first, marks)
        first += packs.PACK_SIZE
    return first


def _write_pack(packed_log: PackedLog, first: int, marks: Marks) -> None:
    """Write one pack. Another vacuum may have written it, and removed the objects, meanwhile."""
    name = packed_log.pack_name(first)
    documents = tuple(data for _, data in packed_log.read_documents(first, first + packs.PACK_SIZE))
    mark = packed_log.mark_of(first - packs.PACK_SIZE) if first > packed_log.origin else 0
    for number, data in enumerate(documents, first):
        if (epoch := marks(packed_log.name_of_single(number), data)) is not None:
            mark = epoch
    packed_log.objects.put_if_absent(name, encode_pack(Pack(first, mark, documents)))


def _find_leftovers(packed_log: PackedLog, end: int, what: str, *, dry_run: bool) -> Iterator[tuple[ObjectInfo, str]]:
    """The objects with numbers below `end`, whose packs exist and are whole."""
    checked = None
    for number, one in list_numbered(packed_log.objects, packed_log.singles):
        if number >= end:
            return
        first = packed_log.first_of(number)
        if first != checked and not dry_run and packed_log.read_pack(number) is None:
            raise DamagedDocumentError(packed_log.pack_name(number), "it is missing, but later packs exist")
        checked = first
        yield one, f"{what} {number}, packed with {packs.PACK_SIZE - 1} others"
