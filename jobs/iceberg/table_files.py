"""The files of a snapshot of an Iceberg table, and the files by which two snapshots differ.

    snapshot -> manifest list -> manifests (never changed) -> data files, and delete files that exclude rows of them

The rows of a snapshot are the live rows of its data files. A row of a file is live unless a delete file applies to it:

    deletion vector     of one data file (format 3); replaces position deletes of the file
    position deletes    (file, position); of data files with the same partition, not newer than the deletes
    equality deletes    values of columns; of data files with the same partition, or of all partitions if the deletes
                        have none, or only void fields (format 1 keeps a removed field as void). The data files must
                        be older than the deletes

So the difference of two snapshots is, by data file: its live rows in the later one (+1) minus its live rows in the
earlier one (-1). Manifests that both have cancel out unread, unless new deletes apply to their files.

A `replace` snapshot (a compaction) moves rows between files and changes none. `pieces_between` therefore sums the
differences of the runs of snapshots between replacing ones, and reads nothing of the moves. If an intermediate snapshot
has expired, its operation is unknown, and the moved rows are read and cancel out later.

For a source that stores rows by a key, a new equality delete of this key is a piece of its own: the keys that it
deletes. It excludes rows of no file then, so the files that it concerns are not read.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tussock.jobs.iceberg.iceberg_errors import UnsupportedIcebergFeatureError
from tussock.jobs.iceberg.iceberg_types import text_of_constant
from tussock.jobs.iceberg.partition_texts import encode_partition

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_DATA, _POSITIONS, _EQUALITY = 0, 1, 2  # the content of a file
_PATH_COLUMN = 2147483546  # the field id of `file_path` in position deletes
_AZURE = frozenset({"abfs", "abfss", "wasb", "wasbs"})  # the schemes of other programs for a container of Azure


class LakeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A data file or a delete file, as its manifest lists it."""

    path: str  # as in the metadata; delete files name data files by this text
    format: str
    size: int  # bytes
    sequence: int  # the data sequence number; a later snapshot has a larger one
    spec: int  # the id of its partition spec
    partition: str  # the partition's values (partition_texts.py)
    content: int = _DATA
    equality_ids: tuple[int, ...] = ()  # of equality deletes: the field ids that are compared
    low: str = ""  # of position deletes: the bounds of the data files' paths; empty: unknown
    high: str = ""
    offset: int = 0  # of a deletion vector: its place in the file
    length: int = 0
    values: tuple[tuple[int, str | None], ...] = ()  # of a data file: identity partitions, by field id of the column

    @property
    def is_vector(self) -> bool:
        """Whether it is a deletion vector."""
        return self.format == "PUFFIN"

    @property
    def only_path(self) -> str | None:
        """The single data file whose positions it deletes; None if there may be several."""
        return self.low if self.low and self.low == self.high else None

    def may_contain(self, path: str) -> bool:
        """Return whether position deletes may name a data file."""
        return not self.low or not self.high or self.low <= path <= self.high


class LakePiece(msgspec.Struct, frozen=True):
    """Rows of one data file that are added or removed.

    Args:
        weights: (weight, delete files that exclude rows). A row's weight is the sum.
        rows: the first row to read, and the row after the last one (None: all); None for the whole file.
    """

    file: LakeFile
    weights: tuple[tuple[int, tuple[LakeFile, ...]], ...]
    rows: tuple[int, int | None] | None = None


@dataclass(frozen=True)
class TableFiles:
    """Reads the metadata of one table."""

    table: "Table"
    name: str
    key: frozenset[int] = frozenset()
    """The field ids of the source's key; empty: equality deletes exclude rows of data files."""

    def pieces_of(self, snapshot: "Snapshot | None") -> list[LakePiece]:
        """Return all rows of a snapshot, by the paths of files; None has no rows."""
        return self._difference(None, snapshot)[0]

    def pieces_between(self, before: "Snapshot", last: "Snapshot") -> list[LakePiece]:
        """Return the changes from one snapshot to another, which need not be its descendant.

        Raises: UnsupportedIcebergFeatureError; errors of the table's storage. Cost: the manifests that only one of
        them has, all delete manifests, and the data manifests of both if new deletes apply to older files.
        """
        changes, keys = _PieceSums(), dict[LakeFile, None]()
        for start, end in self._runs_between(before, last):
            pieces, of_keys = self._difference(start, end, before)
            changes.add_pieces(pieces)
            keys |= dict.fromkeys(of_keys)
        return [*changes.list_pieces(), *(LakePiece(delete, ((1, ()),)) for delete in keys)]

    def find_snapshot(self, snapshot_id: int) -> "Snapshot | None":
        """Return a snapshot of the table; None if it has expired."""
        return self.table.metadata.snapshot_by_id(snapshot_id)

    def chain_between(self, before: "Snapshot", last: "Snapshot") -> list["Snapshot"] | None:
        """Return the snapshots after `before` up to `last`; None if `last` does not descend from it.

        Some may be missing, if they have expired. An expiry may also remove the name of a parent. Then a snapshot
        descends from `before` if it is not older, unless another known snapshot or a common ancestor is in between.
        """
        ancestors = list(self._ancestors_of(last))
        ids = [s.snapshot_id for s in ancestors]
        if before.snapshot_id in ids:
            return ancestors[: ids.index(before.snapshot_id)][::-1]
        has_child = any(s.parent_snapshot_id == before.snapshot_id for s in self.table.metadata.snapshots)
        forks = has_child or any(s.snapshot_id in ids for s in self._ancestors_of(before))
        return None if forks or last.timestamp_ms < before.timestamp_ms else ancestors[::-1]

    def _ancestors_of(self, snapshot: "Snapshot | None") -> Iterator["Snapshot"]:
        """Yield a snapshot and its ancestors, up to the first one that has expired."""
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.find_snapshot(parent)

    def _runs_between(self, before: "Snapshot", last: "Snapshot") -> Iterator[tuple["Snapshot", "Snapshot"]]:
        """Yield pairs of snapshots whose differences add up to the changes of rows."""
        start, end = before, before
        for snapshot in self.chain_between(before, last) or [last]:
            if _operation(snapshot) == "replace" and snapshot.parent_snapshot_id == end.snapshot_id:
                if start is not end:
                    yield start, end
                start = snapshot
            end = snapshot
        if start is not end:
            yield start, end

    def first_run(self, chain: list["Snapshot"]) -> list["Snapshot"]:
        """Return the first snapshots of a chain, up to one that changes rows after a `replace` of changed rows.

        So `pieces_between` is one difference. In a sum of two, a row that the first one inserted and the second one
        lost cancels out by weight, but an order of changes would keep it.
        """
        changed = moved = False
        for number, snapshot in enumerate(chain):
            replaces = _operation(snapshot) == "replace"
            if moved and not replaces:
                return chain[:number]
            changed, moved = changed or not replaces, moved or (changed and replaces)
        return chain

    def _difference(
        self, before: "Snapshot | None", last: "Snapshot | None", taken: "Snapshot | None" = None
    ) -> tuple[list[LakePiece], list[LakeFile]]:
        """Return the difference of the live rows of two snapshots, and the deletes of keys that are not part of it.

        Manifests may list a file several times: each entry counts, with the deletes that its sequence number admits.
        `taken`: the snapshot whose rows the source has; None: no delete is one of keys.
        """
        after = None if taken is None or not self.key else int(taken.sequence_number or 0)
        was, now = _Files(self, before, after), _Files(self, last, after)
        changes = _PieceSums()
        changes.count_files(was.files_of(was.only(now)), was, -1)
        changes.count_files(now.files_of(now.only(was)), now, 1)
        if set(was.deletes) != set(now.deletes):
            stay = was.files_of(was.common(now))
            changes.count_files(stay, was, -1)
            changes.count_files(stay, now, 1)
        before_them = set(was.key_deletes)
        return changes.list_pieces(), [delete for delete in now.key_deletes if delete not in before_them]

    def _deletes_keys(self, delete: LakeFile) -> bool:
        """Return whether an equality delete concerns each older row of its keys: the key decides the partition."""
        if set(delete.equality_ids) != self.key or not delete.partition:
            return set(delete.equality_ids) == self.key
        (spec, *others) = self.table.metadata.specs().values()
        return not others and {field.source_id for field in spec.fields} <= self.key

    @cached_property
    def _columns(self) -> frozenset[int]:
        """The ids of the columns that the table has or had."""
        return frozenset(field.field_id for schema in self.table.metadata.schemas for field in schema.fields)

    def read_manifests(self, manifests: Iterable["ManifestFile"]) -> list[LakeFile]:
        """Return the live files of manifests."""
        with ThreadPoolExecutor(8) as pool:
            return [file for files in pool.map(self._read_manifest, manifests) for file in files]

    def _read_manifest(self, manifest: "ManifestFile") -> list[LakeFile]:
        from tussock.jobs.iceberg.manifests import read_entries

        spec = self.table.metadata.specs()[manifest.partition_spec_id]
        identities = {field.source_id: i for i, field in enumerate(spec.fields) if str(field.transform) == "identity"}
        files = [self._file_of(entry, spec.spec_id, identities) for entry in read_entries(self.table.io, manifest)]
        if any(str(field.transform) != "void" for field in spec.fields):
            return files
        return [msgspec.structs.replace(file, partition="") if file.content == _EQUALITY else file for file in files]

    def _file_of(self, entry: Any, spec: int, identities: Mapping[int, int]) -> LakeFile:
        data = entry.data_file
        fields = [data[i] for i in range(len(data))]
        partition = [data.partition[i] for i in range(len(data.partition))]
        if data.key_metadata is not None:
            raise UnsupportedIcebergFeatureError(self.name, f"an encrypted file ({data.file_path})")
        content, form = int(data.content), data.file_format.value
        if form != "PARQUET" and not (content == _POSITIONS and form == "PUFFIN"):
            raise UnsupportedIcebergFeatureError(self.name, f"a file in the format {form} ({data.file_path})")
        equality = tuple(data.equality_ids or ()) if content == _EQUALITY else ()
        if not self._columns.issuperset(equality):
            raise UnsupportedIcebergFeatureError(self.name, f"equality deletes of a nested field ({data.file_path})")
        referenced, offset, length = fields[17:20]
        low, high = ((bounds or {}).get(_PATH_COLUMN, b"") for bounds in (data.lower_bounds, data.upper_bounds))
        values = tuple((column, text_of_constant(partition[i])) for column, i in identities.items())
        return LakeFile(
            data.file_path,
            form,
            int(data.file_size_in_bytes),
            int(entry.sequence_number or 0),
            spec,
            encode_partition(partition),
            content,
            equality,
            referenced or low.decode(errors="replace") if content == _POSITIONS else "",
            referenced or high.decode(errors="replace") if content == _POSITIONS else "",
            int(offset or 0),
            int(length or 0),
            values if content == _DATA else (),
        )


class _PieceSums:
    """Sums the weights of data files, by path and deletes."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[tuple[LakeFile, ...], int]] = {}
        self._files: dict[str, LakeFile] = {}

    def count_files(self, files: Iterable[LakeFile], of: "_Files", weight: int) -> None:
        """Count each file with this weight, and with the deletes of a snapshot."""
        self.add_pieces(LakePiece(file, ((weight, of.deletes_of(file)),)) for file in files)

    def add_pieces(self, pieces: Iterable[LakePiece]) -> None:
        """Add the weights of pieces."""
        for piece in pieces:
            self._files[piece.file.path] = piece.file
            of_file = self._sums.setdefault(piece.file.path, {})
            for weight, deletes in piece.weights:
                of_file[deletes] = of_file.get(deletes, 0) + weight

    def list_pieces(self) -> list[LakePiece]:
        """Return the files with a weight, by path."""
        netted = {path: tuple((w, d) for d, w in of_file.items() if w) for path, of_file in self._sums.items()}
        return [LakePiece(self._files[path], weights) for path, weights in sorted(netted.items()) if weights]


class _Files:
    """The files of one snapshot.

    `after`: equality deletes of the key with a later sequence number are no deletes of rows, but `key_deletes`.
    """

    def __init__(self, of: TableFiles, snapshot: "Snapshot | None", after: int | None = None) -> None:
        self._of, self._after = of, after
        manifests = [] if snapshot is None else snapshot.manifests(of.table.io)
        self._data = {m.manifest_path: m for m in manifests if int(m.content) == 0}
        self._delete_manifests = [m for m in manifests if int(m.content) == 1]

    def only(self, other: "_Files") -> list["ManifestFile"]:
        """Return the data manifests that the other snapshot lacks."""
        return [m for path, m in self._data.items() if path not in other._data]

    def common(self, other: "_Files") -> list["ManifestFile"]:
        """Return the data manifests that both snapshots have."""
        return [m for path, m in self._data.items() if path in other._data]

    def files_of(self, manifests: Iterable["ManifestFile"]) -> list[LakeFile]:
        """Return the live data files of manifests."""
        return self._of.read_manifests(manifests)

    @cached_property
    def deletes(self) -> list[LakeFile]:
        """All delete files of rows."""
        apart = set(self.key_deletes)
        return [delete for delete in self._every_delete if delete not in apart]

    @cached_property
    def key_deletes(self) -> list[LakeFile]:
        """The delete files of keys."""
        if self._after is None:
            return []
        return [d for d in self._every_delete if d.sequence > self._after and self._of._deletes_keys(d)]

    @cached_property
    def _every_delete(self) -> list[LakeFile]:
        return self._of.read_manifests(self._delete_manifests)

    @cached_property
    def _of_path(self) -> dict[str, list[LakeFile]]:
        by_path: dict[str, list[LakeFile]] = {}
        for delete in self.deletes:
            if (path := delete.only_path) is not None:
                by_path.setdefault(path, []).append(delete)
        return by_path

    @cached_property
    def _of_partition(self) -> dict[tuple[int, str], list[LakeFile]]:
        by_partition: dict[tuple[int, str], list[LakeFile]] = {}
        for delete in self.deletes:
            if delete.only_path is None:
                everywhere = delete.content == _EQUALITY and not delete.partition
                key = (-1, "") if everywhere else (delete.spec, delete.partition)
                by_partition.setdefault(key, []).append(delete)
        return by_partition

    def deletes_of(self, file: LakeFile) -> tuple[LakeFile, ...]:
        """Return the delete files that apply to a data file, in a fixed order."""
        own = [d for d in self._of_path.get(file.path, []) if d.sequence >= file.sequence]
        vectors = [d for d in own if d.is_vector]
        positions, equality = vectors or own, list[LakeFile]()
        for key in {(file.spec, file.partition), (-1, "")}:
            for delete in self._of_partition.get(key, []):
                if delete.content == _EQUALITY and delete.sequence > file.sequence:
                    equality.append(delete)
                elif delete.content == _POSITIONS and not vectors and delete.sequence >= file.sequence:
                    positions += [delete] if delete.may_contain(file.path) else []
        return tuple(sorted((*positions, *equality), key=lambda d: (d.sequence, d.path, d.offset)))


def _operation(snapshot: "Snapshot") -> str:
    return "" if snapshot.summary is None else snapshot.summary.operation.value


def normal_path_of(path: str) -> str:
    """Return a path of the metadata in the form of source files: `/a/b`, `s3://bucket/a` or `az://container/a`."""
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return path
    if scheme == "file":
        return "/" + rest.lstrip("/")
    if scheme in _AZURE:
        container, _, name = rest.removeprefix("//").partition("/")
        return f"az://{container.partition('@')[0]}/{name}"
    return f"s3:{rest}" if scheme in ("s3a", "s3n") else path


def azure_account_of(path: str) -> str | None:
    """Return the storage account in an address such as `abfss://container@account.dfs.core.windows.net/a`, or None."""
    scheme, _, rest = path.partition("://")
    host = rest.partition("/")[0].partition("@")[2]
    return host.partition(".")[0] or None if scheme in _AZURE else None
