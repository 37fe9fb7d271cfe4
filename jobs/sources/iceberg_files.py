"""The files of Iceberg tables, read by actors like Parquet files.

A part is a piece of a data file with its weights: a row's weight is the sum over the delete files that apply before and
after. Position deletes and deletion vectors are read first, so that row groups whose weights are all zero are not read.
Equality deletes are an anti-join of the file's rows by 128 bits of the compared values; NULL equals NULL.

A source that stores rows by a key reads changes: rows with an operation (LOG_FIELDS), and the order in `_row_id`:

    number of the epoch | rows that the table lost | inserted rows and deleted keys by their sequence number

So a row that a writer moved is deleted and inserted. An equality delete deletes what was inserted before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.chunks.digests import digests_of
from tussock.jobs.delta.delta_columns import Mapped
from tussock.jobs.delta.named_files import require_inside
from tussock.jobs.iceberg.deletion_vectors import positions_of_vector
from tussock.jobs.iceberg.iceberg_types import (
    column_in_file,
    constant_column,
    constant_of_column,
    name_in_file,
    texts_of_uuids,
    type_in_files,
)
from tussock.jobs.iceberg.table_files import LakeFile, LakePiece, TableFiles, normal_path_of
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import DividedInput, Division, EngineReader, Item, ReadPart
from tussock.jobs.sources.errors import PinnedReadError
from tussock.jobs.sources.file_options import MISSING
from tussock.jobs.sources.iceberg_taken import BoundColumns
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.keyed import DELETE, LOG_FIELDS, UPSERT, without_operations
from tussock.jobs.sources.lake_files import errors_of_item, is_small_rewrite
from tussock.jobs.sources.listing import STORE_OPTIONS, open_file
from tussock.jobs.sources.parquet import Split, cut_splits, read_split, split_size
from tussock.jobs.sources.parquet_footer import footer_of, reason_of_file
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.plain_values import NotPlain
from tussock.jobs.sources.row_ids import pack_row_ids, position_of
from tussock.jobs.sources.snapshot_cuts import SnapshotCut, pieces_between_cuts
from tussock.statestore.decoding import decoder_of
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:
    from pyiceberg.table import Table

FOLDERS = "folders"
"""The option of a source that names folders outside of the table, whose files the table may name."""
_FILE_COLUMN, _POSITION_COLUMN = "file_path", "pos"
_FIELD_ID = b"PARQUET:field_id"
_REMOVER = "an expiry of snapshots"

Positions = npt.NDArray[np.int64]


class PinnedSnapshots(msgspec.Struct, frozen=True, omit_defaults=True):
    """The snapshots of a table that an epoch reads: rows of `last`, or the changes from `after` to `last`."""

    place: str  # the catalog and the table's name in it
    table: str  # its uuid
    number: int  # of the epochs that took it before
    last: int
    nbytes: int  # of the data files to read
    columns: BoundColumns  # the fields that the declared columns mean
    after: int | None = None  # None: the rows between `start` and `end`
    start: SnapshotCut | None = None  # None: from the begin
    end: SnapshotCut | None = None  # None: to the end
    cost: int = 0  # bytes that an epoch counts for them; 0: `nbytes`
    key: tuple[int, ...] = ()  # the fields of the source's key, if it stores rows by a key


class ChangeOrder(msgspec.Struct, frozen=True):
    """The order of the changes of a part, for a source that stores rows by a key."""

    number: int  # of the epoch
    place: int  # in it; the deletions of rows come first
    deletes_keys: bool = False  # the part's rows are keys to delete


class EqualityColumn(msgspec.Struct, frozen=True):
    """A column that equality deletes compare."""

    field_id: int
    stored: str | None  # its name in the data file; None: the file lacks it
    type: str
    constant: str | None  # the text of its value if the file lacks it; None: NULL


class IcebergPart(msgspec.Struct, frozen=True):
    """The unit of reading for an actor: some row groups of a data file."""

    item: str  # its name in the barrier
    split: Split
    piece: LakePiece
    columns: tuple[Mapped, ...]  # by declared column
    constants: tuple[str | None, ...]  # the text of each declared column that the file lacks
    compared: tuple[EqualityColumn, ...]
    order: ChangeOrder | None = None


snapshots_of = decoder_of(PinnedSnapshots).decode
_part = decoder_of(IcebergPart)
TableOf = Callable[[CreateSource], "Table"]


class IcebergEngine(EngineReader):
    """Reads the files of Iceberg tables in actors, split at row groups. No release of Iceberg supports our Spark."""

    def __init__(self, load_table: TableOf) -> None:
        self._load_table = load_table

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader. Large files come first.

        Cost: the table's metadata, one HEAD request and footer per file.
        """
        source = without_operations(source)
        pinned, table = snapshots_of(document), self._load_table(source)
        item = item_of_snapshots(pinned).name
        with errors_of_item(item, _REMOVER):
            pieces = pinned_pieces(source, table, pinned)
        nbytes = sum(p.file.size for p in pieces)
        target = split_size(nbytes, division.units)
        cut = _Cutter(source, table, pinned, target)
        parts = [part for cut_parts in map_in_threads(cut.cut_piece, pieces) for part in cut_parts]
        parts.sort(key=lambda p: (-p.split.file.size, p.split.file.path, p.split.first_row))
        together = not pinned.key and is_small_rewrite((p.weights for p in pieces), nbytes)
        return DividedInput([msgspec.Raw(msgspec.json.encode(p)) for p in parts], together=together)

    def item_of(self, part: msgspec.Raw) -> str:
        """See EngineReader."""
        return _part.decode(part).item

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See EngineReader."""
        of = _part.decode(part)
        rows_source = without_operations(source)
        own = [c for c in columns if c < len(rows_source.fields)]
        with errors_of_item(of.item, _REMOVER):
            chunks = [_chunk_of(rows_source, of, split, own) for split in _live_splits(rows_source, of)]
            none = empty_chunk([rows_source.fields[c].type for c in own])
            rows = pa.concat_tables(chunks) if chunks else none
            return ReadPart(rows if of.order is None else _changes_of(rows, of.order, columns[len(own) :]))


class _Cutter:
    """Cuts pieces into parts for actors."""

    def __init__(self, source: CreateSource, table: "Table", pinned: PinnedSnapshots, target: int) -> None:
        self._source, self._table, self._target = source, table, target
        self._item = item_of_snapshots(pinned).name
        self._folders = folders_of(source, table)
        snapshot = table.metadata.snapshot_by_id(pinned.last)
        schema_id = None if snapshot is None else snapshot.schema_id
        schemas = table.schemas()
        schema = schemas.get(-1 if schema_id is None else schema_id, table.schema())
        by_id = {field.field_id: field for field in schema.fields}
        self._columns = [by_id[pinned.columns.ids[field.name.lower()]] for field in source.fields]
        self._names = pinned.columns.fields
        self._all_columns = {f.field_id: f for s in schemas.values() for f in s.fields}
        self._mapped = tuple(table.name_mapping() or schema.name_mapping)
        self._pinned = pinned
        before = None if pinned.after is None else table.metadata.snapshot_by_id(pinned.after)
        self._taken_sequence = 0 if before is None else int(before.sequence_number or 0)

    def _order_of(self, file: LakeFile) -> ChangeOrder | None:
        if not self._pinned.key:
            return None
        later, deletes = max(0, file.sequence - self._taken_sequence), bool(file.equality_ids)
        return ChangeOrder(self._pinned.number, 2 * later + 2 - deletes, deletes)

    def cut_piece(self, piece: LakePiece) -> list[IcebergPart]:
        """Return the parts of a piece. Raises PinnedReadError."""
        with errors_of_item(self._item, _REMOVER):
            for _, deletes in piece.weights:
                for delete in deletes:
                    require_inside(normal_path_of(delete.path), *self._folders)
            file = pinned_file(self._source, self._folders, self._item, piece.file)
            reading = reading_options(self._source)
            schema = footer_of(file, reading).schema.to_arrow_schema()
            has_ids = any(_FIELD_ID in (field.metadata or {}) for field in schema)
            mapped = () if has_ids else self._mapped
            constants = tuple(constant_of_column(piece.file.values, column) for column in self._columns)
            columns = tuple(
                column_in_file(column, self._names, schema, mapped, constant)
                for column, constant in zip(self._columns, constants, strict=True)
            )
            ids = sorted({i for _, deletes in piece.weights for d in deletes for i in d.equality_ids})
            compared = tuple(
                EqualityColumn(
                    i,
                    name_in_file(i, schema, mapped),
                    type_in_files(self._all_columns[i].field_type),
                    constant_of_column(piece.file.values, self._all_columns[i]),
                )
                for i in ids
            )
            fields = _stored_fields(self._source, columns, range(len(columns)))
            if (reason := reason_of_file(file, fields, reading)) is not None:
                raise PinnedReadError(self._item, f"only Spark can read file {file.path}: {reason}.")
            return [
                IcebergPart(self._item, split, piece, columns, constants, compared, self._order_of(piece.file))
                for split in cut_splits(file, fields, self._target, reading, piece.rows)
            ]


def pinned_pieces(source: CreateSource, table: "Table", pinned: PinnedSnapshots) -> list[LakePiece]:
    """Return the pieces of pinned snapshots. Raises PinnedReadError."""
    item, files = item_of_snapshots(pinned).name, TableFiles(table, pinned.place, frozenset(pinned.key))
    if str(table.metadata.table_uuid) != pinned.table:
        raise PinnedReadError(item, f"the table {pinned.place} was dropped and created again.")
    snapshots = [files.find_snapshot(i) for i in (pinned.last, pinned.after) if i is not None]
    if None in snapshots:
        raise PinnedReadError(item, f"a snapshot of the table {pinned.place} has expired.")
    last = snapshots[0]
    assert last is not None
    if pinned.after is None:
        return pieces_between_cuts(files.pieces_of(last), pinned.start, pinned.end)
    assert snapshots[1] is not None
    return files.pieces_between(snapshots[1], last)


def _live_splits(source: CreateSource, part: IcebergPart) -> Iterator[Split]:
    """Yield the row groups of a part in which a row's weight may differ from zero, as splits without gaps.

    A split within a row group stays whole, and so does one to whose file equality deletes apply.
    """
    split = part.split
    if part.compared or split.rows is not None or split.skipped or not any(len(d) for _, d in part.piece.weights):
        yield split
        return
    footer = footer_of(split.file, reading_options(source))
    groups = range(footer.num_row_groups) if split.row_groups is None else split.row_groups
    starts = np.cumsum([0, *(footer.row_group(g).num_rows for g in range(footer.num_row_groups))])
    live = [
        group
        for group in groups
        if _weights_of(source, part, np.arange(starts[group], starts[group + 1], dtype=np.int64), None).any()
    ]
    run: list[int] = []
    for group, following in pairwise([*live, -1]):
        run.append(group)
        if following != group + 1:
            yield msgspec.structs.replace(split, row_groups=tuple(run), first_row=int(starts[run[0]]))
            run = []


def _chunk_of(source: CreateSource, part: IcebergPart, split: Split, columns: Sequence[int]) -> pa.Table:
    """Read the wanted columns of a split as a chunk."""
    fields = list(_stored_fields(source, part.columns, columns))
    names = {field.name: i for i, field in enumerate(fields)}
    for compared in part.compared:
        if compared.stored is not None and compared.stored not in names:
            names[compared.stored] = len(fields)
            fields.append(Field(compared.stored, compared.type))
    try:
        rows = read_split(split, range(len(fields)), fields, reading_options(source)).rows
    except NotPlain as err:
        raise PinnedReadError(part.item, f"only Spark can read file {split.file.path}: {err}.") from err
    positions = position_of(rows.column(len(fields)).to_numpy())
    values = {
        c.field_id: constant_column(c.constant, c.type, arrow_type(c.type), len(rows))
        for c in part.compared
        if c.stored is None
    }
    values |= {c.field_id: rows.column(names[c.stored]) for c in part.compared if c.stored is not None}
    weights = _weights_of(source, part, positions, values)
    made = []
    for c in columns:
        kind = arrow_type(source.fields[c].type)
        if part.columns[c].is_partition:
            made.append(constant_column(part.constants[c], part.columns[c].type, kind, rows.num_rows))
        else:
            made.append(texts_of_uuids(rows.column(names[part.columns[c].stored]), kind))
    chunk = make_chunk(made, pa.array(weights))
    return chunk if weights.all() else chunk.filter(pc.not_equal(chunk[WEIGHT], 0))


def _changes_of(rows: pa.Table, order: ChangeOrder, last: Sequence[int]) -> pa.Table:
    """Return rows with the operations of LOG_FIELDS and `_row_id`. `last`: the wanted ones of LOG_FIELDS."""
    assert len(last) == len(LOG_FIELDS), "the changes of a key are read as a whole"
    count, weights = rows.num_rows, rows[WEIGHT].to_numpy()
    deletes = np.full(count, True) if order.deletes_keys else weights < 0
    places = np.where(weights < 0, 0, order.place)
    columns = [
        *rows.columns[:-1],
        pc.if_else(pa.array(deletes), DELETE, UPSERT),
        pa.nulls(count, pa.binary()),
        pack_row_ids(order.number, places),
    ]
    return make_chunk(columns, pa.array(np.ones(count, np.int64)))


def _weights_of(
    source: CreateSource, part: IcebergPart, positions: Positions, values: Mapping[int, pa.ChunkedArray] | None
) -> Positions:
    """Return the weights of rows of a part's file.

    Args:
        values: of the columns that equality deletes compare, by field id; None: no equality deletes apply.
    """
    weights = np.zeros(len(positions), np.int64)
    for weight, deletes in part.piece.weights:
        live = np.ones(len(positions), np.bool_)
        for delete in deletes:
            if delete.equality_ids:
                assert values is not None
                live &= ~_is_deleted(source, delete, [values[i] for i in delete.equality_ids], len(positions))
            else:
                live &= ~np.isin(positions, _deleted_positions(source, delete, part.piece.file.path))
        weights += weight * live
    return weights


def _is_deleted(
    source: CreateSource, delete: LakeFile, columns: Sequence[pa.ChunkedArray], rows: int
) -> npt.NDArray[np.bool_]:
    """Return which rows an equality delete file deletes."""
    table = _read_deletes(delete.path, delete.size, _hashable(reading_options(source)))
    by_id = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in table.schema}
    deleted = [table[by_id[i]].cast(c.type) for i, c in zip(delete.equality_ids, columns, strict=True)]
    return np.asarray(pc.is_in(_digest_column(columns, rows), _digest_column(deleted, len(table))))


def _digest_column(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.Array:
    halves = np.stack(digests_of(columns, rows), axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(halves.tobytes())])


def _deleted_positions(source: CreateSource, delete: LakeFile, path: str) -> Positions:
    """Return the positions of a data file that a delete file deletes."""
    options = _hashable(reading_options(source))
    if delete.is_vector:
        return _read_vector(delete.path, delete.offset, delete.length, options)
    table = _read_deletes(delete.path, delete.size, options)
    of_file = pc.equal(table[_FILE_COLUMN], path)
    return np.asarray(table[_POSITION_COLUMN].filter(of_file).to_numpy(), np.int64)


@lru_cache(maxsize=8)
def _read_deletes(path: str, size: int, options: tuple[tuple[str, str], ...]) -> pa.Table:
    """Return the rows of a delete file. Files never change, and a task reads one for many data files."""
    store, name = open_file(normal_path_of(path), dict(options))
    with _gone_files(path), pa.PythonFile(RangeFile(store, name, size), mode="r") as opened:
        return pq.ParquetFile(opened).read(use_threads=False)


@lru_cache(maxsize=64)
def _read_vector(path: str, offset: int, length: int, options: tuple[tuple[str, str], ...]) -> Positions:
    store, name = open_file(normal_path_of(path), dict(options))
    with _gone_files(path):
        (blob,) = store.get_ranges(name, [(offset, length)])
    return positions_of_vector(blob)


@contextmanager
def _gone_files(path: str) -> Iterator[None]:
    try:
        yield
    except ObjectNotFoundError as err:
        raise LookupError(f"the delete file {path} is gone") from err


def _hashable(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.items()))


def _stored_fields(source: CreateSource, columns: Sequence[Mapped], wanted: Sequence[int]) -> tuple[Field, ...]:
    """Return the columns to read from a file, by their names in it."""
    pairs = [(source.fields[c], columns[c]) for c in wanted]
    return tuple(
        Field(column.stored, column.stored_as(field.type)) for field, column in pairs if not column.is_partition
    )


def folders_of(source: CreateSource, table: "Table") -> tuple[str, tuple[str, ...], str]:
    """Return the arguments of `require_inside` after the name: the table's folder, other folders, the option.

    The catalog names the metadata file, which is in the table's folder. Its content may come from others, so neither
    its location nor its properties add a folder.
    """
    own = normal_path_of(table.metadata_location).rpartition("/")[0].removesuffix("/metadata")
    given = [folder.strip().rstrip("/") for folder in source.options.get(FOLDERS, "").split(",")]
    return own, tuple(normal_path_of(folder) for folder in given if folder), FOLDERS


def pinned_file(
    source: CreateSource, folders: tuple[str, tuple[str, ...], str], item: str, file: LakeFile
) -> PinnedFile:
    """Return a file of the table as it is now. Raises PinnedReadError, OutsideFileError. Cost: one HEAD request."""
    path = normal_path_of(file.path)
    require_inside(path, *folders)
    store, name = open_file(path, reading_options(source))
    try:
        info = store.head(name)
    except ObjectNotFoundError as err:
        raise PinnedReadError(item, f"file {path} is gone, removed by {_REMOVER} or by hand.") from err
    return PinnedFile(path, info.size, info.etag, 0)


def missing_files(source: CreateSource, table: "Table", pieces: Sequence[LakePiece]) -> list[str]:
    """Return the data and delete files of pieces that are gone. Cost: one HEAD request each, 16 at a time."""
    folders = folders_of(source, table)
    deletes = {d.path: d for piece in pieces for _, of_weight in piece.weights for d in of_weight}

    def find_missing(file: LakeFile) -> str | None:
        try:
            pinned_file(source, folders, "", file)
        except PinnedReadError:
            return normal_path_of(file.path)
        return None

    missing = map_in_threads(find_missing, [*(p.file for p in pieces), *deletes.values()])
    return [path for path in missing if path is not None]


def reading_options(source: CreateSource) -> dict[str, str]:
    """Return the options for the Parquet reader. A column added after a file was written is NULL in its rows."""
    return {**{name: source.options[name] for name in STORE_OPTIONS if name in source.options}, MISSING: "null"}


def item_of_snapshots(pinned: PinnedSnapshots) -> Item:
    """Return the pinned thing by the name that users see. A held one is tried again once the table has changed."""
    start = "from its beginning" if pinned.after is None else f"after snapshot {pinned.after}"
    return Item(f"{pinned.place} {start}", pinned.nbytes, f"{pinned.table} {pinned.last}", cost=pinned.cost)
