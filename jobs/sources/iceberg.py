"""Iceberg tables as sources: first the rows of one snapshot, then the differences to later snapshots.

A barrier pins two snapshots (PinnedSnapshots): the last one that was taken, and the one that the epoch takes. Snapshots
never change, so their ids, the table's uuid and the field ids of the columns are all that a barrier stores.
`jobs/iceberg/table_files.py` finds the files by which they differ; `iceberg_files.py` reads their rows, with weights.

The declared columns are bound to field ids when the first snapshot is pinned. From then on, a column that the table
renames keeps its declared name, and a new column with an old name is another column.

A row is identified by the columns of the option `key`. Without the option, all its values identify it, and equal rows
are counted (RowDigest, NumberCopies).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pyarrow as pa

from tussock.jobs.delta.named_files import require_inside
from tussock.jobs.iceberg.catalogs import CatalogAddress
from tussock.jobs.iceberg.iceberg_types import struct_fields_of, texts_of_uuids, type_text
from tussock.jobs.iceberg.table_files import LakePiece, TableFiles, azure_account_of, normal_path_of
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ByPosition, EngineReader, Identity, Item, OptionEffect, PinRequest, Pins
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadTableKeyError,
    CannotRestateError,
    CredentialInOptionError,
    MissingOptionError,
    PinnedReadError,
    TableColumnsChangedError,
    TableReplacedError,
    UnskippableItemError,
    anew_with_present_columns,
    require_options,
)
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.iceberg_errors import IcebergHistoryGoneError, IcebergRolledBackError, MissingBranchError
from tussock.jobs.sources.iceberg_files import (
    FOLDERS,
    IcebergEngine,
    PinnedSnapshots,
    folders_of,
    item_of_snapshots,
    missing_files,
    reading_options,
    snapshots_of,
)
from tussock.jobs.sources.iceberg_taken import TAKEN_SNAPSHOTS, BoundColumns, IcebergTaken
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import has_rows_by_key, row_fields
from tussock.jobs.sources.listing import STORE_OPTIONS, Interval
from tussock.jobs.sources.measures import measure_parquet
from tussock.jobs.sources.pairing import Misfit, find_misfit
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.snapshot_cuts import (
    SnapshotCut,
    SnapshotPortion,
    cut_fields,
    next_portion,
    pieces_between_cuts,
)
from tussock.jobs.sources.unchanging import KEY, ChangingRows, key_columns, key_objection
from tussock.statestore.extras import extras_named
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.objectstore.open import REMOTE
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import UnsupportedTypeError, arrow_type

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import DataScan, Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

_CATALOG, _TABLE, _BRANCH, _ROLLBACKS = "catalog", "table", "branch", "rollbacks"
_MAIN, _HOLD, _FOLLOW = "main", "hold", "follow"
_ACCOUNT = "account"
_OF_CATALOG = "catalog."
OPTIONS = (_CATALOG, _TABLE, _BRANCH, KEY, _ROLLBACKS, FOLDERS, *STORE_OPTIONS)
#: Properties of REST catalogs whose names alone do not identify a credential.
_SECRETS = ("credential", "token")
#: The options of a bucket's server, by pyiceberg's names.
_OF_BUCKET = {"endpoint": "s3.endpoint", "region": "s3.region"}


class IcebergTables(ChangingRows):
    """Iceberg tables. The engine reads their metadata, and their files as those of Parquet sources."""

    taken_columns = TAKEN_SNAPSHOTS.columns
    login: ClassVar[str] = (
        "Credentials of a catalog come from pyiceberg's configuration, for example from "
        "PYICEBERG_CATALOG__<NAME>__CREDENTIAL; those for S3 and Glue come from boto3's standard chain"
    )

    def __init__(self) -> None:
        self.engine: EngineReader | None = IcebergEngine(_load_table)

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def effect_of(self, option: str) -> OptionEffect:
        if option == KEY:
            return OptionEffect.IDENTITY
        return OptionEffect.POSITION if option in (_CATALOG, _TABLE, _BRANCH) else OptionEffect.AT_ONCE

    def identity(self, source: CreateSource) -> Identity:
        """See SourceDescriber. The changes of a key have an order."""
        return ByPosition() if has_rows_by_key(source) else super().identity(source)

    def check(self, source: CreateSource) -> None:
        for option in (_CATALOG, _TABLE):
            if not source.options.get(option):
                reason = "an iceberg source needs the name of a catalog, and the name of a table, such as 'db.orders'"
                raise MissingOptionError(source.name, option, reason)
        if "." not in source.options[_TABLE].strip("."):
            reason = "expected the namespace and the name of a table, such as 'db.orders'"
            raise BadOptionError(source.name, _TABLE, source.options[_TABLE], reason)
        require_options(source, OPTIONS, _OF_CATALOG, ", and the properties of the catalog as catalog.…")
        for option in source.options:
            if option.rpartition(".")[2] in _SECRETS:
                raise CredentialInOptionError(source.name, option, self.login)
        if source.options.get(_ROLLBACKS, _HOLD) not in (_HOLD, _FOLLOW):
            reason = f"expected '{_HOLD}' (hold the source if its table is rolled back) or '{_FOLLOW}' (follow it)"
            raise BadOptionError(source.name, _ROLLBACKS, source.options[_ROLLBACKS], reason)
        for folder in filter(None, map(str.strip, source.options.get(FOLDERS, "").split(","))):
            if not folder.startswith(("/", *REMOTE)):
                reason = "expected the folders of other tables, /a/path or s3://bucket/prefix, separated by commas"
                raise BadOptionError(source.name, FOLDERS, source.options[FOLDERS], reason)
        if KEY in source.options and not key_columns(source):
            raise BadTableKeyError(source.name, source.options[KEY], "names no column")

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        table = _load_table(source)
        snapshot = _find_newest(source, table, required=False)
        schema = _schema_of(table, snapshot)
        fields = row_fields(source) or tuple(Field(f.name, type_text(f.field_type)) for f in schema.fields)
        _bind_columns(source, schema, 0 if snapshot is None else snapshot.snapshot_id, None)
        if (objection := key_objection(source, fields)) is not None:
            raise BadTableKeyError(source.name, *objection)
        return fields

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner.

        The HEAD requests find files that an expiry of snapshots has removed, before an epoch runs in vain.

        Raises: the errors of iceberg_errors.py; CannotRestateError. Cost: the metadata by which the snapshots differ
        (twice, if `max_bytes` bounds the epoch), and one HEAD request per file to read.
        """
        if request.restated is not None:
            reason = "an Iceberg table's snapshots record its changes, so write the correction into the table"
            raise CannotRestateError(source.name, reason)
        if request.only_skipped or request.skip:
            self.refuse_skip(source, request.skip)
        if request.only_skipped:
            return Pins()
        before, table = TAKEN_SNAPSHOTS.read_newest(taken), _load_table(source)
        waiting = self._waiting_snapshots(source, table, before)
        if waiting is None:
            return Pins()
        start, chain = waiting
        bound_before = None if before is None else before.bound_columns
        key = () if start is None else _key_of(source, bound_before)
        files = TableFiles(table, _place_of(source), frozenset(key))
        if start is None:
            last, all_pieces = chain[-1], files.pieces_of(chain[-1])
            portion = _next_portion(source, table, all_pieces, before, request)
            pieces = pieces_between_cuts(all_pieces, _start_of(before), portion.end)
        else:
            chain = files.first_run(chain) if key else chain
            last, pieces = _fitting_pieces(files, start, chain, request.bytes_left)
            portion = SnapshotPortion(None, 0)
        if missing := missing_files(source, table, pieces):
            taken_id = 0 if start is None else start.snapshot_id
            raise IcebergHistoryGoneError(source.name, _place_of(source), taken_id, f"{missing[0]} is gone")
        columns = _bind_columns(source, _schema_of(table, last), last.snapshot_id, bound_before)
        pinned = PinnedSnapshots(
            _place_of(source),
            str(table.metadata.table_uuid),
            0 if before is None else before.number + 1,
            last.snapshot_id,
            sum(p.file.size for p in pieces),
            columns,
            None if start is None else start.snapshot_id,
            _start_of(before),
            portion.end,
            portion.cost,
            _key_of(source, columns),
        )
        return Pins(read=msgspec.Raw(msgspec.json.encode(pinned)))

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        before, table = TAKEN_SNAPSHOTS.read_newest(taken), _load_table(source)
        if (waiting := self._waiting_snapshots(source, table, before)) is None:
            return ()
        start, chain = waiting
        name, uuid = _place_of(source), str(table.metadata.table_uuid)
        nbytes, last = sum(_bytes_of(snapshot, whole=start is None) for snapshot in chain), chain[-1]
        if before is not None and before.end is not None:
            there = TableFiles(table, name).pieces_of(last)
            nbytes = sum(p.file.size for p in pieces_between_cuts(there, before.end, None))
            last = _find_newest(source, table, required=True) or last  # a held portion waits for its change
        after = None if start is None else start.snapshot_id
        return (item_of_snapshots(PinnedSnapshots(name, uuid, 0, last.snapshot_id, nbytes, BoundColumns({}), after)),)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return tuple(Item(f"{t.place} snapshot {t.snapshot}", t.size) for t in TAKEN_SNAPSHOTS.read_all(taken))

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return () if document is None else (item_of_snapshots(snapshots_of(document)),)

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader. Raises PinnedReadError: the engine leaves no file to Spark."""
        raise PinnedReadError(item_of_snapshots(snapshots_of(document)).name, "Spark reads no files of this table.")

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader. pyiceberg reads the rows of the snapshot, independently of the engine's reader.

        Raises PinnedReadError, for example for equality deletes, which pyiceberg does not read. Cost: the rows pass
        through this process.
        """
        from tussock.jobs.spark.collected import frame_of

        pinned, table = snapshots_of(document), _load_table(source)
        item = item_of_snapshots(pinned).name
        schema = _schema_of(table, table.metadata.snapshot_by_id(pinned.last))
        names = [schema.find_column_name(pinned.columns.ids[field.name.lower()]) or "" for field in source.fields]
        scan = table.scan(snapshot_id=pinned.last, selected_fields=tuple(names))
        try:
            rows = scan.to_arrow() if pinned.end is None else _rows_before(table, scan, pinned.end, item)
        except (ValueError, FileNotFoundError) as err:
            raise PinnedReadError(item, f"pyiceberg cannot read it: {err}.") from err
        kinds = [arrow_type(field.type) for field in source.fields]
        columns = [texts_of_uuids(rows[name], kind) for name, kind in zip(names, kinds, strict=True)]
        return frame_of(session, pa.table(columns, [field.name for field in source.fields]))

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        if pins.read is None:
            return None
        of = snapshots_of(pins.read)
        columns, cut = msgspec.json.encode(of.columns).decode(), cut_fields(of.end)
        taken = IcebergTaken(of.number, of.last, of.place, of.table, columns, of.nbytes, **cut)
        return TAKEN_SNAPSHOTS.seal_records(schema, [taken], epoch)

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        """Return the taken rows of the last taken snapshot, by time travel."""
        if (last := TAKEN_SNAPSHOTS.read_newest(taken)) is None:
            return None
        whole = PinnedSnapshots(last.place, last.table, last.number, last.snapshot, 0, last.bound_columns, end=last.end)
        return msgspec.Raw(msgspec.json.encode(whole))

    # --- the table ----------------------------------------------------------------------------------------------------

    def _waiting_snapshots(
        self, source: CreateSource, table: "Table", before: IcebergTaken | None
    ) -> tuple["Snapshot | None", list["Snapshot"]] | None:
        """Return the taken snapshot and those to take, in order; None if there are none.

        While the first snapshot is taken in portions, there is no taken one.

        Raises: MissingBranchError, TableReplacedError, IcebergHistoryGoneError, IcebergRolledBackError.
        """
        if (newest := _find_newest(source, table, required=before is not None)) is None:
            return None
        if before is None:
            return None, [newest]
        place, uuid = _place_of(source), str(table.metadata.table_uuid)
        if uuid != before.table:
            recorded = f"the table with the uuid {before.table}"
            raise TableReplacedError(source.name, f"the Iceberg table {place}", recorded, uuid)
        if before.end is not None:
            begun = TableFiles(table, place).find_snapshot(before.snapshot)
            if begun is None:
                raise IcebergHistoryGoneError(source.name, place, before.snapshot, "that snapshot has expired")
            return None, [begun]
        if newest.snapshot_id == before.snapshot:
            return None
        files = TableFiles(table, place)
        if (start := files.find_snapshot(before.snapshot)) is None:
            raise IcebergHistoryGoneError(source.name, place, before.snapshot, "that snapshot has expired")
        if (chain := files.chain_between(start, newest)) is None:
            if source.options.get(_ROLLBACKS, _HOLD) != _FOLLOW:
                raise IcebergRolledBackError(source.name, place, before.snapshot, newest.snapshot_id)
            chain = [newest]
        return start, chain

    def refuse_skip(self, source: CreateSource, skip: Sequence[str]) -> None:
        for name in skip:
            if name.startswith(f"{_place_of(source)} "):
                raise UnskippableItemError(source.name, name, "snapshots of the table")


def _place_of(source: CreateSource) -> str:
    """Return the table as users see it: its catalog and its name."""
    return f"{source.options[_CATALOG]}.{source.options[_TABLE]}"


def _address_of(source: CreateSource, server: Mapping[str, str]) -> CatalogAddress:
    own = {o.removeprefix(_OF_CATALOG): v for o, v in source.options.items() if o.startswith(_OF_CATALOG)}
    of_bucket = {name: source.options[o] for o, name in _OF_BUCKET.items() if o in source.options}
    return CatalogAddress(source.options[_CATALOG], {"init_catalog_tables": "false", **server, **of_bucket, **own})


def _load_table(source: CreateSource) -> "Table":
    """Load a source's table. Whatever its metadata names is read from its folders only: manifests too."""
    with extras_named():
        from tussock.jobs.iceberg.object_io import InsideIO, io_properties

    server = io_properties({o: source.options[o] for o in STORE_OPTIONS if o in source.options})
    table = _address_of(source, server).load_table(source.options[_TABLE])
    account = azure_account_of(table.metadata_location)
    if account is not None and account != source.options.get(_ACCOUNT):
        raise MissingOptionError(source.name, _ACCOUNT, f"its table is in the storage account {account!r}")
    folders = folders_of(source, table)
    table.io = InsideIO(table.io, lambda path: require_inside(path, *folders))
    return table


def _find_newest(source: CreateSource, table: "Table", *, required: bool) -> "Snapshot | None":
    """Return the newest snapshot of the source's branch; None for a table without rows.

    Raises MissingBranchError if the branch does not exist, unless it is the main one and not `required`.
    """
    branch = source.options.get(_BRANCH, _MAIN)
    refs = table.metadata.refs
    if (ref := refs.get(branch)) is None or ref.snapshot_ref_type.value != "branch":
        if branch == _MAIN and not required:
            return None
        known = tuple(sorted(name for name, r in refs.items() if r.snapshot_ref_type.value == "branch"))
        raise MissingBranchError(source.name, _place_of(source), branch, known)
    return table.metadata.snapshot_by_id(ref.snapshot_id)


def _schema_of(table: "Table", snapshot: "Snapshot | None") -> "Schema":
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas().get(snapshot.schema_id, table.schema())


def _bind_columns(source: CreateSource, schema: "Schema", snapshot: int, before: BoundColumns | None) -> BoundColumns:
    """Return the table's fields that the declared columns mean.

    Args:
        before: of earlier epochs; None: none.

    Raises TableColumnsChangedError for a column that is gone, or whose values might not fit the declared type.
    """
    by_id = {field.field_id: field for field in schema.fields}
    by_name = {field.name.lower(): field for field in schema.fields}
    bound, names = dict[str, int](), dict[int, str]() if before is None else dict(before.fields)
    for declared in row_fields(source):
        name = declared.name.lower()
        taken_id = None if before is None else before.ids.get(name)
        column = by_name.get(name) if taken_id is None else by_id.get(taken_id)
        if column is None:
            field_id = "" if taken_id is None else f" with the field id {taken_id}"
            there = ", ".join(f.name for f in schema.fields)
            misfit: Misfit | None = Misfit(
                declared.name, f"no such column{field_id} (the table has {there})", declared.type
            )
        else:
            bound[name] = column.field_id
            if taken_id is None:
                names |= struct_fields_of(column.field_type)
            misfit = _misfit_of(declared, type_text(column.field_type, names))
        if misfit is not None:
            at_snapshot = f"snapshot {snapshot} of the Iceberg table {_place_of(source)}"
            anew = anew_with_present_columns(source.name)
            remedy = f"A column that is added again is another one, with another field id. {anew}"
            raise TableColumnsChangedError(source.name, at_snapshot, *misfit, remedy)
    return BoundColumns(bound, names)


def _misfit_of(declared: Field, table_type: str) -> Misfit | None:
    try:
        stored = _as_in_files(arrow_type(table_type))
    except UnsupportedTypeError:
        return Misfit(declared.name, table_type, declared.type)
    return find_misfit(stored, arrow_type(declared.type), declared.name, may_lack=False)


def _as_in_files(kind: pa.DataType) -> pa.DataType:
    """Return a type of Tussock with the unit that times of day have in files."""
    kinds = pa.types
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_as_in_files(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_as_in_files(kind.key_type), _as_in_files(kind.item_type))
    if kinds.is_list(kind):
        return pa.list_(_as_in_files(kind.value_type))
    return pa.time64("us") if kinds.is_time(kind) else kind


def _bytes_of(snapshot: "Snapshot", *, whole: bool) -> int:
    """Return the bytes of the files of a snapshot, or of those that it adds and removes, by its summary."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    names = ("total-files-size",) if whole else ("added-files-size", "removed-files-size")
    return sum(int(summary.get(name, 0)) for name in names)


def _rows_before(table: "Table", scan: "DataScan", end: SnapshotCut, item: str) -> pa.Table:
    """Return the rows of a snapshot before a cut, read by pyiceberg.

    Raises: PinnedReadError if a part of a file with deleted rows is taken, since pyiceberg gives no positions.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    rows = [reader.to_table(tasks[: end.files])]
    if end.rows:
        if tasks[end.files].delete_files:
            reason = f"the first rows of {tasks[end.files].file.file_path}, which has deleted rows"
            raise PinnedReadError(item, f"pyiceberg cannot read {reason}. Run epochs until no file waits.")
        rows.append(reader.to_table([tasks[end.files]]).slice(0, end.rows))
    return pa.concat_tables(rows, promote_options="permissive")  # texts of few rows may be of a wider type


def _key_of(source: CreateSource, columns: BoundColumns | None) -> tuple[int, ...]:
    """Return the table's fields that are the key of the stored rows; none if the source stores no rows by a key."""
    if columns is None or source.keyed is None or not has_rows_by_key(source):
        return ()
    return tuple(columns.ids[row_fields(source)[column].name.lower()] for column in source.keyed.columns)


def _start_of(before: IcebergTaken | None) -> SnapshotCut | None:
    return None if before is None else before.end


def _next_portion(
    source: CreateSource, table: "Table", pieces: Sequence[LakePiece], before: IcebergTaken | None, request: PinRequest
) -> SnapshotPortion:
    """Return the portion of the first snapshot that the epoch reads. Cost: see snapshot_cuts.py."""
    folders, reading = folders_of(source, table), reading_options(source)
    files = [PinnedFile(normal_path_of(piece.file.path), piece.file.size, "", 0) for piece in pieces]

    def measure(file: PinnedFile) -> FileRecords:
        require_inside(file.path, *folders)
        return measure_parquet(file, reading)

    return next_portion(files, _start_of(before), request, measure)


def _fitting_pieces(
    files: TableFiles, start: "Snapshot", chain: Sequence["Snapshot"], max_bytes: int | None
) -> tuple["Snapshot", list[LakePiece]]:
    """Return the last of the waiting snapshots within `max_bytes` to read, at least the first, and the pieces."""
    pieces = files.pieces_between(start, chain[-1])
    last = chain[-1]
    if max_bytes is not None and sum(p.file.size for p in pieces) > max_bytes:
        for end in chain:
            some = files.pieces_between(start, end)
            if end is chain[0] or sum(p.file.size for p in some) <= max_bytes:
                last, pieces = end, some
            else:
                break
    return last, pieces
