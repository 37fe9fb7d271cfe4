"""The manifests of a published epoch: small objects that list the version of each table at that epoch.

    _tussock/<epoch>.json              in the ledger of a sink: its tables
    _tussock/upkeep.json               in the ledger of a sink: the last upkeep of its tables
    publish/epochs/<epoch>.json        in the store: the tables of every sink

Tables commit one by one, so two tables read at the same moment may be at different epochs. To read all tables as of one
epoch, open each at the version in that epoch's manifest. The manifest of a sink is written once, after every table is
at its epoch; a repeated publish of the epoch finds it. It is only written again if the epoch is published again with
other relations held back. The store's manifest is written after the last sink's, so it exists only for epochs that
every sink has.
"""

from collections.abc import Callable, Mapping

import msgspec

from tussock.statestore.decoding import decode_json
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

FOLDER = "_tussock/"
EPOCHS = "publish/epochs/"  # in the store
_UPKEEP = f"{FOLDER}upkeep.json"


class SinkSize(msgspec.Struct, frozen=True, omit_defaults=True):
    """The size of a table. None: its kind has no such number, or does not know it without reading rows.

    Args:
        rows: its rows, without the deleted ones.
        deleted: rows that its files still contain and that readers skip.
    """

    rows: int | None = None
    files: int | None = None
    deleted: int | None = None

    @property
    def deleted_share(self) -> float | None:
        """Return the share of deleted rows among the rows in the files; None if unknown."""
        if self.rows is None or self.deleted is None:
            return None
        return self.deleted / max(1, self.rows + self.deleted)


class TableState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table at an epoch.

    Args:
        version: the table's own number or file.
        written: the epoch in which its rows last changed, as text.
        size: its size when the epoch was published.
    """

    table: str
    version: str
    written: str
    size: SinkSize = SinkSize()


class PublishManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tables of an epoch, by relation. Epochs are texts, because some readers limit JSON numbers to 2^53.

    Args:
        held: held-back relations, each with the epoch of its table.
        digest: of the epoch (MetaStore.epoch_digest); empty: not recorded.
    """

    epoch: str
    kind: str
    tables: dict[str, TableState]
    held: dict[str, str] = {}
    digest: str = ""

    def holds(self, relation: str) -> int:
        """Return the epoch of the rows in a relation's table."""
        return int(self.held.get(relation, self.epoch))


class SinkManifest(msgspec.Struct, frozen=True):
    """The tables of one sink at an epoch, by relation."""

    kind: str
    tables: dict[str, TableState]


class EpochManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tables of every sink at an epoch. `sinks`: by the name of the sink. Otherwise as PublishManifest."""

    epoch: str
    sinks: dict[str, SinkManifest]
    held: dict[str, str] = {}
    digest: str = ""


class TableUpkeep(msgspec.Struct, frozen=True):
    """The last upkeep of a table: when, and the state that it left. Otherwise as TableState."""

    at_ms: int
    version: str
    written: str
    size: SinkSize


def read_manifest(objects: ObjectStore, epoch: int) -> PublishManifest | None:
    """Return the manifest of an epoch; None if the epoch was not published to this folder, or not completely.

    One GET.
    """
    try:
        return decode_json(objects.get(_manifest_name(epoch)), PublishManifest)
    except ObjectNotFoundError:
        return None


def newest_manifest(
    objects: ObjectStore, since: int, until: int, digest_of: Callable[[int], str]
) -> PublishManifest | None:
    """Return the last manifest from `since` to `until` in the store's history: its digest is the store's own.

    Cost: one LIST of the epochs in the range, and one GET; more if the newest ones belong to other histories.
    """
    names = [
        info.name
        for info in objects.list(FOLDER, start_after=_manifest_name(since - 1))
        if info.name <= _manifest_name(until)
    ]
    for name in reversed(names):
        manifest = decode_json(objects.get(name), PublishManifest)
        if not manifest.digest:
            return None  # older manifests have no digest either
        if manifest.digest == digest_of(int(manifest.epoch)):
            return manifest
    return None


def write_manifest(objects: ObjectStore, manifest: PublishManifest, before: PublishManifest | None) -> None:
    """Write a manifest, unless another publisher has: its manifest of the same epoch lists states of the same rows.

    Args:
        before: a manifest to replace, because other relations are held back now.
    """
    name = _manifest_name(int(manifest.epoch))
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    if before is None:
        objects.put_if_absent(name, data)
    else:
        objects.put(name, data)


def forget_manifests(objects: ObjectStore, before: int) -> int:
    """Remove the manifests of epochs before `before`. Returns their number."""
    names = [_manifest_name(epoch) for epoch in manifest_epochs(objects) if epoch < max(before, 0)]
    objects.delete(names)
    return len(names)


def drop_manifests(objects: ObjectStore, has: Callable[[int], bool]) -> None:
    """Remove the manifests of epochs that the store does not have. Cost: one LIST, and one call of `has` for each."""
    objects.delete([_manifest_name(epoch) for epoch in manifest_epochs(objects) if not has(epoch)])


def manifest_epochs(objects: ObjectStore) -> list[int]:
    """Return the epochs that have a manifest, ascending. One LIST."""
    epochs = []
    for info in objects.list(FOLDER):
        stem = info.name.removeprefix(FOLDER).removesuffix(".json")
        if not stem.isdecimal():
            break  # records of epochs (tussock.jobs.sinks.records) sort after all numbers
        epochs.append(int(stem))
    return epochs


def read_upkeep(objects: ObjectStore) -> dict[str, TableUpkeep]:
    """Return the last upkeep of each table of a sink, by relation. One GET."""
    try:
        return decode_json(objects.get(_UPKEEP), dict[str, TableUpkeep])
    except ObjectNotFoundError:
        return {}


def write_upkeep(objects: ObjectStore, upkeep: dict[str, TableUpkeep]) -> None:
    """Replace the record of the last upkeep."""
    objects.put(_UPKEEP, msgspec.json.encode(upkeep))


def read_epoch_manifest(store: ObjectStore, epoch: int) -> EpochManifest | None:
    """Return the manifest of every sink; None if some sink does not have the epoch. One GET."""
    try:
        return decode_json(store.get(_epoch_name(epoch)), EpochManifest)
    except ObjectNotFoundError:
        return None


def write_epoch_manifest(store: ObjectStore, epoch: int, parts: Mapping[str, PublishManifest]) -> None:
    """Write the manifest of every sink, unless the store has it. `parts`: the manifest of each sink.

    Publishers that end at the same time write the same bytes.
    """
    some = next(iter(parts.values()))
    sinks = {name: SinkManifest(part.kind, part.tables) for name, part in parts.items()}
    manifest = EpochManifest(str(epoch), sinks, some.held, some.digest)
    if read_epoch_manifest(store, epoch) != manifest:
        store.put(_epoch_name(epoch), msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def forget_epoch_manifests(store: ObjectStore, before: int) -> None:
    """Remove the store's manifests of epochs before `before`."""
    names = [info.name for info in store.list(EPOCHS) if info.name < _epoch_name(before)]
    store.delete(names)


def _epoch_name(epoch: int) -> str:
    return f"{EPOCHS}{max(epoch, 0):020}.json"


def _manifest_name(epoch: int) -> str:
    return f"{FOLDER}{max(epoch, 0):020}.json"
