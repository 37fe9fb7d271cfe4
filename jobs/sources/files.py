"""What all sources of files share: the path, the pins, what has been taken. A format adds how its files are read.

The document that a barrier holds is a JSON list of PinnedFile. It is what barriers of every release hold: those before readers had
documents of their own are read by the same decoder.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pyarrow as pa

from jobs.sources.base import Asked, Item, Pins
from jobs.sources.errors import BadOptionError, ChangedFileError, MissingPathError, NoFilesError, PartitionFoldersError
from jobs.sources.listing import (
    STORE_OPTIONS,
    Interval,
    ListedFile,
    check_path,
    has_interval,
    list_files,
    names_file,
    open_file,
    partition_path,
)
from jobs.sources.pins import POSITION_BITS, PinnedFile, recorded_etag
from jobs.sources.rejects import FAIL, ON_ERROR, QUARANTINE, rejects_name
from jobs.sources.taken import pin_files, taken_files, taken_rows, taken_schema
from jobs.sql.logical import Field
from jobs.sql.statements import CreateSource
from statestore.errors import TussockError
from statestore.hummock.sealed_batch import SealedBatch
from statestore.meta.catalog import TableSchema
from statestore.objectstore.base import ObjectNotFoundError
from statestore.table.storage_table import StorageTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAY_BE_MISSING = "may_be_missing"  # 'true': the files may come later than the source, and go
MISSING = "missing"  # what a declared column is that a file lacks: 'error' or 'null'; 'wait' is may_be_missing's name of before
OWN_OPTIONS = ("path", "recursiveFileLookup", _MAY_BE_MISSING, MISSING, ON_ERROR, *STORE_OPTIONS)  # Spark's readers do not get them

_files = msgspec.json.Decoder(tuple[PinnedFile, ...])


def files_of(document: msgspec.Raw | None) -> tuple[PinnedFile, ...]:
    """The files that a document pins."""
    return () if document is None else _files.decode(document)


def document_of(files: Sequence[PinnedFile]) -> msgspec.Raw:
    """The document that pins these files."""
    return msgspec.Raw(msgspec.json.encode(files))


class FileSource:
    """A source of files that only come: each is read once, by the epoch that pins it. Rows are numbered by file and position."""

    needs_spark: ClassVar[bool] = False
    missing_columns: ClassVar[tuple[str, ...]]  # values of the option `missing`: what the format can do about a column that a file lacks
    why_missing: ClassVar[str]  # what to say of other values

    def key(self, source: CreateSource) -> tuple[int, ...] | None:
        return None

    def append_only(self, source: CreateSource) -> bool:
        return True

    # --- at CREATE SOURCE --------------------------------------------------------------------------------------------------------

    def check(self, source: CreateSource) -> None:
        check_path(source.options["path"], source.options)
        if (flag := source.options.get(_MAY_BE_MISSING, "true")) not in ("true", "false"):
            raise BadOptionError(
                source.name, _MAY_BE_MISSING, flag, "expected 'true' (the files may come later than the source) or 'false'"
            )
        if (missing := source.options.get(MISSING, "wait")) not in (*self.missing_columns, "wait"):
            raise BadOptionError(source.name, MISSING, missing, self.why_missing)
        if (on_error := source.options.get(ON_ERROR, FAIL)) not in (FAIL, QUARANTINE):
            reason = (
                f"expected '{FAIL}' (a file with a record that cannot be read is not taken) or '{QUARANTINE}' (such records go to "
                f"{rejects_name(source.name)}, and the rest of the file is taken)"
            )
            raise BadOptionError(source.name, ON_ERROR, on_error, reason)

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        raise NotImplementedError

    def first_file(self, source: CreateSource) -> ListedFile | None:
        """The first file that has bytes; None where none is there yet, but may come. Cost: two listings.

        Raises: MissingPathError where the part of the path that is spelled out does not exist, unless the source is to wait for it;
            PartitionFoldersError where the path reaches folders called `name=value` that it does not spell out."""
        path, options = source.options["path"], source.options
        try:
            found = list_files(path, options)
        except MissingPathError:
            if _may_be_missing(source):
                return None
            raise
        if (spelled := partition_path(path, options)) is not None:
            raise PartitionFoldersError(source.name, path, spelled)
        return next((f for f in found if f.size), None)

    @staticmethod
    def require_file(source: CreateSource, found: ListedFile | None) -> ListedFile:
        """The file that is to say the columns. Raises NoFilesError."""
        if found is None:
            raise NoFilesError(source.name, source.options["path"], source.format)
        return found

    # --- at the barrier ----------------------------------------------------------------------------------------------------------

    def taken_schema(self, name: str) -> TableSchema:
        return taken_schema(name)

    def pin(self, source: CreateSource, taken: StorageTable | None, asked: Asked) -> Pins:
        """Raises MissingPathError, ChangedFileError. Cost: one listing, one batched read of what has been taken."""
        if asked.only_skipped and not asked.skip:
            return Pins()
        listed = self._listed(source, asked)
        if asked.only_skipped:
            listed = tuple(f for f in listed if f.path in asked.skip)
        files = pin_files(listed, taken, asked.max_bytes, accept_changed=asked.skip)
        return _pins([f for f in files if f.path not in asked.skip], [f for f in files if f.path in asked.skip])

    def waiting(self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None) -> tuple[Item, ...]:
        return _items(pin_files(self._listed(source, Asked(interval)), taken, content=False))

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        return names_file(source.options["path"], source.options, item, interval)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return _items(taken_files(taken))

    def revise(self, source: CreateSource, held: Pins, taken: StorageTable | None, skip: Sequence[str], repin: Sequence[str]) -> Pins:
        """Files to skip that were taken in earlier epochs count too: a new view would read them again."""
        files = files_of(held.read)
        again = [f for f in taken_files(taken) if f.path in skip] if taken is not None and skip else []
        read = [_repinned(f, source) if f.path in repin else f for f in files if f.path not in skip]
        return _pins(read, [*files_of(held.unread), *(f for f in files if f.path in skip), *again])

    def _listed(self, source: CreateSource, asked: Asked) -> tuple[ListedFile, ...]:
        """The files that are there; none where they may come later. Raises MissingPathError."""
        path, options = source.options["path"], source.options
        try:
            return list_files(path, options, asked.interval)
        except MissingPathError as err:
            waits = asked.only_skipped or _may_be_missing(source)
            if not waits and (asked.interval is None or not has_interval(path)):
                raise MissingPathError(err.path, err.near, source.name) from err
            return ()  # the interval has no files (yet); late ones come with a later run of it

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return _items(files_of(document))

    # --- in the epoch ------------------------------------------------------------------------------------------------------------

    def parts(self, source: CreateSource, document: msgspec.Raw, units: int) -> Sequence[msgspec.Raw]:
        return ()

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> pa.Table:
        raise NotImplementedError

    def frame(self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]) -> "DataFrame | None":
        return None

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        return None

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> str:
        number, position = divmod(row_id, 1 << POSITION_BITS)
        paths = (f.path for document in documents for f in files_of(document) if f.number == number)
        return f"record {position + 1} of {next(paths, f'file number {number}')}"

    # --- what has been taken -----------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        files = (*files_of(pins.read), *files_of(pins.unread))
        return taken_rows(schema, files, epoch) if files else None

    def taken_document(self, taken: StorageTable, without: msgspec.Raw | None = None) -> msgspec.Raw | None:
        skipped = {f.path for f in files_of(without)}
        files = [f for f in taken_files(taken) if f.path not in skipped]
        return document_of(files) if files else None


def _may_be_missing(source: CreateSource) -> bool:
    return source.options.get(_MAY_BE_MISSING) == "true" or source.options.get(MISSING) == "wait"


def _pins(read: Sequence[PinnedFile], unread: Sequence[PinnedFile]) -> Pins:
    return Pins(document_of(read) if read else None, document_of(unread) if unread else None)


def _items(files: Sequence[PinnedFile]) -> tuple[Item, ...]:
    return tuple(Item(f.path, f.size, f.etag.partition("#")[0]) for f in files)


def _repinned(file: PinnedFile, source: CreateSource) -> PinnedFile:
    """The file as it is now, under its number. Raises ChangedFileError for one that is gone."""
    store, name = open_file(file.path, source.options)
    try:
        now = store.head(name)
    except ObjectNotFoundError as err:
        raise ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", "no such file, so it can only be skipped") from err
    return msgspec.structs.replace(file, size=now.size, etag=recorded_etag(file.path, now.size, now.etag))
