"""A Delta table's log: the files with the rows of a version, and the files with the changes between two versions.

A version is a commit, `_delta_log/<20 digits>.json`, which never changes once it exists. Its actions define the
changes:

    cdc       rows with `_change_type`; if a commit has such files, they are its only changes
    add       a file's rows are added    } otherwise; with dataChange false, rows are only moved (OPTIMIZE)
    remove    a file's rows are removed  }

The change feed is used for each commit that has one, and files are compared for the others; the sum is the same. A file
may have a deletion vector, which marks deleted rows. A piece stores the version of its vector, and the reader loads the
mask of that version.

The deltalake package reads the log without a JVM: its snapshots (checkpoints, protocol, masks), and the raw JSON of
commits. Actors read the rows, which are Parquet, like a Parquet source's. delta-spark would support more
features, but only in sessions that were started with its jars, and at a tenth of the speed, through Spark and Python.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.delta.delta_columns import Mapped, columns_of
from tussock.jobs.delta.delta_errors import DeltaLogError
from tussock.jobs.delta.delta_mirror import mirror_table
from tussock.jobs.delta.delta_vectors import LOG, unlisted_files
from tussock.jobs.delta.named_files import require_inside
from tussock.statestore.decoding import decode_json
from tussock.statestore.extras import extras_named
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import REMOTE, open_bucket

if TYPE_CHECKING:  # processes without Delta sources do not load the package
    from deltalake import DeltaTable

CLONE_OF = "clone_of"
"""The option of a source that names the folders of other tables, whose files the table may name."""
#: Features of tables that this reader supports, or that concern only writers.
KNOWN_FEATURES = frozenset(
    {
        *(
            "deletionVectors",
            "timestampNtz",
            "v2Checkpoint",
            "vacuumProtocolCheck",
            "typeWidening",
            "typeWidening-preview",
        ),
        *("columnMapping", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
CHANGE_TYPE = "_change_type"

Mask = npt.NDArray[np.bool_]


class Piece(msgspec.Struct, frozen=True):
    """Rows of one file that are added or removed.

    Args:
        weights: (weight, version whose deletion vector of this file excludes rows; None: it has none). A row's weight
            is the sum. Empty: the file's own column `_change_type` contains the weights.
        rows: the first row to read, and the row after the last one (None: all); None for the whole file.
    """

    path: str  # relative to the table, unescaped; or absolute
    size: int  # bytes
    partition: dict[str, str | None] | None  # as in the log; None: old writers do not record it for removed files
    weights: tuple[tuple[int, int | None], ...]
    rows: tuple[int, int | None] | None = None


@dataclass(frozen=True)
class DeltaPlace:
    """The location of a table.

    Args:
        bucket: scheme and bucket, such as `gs://lake`; empty: this machine.
        options: the server options of the bucket.
        others: folders of other tables, whose files its log may name.
    """

    bucket: str
    name: str
    options: Mapping[str, str]
    others: tuple[str, ...] = ()

    @cached_property
    def root(self) -> str:
        """The literal path of the table's folder, in the form of source files."""
        return f"{self.bucket}/{self.name}"

    def file_path(self, path: str) -> str:
        """Return the path of a file of the table in the form of source files.

        Args:
            path: a name, as in `Piece.path`.

        Raises: OutsideFileError.
        """
        self.require_inside(path)
        return self.locate_path(path)

    def require_inside(self, path: str) -> None:
        """Raise OutsideFileError for a name that leads out of the table and of the other tables."""
        require_inside(path, self.root, self.others, CLONE_OF)

    def locate_path(self, path: str) -> str:
        """Return what `file_path` returns, for a path that is only compared."""
        if path.startswith("file:/"):
            return "/" + path.removeprefix("file:").lstrip("/")
        if path.startswith("s3a://"):
            return "s3://" + path.removeprefix("s3a://")
        return path if path.startswith(("/", *REMOTE)) else f"{self.root}/{path}"

    def read_snapshot(self, version: int | None = None) -> "DeltaSnapshot | None":
        """Return a version of the table, by default the newest; None if the table or the version does not exist.

        Raises: DeltaLogError, ObjectStoreUnavailableError. Cost: the log since a checkpoint; that of `mirror_table` for
        a folder that the package cannot open.
        """
        return self.open_snapshot(version, rows=False)

    def open_snapshot(self, version: int | None, *, rows: bool) -> "DeltaSnapshot | None":
        """See `read_snapshot`. `rows`: the package will also read rows."""
        with extras_named():
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError

        from tussock.jobs.delta.location import delta_url, unfit_for_delta

        is_foreign = self.bucket.startswith("hdfs://") or unfit_for_delta(self.name) is not None
        mirror = mirror_table(self.bucket, self.name, self.options, rows=rows) if is_foreign else None
        url, options = (
            (delta_url(self.bucket, self.name), self._storage_options()) if mirror is None else (mirror.name, None)
        )
        with translating_errors(self.root, "read the log of the table"):
            try:
                return DeltaSnapshot(self, DeltaTable(url, version=version, storage_options=options), mirror)
            except TableNotFoundError:
                return None
            except DeltaError as err:
                if version is None or "Invalid table version" not in str(err):
                    raise
                return None  # the package has no specific error for a missing version

    def _storage_options(self) -> dict[str, str] | None:
        if not self.bucket:
            return None
        from tussock.jobs.delta.location import cloud_options, location_in

        store = open_bucket(self.bucket, self.name, self.options)
        return location_in(store).delta_options if self.bucket.startswith("s3://") else cloud_options(store)

    @property
    def log(self) -> ObjectStore:
        """The folder of the table's log."""
        folder = f"{self.name}/{LOG}"
        return open_bucket(self.bucket, folder, self.options) if self.bucket else LocalObjectStore(Path("/", folder))

    def read_commit(self, version: int) -> "DeltaCommit | None":
        """Return the changes of a version; None if its log entry is gone. Raises DeltaLogError."""
        try:
            lines = self.log.get(f"{version:020}.json").splitlines()
        except ObjectNotFoundError:
            return None
        try:
            actions = tuple(decode_json(line, dict[str, Any]) for line in lines if line.strip())
        except msgspec.MsgspecError as err:
            raise DeltaLogError(self.root, f"entry {LOG}/{version:020}.json is damaged or cut short: {err}") from err
        return DeltaCommit(version, actions)


@dataclass(frozen=True)
class DeltaSnapshot:
    """A version of a table."""

    place: DeltaPlace
    table: "DeltaTable"
    mirror: TemporaryFolder | None = None  # the folder that the package reads instead of the table's

    @property
    def version(self) -> int:
        return int(self.table.version())

    @cached_property
    def id(self) -> str:
        """The table's id, which changes if the table is dropped and created again."""
        return str(self.table.metadata().id)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The columns in the log."""
        return dict(msgspec.json.decode(self.table.schema().to_json()))

    @cached_property
    def columns(self) -> tuple[Mapped, ...]:
        """The columns, and their names in files."""
        return columns_of(self.schema, self.table.metadata().partition_columns)

    def unknown_feature(self) -> str | None:
        """Return a feature that a reader of the table must support and this one does not."""
        protocol = self.table.protocol()
        unknown = sorted(set(protocol.reader_features or ()) - KNOWN_FEATURES)
        return unknown[0] if unknown else None

    def list_pieces(self) -> list[Piece]:
        """Return the files with the rows, by path. Raises OutsideFileError."""
        with translating_errors(self.place.root, "list the files of the table"):
            adds = pa.table(self.table.get_add_actions(flatten=False))
        masked = self._masks
        if unknown := set(masked) - {self._absolute_path(path) for path in adds["path"].to_pylist()}:
            raise LookupError(f"the table has deletion vectors of files that are not in it: {sorted(unknown)[0]}")
        partitions = (
            [_as_logged(p) for p in adds["partition"].to_pylist()]
            if "partition" in adds.column_names
            else [{}] * adds.num_rows
        )
        for path in adds["path"].to_pylist():
            self.place.require_inside(path)
        files = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), partitions, strict=True)
        pieces = [
            Piece(unquote(path), size, partition, ((1, self.version if self._absolute_path(path) in masked else None),))
            for path, size, partition in files
        ]
        return sorted(pieces, key=lambda piece: piece.path)

    def mask_of(self, path: str) -> Mask | None:
        """Return the live rows of a file, by its deletion vector. Rows after the mask's end are live. None: all are."""
        return self._masks.get(self._absolute_path(path))

    def _absolute_path(self, path: str) -> str:
        """Return a file's absolute path, unescaped.

        Files of a shallow clone are in another table, and writers differ in the form of addresses (`file:/…`,
        `file:///…`, `s3a://…`).
        """
        while (plain := unquote(path)) != path:
            path = plain
        location = self.place.locate_path(path)
        if self.mirror is not None and location.startswith(f"{self.mirror.name}/"):
            return self.place.locate_path(location.removeprefix(f"{self.mirror.name}/"))
        return location

    def _actions_of(self, version: int) -> Iterator[dict[str, Any]]:
        commit = self.place.read_commit(version)
        return iter(() if commit is None else commit.actions)

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        if "deletionVectors" not in (self.table.protocol().reader_features or ()):
            return {}
        for name in unlisted_files(self.place.log, self.version, self._actions_of):
            self.place.require_inside(name)
        with translating_errors(self.place.root, "read the deletion vectors of the table"):
            rows = pa.table(self.table.deletion_vectors())
        return {
            self._absolute_path(path): np.asarray(
                pc.fill_null(mask.values, True).to_numpy(zero_copy_only=False), np.bool_
            )
            for path, mask in zip(rows["filepath"].to_pylist(), rows["selection_vector"], strict=True)
        }


@contextmanager
def translating_errors(place: str, what: str) -> Iterator[None]:
    """Run a call of the package; see jobs/delta/delta_calls.py. An error about the table becomes a DeltaLogError."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    from tussock.jobs.delta.delta_calls import first_line, one_call

    try:
        with one_call(place, what):
            yield
    except TableNotFoundError:
        raise
    except DeltaError as err:
        raise DeltaLogError(place, first_line(err)) from err


@lru_cache(maxsize=8)
def _open_snapshot(
    bucket: str, name: str, options: tuple[tuple[str, str], ...], others: tuple[str, ...], table: str, version: int
) -> DeltaSnapshot | None:
    return DeltaPlace(bucket, name, dict(options), others).read_snapshot(version)


def mask_at(place: DeltaPlace, table: str, version: int, path: str) -> Mask:
    """Return the mask of a file that has one at a version. A process reads each version once.

    Args:
        table: its id when the version was pinned; another table may have replaced it since.

    Raises: LookupError if the version, or the mask in it, cannot be read.
    """
    options = tuple(sorted(place.options.items()))
    if (snapshot := _open_snapshot(place.bucket, place.name, options, place.others, table, version)) is None:
        raise LookupError(f"version {version} of the table is gone")
    if (mask := snapshot.mask_of(path)) is None:
        raise LookupError(f"version {version} of the table has no deletion vector of {path}")
    return mask


@dataclass(frozen=True)
class DeltaCommit:
    """One entry of the log."""

    version: int
    actions: tuple[dict[str, Any], ...]

    def actions_of(self, kind: str) -> list[dict[str, Any]]:
        """Return the actions of one kind."""
        return [action[kind] for action in self.actions if action.get(kind) is not None]

    @cached_property
    def pieces(self) -> list[Piece]:
        """The changes of the commit."""
        if feed := self.actions_of("cdc"):
            return [Piece(unquote(a["path"]), a["size"], a.get("partitionValues") or {}, ()) for a in feed]
        moved = [*((a, 1) for a in self.actions_of("add")), *((a, -1) for a in self.actions_of("remove"))]
        return [self._piece_of(action, sign) for action, sign in moved if action.get("dataChange", True)]

    def _piece_of(self, action: dict[str, Any], sign: int) -> Piece:
        masked = None if action.get("deletionVector") is None else self.version - (sign < 0)
        return Piece(unquote(action["path"]), action.get("size") or 0, action.get("partitionValues"), ((sign, masked),))

    @property
    def nbytes(self) -> int:
        """The bytes of the files to read for it."""
        return sum(piece.size for piece in self.pieces)


def commits_after(place: DeltaPlace, after: int, last: int) -> list[DeltaCommit | None]:
    """Return the log entries from `after` + 1 to `last`; None for a missing one.

    Cost: one GET each, several in parallel.
    """
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(place.read_commit, range(after + 1, last + 1)))


def sum_commits(commits: Sequence[DeltaCommit]) -> list[Piece]:
    """Return the combined changes of several commits, in log order.

    A file that is added and removed within them is not read.
    """
    piece_by_path: dict[str, Piece] = {}
    feed: list[Piece] = []
    for piece in (p for commit in commits for p in commit.pieces):
        if not piece.weights:
            feed.append(piece)
        elif (known := piece_by_path.get(piece.path)) is None:
            piece_by_path[piece.path] = piece
        else:
            piece_by_path[piece.path] = msgspec.structs.replace(
                known,
                size=max(known.size, piece.size),
                partition=known.partition if piece.partition is None else piece.partition,
                weights=known.weights + piece.weights,
            )
    netted = (msgspec.structs.replace(p, weights=_net_weights(p.weights)) for p in piece_by_path.values())
    return [*feed, *(p for p in netted if p.weights)]


def _net_weights(weights: Sequence[tuple[int, int | None]]) -> tuple[tuple[int, int | None], ...]:
    """Remove weights that cancel out: a file without a deletion vector that is added and removed.

    The reader combines masks.
    """
    plain = sum(weight for weight, version in weights if version is None)
    masked = tuple(w for w in weights if w[1] is not None)
    return (*masked, (plain, None)) if plain else masked


def partition_column(text: str | None, table_type: pa.DataType, kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    """Return a partition's value as a column of type `kind`.

    Args:
        table_type: of the table's column, which may be narrower: the float 0.1 is not the double 0.1.

    Raises pa.ArrowInvalid for a text that does not fit the type.
    """
    if not text:
        value: pa.Scalar = pa.scalar(None, kind)
    elif pa.types.is_timestamp(kind):
        value = _parse_moment(text, kind)
    else:
        value = pa.scalar(text, pa.string()).cast(table_type).cast(kind)
    return pa.chunked_array([pa.repeat(value, rows)], kind)


def _parse_moment(text: str, kind: pa.TimestampType) -> pa.Scalar:
    """Parse `2020-01-01 12:00:00[.123456]`, in UTC like Tussock's Spark sessions, or `2020-01-01T12:00:00.123Z`."""
    plain = text.replace("T", " ").removesuffix("Z")
    return pa.scalar(plain, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)


def _as_logged(partition: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return typed partition values in the log's form."""
    return {name: None if value is None else _value_text(value) for name, value in (partition or {}).items()}


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):  # the package returns the text's bytes
        return value.decode()
    if hasattr(value, "tzinfo"):
        return str(value.replace(tzinfo=None).isoformat(" "))
    return str(value)
