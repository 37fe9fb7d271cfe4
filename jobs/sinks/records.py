"""Records: the history that a folder's tables follow, as one small object per epoch that a table may contain.

    <to>/_tussock/epochs/<epoch>-<digest>-<store>.json

A number does not identify an epoch: a store that is restored from a copy continues with other epochs, and a table may
contain rows of epochs that the store no longer has. The digest identifies it: it is the digest of the epoch's sealed
manifest (MetaStore.epoch_digest), which names the writer.

An epoch's record is written before any table contains the epoch, so a table without a record was written by an earlier
release. A publish that brings every table to its epoch removes the records that no table needs any more. Until then, a
record of an epoch that the store lacks means that a table may contain such rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tussock.statestore.objectstore.base import ObjectStore

FOLDER = "_tussock/epochs/"


@dataclass(frozen=True, slots=True)
class Record:
    """An epoch that tables of the folder may contain."""

    epoch: int
    digest: str
    store: str  # the identity of the epoch's store

    @property
    def name(self) -> str:
        """The object's name. It contains all fields, so that one LIST reads all records."""
        return f"{FOLDER}{self.epoch:020}-{self.digest}-{self.store}.json"


def read_records(objects: ObjectStore) -> frozenset[Record]:
    """Return all records, about one per table. One LIST."""
    records = set()
    for info in objects.list(FOLDER):
        epoch, _, rest = info.name.removeprefix(FOLDER).removesuffix(".json").partition("-")
        digest, _, store = rest.partition("-")
        if epoch.isdecimal() and digest and store:
            records.add(Record(int(epoch), digest, store))
    return frozenset(records)


def write_record(objects: ObjectStore, record: Record) -> None:
    """Write a record. One PUT; a repeat changes nothing."""
    content = {"epoch": str(record.epoch), "digest": record.digest, "store": record.store}
    objects.put(record.name, msgspec.json.encode(content) + b"\n")


def forget_records(objects: ObjectStore, records: Iterable[Record]) -> None:
    """Remove records that no table needs any more."""
    objects.delete([record.name for record in records])
