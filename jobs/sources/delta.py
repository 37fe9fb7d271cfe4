"""Delta tables as sources: first the rows of one version, then all changes of later versions.

A barrier pins a range of versions (PinnedVersions). The first ranges are portions of a snapshot (snapshot_cuts.py).
Each later one is the changes since the range before it. Versions never change, so their numbers, the ends of portions
and the table's id are all that a barrier stores.
`delta_log.py` finds the files of a range; their rows are read like a Parquet source's (parquet.py), with weights.

A row is identified by the columns of the option `key`. Without the option, all its values identify it, and equal rows
are counted (RowDigest, NumberCopies).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from tussock.jobs.delta.delta_columns import VOID, Mapped, columns_of, void_fields
from tussock.jobs.delta.delta_log import (
    CLONE_OF,
    DeltaCommit,
    DeltaPlace,
    DeltaSnapshot,
    Piece,
    commits_after,
    sum_commits,
)
from tussock.jobs.delta.delta_vectors import LOG
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import EngineReader, Item, OptionEffect, PinRequest, Pins
from tussock.jobs.sources.char_padding import widths_of
from tussock.jobs.sources.credentials import FILES_LOGIN
from tussock.jobs.sources.delta_by_spark import rows_by_spark
from tussock.jobs.sources.delta_errors import (
    DeltaHistoryGoneError,
    MissingDeltaTableError,
    UnsupportedDeltaFeatureError,
)
from tussock.jobs.sources.delta_files import (
    DeltaEngine,
    PinnedVersions,
    file_of,
    files_of_pieces,
    item_of_versions,
    other_tables,
    pinned_pieces,
    place_of_table,
    reasons_of_files,
    rest_by_spark,
    translated_error,
    versions_of,
)
from tussock.jobs.sources.delta_taken import TAKEN_VERSIONS, DeltaTaken
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadPathError,
    BadTableKeyError,
    CannotRestateError,
    PinnedReadError,
    TableColumnsChangedError,
    TableReplacedError,
    UnskippableItemError,
    require_options,
    with_other_columns,
)
from tussock.jobs.sources.kept import Keeper, map_in_threads
from tussock.jobs.sources.listing import STORE_OPTIONS, Interval, check_path, has_interval, without_query
from tussock.jobs.sources.measures import measure_parquet
from tussock.jobs.sources.pairing import Misfit, find_misfit
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.snapshot_cuts import cut_fields, files_between, next_portion, pieces_between_cuts
from tussock.jobs.sources.unchanging import KEY, ChangingRows, key_columns, key_objection
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.objectstore.open import REMOTE
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type, is_stored_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = ("path", KEY, CLONE_OF, *STORE_OPTIONS)


class DeltaTables(ChangingRows):
    """Delta tables. The engine reads their log, and their files as those of Parquet sources."""

    taken_columns = TAKEN_VERSIONS.columns
    engine: EngineReader | None = DeltaEngine()
    login: ClassVar[str] = FILES_LOGIN

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def effect_of(self, option: str) -> OptionEffect:
        if option == KEY:
            return OptionEffect.IDENTITY
        return OptionEffect.AT_ONCE if option in (CLONE_OF, *STORE_OPTIONS) else OptionEffect.POSITION

    def check(self, source: CreateSource) -> None:
        path = source.options["path"]
        check_path(path, source.options)
        if has_interval(path):
            raise BadPathError(path, "a Delta table is one folder, so its path has no placeholders")
        require_options(source, OPTIONS)
        for folder in other_tables(source):
            if not folder.startswith(("/", *REMOTE)):
                reason = "expected the folders of other tables, /a/path or s3://bucket/prefix, separated by commas"
                raise BadOptionError(source.name, CLONE_OF, source.options[CLONE_OF], reason)
        if KEY in source.options and not key_columns(source):
            raise BadTableKeyError(source.name, source.options[KEY], "names no column")

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        if (newest_snapshot := place_of_table(source).read_snapshot()) is None and any(
            c in without_query(source.options["path"]) for c in "*["
        ):
            raise BadPathError(
                source.options["path"], "a Delta table is one folder, and no folder has exactly this name"
            )
        snapshot = self._require_readable(source, newest_snapshot)
        _require_schema(source, snapshot.columns, snapshot.version)
        fields = source.fields or _fields_of(snapshot)
        if (objection := key_objection(source, fields)) is not None:
            raise BadTableKeyError(source.name, *objection)
        return fields

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner.

        The HEAD requests find files that VACUUM has removed, before an epoch runs in vain.

        Raises: the errors of delta_errors.py; CannotRestateError. Cost: the table's log since its last checkpoint, and
        one HEAD request per file to read.
        """
        if request.restated is not None:
            raise CannotRestateError(
                source.name, "a Delta table's log records its changes, so write the correction into the table"
            )
        if request.only_skipped or request.skip:
            self.refuse_skip(source, request.skip)
        if request.only_skipped:
            return Pins()
        before, place = TAKEN_VERSIONS.read_newest(taken), place_of_table(source)
        if before is None or before.end is not None:
            return self._pin_snapshot(source, before, request)
        snapshot = self._require_readable(source, place.read_snapshot())
        commits = self._new_commits(source, before, snapshot)
        if not commits:
            return Pins()
        commits = _fitting_commits(commits, request.bytes_left)
        pieces = sum_commits(commits)
        nbytes, last = sum(p.size for p in pieces), commits[-1].version
        pinned = PinnedVersions(place.root, _id_after(before.table, commits), last, nbytes, before.version)
        files = self._require_files(source, place, before, pieces)
        return _pins_of(pinned, reasons_of_files(source, snapshot.columns, pieces, files))

    def _pin_snapshot(self, source: CreateSource, before: DeltaTaken | None, request: PinRequest) -> Pins:
        """Pin the next portion of the first version. Cost: `next_portion`, and a HEAD request per file."""
        place = place_of_table(source)
        snapshot = self._first_snapshot(source, before)
        start = None if before is None else before.end
        pieces = snapshot.list_pieces()
        taken = 0 if start is None else start.files
        files = self._require_files(source, place, before, pieces[taken:])
        there = [*(PinnedFile(place.file_path(p.path), p.size, "", 0) for p in pieces[:taken]), *files]
        portion = next_portion(there, start, request, lambda file: measure_parquet(file, source.options))
        chosen = files_between(len(pieces), start, portion.end)
        pinned = PinnedVersions(
            place.root,
            snapshot.id,
            snapshot.version,
            sum(pieces[n].size for n in chosen),
            start=start,
            end=portion.end,
            cost=portion.cost,
        )
        some, their = [pieces[n] for n in chosen], [there[n] for n in chosen]
        return _pins_of(pinned, reasons_of_files(source, snapshot.columns, some, their))

    def _first_snapshot(self, source: CreateSource, before: DeltaTaken | None) -> DeltaSnapshot:
        """Return the version that the first epochs read: the one that they have begun, or the newest one."""
        place = place_of_table(source)
        if before is None:
            snapshot = self._require_readable(source, place.read_snapshot())
            _require_schema(source, snapshot.columns, snapshot.version)
            return snapshot
        begun = place.read_snapshot(before.version)
        if begun is None or begun.id != before.table:
            gone = f"version {before.version} of table {before.table}"
            raise DeltaHistoryGoneError(source.name, place.root, before.version, gone)
        return begun

    @staticmethod
    def _require_files(
        source: CreateSource, place: DeltaPlace, before: DeltaTaken | None, pieces: Sequence[Piece]
    ) -> list[PinnedFile]:
        """Return the files of pieces. Raises DeltaHistoryGoneError."""
        files, gone = files_of_pieces(place, source, pieces)
        if gone:
            raise DeltaHistoryGoneError(source.name, place.root, -1 if before is None else before.version, gone[0])
        return files

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        before = TAKEN_VERSIONS.read_newest(taken)
        if before is None or before.end is not None:
            snapshot = self._first_snapshot(source, before)
            pieces = pieces_between_cuts(snapshot.list_pieces(), None if before is None else before.end, None)
            nbytes = sum(p.size for p in pieces)
            newest = snapshot if before is None else place_of_table(source).read_snapshot()
            version = snapshot.version if newest is None else newest.version  # a held portion waits for its change
            return (item_of_versions(PinnedVersions(snapshot.place.root, snapshot.id, version, nbytes)),)
        snapshot = self._require_readable(source, place_of_table(source).read_snapshot())
        commits = self._new_commits(source, before, snapshot)
        nbytes = sum(c.nbytes for c in commits)
        return (
            (
                item_of_versions(
                    PinnedVersions(snapshot.place.root, before.table, snapshot.version, nbytes, before.version)
                ),
            )
            if commits
            else ()
        )

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return tuple(Item(f"{t.place} version {t.version}", t.size) for t in TAKEN_VERSIONS.read_all(taken))

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return () if document is None else (item_of_versions(versions_of(document)),)

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader: the files of `PinnedVersions.only`."""
        return rest_by_spark(spark, source, document, columns)

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """See SourceReader. Returns an error of the pinned item, as for an actor."""
        return translated_error(error, source, document)

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader. Raises PinnedReadError. Cost: one HEAD request per file, and `rows_by_spark`."""
        pinned, place = versions_of(document), place_of_table(source)
        item = item_of_versions(pinned).name
        map_in_threads(lambda piece: file_of(place, source, item, piece), pinned_pieces(place, pinned)[1])
        if (snapshot := place.read_snapshot(pinned.last)) is None:
            raise PinnedReadError(item, f"version {pinned.last} of the Delta table {place.root} is gone.")
        return rows_by_spark(session, source, snapshot, pinned.end)

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        if pins.read is None:
            return None
        pinned = versions_of(pins.read)
        taken = DeltaTaken(pinned.last, pinned.place, pinned.table, pinned.nbytes, **cut_fields(pinned.end))
        return TAKEN_VERSIONS.seal_records(schema, [taken], epoch)

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        """Return the taken rows of the last taken version, by time travel."""
        if (last := TAKEN_VERSIONS.read_newest(taken)) is None:
            return None
        return msgspec.Raw(msgspec.json.encode(PinnedVersions(last.place, last.table, last.version, 0, end=last.end)))

    # --- the table ----------------------------------------------------------------------------------------------------

    def _require_readable(self, source: CreateSource, snapshot: DeltaSnapshot | None) -> DeltaSnapshot:
        """Require a snapshot that this reader supports. Raises MissingDeltaTableError, UnsupportedDeltaFeatureError."""
        if snapshot is None:
            raise MissingDeltaTableError(source.name, place_of_table(source).root)
        if (feature := snapshot.unknown_feature()) is not None:
            raise UnsupportedDeltaFeatureError(source.name, snapshot.place.root, feature)
        return snapshot

    def _new_commits(self, source: CreateSource, before: DeltaTaken, snapshot: DeltaSnapshot) -> list[DeltaCommit]:
        """Return the commits after the taken version. All of them are readable with the source's columns.

        Raises: TableReplacedError, DeltaHistoryGoneError, TableColumnsChangedError.
        """
        place = snapshot.place
        recorded = f"version {before.version} of table {before.table}"
        current_version = f"version {snapshot.version} of table {snapshot.id}"
        if snapshot.version < before.version:
            raise TableReplacedError(source.name, f"the Delta table at {place.root}", recorded, current_version)
        commits: list[DeltaCommit] = []
        for version, commit in enumerate(
            commits_after(place, before.version, snapshot.version), start=before.version + 1
        ):
            if commit is None:
                raise DeltaHistoryGoneError(
                    source.name, place.root, before.version, f"{place.root}/{LOG}/{version:020}.json"
                )
            commits.append(commit)
        then = place.read_snapshot(before.version) if any(c.actions_of("metaData") for c in commits) else None
        # CREATE OR REPLACE assigns a new id, but continues the log.
        if snapshot.id != before.table and (then is None or then.id != before.table):
            raise TableReplacedError(source.name, f"the Delta table at {place.root}", recorded, current_version)
        for commit in commits:
            for metadata in commit.actions_of("metaData"):
                columns = columns_of(msgspec.json.decode(metadata["schemaString"]), metadata["partitionColumns"])
                _require_schema(source, columns, commit.version)
                _require_same_columns(source, place, commit.version, columns, snapshot)
        # None: no version sets columns, or a checkpoint replaced the log up to the first new version.
        if then is not None:
            _require_same_columns(source, place, snapshot.version, then.columns, snapshot)
        _require_schema(source, snapshot.columns, snapshot.version)
        return commits

    def refuse_skip(self, source: CreateSource, skip: Sequence[str]) -> None:
        own = f"{place_of_table(source).root} "
        for name in skip:
            if name.startswith((f"{own}from version ", f"{own}version ")):
                raise UnskippableItemError(source.name, name, "versions of the table")


def _fields_of(snapshot: DeltaSnapshot) -> tuple[Field, ...]:
    """Return the columns of a table, followed by struct fields of type void.

    The types of void fields and of some columns cannot be stored; `describe_source` leaves those columns out.
    """
    return (
        *(Field(c.name, c.type) for c in snapshot.columns),
        *(Field(path, VOID) for path in void_fields(snapshot.schema)),
    )


def _read_by(column: Mapped, field: Field) -> tuple[object, ...]:
    """Return everything that decides how a declared column is read from files."""
    padding = widths_of(arrow_type(field.type), column.char_note, arrow_type(column.type)) if column.char_note else []
    return column.stored, column.is_partition, column.stored_as(field.type), any(padding) and padding


def _require_same_columns(
    source: CreateSource, place: DeltaPlace, version: int, columns: Sequence[Mapped], newest: DeltaSnapshot
) -> None:
    """Require that no version changes how a declared column is read from files.

    Deleted rows are read with the column mapping of the newest version.

    Requires: `columns` contain the declared ones.

    Args:
        version: the version that sets `columns`.

    Raises: TableColumnsChangedError.
    """
    now, then = ({c.name.lower(): c for c in some} for some in (newest.columns, columns))
    for field in source.fields:
        column = now.get(field.name.lower())
        if column is not None and _read_by(then[field.name.lower()], field) != _read_by(column, field):
            change = (
                "the column under another name in files, no longer as a partition column, or as char of another length"
            )
            raise _columns_error(source, version, Misfit(field.name, change, field.type))


def _columns_error(source: CreateSource, version: int, misfit: Misfit) -> TableColumnsChangedError:
    table = f"version {version} of the Delta table {place_of_table(source).root}"
    return TableColumnsChangedError(source.name, table, *misfit, with_other_columns(source.name, "in the table"))


def _require_schema(source: CreateSource, columns: Sequence[Mapped], version: int) -> None:
    """Require every declared column, in a type whose values all fit the declared type.

    Raises TableColumnsChangedError.
    """
    there = {c.name.lower(): c.type for c in columns}
    for field in source.fields:
        table_type = there.get(field.name.lower())
        if table_type is None:
            place = Misfit(
                field.name, f"no such column (the table has {', '.join(c.name for c in columns)})", field.type
            )
        elif table_type == VOID:  # files do not contain it
            continue
        elif not is_stored_type(table_type):
            place = Misfit(field.name, table_type, field.type)
        elif (
            misplaced := find_misfit(arrow_type(table_type), arrow_type(field.type), field.name, may_lack=False)
        ) is not None:
            place = misplaced
        else:
            continue
        raise _columns_error(source, version, place)


def _pins_of(pinned: PinnedVersions, by_spark: Mapping[str, str]) -> Pins:
    return Pins(read=msgspec.Raw(msgspec.json.encode(pinned)), by_spark=by_spark)


def _fitting_commits(commits: Sequence[DeltaCommit], max_bytes: int | None) -> list[DeltaCommit]:
    """Return the first commits within `max_bytes` to read, at least one."""
    if max_bytes is None:
        return list(commits)
    taken = np.searchsorted(np.cumsum([c.nbytes for c in commits]), max_bytes, side="right")
    return list(commits[: max(1, int(taken))])


def _id_after(before: str, commits: Sequence[DeltaCommit]) -> str:
    """Return the table's id after these commits: CREATE OR REPLACE assigns a new one."""
    return next((str(m["id"]) for c in reversed(commits) for m in reversed(c.actions_of("metaData"))), before)
