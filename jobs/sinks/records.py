"""The history that the tables of a folder follow: one small object for each epoch that a table there may hold.

    <to>/_tussock/epochs/<epoch>-<digest>-<store>.json

A number does not identify an epoch: a store that is put back from a copy goes on with other epochs, and a table may keep rows of the ones
that the store no longer has. The digest does: it is that of the epoch's sealed manifest (MetaStore.epoch_digest), which names the writer.

The record of an epoch is written before any table holds the epoch, so a table without a record was written by an earlier release. A
publish that brought every table to its epoch removes the records that no table needs any more; until then a record of an epoch that the
store does not have means that a table may hold such rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tussock.statestore.objectstore.base import ObjectStore

FOLDER = "_tussock/epochs/"


@dataclass(frozen=True, slots=True)
class Record:
    """An epoch that tables of the folder may hold."""

    epoch: int
    digest: str
    store: str  # the identity of the store whose epoch it is

    @property
    def name(self) -> str:
        """The object's name. It holds everything, so that one LIST reads all records."""
        return f"{FOLDER}{self.epoch:020}-{self.digest}-{self.store}.json"


def read_records(objects: ObjectStore) -> frozenset[Record]:
    """All of them: about one per table. One LIST."""
    found = set()
    for info in objects.list(FOLDER):
        epoch, _, rest = info.name.removeprefix(FOLDER).removesuffix(".json").partition("-")
        digest, _, store = rest.partition("-")
        if epoch.isdecimal() and digest and store:
            found.add(Record(int(epoch), digest, store))
    return frozenset(found)


def write_record(objects: ObjectStore, record: Record) -> None:
    """One PUT; the same again changes nothing."""
    content = {"epoch": str(record.epoch), "digest": record.digest, "store": record.store}
    objects.put(record.name, msgspec.json.encode(content) + b"\n")


def forget_records(objects: ObjectStore, records: Iterable[Record]) -> None:
    """Remove records that no table needs any more."""
    objects.delete([record.name for record in records])
