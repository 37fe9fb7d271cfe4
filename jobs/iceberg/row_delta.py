"""One snapshot with data files, deleted rows and removed files: a producer that pyiceberg 0.12 lacks.

pyiceberg writes no delete files, and falls back to copies of whole data files. `RowDelta` subclasses its private
producer of snapshots, so the extra pins pyiceberg to one minor version. Everything else of the format is pyiceberg's.

    RowDelta          new manifests are added to those of the parent
    RewrittenFiles    all manifests are written again: files that go are DELETED entries, files that stay EXISTING ones

Deleted rows are position deletes in tables of format 2, and deletion vectors in tables of format 3. A data file has at
most one vector. So a commit with vectors writes the manifests of delete files again, without the vectors that it
replaces.

A commit whose parent is no longer the newest snapshot fails. pyiceberg would repeat it on the newest one, where the
positions of the deletes might be wrong, so `_refresh_for_retry` refuses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpdatesAndRequirements,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from tussock.jobs.iceberg.manifests import (
    REFERENCED,
    ROW_LINEAGE,
    ManifestListWriter,
    allow_metadata,
    manifest_writer,
    next_row_id,
    read_entries,
    read_manifests,
)
from tussock.jobs.iceberg.partition_texts import encode_partition

allow_metadata()

_PARTITION = 3  # a field of a data file
_CHANGED_PARTITIONS = "changed-partition-count"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files of one snapshot.

    Args:
        added: data files, and files of deleted rows.
        stays: returns whether a file of the parent stays, for `RewrittenFiles`.
        summary: properties of the snapshot.
        moves_only: the snapshot moves rows and changes none.
    """

    added: Sequence[DataFile]
    summary: Mapping[str, str]
    stays: Callable[[DataFile], bool] | None = None
    moves_only: bool = False


class KnownTransaction(Transaction):
    """A transaction that remembers its metadata. pyiceberg copies all of it, with every snapshot, at each of many uses.

    The metadata must not be changed in place.
    """

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates so far."""
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = (base, updates, update_table_metadata(base, updates))
        return self._known[2]


class RowDelta(_FastAppendFiles):
    """Adds files to the table's newest snapshot."""

    def __init__(self, transaction: Transaction, changes: FileChanges) -> None:
        operation = Operation.OVERWRITE if self._changes_rows(changes) else Operation.APPEND
        super().__init__(operation, transaction, transaction._table.io, snapshot_properties=dict(changes.summary))
        self._changes = changes
        self._removed: list[DataFile] = []

    @staticmethod
    def _changes_rows(changes: FileChanges) -> bool:
        return changes.stays is not None or any(f.content != DataFileContent.DATA for f in changes.added)

    def _manifests(self) -> list[ManifestFile]:
        parent, added = self._parent_manifests(), self._added_entries()
        replaced = {file[REFERENCED] for file in self._changes.added if self._has_vectors and file[REFERENCED]}
        if not replaced:
            return [*self._write_manifests(added), *parent]
        old = [manifest for manifest in parent if manifest.content == ManifestContent.DELETES]
        rewritten = self._rewritten_entries(old, lambda file: file[REFERENCED] not in replaced)
        return [*self._write_manifests([*added, *rewritten]), *(m for m in parent if m not in old)]

    @property
    def _version(self) -> int:
        return int(self._transaction.table_metadata.format_version)

    @property
    def _has_vectors(self) -> bool:
        return self._version >= ROW_LINEAGE

    def _parent_manifests(self) -> list[ManifestFile]:
        """Return the manifests of the parent that have live files."""
        parent = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        manifests = [] if parent is None else read_manifests(self._io, parent)
        return [m for m in manifests if m.has_added_files() or m.has_existing_files()]

    def _rewritten_entries(
        self, manifests: Iterable[ManifestFile], stays: Callable[[DataFile], bool]
    ) -> list[ManifestEntry]:
        """Return the entries of manifests that are written again."""
        entries = []
        for manifest in manifests:
            for entry in read_entries(self._io, manifest):
                if stays(entry.data_file):
                    entries.append(_entry_of(ManifestEntryStatus.EXISTING, entry.snapshot_id, entry))
                else:
                    self._removed.append(entry.data_file)
                    entries.append(_entry_of(ManifestEntryStatus.DELETED, self._snapshot_id, entry))
        return entries

    def _added_entries(self) -> list[ManifestEntry]:
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in self._changes.added
        ]

    def _write_manifests(self, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write one manifest per partition spec and content."""
        groups: dict[tuple[bool, int], list[ManifestEntry]] = {}
        for entry in entries:
            deletes = entry.data_file.content != DataFileContent.DATA
            groups.setdefault((deletes, entry.data_file.spec_id), []).append(entry)
        manifests = []
        for (deletes, spec_id), group in sorted(groups.items(), key=lambda item: item[0]):
            writer_class = manifest_writer(self._version, deletes=deletes)
            with writer_class(
                self.spec(spec_id),
                self._schema_of(spec_id),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            ) as writer:
                for entry in group:
                    writer.add_entry(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def _schema_of(self, spec_id: int) -> Schema:
        """Return the newest schema with the columns of a partition spec, which the present one may lack."""
        metadata = self._transaction.table_metadata
        sources = {field.source_id for field in self.spec(spec_id).fields}
        schemas = (self.schema(), *reversed(metadata.schemas))
        return next((s for s in schemas if sources <= set(s.field_ids)), self.schema())

    def _commit(self) -> UpdatesAndRequirements:
        """Write the snapshot in format 3. pyiceberg writes the one of format 2."""
        if not self._has_vectors:
            return super()._commit()
        metadata, manifests = self._transaction.table_metadata, self._manifests()
        summary, first_row_id = self._summary(self.snapshot_properties), next_row_id(metadata)
        name = f"snap-{self._snapshot_id}-0-{self.commit_uuid}.avro"
        path = self._transaction._table.location_provider().new_metadata_location(name)
        sequence = metadata.next_sequence_number()
        with ManifestListWriter(
            self._io.new_output(path),
            self._snapshot_id,
            self._parent_snapshot_id,
            sequence,
            self._compression,
            first_row_id,
        ) as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self._snapshot_id,
                "parent-snapshot-id": self._parent_snapshot_id,
                "manifest-list": path,
                "sequence-number": sequence,
                "summary": summary,
                "schema-id": metadata.current_schema_id,
                "first-row-id": first_row_id,
                "added-rows": writer.next_row_id - first_row_id,
            }
        )
        branch = SetSnapshotRefUpdate.model_validate(
            {"ref-name": MAIN_BRANCH, "snapshot-id": self._snapshot_id, "type": SnapshotRefType.BRANCH}
        )
        unchanged = AssertRefSnapshotId.model_validate({"snapshot-id": self._parent_snapshot_id, "ref": MAIN_BRANCH})
        return (AddSnapshotUpdate(snapshot=snapshot), branch), (unchanged,)

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Return the summary with delete files in its totals, which pyiceberg computes from its lists of data files.

        pyiceberg names the partitions of these files, and cannot name a day of the year 10000. So it gets none, and
        the partitions are counted here.
        """
        files = [*self._changes.added, *self._removed]
        self._added_data_files = list(map(_without_partition, self._changes.added))
        # A list, since a set would confuse the vectors in one file.
        self._deleted_data_files = list(map(_without_partition, self._removed))  # type: ignore[assignment]
        changed = {(file.spec_id, _partition_text(file)) for file in files if len(file.partition)}
        count = {_CHANGED_PARTITIONS: str(len(changed))} if changed else {}
        summary = super()._summary({**snapshot_properties, **count})
        if not self._changes.moves_only:
            return summary
        return Summary(Operation.REPLACE, **summary.additional_properties)

    def _refresh_for_retry(self) -> None:
        raise CommitFailedException("another writer committed first")


class RewrittenFiles(RowDelta):
    """Removes files of the newest snapshot, and writes all its manifests again."""

    def _manifests(self) -> list[ManifestFile]:
        assert self._changes.stays is not None
        rewritten = self._rewritten_entries(self._parent_manifests(), self._changes.stays)
        return self._write_manifests([*self._added_entries(), *rewritten])


def _without_partition(file: DataFile) -> DataFile:
    fields = [file[place] for place in range(len(file))]
    fields[_PARTITION] = Record()
    copy = DataFile(*fields)
    copy.spec_id = file.spec_id
    return copy


def _partition_text(file: DataFile) -> str:
    return encode_partition(file.partition[place] for place in range(len(file.partition)))


def _entry_of(status: ManifestEntryStatus, snapshot_id: int | None, entry: Any) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
