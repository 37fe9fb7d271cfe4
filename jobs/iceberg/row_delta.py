"""One snapshot with data files, position deletes and removed files: a producer that pyiceberg 0.12 lacks.

pyiceberg writes no delete files, and falls back to copies of whole data files. `RowDelta` subclasses its private
producer of snapshots, so the extra pins pyiceberg to one minor version. Everything else of the format is pyiceberg's.

    RowDelta          new manifests are added to those of the parent
    RewrittenFiles    all manifests are written again: files that go are DELETED entries, files that stay EXISTING ones

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
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT

_AddEntry = Callable[[ManifestWriter, ManifestEntry], object]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files of one snapshot.

    Args:
        added: data files and files of position deletes.
        stays: returns whether a file of the parent stays, for `RewrittenFiles`.
        summary: properties of the snapshot.
        moves_only: the snapshot moves rows and changes none.
    """

    added: Sequence[DataFile]
    summary: Mapping[str, str]
    stays: Callable[[DataFile], bool] | None = None
    moves_only: bool = False


class _DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_FastAppendFiles):
    """Adds files to the table's newest snapshot."""

    def __init__(self, transaction: Transaction, changes: FileChanges) -> None:
        operation = Operation.OVERWRITE if self._changes_rows(changes) else Operation.APPEND
        super().__init__(operation, transaction, transaction._table.io, snapshot_properties=dict(changes.summary))
        self._changes = changes

    @staticmethod
    def _changes_rows(changes: FileChanges) -> bool:
        return changes.stays is not None or any(f.content != DataFileContent.DATA for f in changes.added)

    def _manifests(self) -> list[ManifestFile]:
        return [*self._write_manifests(self._added_entries()), *self._existing_manifests()]

    def _added_entries(self) -> Iterable[ManifestEntry]:
        for file in self._changes.added:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )

    def _write_manifests(self, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write one manifest per partition spec and content."""
        groups: dict[tuple[bool, int], list[ManifestEntry]] = {}
        for entry in entries:
            deletes = entry.data_file.content != DataFileContent.DATA
            groups.setdefault((deletes, entry.data_file.spec_id), []).append(entry)
        manifests = []
        for (deletes, spec_id), group in sorted(groups.items(), key=lambda item: item[0]):
            spec = self.spec(spec_id)
            with self._delete_writer(spec) if deletes else self.new_manifest_writer(spec) as writer:
                for entry in group:
                    writer.add_entry(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def _delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeleteManifestWriter(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Return the summary with delete files in its totals, which pyiceberg computes from its lists of data files."""
        self._added_data_files = list(self._changes.added)
        summary = super()._summary(snapshot_properties)
        if not self._changes.moves_only:
            return summary
        return Summary(Operation.REPLACE, **summary.additional_properties)

    def _refresh_for_retry(self) -> None:
        raise CommitFailedException("another writer committed first")


class RewrittenFiles(RowDelta):
    """Removes files of the newest snapshot, and writes all its manifests again."""

    def _manifests(self) -> list[ManifestFile]:
        assert self._changes.stays is not None
        entries = list(self._added_entries())
        parent = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        for manifest in [] if parent is None else parent.manifests(self._io):
            for entry in manifest.fetch_manifest_entry(self._io):
                if self._changes.stays(entry.data_file):
                    entries.append(_entry_of(ManifestEntryStatus.EXISTING, entry.snapshot_id, entry))
                else:
                    self._deleted_data_files.add(entry.data_file)
                    entries.append(_entry_of(ManifestEntryStatus.DELETED, self._snapshot_id, entry))
        return self._write_manifests(entries)


def _entry_of(status: ManifestEntryStatus, snapshot_id: int | None, entry: Any) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
