"""Which state of each table belongs to an epoch: one small object per published epoch, beside the tables.

    <to>/_tussock/<epoch>.json

Tables commit one by one, so two read at the same moment may be of different epochs. Who wants all of one epoch opens each at the version
that its manifest names. A manifest is written when every table is there, once; who publishes the same epoch again finds it. It is written
anew where the same epoch is published again with other relations held back.
"""

from collections.abc import Callable

import msgspec

from tussock.statestore.decoding import decoded
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

FOLDER = "_tussock/"


class TableState(msgspec.Struct, frozen=True):
    """A table at an epoch. `written`: the epoch of the last change of its rows, as text; `version`: the table's own number or file."""

    table: str
    version: str
    written: str


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tables of an epoch, by relation. Epochs are texts: JSON's numbers end at 2^53 in some readers.

    `held`: relations that are held back, each with the epoch as of which its table is. `digest`: of the epoch (MetaStore.epoch_digest);
    empty: an earlier release wrote the manifest.
    """

    epoch: str
    kind: str
    tables: dict[str, TableState]
    held: dict[str, str] = {}
    digest: str = ""

    def holds(self, relation: str) -> int:
        """The epoch whose rows the relation's table has."""
        return int(self.held.get(relation, self.epoch))


def read_manifest(objects: ObjectStore, epoch: int) -> Manifest | None:
    """The manifest of an epoch; None: it was not published there, or not yet. One GET."""
    try:
        return decoded(objects.get(_name(epoch)), Manifest)
    except ObjectNotFoundError:
        return None


def newest_manifest(objects: ObjectStore, since: int, until: int, digest_of: Callable[[int], str]) -> Manifest | None:
    """The manifest of the last epoch from `since` to `until` that has one and is of the store's history: whose digest is the store's own.

    Cost: a LIST of the epochs in between, and one GET; more where the newest are of other histories.
    """
    found = [info.name for info in objects.list(FOLDER, start_after=_name(since - 1)) if info.name <= _name(until)]
    for name in reversed(found):
        manifest = decoded(objects.get(name), Manifest)
        if not manifest.digest:
            return None  # those before it are of earlier releases, too
        if manifest.digest == digest_of(int(manifest.epoch)):
            return manifest
    return None


def write_manifest(objects: ObjectStore, manifest: Manifest, before: Manifest | None = None) -> None:
    """The first one stands: another publisher's of the same epoch names states of the same rows. `before`: one that it takes the place of,
    of which other relations are held back."""
    name, data = _name(int(manifest.epoch)), msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    if before is None:
        objects.put_if_absent(name, data)
    else:
        objects.put(name, data)


def forget_manifests(objects: ObjectStore, before: int) -> int:
    """Remove those of earlier epochs. Returns how many."""
    names = [_name(epoch) for epoch in manifest_epochs(objects) if epoch < max(before, 0)]
    objects.delete(names)
    return len(names)


def drop_manifests(objects: ObjectStore, has: Callable[[int], bool]) -> None:
    """Remove those of epochs that the store does not have. Cost: a LIST, and `has` for each."""
    objects.delete([_name(epoch) for epoch in manifest_epochs(objects) if not has(epoch)])


def manifest_epochs(objects: ObjectStore) -> list[int]:
    """The epochs that have one, ascending. A LIST."""
    found = []
    for info in objects.list(FOLDER):
        stem = info.name.removeprefix(FOLDER).removesuffix(".json")
        if not stem.isdecimal():
            break  # records of epochs (tussock.jobs.sinks.records) come after all numbers
        found.append(int(stem))
    return found


def _name(epoch: int) -> str:
    return f"{FOLDER}{max(epoch, 0):020}.json"
