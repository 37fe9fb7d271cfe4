"""The common part of file sources: paths, pins and taken files. Each format adds a way to read its files.

file_options.py     the options of such a source
file_documents.py   the documents that pin files
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from typing import ClassVar

import msgspec
import pyarrow as pa

from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import (
    ByPosition,
    Identity,
    Item,
    OptionEffect,
    PinChanges,
    PinRequest,
    Pins,
    Restated,
    Revision,
    RowPlace,
)
from tussock.jobs.sources.credentials import FILES_LOGIN
from tussock.jobs.sources.errors import (
    ChangedFileError,
    FileTooLargeError,
    MissingPathError,
    NoFilesError,
    PartitionFoldersError,
)
from tussock.jobs.sources.etags import has_content_of
from tussock.jobs.sources.file_documents import document_of, files_of
from tussock.jobs.sources.file_options import (
    AT_ONCE,
    COLUMNS,
    MISSING,
    ON_CHANGE,
    RETAIN,
    NewColumns,
    check_options,
    may_be_missing,
    retains_files,
)
from tussock.jobs.sources.file_portions import (
    FileRecords,
    end_portions,
    first_portion,
    fitting_files,
    is_further,
    is_unfinished,
    next_portion,
    was_ended,
    with_cost,
)
from tussock.jobs.sources.kept import Keeper, map_in_threads
from tussock.jobs.sources.listing import (
    Interval,
    ListedFile,
    check_path,
    has_interval,
    list_files,
    names_file,
    open_file,
    partition_path,
    server_options,
)
from tussock.jobs.sources.pinned_deliveries import (
    ChosenDelivery,
    next_delivery,
    restated_deliveries,
    without_lone_replaced,
)
from tussock.jobs.sources.pins import PinnedFile, is_as_recorded, listed_etag, mark_of, recorded_etag
from tussock.jobs.sources.restated import exchange_files, restated_files
from tussock.jobs.sources.row_ids import file_of, position_of
from tussock.jobs.sources.taken import (
    ChangedFile,
    ComparedFiles,
    as_recorded,
    compare_listing,
    pinned_now,
    recorded_files,
    taken_by_spark,
    taken_files,
    taken_rows,
    taken_schema,
    taken_total,
    with_content,
)
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.table.storage_table import StorageTable


class FileSource:
    """A source of files.

    The epoch that pins a file reads it; another epoch reads it again to take its rows back. Row ids contain the number
    of the file and the position in it.
    """

    login: ClassVar[str] = FILES_LOGIN
    lists_deletes: ClassVar[bool] = False
    # Values of the option `missing` that the format supports for a column that a file lacks.
    missing_columns: ClassVar[tuple[str, ...]]
    why_missing: ClassVar[str]  # the error text for other values

    def identity(self, source: CreateSource) -> Identity:
        return ByPosition()

    def append_only(self, source: CreateSource) -> bool:
        return not retains_files(source)

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        return OF_FILES

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        defaults = {RETAIN: "files"}
        if options.get(COLUMNS) == NewColumns.EVOLVE and "null" in self.missing_columns:
            defaults[MISSING] = "null"  # earlier files lack the columns of later ones
        return {option: value for option, value in defaults.items() if option not in options}

    def effect_of(self, option: str) -> OptionEffect:
        if option == RETAIN:
            return OptionEffect.STATE
        at_once = option in AT_ONCE or option.startswith("fs.")
        return OptionEffect.AT_ONCE if at_once else OptionEffect.NEW_INPUT

    def alike_parts(self, source: CreateSource, document: msgspec.Raw) -> list[tuple[CreateSource, msgspec.Raw]]:
        """Return the document in parts whose files are read in the same way, each with the source as of them."""
        if not (source.option_changes or source.column_changes):
            return [(source, document)]
        files_by_era: dict[tuple[int, int], list[PinnedFile]] = {}
        for file in files_of(document):
            files_by_era.setdefault(source.era_of(file.number), []).append(file)
        return [(source.as_of(files[0].number), document_of(files)) for files in files_by_era.values()]

    def check(self, source: CreateSource) -> None:
        check_path(source.options["path"], source.options)
        check_options(source, self.missing_columns, self.why_missing)

    def first_file(self, source: CreateSource) -> ListedFile | None:
        """Return the first non-empty file; None if no file exists yet and the source may wait for one.

        Raises:
            MissingPathError: the path's literal part does not exist, and the source does not wait for it.
            PartitionFoldersError: the path reaches folders called `name=value` that it does not name.

        Cost: two listings.
        """
        path, options = source.options["path"], source.options
        try:
            files = list_files(path, options)
        except MissingPathError:
            if may_be_missing(source):
                return None
            raise
        if (spelled := partition_path(path, options)) is not None:
            raise PartitionFoldersError(source.name, path, spelled)
        return next((f for f in files if f.size), None)

    @staticmethod
    def require_file(source: CreateSource, file: ListedFile | None) -> ListedFile:
        """Return the file to infer the columns from. Raises NoFilesError."""
        if file is None:
            raise NoFilesError(source.name, source.options["path"], source.format)
        return file

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def taken_schema(self, name: str) -> TableSchema:
        return taken_schema(name)

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner.

        Raises: MissingPathError, ChangedFileError, CannotRestateError. Cost: one listing and one batched read of the
        taken files; for new files the cost of `recorded_etag`, and the keeper's if the source retains them.
        """
        if request.only_skipped and not request.skip:
            return Pins()
        if request.restated is not None:
            return self._pin_restated(source, taken, request.restated, request, keeper)
        listed = self._list_wanted(source, request)
        if request.only_skipped:
            listed = tuple(f for f in listed if f.path in request.skip)
        comparison = compare_listing(listed, taken, source.first_number)
        passed_over, other = _pass_over(source, comparison, request)
        changed = self._to_restate(source, other, request.interval)
        goes, comes = exchange_files(changed, comparison.next_number)
        if request.deliveries is not None:
            chosen = self._choose_delivery(source, request, taken, goes, comes, comparison.new)
            return self._pin_delivery(source, chosen, passed_over, request, keeper)
        if request.epoch_bytes is not None:
            comes = [f if (m := self._measure_file(source, f)) is None else with_cost(f, m) for f in comes]
        further = _further_portions(comparison, changed, other, request, comparison.next_number + len(comes))
        new = self._fitting_portions(source, [*further, *comparison.new], request)
        read = [*with_content(comes), *(f for f in new if f.path not in request.skip)]
        unread = [*passed_over, *_skip_files(new, comparison, passed_over, request)]
        return _pins_of([*goes, *self._keep_files(source, read, keeper)], unread)

    def _choose_delivery(
        self,
        source: CreateSource,
        request: PinRequest,
        taken: StorageTable | None,
        goes: Sequence[PinnedFile],
        comes: Sequence[PinnedFile],
        new: Sequence[PinnedFile],
    ) -> ChosenDelivery:
        """Return the files of the epoch's delivery. Changed files come first, and new ones wait for the next epoch."""
        assert request.deliveries is not None
        if not (goes or comes or new):
            return ChosenDelivery()
        deliveries, files = request.deliveries, () if taken is None else taken_files(taken)
        restated = restated_deliveries(deliveries, goes, comes, files)
        if restated.goes or restated.comes:
            return restated
        return next_delivery(deliveries, new, files, lambda path: deliveries.is_complete(path, source.options))

    def _pin_delivery(
        self,
        source: CreateSource,
        chosen: ChosenDelivery,
        passed_over: Sequence[PinnedFile],
        request: PinRequest,
        keeper: Keeper,
    ) -> Pins:
        """Pin the files of a delivery."""
        unread = [
            _without_rows(f) for f in with_content([*chosen.late, *(f for f in chosen.comes if f.path in request.skip)])
        ]
        comes = [f for f in chosen.comes if f.path not in request.skip]
        pinned = [*(f for f in comes if f.kept), *with_content([f for f in comes if not f.kept])]
        read = without_lone_replaced([*chosen.goes, *self._keep_files(source, pinned, keeper)])
        return replace(_pins_of(read, [*passed_over, *unread]), late=chosen.notes)

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        """Return the number of records of a file, and their decoded bytes."""
        raise NotImplementedError

    def _fitting_portions(
        self, source: CreateSource, waiting: Sequence[PinnedFile], request: PinRequest
    ) -> Sequence[PinnedFile]:
        """Return the first files or portions that the epoch reads, measured and with their recorded ETags.

        Raises: FileTooLargeError for the first file. Another one is left to a later epoch.
        """
        chosen = fitting_files(waiting, request.bytes_left)  # by bytes on storage, which a cost rarely undercuts
        if request.epoch_bytes is None:
            return with_content(chosen)
        measures = map_in_threads(lambda f: self._measure_file(source, f), chosen)
        portions: list[PinnedFile] = []
        for file, measure in zip(chosen, measures, strict=True):
            try:
                portions.append(file if measure is None else first_portion(file, measure, request.epoch_bytes))
            except FileTooLargeError:
                if not portions:
                    raise
                break
        return with_content(fitting_files(portions, request.bytes_left))

    def _measure_file(self, source: CreateSource, file: PinnedFile) -> FileRecords | None:
        """Return the measure of a file; None if it is known, or if the file is damaged, which its reader reports."""
        if file.portions is not None:
            return None
        try:
            return self.measure(source.as_of(file.number), file)
        except (OSError, TussockError, pa.ArrowException, ValueError):
            return None

    def reads_names(self, source: CreateSource) -> bool:
        """Return whether the names of columns in a file matter, and not only their positions."""
        return True

    def _pin_restated(
        self, source: CreateSource, taken: StorageTable | None, restated: Restated, request: PinRequest, keeper: Keeper
    ) -> Pins:
        """Pin the files of a `tussock restate`. Raises CannotRestateError."""

        def list_files() -> Sequence[ListedFile]:
            return self._list_wanted(source, PinRequest(restated.interval))

        goes, comes = restated_files(
            source, taken, restated, list_files, retained=retains_files(source), by_name=self.reads_names(source)
        )
        if request.deliveries is not None and not restated.options:
            chosen = self._choose_delivery(source, request, taken, goes, comes, ())
            return self._pin_delivery(source, chosen, (), request, keeper)
        kept_files = comes if restated.options else self._keep_files(source, with_content(comes), keeper)
        return _pins_of([*goes, *kept_files], [])

    def _to_restate(
        self, source: CreateSource, changed: Sequence[ChangedFile], interval: Interval | None
    ) -> Sequence[ChangedFile]:
        """Return the changed files whose current rows replace the taken ones. Raises ChangedFileError."""
        of_interval = retains_files(source) and interval is not None and has_interval(source.options["path"])
        match source.options.get(ON_CHANGE, "restate" if of_interval else "error"):
            case "ignore":
                return ()
            case "restate" if all(c.was.kept or not c.was.rows for c in changed):
                return changed
        for change in changed:
            was, now = change.was, change.now
            kept_by = source.name if was.kept or not was.rows else ""
            recorded, current_state = f"{was.size} bytes, ETag {was.etag}", f"{now.size} bytes, ETag {now.etag}"
            raise ChangedFileError(was.path, recorded, current_state, taken=True, kept_by=kept_by)
        return ()

    def _keep_files(self, source: CreateSource, files: Sequence[PinnedFile], keeper: Keeper) -> Sequence[PinnedFile]:
        if not retains_files(source):
            return files
        kept_files = {f.path: f for f in keeper.keep_files(source, [f for f in files if not f.kept])}
        return [f if f.kept else kept_files[f.path] for f in files]

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        listed = self._list_wanted(source, PinRequest(interval))
        comparison = compare_listing(listed, taken, source.first_number)
        _, other = _with_same_bytes(source, comparison.changed)
        restated = (c.now for c in self._to_restate(source, other, interval))
        return _items_of([*comparison.new, *comparison.unfinished, *restated], listed)

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        return names_file(source.options["path"], source.options, item, interval)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return _items_of(taken_files(taken))

    def taken_total(self, taken: StorageTable) -> tuple[int, int]:
        return taken_total(taken)

    def taken_by_spark(self, taken: StorageTable) -> tuple[int, str]:
        return taken_by_spark(taken)

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        """See SourcePinner.

        Skipped files that earlier epochs took are pinned too, because a new view would read them again.

        A skipped file that was to be restated keeps its taken rows.
        """
        files = files_of(revision.pins.read)
        before = {f.path: f for f in recorded_files(taken, revision.skip).values()}
        goes = {f.path for f in files if f.weight < 0}
        skipped = [
            msgspec.structs.replace(_end_unfinished(before[f.path]), accepted=mark_of(f.path, f.size, f.etag))
            if f.path in before
            else _without_rows(f)
            for f in files
            if f.path in revision.skip and f.weight > 0
        ]
        again = [f for path, f in before.items() if path not in goes and path not in {f.path for f in skipped}]
        read = [f for f in files if f.path not in revision.skip]
        # A further portion belongs to the content of the portions before it.
        anew = [f for f in read if f.path in revision.repin and f.weight > 0 and not is_further(f)]
        pinned_anew = {f.path: _repin_file(f, source) for f in anew}
        kept_files = {f.path: f for f in self._keep_files(source, list(pinned_anew.values()), keeper)}
        read = [kept_files[f.path] if f.path in kept_files and f.weight > 0 else f for f in read]
        return _pins_of(without_lone_replaced(read), [*files_of(revision.pins.unread), *skipped, *again])

    def _list_wanted(self, source: CreateSource, request: PinRequest) -> tuple[ListedFile, ...]:
        """List the existing files; none if they may appear later. Raises MissingPathError."""
        path, options = source.options["path"], source.options
        try:
            return list_files(path, options, request.interval)
        except MissingPathError as err:
            waits = request.only_skipped or may_be_missing(source)
            if not waits and (request.interval is None or not has_interval(path)):
                raise MissingPathError(err.path, err.near, source.name) from err
            return ()  # the interval has no files yet; a later run of it reads late ones

    def changes_since(self, source: CreateSource, document: msgspec.Raw) -> PinChanges:
        files = files_of(document)
        taken = {(f.path, f.size, f.etag) for f in files if f.weight < 0}  # a restatement may read taken bytes again
        compared = [f for f in files if f.weight > 0 and (f.path, f.size, f.etag) not in taken]
        answers = map_in_threads(lambda file: _state_of(file, source), compared)
        states = dict(zip((f.path for f in compared), answers, strict=True))
        return PinChanges(
            tuple(path for path, state in states.items() if state is _State.CHANGED),
            tuple(path for path, state in states.items() if state is _State.GONE),
        )

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return _items_of(files_of(document))

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        return document_of(without_lone_replaced([f for f in files_of(document) if f.path in names]))

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """See InputReader. Only files that were taken before are looked up, because they may have changed since."""
        files = files_of(document)
        if source.moves:
            files = tuple(msgspec.structs.replace(f, taken_as=_taken_as(source, f)) for f in files)
            document = document_of(files)
        if not any(f.kept for f in files):
            return document
        return document_of(keeper.locate_files(source, files))

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        number, position = file_of(row_id), position_of(row_id)
        path = next((f.path for document in documents for f in files_of(document) if f.number == number), "")
        return RowPlace(f"record {position + 1} of {path or f'file number {number}'}", path)

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        files = (*files_of(pins.read), *files_of(pins.unread))
        decided = [msgspec.structs.replace(f, by_spark=pins.by_spark.get(f.path) or f.by_spark) for f in files]
        return taken_rows(schema, decided, epoch) if files else None

    def as_recorded(self, schema: TableSchema, document: msgspec.Raw, epoch: int) -> msgspec.Raw:
        return document_of(as_recorded(schema, files_of(document), epoch))

    def kept_objects(self, taken: StorageTable) -> Collection[str]:
        return {name for f in taken_files(taken) for name in (f.kept, f.ids) if name}

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        # An accepted changed file keeps its rows.
        skipped = {f.path for f in files_of(without) if not ((f.accepted and f.kept) or was_ended(f))}
        files = [f for f in taken_files(taken) if f.rows and f.path not in skipped and first <= f.number < end]
        return document_of(files) if files else None

    def taken_sizes(self, taken: StorageTable) -> Mapping[int, int] | None:
        return {f.number: f.epoch_cost for f in taken_files(taken) if f.rows}


def _with_same_bytes(
    source: CreateSource, changed: Sequence[ChangedFile]
) -> tuple[list[ChangedFile], list[ChangedFile]]:
    """Split files with another ETag into files that were only uploaded in another way, and files with other bytes.

    If changes are ignored, all count as the latter.

    Cost: as `has_content_of` for objects of the recorded size, once per process.
    """
    if source.options.get(ON_CHANGE) == "ignore":
        return [], list(changed)
    same, other = list[ChangedFile](), list[ChangedFile]()
    for change in changed:
        was, now = change.was, change.now
        is_same = False
        if was.path.startswith("s3://") and was.size == now.size:
            server = tuple(sorted(server_options(source.options["path"], source.options).items()))
            is_same = _is_same_upload(was.path, server, now.size, now.etag, was.etag)
        (same if is_same else other).append(change)
    return same, other


@lru_cache(maxsize=4096)
def _is_same_upload(path: str, server: tuple[tuple[str, str], ...], size: int, now: str, etag: str) -> bool:
    """Cache `has_content_of` per process. `server`: the options that locate the object's server."""
    return has_content_of(*open_file(path, dict(server)), size, now, etag)


def _accept_content(change: ChangedFile) -> PinnedFile:
    """Return a changed file as it was recorded, with its current content marked as accepted."""
    return msgspec.structs.replace(change.was, accepted=mark_of(change.now.path, change.now.size, change.now.etag))


def _taken_as(source: CreateSource, file: PinnedFile) -> str:
    name = source.name_in_rows(file.number, file.path)
    return "" if name == file.path else name


def _pass_over(
    source: CreateSource, comparison: ComparedFiles, request: PinRequest
) -> tuple[list[PinnedFile], list[ChangedFile]]:
    """Return the changed files whose taken rows stay, with their present content accepted, and the other changed ones.

    These are skipped files, and files that were only uploaded in another way.
    """
    named = [c for c in comparison.changed if c.was.path in request.skip]
    same, other = _with_same_bytes(source, [c for c in comparison.changed if c.was.path not in request.skip])
    skipped = (_end_unfinished(_accept_content(c)) for c in named)
    return [*skipped, *(_accept_content(c) for c in same if c.was.kept)], other


def _further_portions(
    comparison: ComparedFiles,
    restated: Sequence[ChangedFile],
    other: Sequence[ChangedFile],
    request: PinRequest,
    number: int,
) -> list[PinnedFile]:
    """Return the next portions of files that earlier epochs began.

    Args:
        restated: their present content replaces the taken one.
        other: all changed files. If changes are ignored, the rest of the taken bytes is read, if they were kept.
        number: of the first portion.
    """
    gone, changed = {c.was.path for c in restated} | {*request.skip}, {c.was.path for c in other}
    begun = (f for f in comparison.unfinished if f.path not in gone and (f.kept or f.path not in changed))
    return [next_portion(f, n, rest=request.epoch_bytes is None) for n, f in enumerate(begun, start=number)]


def _skip_files(
    new: Sequence[PinnedFile], comparison: ComparedFiles, passed_over: Sequence[PinnedFile], request: PinRequest
) -> Iterator[PinnedFile]:
    """Yield the skipped ones of the new and the begun files, so that no epoch reads them or their further portions."""
    yield from (_without_rows(f) for f in new if f.path in request.skip)
    known = {f.path for f in passed_over}
    yield from (end_portions(f) for f in comparison.unfinished if f.path in request.skip and f.path not in known)


def _end_unfinished(file: PinnedFile) -> PinnedFile:
    return end_portions(file) if is_unfinished(file) else file


def _without_rows(file: PinnedFile) -> PinnedFile:
    return msgspec.structs.replace(file, rows=False, withdrawn=True)


def _pins_of(read: Sequence[PinnedFile], unread: Sequence[PinnedFile]) -> Pins:
    return Pins(document_of(read) if read else None, document_of(unread) if unread else None)


def _items_of(files: Sequence[PinnedFile], listed: Sequence[ListedFile] = ()) -> tuple[Item, ...]:
    if not files:
        return ()
    modified = {f.path: f.modified_ms for f in listed}
    return tuple(
        Item(f.path, f.size, listed_etag(f.etag), f.weight < 0, modified.get(f.path, 0), f.cost) for f in files
    )


class _State(Enum):
    """A pinned file compared with its pin."""

    SAME = auto()
    CHANGED = auto()
    GONE = auto()


def _state_of(file: PinnedFile, source: CreateSource) -> _State:
    store, name = open_file(file.path, source.options)
    try:
        now = store.head(name)
    except ObjectNotFoundError:
        return _State.GONE
    same = is_as_recorded(file.path, now.size, now.etag, file.size, file.etag)
    return _State.SAME if same else _State.CHANGED


def _repin_file(file: PinnedFile, source: CreateSource) -> PinnedFile:
    """Pin the current content of a file under the same number. Raises ChangedFileError if the file is gone."""
    store, name = open_file(file.path, source.options)
    try:
        now = store.head(name)
    except ObjectNotFoundError as err:
        raise ChangedFileError(
            file.path, f"{file.size} bytes, ETag {file.etag}", "no such file, so it can only be skipped"
        ) from err
    listed = pinned_now(ListedFile(file.path, now.size, now.etag, now.modified_ms), file.number)
    return msgspec.structs.replace(
        file, size=now.size, etag=recorded_etag(file.path, now.size, now.etag), modified=listed.modified, kept=""
    )
