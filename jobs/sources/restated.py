"""What a person wants restated of a source of files: which files' rows go, and which come."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.listing import Interval, ListedFile, names_file, open_file
from tussock.jobs.sources.pins import PinnedFile, is_as_recorded, mark_of
from tussock.jobs.sources.taken import ChangedFile, compare, next_number, recorded_files, taken_files
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.table.storage_table import StorageTable

_Files = tuple[list[PinnedFile], list[PinnedFile]]  # that go, that come
_NEAR = 3


def restated_files(
    source: CreateSource, taken: StorageTable | None, restated: Restated, listed: Sequence[ListedFile], retained: bool
) -> _Files:
    """The files whose rows go (weight -1) and those whose rows come, the latter as listed, to be recorded by the caller. Both are empty
    where all is as it was taken.

    Args:
        listed: what is there of the interval, where no file is named.
        retained: whether the source keeps the bytes of what it has taken.

    Raises: CannotRestateError. Cost: a HEAD for a file that is named; for an interval a scan of what has been taken.
    """
    if not retained:
        raise CannotRestateError(
            source.name,
            "it keeps no bytes of the files that it has taken, so their rows cannot be taken back (retain 'none', or made by an earlier "
            f"release). DROP SOURCE {source.name} CASCADE and create it with OPTIONS (…, retain 'files')",
        )
    if taken is None:
        raise CannotRestateError(source.name, "no epoch has taken anything from it yet")
    if restated.by == restated.item:
        restated = replace(restated, by="")
    if restated.time_zone:
        goes, comes = _of_another_zone(source, taken)
    else:
        goes, comes = (
            _of_file(source, taken, restated)
            if restated.item
            else _of_interval(source, taken, restated.interval, listed)
        )
    for file in goes:
        if not file.kept:
            raise CannotRestateError(source.name, f"the bytes that were taken of {file.path} were not kept")
    return goes, comes


def exchanged(changed: Sequence[ChangedFile], number: int) -> _Files:
    """Files that changed: as they were, for their rows to go, and as they are, for their rows to come, numbered from `number` on. One of 0
    bytes has no rows, and is no file that could be read."""
    goes = [
        msgspec.structs.replace(c.was, weight=-1, accepted="" if c.now.size else mark_of(c.now.path, 0, c.now.etag))
        for c in changed
        if c.was.rows
    ]
    full = [c.now for c in changed if c.now.size]
    return goes, [msgspec.structs.replace(now, number=n) for n, now in enumerate(full, start=number)]


def _of_file(source: CreateSource, taken: StorageTable, restated: Restated) -> _Files:
    known = recorded_files(taken, [p for p in (restated.item, restated.by) if p])
    if (was := known.get(restated.item)) is None:
        near = difflib.get_close_matches(restated.item, [f.path for f in taken_files(taken)], _NEAR)
        raise CannotRestateError(source.name, f"no epoch has taken a file {restated.item!r}{_like(near)}")
    there = _there(source, restated.item)
    if restated.gone or restated.by:
        if not was.rows and restated.gone:
            return [], []
        goes = [_withdrawn(was, there)] if was.rows else []
        return goes, [] if restated.gone else [_replacement(source, taken, known, restated.by)]
    if there is None:
        reason = f"there is no file {restated.item!r} any more; say --gone if its rows are to go, or --with another file in its place"
        raise CannotRestateError(source.name, reason)
    if was.rows and is_as_recorded(was.path, there.size, there.etag, was.size, was.etag):
        return [], []
    return exchanged([ChangedFile(was, PinnedFile(there.path, there.size, there.etag, was.number))], next_number(taken))


def _of_interval(
    source: CreateSource, taken: StorageTable, interval: Interval | None, listed: Sequence[ListedFile]
) -> _Files:
    """All that has changed, is gone or is new; files that were passed over count as they are now."""
    found = compare(listed, taken)
    there = {f.path for f in listed}
    path, options = source.options["path"], source.options
    gone = [
        f for f in taken_files(taken) if f.rows and f.path not in there and names_file(path, options, f.path, interval)
    ]
    goes, comes = exchanged(found.changed, found.next_number)
    return [*(msgspec.structs.replace(f, weight=-1) for f in gone), *goes], [*comes, *found.new]


def _of_another_zone(source: CreateSource, taken: StorageTable) -> _Files:
    """The files whose times were read in UTC, which an earlier release did whatever the store's zone. What is at their paths now does not
    matter: the bytes that were taken go as they were read, and come under other numbers."""
    first = next_number(taken)
    was = [f for f in taken_files(taken) if f.rows and source.awaits_zone(f.number)]
    goes = [msgspec.structs.replace(f, weight=-1) for f in was]
    return goes, [msgspec.structs.replace(f, number=number) for number, f in enumerate(was, start=first)]


def _replacement(source: CreateSource, taken: StorageTable, known: dict[str, PinnedFile], path: str) -> PinnedFile:
    """The file that takes another one's place. It need not be one that the source's path names."""
    if path in known and known[path].rows:
        raise CannotRestateError(source.name, f"an epoch has taken {path!r} already")
    if (there := _there(source, path)) is None:
        raise CannotRestateError(source.name, f"there is no file {path!r}")
    return PinnedFile(path, there.size, there.etag, next_number(taken))


def _there(source: CreateSource, path: str) -> ListedFile | None:
    store, name = open_file(path, source.options)
    try:
        info = store.head(name)
    except ObjectNotFoundError:
        return None
    return ListedFile(path, info.size, info.etag)


def _withdrawn(was: PinnedFile, there: ListedFile | None) -> PinnedFile:
    """The file, for its rows to go. While it is there as it is now, it is not taken in again."""
    return msgspec.structs.replace(
        was, weight=-1, accepted="" if there is None else mark_of(there.path, there.size, there.etag)
    )


def _like(near: Sequence[str]) -> str:
    return f"; those most like it: {', '.join(near)}" if near else ""
