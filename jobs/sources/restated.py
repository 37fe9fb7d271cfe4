"""Select the files of a `tussock restate`: those whose rows are taken back, and those whose rows are read.

a file that was taken   its present content replaces its rows, or another file, or nothing
a glob or a folder      all files that it names: changed, removed and new ones, as for an interval
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.file_portions import portions_of, renumber_file
from tussock.jobs.sources.listing import RECURSIVE, Interval, ListedFile, named_files, names_file, open_file
from tussock.jobs.sources.pins import PinnedFile, is_as_recorded, mark_of
from tussock.jobs.sources.taken import (
    ChangedFile,
    compare_listing,
    next_number,
    pinned_now,
    recorded_files,
    taken_files,
)
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.table.storage_table import StorageTable

_Files = tuple[list[PinnedFile], list[PinnedFile]]  # taken back, read
_NEAR = 3


def restated_files(
    source: CreateSource,
    taken: StorageTable | None,
    restated: Restated,
    list_files: Callable[[], Sequence[ListedFile]],
    *,
    retained: bool,
    by_name: bool,
) -> _Files:
    """Return the files whose rows are taken back (weight -1) and those whose rows are read, as listed.

    The caller records the latter. Both lists are empty if nothing has changed.

    Args:
        list_files: lists the files of the interval; all files of the source if there is none.
        retained: the source keeps the bytes of its taken files.
        by_name: its columns are found by their names in the files.

    Raises: CannotRestateError. Cost: one HEAD request for a named file; one scan of the taken files for an interval.
    """
    if not retained:
        raise CannotRestateError(
            source.name,
            "it keeps no bytes of the files that it has read, so their rows cannot be taken back (retain 'none', or "
            "created by an earlier "
            f"release). DROP SOURCE {source.name} CASCADE and create it with OPTIONS (…, retain 'files')",
        )
    if taken is None:
        raise CannotRestateError(source.name, "no epoch has read anything from it yet")
    if restated.by and len(restated.items) > 1:
        reason = f"{restated.by!r} can replace one file only, and {len(restated.items)} are named"
        raise CannotRestateError(source.name, reason)
    if restated.by == restated.item:
        restated = replace(restated, by="")
    if restated.options:
        goes, comes = _files_to_read_again(source, taken)
        if by_name:
            _require_same_names(source, goes)
    else:
        goes, comes = (
            _of_items(source, taken, restated, list_files)
            if restated.items
            else _of_interval(source, taken, restated.interval, list_files())
        )
    for file in goes:
        if not file.kept:
            raise CannotRestateError(source.name, f"the content that was read from {file.path} was not kept")
    return goes, comes


def exchange_files(changed: Sequence[ChangedFile], number: int) -> _Files:
    """Split changed files into old contents, whose rows are taken back, and new ones, numbered from `number`.

    A file of 0 bytes has no rows and cannot be read.
    """
    goes = [
        msgspec.structs.replace(f, weight=-1, accepted="" if c.now.size else mark_of(c.now.path, 0, c.now.etag))
        for c in changed
        if c.was.rows
        for f in portions_of(c.was)
    ]
    full = [c.now for c in changed if c.now.size]
    return goes, [msgspec.structs.replace(now, number=n) for n, now in enumerate(full, start=number)]


def _of_items(
    source: CreateSource, taken: StorageTable, restated: Restated, list_files: Callable[[], Sequence[ListedFile]]
) -> _Files:
    """Return the files of all named items: of globs and folders first, then the single files."""
    known = recorded_files(taken, [*restated.items, *filter(None, [restated.by])])
    patterns = [item for item in restated.items if item not in known]
    goes, comes = _of_patterns(source, taken, patterns, list_files, restated) if patterns else ([], [])
    number = max([next_number(taken, source.first_number), *(f.number + 1 for f in comes)])
    there = {f.path for f in (*goes, *comes)}
    for item in restated.items:
        if (was := known.get(item)) is not None and item not in there:
            went, came = _of_file(source, known, was, restated, number + len(comes))
            goes, comes = [*goes, *went], [*comes, *came]
    return goes, comes


def _of_file(
    source: CreateSource, known: Mapping[str, PinnedFile], was: PinnedFile, restated: Restated, number: int
) -> _Files:
    """Return the files that replace one taken file. `number`: the first free one."""
    there = _existing_file(source, was.path)
    if restated.gone or restated.by:
        if not was.rows and restated.gone:
            return [], []
        goes = [_withdraw_file(f, there) for f in portions_of(was)] if was.rows else []
        return goes, [] if restated.gone else [_replacing_file(source, known, restated.by, number)]
    if there is None:
        reason = f"file {was.path!r} no longer exists; use --gone to remove its rows, or --with to name its replacement"
        raise CannotRestateError(source.name, reason)
    if was.rows and is_as_recorded(was.path, there.size, there.etag, was.size, was.etag):
        return [], []
    return exchange_files([ChangedFile(was, pinned_now(there, was.number))], number)


def _of_patterns(
    source: CreateSource,
    taken: StorageTable,
    patterns: Sequence[str],
    list_files: Callable[[], Sequence[ListedFile]],
    restated: Restated,
) -> _Files:
    """Return the files that globs and folders name. Raises CannotRestateError if one names no file."""
    options = {**source.options, RECURSIVE: "true"}
    paths = [f.path for f in taken_files(taken)]
    there = [] if restated.gone else list_files()
    chosen, names = set[str](), sorted({*paths, *(f.path for f in there)})
    for pattern in patterns:
        named = set(named_files(pattern, options, names)) - {pattern}
        if not named:
            raise CannotRestateError(source.name, _unknown_file(pattern, paths))
        chosen |= named
    if restated.by:
        reason = f"{restated.by!r} can replace one file only, and {patterns[0]!r} is a folder or a glob"
        raise CannotRestateError(source.name, reason)
    if restated.gone:
        gone = [f for f in taken_files(taken) if f.rows and f.path in chosen]
        return [_withdraw_file(f, _existing_file(source, f.path)) for f in gone], []
    return _of_listing(source, taken, [f for f in there if f.path in chosen], lambda path: path in chosen)


def _unknown_file(name: str, paths: Sequence[str]) -> str:
    others = _similar_text(difflib.get_close_matches(name, paths, _NEAR)) or (
        f"; those that it has read include {', '.join(paths[:_NEAR])}" if paths else ""
    )
    return f"no epoch has read a file {name!r}{others}"


def _of_interval(
    source: CreateSource, taken: StorageTable, interval: Interval | None, listed: Sequence[ListedFile]
) -> _Files:
    path, options = source.options["path"], source.options
    return _of_listing(source, taken, listed, lambda file: names_file(path, options, file, interval))


def _of_listing(
    source: CreateSource, taken: StorageTable, listed: Sequence[ListedFile], names: Callable[[str], bool]
) -> _Files:
    """Return all files that changed, are gone or are new. Files that were skipped are read in their current state.

    Args:
        names: whether a taken file belongs to the listed ones, if it exists.
    """
    comparison = compare_listing(listed, taken, source.first_number)
    there = {f.path for f in listed}
    gone = [f for f in taken_files(taken) if f.rows and f.path not in there and names(f.path)]
    goes, comes = exchange_files(comparison.changed, comparison.next_number)
    return [*(msgspec.structs.replace(f, weight=-1) for f in gone), *goes], [*comes, *comparison.new]


def _files_to_read_again(source: CreateSource, taken: StorageTable) -> _Files:
    """Return the files that were read with other options or narrower types than the present ones.

    Their current content is irrelevant: the taken bytes are taken back as they were read, and read again under new
    numbers.
    """
    first = next_number(taken, source.first_number)
    was = [f for f in taken_files(taken) if f.rows and _is_read_otherwise(source, f.number)]
    goes = [msgspec.structs.replace(f, weight=-1) for f in was]
    numbers = {f.number: number for number, f in enumerate(was, start=first)}
    return goes, [renumber_file(f, numbers) for f in was]


def _is_read_otherwise(source: CreateSource, file: int) -> bool:
    """Return whether the file with this number was read with other options or narrower types than the present ones."""
    was = source.as_of(file)
    return was.options != source.options or [f.type for f in was.fields] != [f.type for f in source.fields]


def _require_same_names(source: CreateSource, files: Sequence[PinnedFile]) -> None:
    """Raise CannotRestateError if the bytes of a file contain a column under an earlier name."""
    for file in files:
        for was, now in zip(source.as_of(file.number).fields, source.fields, strict=True):
            if was.name.lower() != now.name.lower():
                reason = (
                    f"column {now.name!r} is called {was.name!r} in {file.path} and in other files that were read "
                    f"before it was renamed, so these files can only be read as before. Write the files with the "
                    f"column {now.name!r}; then `tussock restate {source.name} --file FILE` reads each of them"
                )
                raise CannotRestateError(source.name, reason)


def _replacing_file(source: CreateSource, known: Mapping[str, PinnedFile], path: str, number: int) -> PinnedFile:
    """Return the file that replaces another. The source's path need not match it."""
    if path in known and known[path].rows:
        raise CannotRestateError(source.name, f"an epoch has already read {path!r}")
    if (there := _existing_file(source, path)) is None:
        raise CannotRestateError(source.name, f"file {path!r} does not exist")
    return pinned_now(there, number)


def _existing_file(source: CreateSource, path: str) -> ListedFile | None:
    store, name = open_file(path, source.options)
    try:
        info = store.head(name)
    except ObjectNotFoundError:
        return None
    return ListedFile(path, info.size, info.etag, info.modified_ms)


def _withdraw_file(was: PinnedFile, there: ListedFile | None) -> PinnedFile:
    """Mark a file's rows as taken back. Its current content is not read again."""
    accepted = "" if there is None else mark_of(there.path, there.size, there.etag)
    return msgspec.structs.replace(was, weight=-1, withdrawn=True, accepted=accepted)


def _similar_text(near: Sequence[str]) -> str:
    return f"; similar names: {', '.join(near)}" if near else ""
