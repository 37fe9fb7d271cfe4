"""Epochs of another store: the pins that keep them, and the rows and changes of its relations.

A version that a pin names keeps its SSTs, so the rows and changes of a pinned epoch never change. A part of an epoch's
input names the version, the relation and some vnodes; actors read it (`read_part`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.settings.home import recorded_home
from tussock.jobs.settings.process import clock_ms, open_meta
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.errors import PinnedReadError
from tussock.jobs.sources.other_store_errors import CannotPinError
from tussock.jobs.sources.parquet import split_size
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import DamagedError, InputError, MustStopError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.version import part_of
from tussock.statestore.meta.catalog import Relation, TableSchema
from tussock.statestore.meta.errors import PinLapsedError
from tussock.statestore.meta.pin import Pin, delete_pins, renew_pin
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import AccessDeniedError, ObjectStore, ObjectStoreFullError
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table.storage_table import StorageTable

_RENEWALS = 20  # a pin is renewed after this part of its time


class PinnedEpochs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The epochs of a relation that an epoch reads: all rows at `last`, or the changes of `after` to `last`.

    Args:
        store: the store's address.
        home: its identity.
        relation: the relation's name.
        id: its id at `last`.
        version: the version to read; 0 in a document of taken input, until `locate_input` finds the pin's version.
        before: the relation's id at `after`. If it differs, the relation was replaced, and all its old and new rows are
            read.
    """

    store: str
    home: str
    relation: str
    id: int
    last: int
    version: int = 0
    nbytes: int = 0
    after: int | None = None
    before: int = 0

    @property
    def place(self) -> str:
        """The relation and the store, for display."""
        return f"{self.relation} of {self.store}"

    @property
    def item(self) -> Item:
        """The one thing that the document pins. It has no mark, so each run tries a failed one again."""
        return Item(f"{self.place} after epoch {self.after or 0}", self.nbytes)


class EpochsPart(msgspec.Struct, frozen=True):
    """The unit of reading for an actor: the rows or changes of some vnodes.

    Args:
        since: None: all rows at `until`, with `weight`; otherwise the changes from `since` to `until`.
        first, end: the vnodes.
    """

    item: str
    store: str
    version: int
    relation: int
    since: int | None
    until: int
    weight: int
    first: int
    end: int


class _Output(msgspec.Struct):
    table_id: int
    key: tuple[int, ...]


class _Definition(msgspec.Struct):
    """The part of a relation's definition that its readers need. Rooms above `sources` define the whole."""

    output: _Output | None = None


class StoredForm(NamedTuple):
    """How a relation's rows are stored: the state table, and the columns of its stream key."""

    table: TableSchema
    key: tuple[int, ...]


def stored_form(relation: Relation) -> StoredForm | None:
    """Return how a relation's rows are stored; None if it stores none."""
    output = decoder_of(_Definition).decode(relation.definition).output
    if output is None:
        return None
    return StoredForm(next(t for t in relation.state_tables if t.table_id == output.table_id), output.key)


# --- pins -------------------------------------------------------------------------------------------------------------


def name_reader(source: str, objects: ObjectStore) -> str:
    """Return the name under which a source pins epochs: its own, and its store with its identity."""
    home = recorded_home(objects)
    return f"source {source} of {objects.uri}" + ("" if home is None else f" ({home.id[:12]})")


def reader_of_pin(pin: Pin) -> str:
    """Return the source that holds a pin, with its store; empty if no source does."""
    reader, _, _ = pin.holder.rpartition(" by ")
    return reader if reader.startswith("source ") else ""


class ReaderPins:
    """The pins of one source in the store that it reads."""

    def __init__(self, meta: MetaStore, reader: str, source: str, lease_ms: int) -> None:
        """Cost: a LIST, and one GET per pin of any reader."""
        self._meta, self._reader, self._source, self._lease_ms = meta, reader, source, lease_ms
        self._pins = [pin for pin in meta.all_pins() if reader_of_pin(pin) == reader]

    @property
    def newest(self) -> Pin | None:
        """The last pin on the newest epoch; None if there is none."""
        return max(self._pins, key=lambda pin: (pin.epoch, pin.expires_ms), default=None)

    def keep_epoch(self, epoch: int) -> Pin:
        """Pin an epoch, or renew its pin. All runs read an epoch on the version of its first pin.

        Raises: CannotPinError; EpochExpiredError, EpochNotCommittedError if no pin keeps the epoch.
        """
        objects, now = self._meta.objects, clock_ms()
        with self._errors():
            for pin in sorted((p for p in self._pins if p.epoch == epoch), key=lambda p: (p.version, -p.renewal)):
                if pin.expires_ms - now > self._lease_ms - self._lease_ms // _RENEWALS:
                    return pin
                try:
                    return renew_pin(objects, pin, now + self._lease_ms)
                except PinLapsedError:
                    continue
            return self._meta.pin_epoch(epoch, self._lease_ms, reader=self._reader)

    def drop_before(self, epoch: int) -> None:
        """Remove the source's pins on earlier epochs. Raises CannotPinError."""
        if old := [pin for pin in self._pins if pin.epoch < epoch]:
            with self._errors():
                delete_pins(self._meta.objects, *old)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except AccessDeniedError as err:
            raise CannotPinError(self._source, self._meta.objects.uri, err.reason) from err
        except ObjectStoreFullError as err:
            raise CannotPinError(self._source, self._meta.objects.uri, "no space is left") from err


# --- rows and changes -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def version_of(store: str, version: int) -> HummockVersion:
    """Return a pinned version of a store. Versions never change, so a process reads each once."""
    return open_meta(store).read_version(version)


def bytes_read(version: HummockVersion, relation: Relation, after: int | None) -> int:
    """Estimate the bytes to read: the SSTs' bytes of the relation, or of those with rows later than `after`."""
    form = stored_form(relation)
    assert form is not None
    ssts = (sst for level in part_of(version, {form.table.table_id}).levels for sst in level)
    return sum(
        section.bytes
        for sst in ssts
        if after is None or sst.max_epoch > after
        for section in sst.sections
        if section.table_id == form.table.table_id
    )


def parts_of(pinned: PinnedEpochs, units: int) -> list[EpochsPart]:
    """Divide pinned epochs by vnodes. The parts of a changed relation are read by few units, as they are small."""
    version = version_of(pinned.store, pinned.version)
    reads: list[tuple[int, int | None, int, int]]  # relation, since, until, weight
    if pinned.after is None:
        reads = [(pinned.id, None, pinned.last, 1)]
    elif pinned.before == pinned.id:
        reads = [(pinned.id, pinned.after, pinned.last, 1)]
    else:
        reads = [(pinned.before, None, pinned.after, -1), (pinned.id, None, pinned.last, 1)]
    parts = list[EpochsPart]()
    for relation, since, until, weight in reads:
        nbytes = bytes_read(version, relation_with(version, relation, pinned.item.name), since)
        target = split_size(nbytes, units)
        ends = np.linspace(0, version.mapping.vnode_count, max(1, ceil(nbytes / target)) + 1).astype(int)
        parts += [
            EpochsPart(
                pinned.item.name, pinned.store, pinned.version, relation, since, until, weight, int(first), int(end)
            )
            for first, end in pairwise(ends)
            if first < end
        ]
    return parts


def read_part(part: EpochsPart, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a part as chunks. Raises PinnedReadError."""
    with read_errors(part.item):
        version = version_of(part.store, part.version)
        relation = relation_with(version, part.relation, part.item)
        form = stored_form(relation)
        assert form is not None
        objects = open_object_store(part.store)
        store = HummockStore(objects, version, process_cache(), pinned=(part.since or part.until, part.until))
        table = StorageTable(form.table, store, part.until, version.mapping.vnode_count)
        names = [column.name.lower() for column in relation.columns]
        places, vnodes = [names.index(name.lower()) for name in columns], range(part.first, part.end)
        if part.since is None:
            for rows in table.scan(places, vnodes):
                yield make_chunk(rows.columns, pa.array(np.full(rows.num_rows, part.weight, np.int64)))
            return
        for changed in table.read_changes(part.since, part.until, places, vnodes):
            yield make_chunk(changed.rows.columns, changed.weights)


def relation_with(version: HummockVersion, relation: int, item: str) -> Relation:
    """Return a relation of a version, dropped ones included. Raises PinnedReadError."""
    for known in version.catalog.relations:
        if known.id == relation:
            return known
    raise PinnedReadError(item, f"the store no longer has relation {relation} in version {version.id}.")


@contextmanager
def read_errors(item: str) -> Iterator[None]:
    """Turn errors of the other store's objects into errors of the pinned item, because a hold names the item.

    Errors that a repeated request may end pass: the boundary then waits for the store.
    """
    try:
        yield
    except PinnedReadError:
        raise
    except (InputError, MustStopError, DamagedError, LookupError) as err:
        raise PinnedReadError(item, f"it cannot be read: {err}") from err
