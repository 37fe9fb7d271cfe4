"""Iceberg tables as a kind of sink, changed at the cost of the change: old rows are marked as deleted.

    <to>/<relation>/data/…       data files and deleted rows, named by their content (iceberg_writes.py)
    <to>/<relation>/metadata/…   written by pyiceberg
    <to>/catalog.db              the SQL catalog, unless `[publish.catalog]` names another one

A publish makes one snapshot per table. A locator (jobs/locator) finds the file and position of each old row, so no file
of the table is read, and no equality delete is written. The snapshot's summary contains the epoch, its digest, the
store's identity, and the number of the locator's document, so rows and locator become visible together. After all
tables, each gets the tag `tussock-epoch-N` on its snapshot of that epoch.

Other programs may compact a table: a snapshot with the operation `replace`. The key columns of the new files are read,
and the locator follows. A snapshot of another program that changes rows is an error.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyroaring import BitMap64

from tussock.jobs.delta.location import Location, folder_name, location_of
from tussock.jobs.iceberg.catalogs import CatalogAddress
from tussock.jobs.iceberg.deletion_vectors import vector_of
from tussock.jobs.iceberg.iceberg_errors import MissingIcebergTableError
from tussock.jobs.iceberg.iceberg_types import read_columns
from tussock.jobs.iceberg.object_io import properties_in
from tussock.jobs.iceberg.row_delta import FileChanges, KnownTransaction, RewrittenFiles, RowDelta
from tussock.jobs.iceberg.table_files import LakeFile, LakePiece, TableFiles, normal_path_of
from tussock.jobs.iceberg.tags import set_tags
from tussock.jobs.locator.check import MISSING, OTHER_FILES, OTHER_STATE, count_wrong_places, objection_of
from tussock.jobs.locator.document import key_parts, read_locator, remove_unnamed
from tussock.jobs.locator.edit import FileDeletes, LocatorEdit, LostRowError
from tussock.jobs.locator.locator import LocatedFile, Locator
from tussock.jobs.logical.relation_names import outside_name, relation_key
from tussock.jobs.reading.keyed_rows import ChangesWithKeys, RowsWithKeys
from tussock.jobs.settings.publishing import IcebergSettings, PublishSettings
from tussock.jobs.sinks.base import (
    BeatenError,
    Difference,
    ForeignTableError,
    Outline,
    Publisher,
    Sink,
    SinkPlace,
    SinkState,
    WholeRows,
)
from tussock.jobs.sinks.file_parts import rows_of_files
from tussock.jobs.sinks.iceberg_order import change_order, parsed_order, sort_order
from tussock.jobs.sinks.iceberg_outline import (
    PARTITION_BY,
    BadTableLayoutError,
    columns_fit,
    evolve_table,
    parsed_partitions,
    partition_spec,
    partitions_of,
    published_schema,
    set_identifiers,
    written_schema,
)
from tussock.jobs.sinks.iceberg_writes import FileNote, NewFile, TableWriter, note_of
from tussock.jobs.sinks.locators import files_to_rewrite, live_rows, locator_folder, move_files
from tussock.jobs.sinks.manifest import SinkSize, TableState
from tussock.statestore.objectstore.open import as_s3
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_EPOCH = "tussock.epoch"
_DIGEST = "tussock.digest"
_STORE = "tussock.store"
_LOCATOR = "tussock.locator"
_KEY = "tussock.key"
_TAG = "tussock-epoch-"
_EPOCH_TAG = re.compile(rf"{_TAG}(\d+)")  # users may have tags such as tussock-epoch-12-audited
_NO_RETRIES = {"commit.retry.num-retries": "0"}  # see row_delta.py
_MODES = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}
_SETTLED_MS = 3_600_000  # younger files may belong to a running publish


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """See OpenPlace."""
    assert isinstance(settings, IcebergSettings)
    yield IcebergPlace(settings, location_of(settings.to), publisher)


class IcebergPlace(SinkPlace):
    """The tables of a namespace. See SinkPlace."""

    def __init__(self, settings: IcebergSettings, location: Location, publisher: Publisher) -> None:
        self.settings, self.location, self.publisher = settings, location, publisher
        self.address = _catalog_address(settings, location)

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog, with the namespace."""
        if self.location.address is None:
            Path(self.location.root).mkdir(parents=True, exist_ok=True)  # SQLite creates no folder
        catalog = self.address.open_catalog()
        self._create_namespace(catalog, self.settings.namespace)
        return catalog

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace if it does not exist."""
        self._create_namespace(self.catalog, namespace)

    def _create_namespace(self, catalog: "Catalog", namespace: str) -> None:
        with self.address.translating_errors(f"create the namespace {namespace}"):
            if not catalog.namespace_exists(namespace):  # a writer of tables may have no right to create namespaces
                catalog.create_namespace_if_not_exists(namespace)

    def table_name(self, relation: str) -> str:
        """Return the identifier of a relation's table."""
        return ".".join(outside_name(self.settings.namespace, relation))

    def load_table(self, relation: str) -> Table | None:
        """Return the present state of a table; None if it does not exist."""
        name = self.table_name(relation)
        try:
            with self.address.translating_errors(f"load the table {name}", name):
                return self.catalog.load_table(name)
        except MissingIcebergTableError:
            return None

    @contextmanager
    def committing(self, relation: str) -> Iterator[None]:
        """Translate the errors of a commit. Raises BeatenError if another writer committed first."""
        name = self.table_name(relation)
        with self._translating_commit(f"commit to the table {name}", name):
            yield

    @contextmanager
    def _translating_commit(self, action: str, table: str = "") -> Iterator[None]:
        with self.address.translating_errors(action, table):
            try:
                yield
            except (CommitFailedException, TableAlreadyExistsError) as err:
                raise BeatenError from err

    def sink_of(self, outline: Outline) -> "IcebergSink":
        return IcebergSink(self, outline)

    def has_table(self, relation: str, state: TableState) -> bool:
        return self.load_table(relation) is not None

    def finish_epoch(self, epoch: int, tables: Mapping[str, TableState], *, complete: bool) -> None:
        """See SinkPlace. Tags the snapshot of each table, once all tables are at the epoch."""
        if not complete:
            return
        by_snapshot = dict[int, Table]()
        for relation, state in tables.items():
            if (table := self.load_table(relation)) is None:
                raise BeatenError
            by_snapshot[int(state.version)] = table
        with self._translating_commit(f"tag the tables of {self.settings.namespace}"):
            set_tags(self.catalog, f"{_TAG}{epoch}", by_snapshot)


@dataclass(frozen=True, slots=True)
class _Own:
    """The newest snapshot of this program, and those of compactions after it."""

    snapshot: Snapshot
    epoch: int
    moves: tuple[Snapshot, ...]

    def property_of(self, name: str) -> str:
        """Return a property of the snapshot's summary; empty if it has none."""
        return "" if self.snapshot.summary is None else self.snapshot.summary.additional_properties.get(name, "")


class IcebergSink(Sink):
    """A relation's Iceberg table. Not thread-safe."""

    locating = True
    key: tuple[str, ...] = ()  # changes are found by the locator

    def __init__(self, place: IcebergPlace, outline: Outline) -> None:
        published_schema(outline)  # raises UnpublishableColumnError
        assert outline.stored is not None
        self._place, self._outline, self._folder = place, outline, folder_name(outline.name)
        self.place = place.location.table_uri(self._folder)
        self._root = self.place if place.location.address is not None else f"file://{self.place}"
        self._partitions = parsed_partitions(outline, _layout_of(place.settings.partition_by, outline.name))
        self._order = parsed_order(outline, _layout_of(place.settings.sort_by, outline.name))
        self._store = place.publisher.meta.objects
        self._locators, self._key = locator_folder(place.settings.kind, self.place), key_parts(outline.stored)
        places = [key.column for key in outline.stored.key]
        visible = all(place < len(outline.columns) for place in places)
        self._key_names = tuple(outline.columns[place].name for place in places) if visible else None
        self._table: Table | None = None

    # --- state --------------------------------------------------------------------------------------------------------

    def read_state(self) -> SinkState | None:
        table = self._table = self._place.load_table(self._outline.name)
        if table is None:
            return None
        if (owner := table.properties.get(_STORE)) is None:
            raise ForeignTableError(self.place, "contains an Iceberg table that Tussock has not written")
        if owner not in self._outline.stores:
            finding = f"contains a table of another store (identity {owner}, expected {self._outline.store})"
            raise ForeignTableError(self.place, finding)
        if table.location().rstrip("/") != self._root:
            name = self._place.table_name(self._outline.name)
            raise ForeignTableError(self.place, f"is not the folder of the table {name}, which is {table.location()}")
        if (current := table.current_snapshot()) is None:
            return None
        if (own := self._find_own(table)) is None:
            return None
        fits = (
            columns_fit(table, self._outline)
            and _written_ids(table, own.snapshot) == {field.field_id for field in table.schema().fields}
            and partitions_of(table) == self._partitions
            and own.property_of(_KEY) == self._key_text
        )
        return SinkState(own.epoch, str(current.snapshot_id), fits, own.property_of(_DIGEST))

    def _own_snapshot(self, table: Table) -> _Own:
        """Return this program's newest snapshot. Requires: `read_state` returned a state of the table."""
        own = self._find_own(table)
        assert own is not None
        return own

    def _find_own(self, table: Table) -> _Own | None:
        """Return this program's newest snapshot; None if snapshots of others after it have expired.

        Unknown snapshots may have changed rows. Tussock owns the table, so it is written again.

        Raises ForeignTableError if another program changed rows after it.
        """
        moves = list[Snapshot]()
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if _EPOCH in properties:
                return _Own(snapshot, int(properties[_EPOCH]), tuple(moves))
            operation = "" if snapshot.summary is None else snapshot.summary.operation.value
            if operation != "replace":
                finding = (
                    f"was changed in snapshot {snapshot.snapshot_id} ({operation or 'a commit'} by another program)"
                )
                raise ForeignTableError(self.place, finding)
            moves.append(snapshot)
        return None

    @property
    def _key_text(self) -> str:
        return msgspec.json.encode(self._key).decode()

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """See Sink. Returns None: `apply_keyed` changes the table."""
        return None

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. No effect: snapshots are not named after epochs, and tags of lost epochs expire."""

    # --- publish ------------------------------------------------------------------------------------------------------

    def apply_keyed(self, changes: ChangesWithKeys, epoch: int) -> str | None:
        """See LocatingSink. Requires: `read_state` was the last call, and returned a state."""
        table = self._table
        assert table is not None
        try:
            if (locator := self._read_locator(table)) is None:
                return None
            edit = LocatorEdit(locator)
            deletes = edit.remove_rows(changes.removed) if changes.removed.num_rows else ()
        except LostRowError:
            return None
        with self._place.committing(self._outline.name):
            transaction = KnownTransaction(table)
            if _has_nulls(changes.written, self._outline.key) and table.schema().identifier_field_ids:
                set_identifiers(transaction, ())
            change_order(transaction, self._outline.name, self._order)
            writer = self._writer(transaction, table, epoch)
            new = [file for part in rows_of_files([changes.written]) for file in writer.write_rows(part)]
            deleted = list(writer.write_deletes(deletes))
            return self._commit(transaction, edit, new, deleted, epoch)

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Requires: `read_state` was the last call."""
        with self._place.committing(self._outline.name):
            spec = self._partition_spec()
            table = self._table or self._create_table(spec)
            edit = LocatorEdit(Locator.empty(self._store, self._locators, self._key))
            transaction = KnownTransaction(table)
            if not columns_fit(table, self._outline) or partitions_of(table) != self._partitions:
                change_order(transaction, self._outline.name, ())  # a column of it may disappear
                evolve_table(transaction, self._outline, self._partitions)
            change_order(transaction, self._outline.name, self._order)
            writer = self._writer(transaction, table, epoch)
            new, nulls = list[NewFile](), False
            for part in rows_of_files(rows.keyed()):
                nulls |= _has_nulls(part, self._outline.key)
                new += writer.write_rows(part)
            set_identifiers(transaction, () if nulls else self._outline.key)
            transaction.set_properties(self._properties())
            return self._commit(transaction, edit, new, [], epoch, stays=lambda file: False)

    def _partition_spec(self) -> PartitionSpec:
        """Return the spec of a new table. Raises BadTableLayoutError, also for a table that would get another spec."""
        try:
            return partition_spec(published_schema(self._outline), self._partitions)
        except ValueError as err:
            text = _layout_of(self._place.settings.partition_by, self._outline.name)
            raise BadTableLayoutError(PARTITION_BY, self._outline.name, text, f"is not possible: {err}") from err

    def _create_table(self, spec: PartitionSpec) -> Table:
        schema = published_schema(self._outline)
        name = self._place.table_name(self._outline.name)
        self._place.create_namespace(outside_name(self._place.settings.namespace, self._outline.name)[0])
        order = sort_order(self._outline.name, schema, self._order)
        version = {"format-version": str(self._place.settings.format_version)}
        properties = {**version, **_MODES, **self._properties()}
        return self._place.catalog.create_table(name, schema, self._root, spec, order, properties)

    def _properties(self) -> dict[str, str]:
        comment = {"comment": self._outline.comment} if self._outline.comment else {}
        return {_STORE: self._outline.store, **_NO_RETRIES, **comment}

    def _writer(self, transaction: Transaction, table: Table, epoch: int) -> TableWriter:
        snapshot = table.current_snapshot()
        salt = f"{0 if snapshot is None else snapshot.snapshot_id} {epoch}"
        return TableWriter(self._place.location, self._root, self._folder, transaction.table_metadata, salt)

    def _commit(
        self,
        transaction: Transaction,
        edit: LocatorEdit,
        new: Sequence[NewFile],
        deletes: Sequence[DataFile],
        epoch: int,
        *,
        stays: Callable[[DataFile], bool] | None = None,
        moves_only: bool = False,
    ) -> str:
        """Write the locator, and commit the snapshot that names it. Returns the snapshot's id."""
        for file in new:
            edit.add_file(file.file.file_path, file.keys, file.note)
        summary = {
            _EPOCH: str(epoch),
            _DIGEST: self._place.publisher.digest_of(epoch),
            _STORE: self._outline.store,
            _LOCATOR: str(edit.write(compact=moves_only)),
            _KEY: self._key_text,
        }
        changes = FileChanges([*(file.file for file in new), *deletes], summary, stays, moves_only)
        producer = (RowDelta if stays is None else RewrittenFiles)(transaction, changes)
        producer.commit()
        self._table = transaction.commit_transaction()
        return str(producer.snapshot_id)

    # --- the locator --------------------------------------------------------------------------------------------------

    def _read_locator(self, table: Table) -> Locator | None:
        """Return the locator of the table's state; None if the table has to be written again.

        Raises ForeignTableError.
        """
        own = self._own_snapshot(table)
        number = own.property_of(_LOCATOR)
        document = read_locator(self._store, self._locators, int(number)) if number else None
        if document is None or document.key != self._key:
            return self._rebuild_locator(table)
        locator = Locator(self._store, self._locators, document)
        return self._follow_moves(table, locator) if own.moves else locator

    def _follow_moves(self, table: Table, locator: Locator) -> Locator | None:
        """Return the locator after other programs moved rows between files. Reads the key columns of the new files."""
        pieces = {piece.file.path: piece for piece in self._pieces(table)}
        known = {file.path: file for file in locator.read_files()}
        gone = [file for path, file in sorted(known.items()) if path not in pieces]
        come = [piece for path, piece in sorted(pieces.items()) if path not in known]
        if self._key_names is None:
            return None
        return move_files(locator, gone, come, self._locate_file, self.place)

    def _rebuild_locator(self, table: Table) -> Locator | None:
        """Return a locator made from the key columns of all files; None if they do not contain the keys."""
        pieces = self._pieces(table)
        if self._key_names is None:
            return None
        edit = LocatorEdit(Locator.empty(self._store, self._locators, self._key))
        for piece in pieces:
            self._locate_file(edit, piece)
        return edit.write_and_open()

    def _pieces(self, table: Table) -> list[LakePiece]:
        return TableFiles(table, self.place).pieces_of(table.current_snapshot())

    def check_locator(self) -> str | None:
        """See CheckedSink. If the key is hidden, only numbers of rows are compared. Cost: all key columns."""
        table = self._table
        if table is None or table.current_snapshot() is None:
            return None
        if (own := self._find_own(table)) is None:
            return OTHER_STATE
        number = own.property_of(_LOCATOR)
        document = read_locator(self._store, self._locators, int(number)) if number else None
        if document is None:
            return MISSING
        locator: Locator | None = Locator(self._store, self._locators, document)
        if own.moves and locator is not None:
            locator = self._follow_moves(table, locator)
        if locator is None:
            return OTHER_STATE
        files, pieces = locator.read_files(), {piece.file.path: piece for piece in self._pieces(table)}
        known = {file.path for file in files}
        if known - pieces.keys() or any(self._count_live(pieces[path]) for path in pieces.keys() - known):
            return OTHER_FILES  # a file without a live row stays in the table, and has no entry
        return objection_of(sum(self._count_wrong(locator, file, pieces[file.path]) for file in files))

    def _count_wrong(self, locator: Locator, file: LocatedFile, piece: LakePiece) -> int:
        """Return how many rows of a data file have another place in the locator."""
        keys = None if self._key_names is None else self._read_keys(piece)
        return count_wrong_places(locator, file, keys, len(self._dead_positions(piece)))

    def _count_live(self, piece: LakePiece) -> int:
        with self._open_file(piece.file.path) as file:
            return int(pq.ParquetFile(file).metadata.num_rows) - len(self._dead_positions(piece))

    def _read_keys(self, piece: LakePiece) -> pa.Table:
        """Read the keys of a data file's rows. Requires: the key is visible."""
        kinds = [arrow_type(part.type) for part in self._key]
        rows = self._read_columns(piece.file.path, list(zip(self._key_names or (), kinds, strict=True)))
        return rows.rename_columns([f"k{place}" for place in range(rows.num_columns)])

    def _locate_file(self, edit: LocatorEdit, piece: LakePiece) -> int:
        """Add a data file to a locator. Returns its live rows."""
        keys = self._read_keys(piece)
        note = FileNote(piece.file.spec, piece.file.partition, piece.file.size)
        deleted = self._dead_positions(piece)
        edit.add_file(piece.file.path, keys, msgspec.json.encode(note).decode(), deleted)
        return int(keys.num_rows) - len(deleted)

    def _dead_positions(self, piece: LakePiece) -> BitMap64:
        """Return the rows of a data file that delete files exclude. Raises ForeignTableError for equality deletes."""
        dead = BitMap64()
        for delete in piece.weights[0][1]:
            if delete.equality_ids:
                raise ForeignTableError(self.place, f"contains equality deletes of another program ({delete.path})")
            if delete.is_vector:
                dead |= self._read_vectors(delete)
                continue
            rows = self._read_file(delete.path)
            named = rows["pos"].filter(pc.equal(rows["file_path"], piece.file.path))
            dead |= BitMap64(named.to_numpy())
        return dead

    def _read_vectors(self, delete: LakeFile) -> BitMap64:
        with self._open_file(delete.path) as file:
            file.seek(delete.offset)
            return vector_of(file.read(delete.length))

    def _read_file(self, path: str) -> pa.Table:
        """Read a file of the table."""
        with self._open_file(path) as file:
            return pq.ParquetFile(file).read()

    def _read_columns(self, path: str, columns: Iterable[tuple[str, pa.DataType]]) -> pa.Table:
        """Read columns of a data file, by their names in the table and the types to return."""
        assert self._table is not None
        ids = {field.name: field.field_id for field in self._table.schema().fields}
        with self._open_file(path) as file:
            return read_columns(pq.ParquetFile(file), [(ids[name], name, kind) for name, kind in columns])

    def _open_file(self, path: str) -> pa.NativeFile:
        """Open a file of the table. Raises ForeignTableError if it is elsewhere."""
        if not (place := normal_path_of(path)).startswith(f"{self.place}/"):
            raise ForeignTableError(self.place, f"contains the file {path!r}, which is outside of its folder")
        return self._place.location.open_file(f"{self._folder}{place[len(self.place) :]}")

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. Rewrites small files and files with many deleted rows, and moves the locator along."""
        state, table = self.read_state(), self._table
        if state is None or table is None:
            return "no table yet"
        merged, made = self._rewrite_files(table, state.epoch)
        self._expire(now_ms - max(keep_ms, _SETTLED_MS))
        removed = self._remove_unneeded(now_ms - max(keep_ms, _SETTLED_MS), now_ms)
        return f"merged {merged} files into {made}, removed {removed}"

    def _rewrite_files(self, table: Table, epoch: int) -> tuple[int, int]:
        """Rewrite files that cost readers time, and write all deletes that remain into one file per partition."""
        if (locator := self._read_locator(table)) is None:
            return 0, 0
        files = locator.read_files()
        chosen = files_to_rewrite(files, lambda file: note_of(file.note).size)
        # After moves by other programs, a snapshot of Tussock's own lets the earlier ones expire.
        if not chosen and not locator.document.is_worn and not self._own_snapshot(table).moves:
            return 0, 0
        with self._place.committing(self._outline.name):
            edit, transaction = LocatorEdit(locator), KnownTransaction(table)
            keys = locator.keys_of_files(chosen)
            edit.drop_files(chosen)
            writer = self._writer(transaction, table, epoch)
            schema = written_schema(table.schema())  # other programs write other Arrow types of the same columns
            parts = (self._live_rows(file, keys[file.number], schema) for file in chosen)
            written = [file for part in rows_of_files(parts) for file in writer.write_rows(part)]
            new = [replace(file, keys=one_array(file.keys.column(0))) for file in written]
            going = {file.number for file in chosen}
            staying = [file for file in files if file.number not in going]
            deletes = [
                FileDeletes(file, np.array(file.deleted.to_array(), np.int64), file.deleted)
                for file in staying
                if file.deleted
            ]
            paths = {file.path for file in staying}
            stays = lambda file: file.file_path in paths  # noqa: E731
            self._commit(
                transaction, edit, new, list(writer.write_deletes(deletes)), epoch, stays=stays, moves_only=True
            )
        return len(chosen), len(new)

    def _live_rows(self, file: LocatedFile, keys: pa.BinaryArray, schema: pa.Schema) -> RowsWithKeys:
        rows = self._read_columns(file.path, zip(schema.names, schema.types, strict=True)).cast(schema)
        return live_rows(rows, file, keys)

    def _expire(self, before_ms: int) -> None:
        """Remove tags of earlier epochs, and expire snapshots before a moment (Unix ms).

        The snapshots of tags and branches stay, and those from Tussock's newest to the current one.
        """
        table = self._table
        assert table is not None
        snapshots = {s.snapshot_id: s for s in table.metadata.snapshots}
        tags = {name: int(match[1]) for name in table.metadata.refs if (match := _EPOCH_TAG.fullmatch(name))}
        newest = max(tags, key=tags.__getitem__, default="")
        with self._place.committing(self._outline.name):
            manage = table.manage_snapshots()
            old = [
                name
                for name in tags
                if name != newest and snapshots[table.metadata.refs[name].snapshot_id].timestamp_ms < before_ms
            ]
            for name in old:
                manage = manage.remove_tag(name)
            if old:
                manage.commit()
            table.refresh()
            own = self._own_snapshot(table)
            needed = {own.snapshot.snapshot_id, *(move.snapshot_id for move in own.moves)}
            needed |= {ref.snapshot_id for ref in table.metadata.refs.values()}
            outdated = [s.snapshot_id for s in table.metadata.snapshots if s.timestamp_ms < before_ms]
            expired = [number for number in outdated if number not in needed]
            if expired:
                table.maintenance.expire_snapshots().by_ids(expired).commit()
            self._table = table.refresh()

    def _remove_unneeded(self, before_ms: int, now_ms: int) -> int:
        """Remove objects that no snapshot has, and states of the locator. Returns the number of objects."""
        table, objects = self._table, self._place.location.objects
        assert table is not None
        needed = set(map(normal_path_of, _files_of(table)))  # Java writes `file:/a` and `s3a://b/a`
        names = []
        for info in objects.list(f"{self._folder}/"):
            path = f"{self.place}{info.name.removeprefix(self._folder)}"
            if path not in needed and 0 < info.modified_ms < before_ms:
                names.append(info.name)
        objects.delete(names)
        if number := self._own_snapshot(table).property_of(_LOCATOR):
            remove_unnamed(self._store, self._locators, int(number), now_ms - _SETTLED_MS)
        return len(names)

    def measure(self) -> SinkSize:
        snapshot = None if self._table is None else self._table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return SinkSize()
        totals = snapshot.summary.additional_properties
        deleted = int(totals.get("total-position-deletes", 0))
        rows = int(totals.get("total-records", 0)) - deleted
        return SinkSize(rows, int(totals.get("total-data-files", 0)), deleted)

    def read_rows(self) -> pa.RecordBatchReader:
        schema = pa.schema([(c.name, arrow_type(c.type)) for c in self._outline.columns])
        table = self._table = self._place.load_table(self._outline.name)
        pieces = [] if table is None else self._pieces(table)
        return pa.RecordBatchReader.from_batches(schema, self._live_batches(pieces, schema))

    def _live_batches(self, pieces: Sequence[LakePiece], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read the live rows of data files. pyiceberg would read a list that is NULL as an empty one."""
        for piece in pieces:
            rows = self._read_columns(piece.file.path, zip(schema.names, schema.types, strict=True))
            live = np.ones(rows.num_rows, np.bool_)
            live[np.array(self._dead_positions(piece).to_array(), np.int64)] = False
            yield from rows.filter(pa.array(live)).to_batches()


def _catalog_address(settings: IcebergSettings, location: Location) -> CatalogAddress:
    """Return the catalog of the settings; the SQL catalog in the folder of the tables if they name none."""
    properties = dict(settings.catalog)
    name = properties.pop("name", "tussock")
    if not settings.catalog and location.address is None:
        properties = {"type": "sql", "uri": f"sqlite:///{location.root}/catalog.db"}
        properties["warehouse"] = f"file://{location.root}"
    if (bucket := as_s3(location.objects)) is not None:  # for files outside of the location, which pyiceberg reads
        of_bucket = {"s3.endpoint": bucket.address.endpoint, "s3.region": bucket.address.region}
        properties = {**{k: v for k, v in of_bucket.items() if v is not None}, **properties}
    return CatalogAddress(name, {**properties_in(location), **properties})


def _layout_of(layouts: Mapping[str, str], relation: str) -> str:
    """Return the text of a relation in `partition_by` or `sort_by`; empty if there is none."""
    return next((text for name, text in layouts.items() if relation_key(name) == relation), "")


def _written_ids(table: Table, snapshot: Snapshot) -> set[int]:
    """Return the ids of the columns that a snapshot wrote. A column that was dropped and added again has a new one."""
    schema = None if snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    return {field.field_id for field in (table.schema() if schema is None else schema).fields}


def _has_nulls(part: RowsWithKeys, key: tuple[str, ...]) -> bool:
    return any(part.rows[name].null_count for name in key)


def _files_of(table: Table) -> Iterator[str]:
    """Yield every file that a snapshot of a table needs, and its metadata files."""
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    yield from (file.statistics_path for file in (*table.metadata.statistics, *table.metadata.partition_statistics))
    seen = set[str]()
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
