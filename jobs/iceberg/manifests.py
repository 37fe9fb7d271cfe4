"""Manifests and manifest lists with the fields of format 3, which pyiceberg 0.12 neither writes nor returns.

    entry.data_file[16:20]    first_row_id, referenced_data_file, content_offset, content_size_in_bytes
    manifest[15]              first_row_id: the row id of the first row of its data files that have none

Row ids (row lineage) are assigned by the manifest list: a data file without a first row id gets the next one of its
manifest, and a manifest without one gets the next one of its snapshot. The subclasses add these fields to pyiceberg's
writers; the rest of the format is pyiceberg's.

pyiceberg refuses to write the metadata files of format 3, because it lacks these writers. With them, its own JSON is
complete, so `allow_metadata` removes the refusal. Catalogs with a server write the metadata themselves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

FIRST_ROW_ID, REFERENCED = 16, 17  # fields of a data file
LIST_FIRST_ROW_ID: Final = 15  # a field of a manifest in a list
ROW_LINEAGE: Final = 3  # the first format with row ids and deletion vectors
_BLOCK_ENTRIES = 500


def read_manifests(io: FileIO, snapshot: "Snapshot") -> list[ManifestFile]:
    """Return the manifests of a snapshot, with their first row ids. One GET."""
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        return list(manifests)


def read_entries(io: FileIO, manifest: ManifestFile) -> Sequence[Any]:
    """Return the live entries of a manifest, with the first row id of each data file if the manifest has one. One GET.

    Requires: for first row ids, the manifest is from `read_manifests`.
    """
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as read:
        entries = [_inherit_from_manifest(e, manifest) for e in read if e.status != ManifestEntryStatus.DELETED]
    next_id = manifest[LIST_FIRST_ROW_ID] if len(manifest) > LIST_FIRST_ROW_ID else None
    if next_id is not None and manifest.content == ManifestContent.DATA:
        for entry in entries:
            if entry.data_file[FIRST_ROW_ID] is None:
                entry.data_file[FIRST_ROW_ID] = next_id
                next_id += entry.data_file.record_count
    return entries


class _BlockFile(AvroOutputFile[ManifestEntry]):
    """An Avro file that writes entries in blocks. pyiceberg compresses each entry alone."""

    def __enter__(self) -> "_BlockFile":
        super().__enter__()
        self._waiting: list[ManifestEntry] = []
        return self

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._waiting += objects
        if len(self._waiting) >= _BLOCK_ENTRIES:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            super().write_block(self._waiting)
            self._waiting = []

    def __exit__(self, *exc_info: Any) -> None:
        if exc_info[0] is None:
            self._write_waiting()
        super().__exit__(*exc_info)


class _DataManifestWriter(ManifestWriterV2):
    """A manifest of data files in format 2."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(self.version)
        return _BlockFile(self._output_file, schema, "manifest_entry", schema, self._meta)


class _LineageWriter(_DataManifestWriter):
    """A manifest of data files in format 3."""

    @property
    def version(self) -> Any:
        return ROW_LINEAGE


class _OfDeletes(_DataManifestWriter):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _LineageOfDeletes(_OfDeletes, _LineageWriter):
    """A manifest of delete files in format 3."""


def manifest_writer(version: int, *, deletes: bool) -> type[ManifestWriter]:
    """Return the writer of the manifests of a format."""
    if version >= ROW_LINEAGE:
        return _LineageOfDeletes if deletes else _LineageWriter
    return _OfDeletes if deletes else _DataManifestWriter


class ManifestListWriter(ManifestListWriterV2):
    """A manifest list of format 3.

    Args:
        first_row_id: of the snapshot. `next_row_id` is the one of the next snapshot.
    """

    def __init__(
        self,
        output_file: OutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        compression: Any,
        first_row_id: int,
    ) -> None:
        super().__init__(output_file, snapshot_id, parent_snapshot_id, sequence_number, compression)
        self._format_version = ROW_LINEAGE
        self._meta |= {"format-version": str(ROW_LINEAGE), "first-row-id": str(first_row_id)}
        self.next_row_id = first_row_id

    def __enter__(self) -> "ManifestListWriter":
        schema = MANIFEST_LIST_FILE_SCHEMAS[3]
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=schema,
            file_schema=schema,
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        prepared = super().prepare_manifest(manifest_file)
        fields = [prepared[place] for place in range(len(prepared))]
        fields += [None] * (LIST_FIRST_ROW_ID + 1 - len(fields))
        if fields[LIST_FIRST_ROW_ID] is None and prepared.content == ManifestContent.DATA:
            fields[LIST_FIRST_ROW_ID] = self.next_row_id
            self.next_row_id += (prepared.added_rows_count or 0) + (prepared.existing_rows_count or 0)
        return ManifestFile(*fields)


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id of the next snapshot."""
    return getattr(metadata, "next_row_id", None) or 0


def allow_metadata() -> None:
    """Let pyiceberg write the metadata files of tables of format 3. May be called repeatedly."""
    TableMetadataV3.model_dump_json = _dump_metadata  # type: ignore[method-assign, assignment]


def _dump_metadata(self: TableMetadataV3, **options: Any) -> str:
    """Return a metadata file. A new table has the next row id 0, which pyiceberg leaves out."""
    complete = self if self.next_row_id is not None else self.model_copy(update={"next_row_id": 0})
    return IcebergBaseModel.model_dump_json(complete, **options)
