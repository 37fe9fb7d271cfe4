"""A project that moved: the files of its sources are in another folder, and are the same files.

A source with a relative path records the folder from which it starts, and the way to that folder from the store's. If
a project is moved or copied with its store, the way leads to the new folder. The next run logs a MoveSource for each
such source. Its epoch takes no input of the source. It renames the taken files in the source's table
(jobs/sources/taken.py), so that no file counts as new. Rows that contain names of files, such as rejects, keep the
names, since a restatement must find them: `CreateSource.moves` records the moves by file number.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tussock.jobs.catalog.alter_source import NOT_SETTLED, created_source, with_definition
from tussock.jobs.catalog.definition import SourceDefinition, definition_of, find_relation, source_of
from tussock.jobs.logical.statements import CreateSource, EarlierBase, MoveSource, RelativePath
from tussock.jobs.settings.home import folder_of
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.keyed import records_of
from tussock.jobs.sources.listing import list_files
from tussock.jobs.sources.registry import READERS
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.objectstore.base import ObjectStore


def moved_sources(catalog: Catalog, store: ObjectStore) -> Iterator[MoveSource]:
    """Yield the moves of the sources whose folder is elsewhere now, as seen from the store's folder.

    A source stays if the recorded folder is the same one, under any name, or if the files are not at the new place.
    While the recorded folder exists, only a file that the path matches there shows a copy of the project. Otherwise
    only the store moved, and the folder at the new place is another one.

    Cost: two stats per source with a relative path; if they find another folder, a listing.
    """
    if (root := folder_of(store)) is None:
        return
    for relation in catalog.live_relations():
        source = source_of(relation) if relation.kind is RelationKind.SOURCE else None
        if source is None or source.relative is None:
            continue
        if not isinstance(READERS.get(source.format), FileSource):
            continue
        was = source.relative.base
        now = os.path.normpath(os.path.join(root, source.relative.from_store))  # noqa: PTH118
        if now == was or not Path(now).is_dir():
            continue
        is_there, move = Path(was).exists(), MoveSource(relation.name, was, now)
        if is_there and Path(was).samefile(now):
            continue
        if _has_input(_source_after_move(source, move), is_empty_enough=not is_there):
            yield move


def _has_input(source: CreateSource, *, is_empty_enough: bool) -> bool:
    """Return whether a file is at a source's path, or, if that is enough, an empty folder for files."""
    try:
        files = list_files(records_of(source).options["path"], source.options)
    except (InputError, RetryableError):
        return False
    return bool(files) or is_empty_enough


def move_source(catalog: Catalog, statement: MoveSource) -> Catalog:
    """Return the catalog with a source's path in its new folder. No effect if another entry has moved it."""
    relation = find_relation(catalog, statement.name, RelationKind.SOURCE)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    source, created = definition.statement, created_source(definition)
    if source.relative is None or source.relative.base != statement.was:
        return catalog
    move = EarlierBase(statement.was, statement.base, NOT_SETTLED)
    to = msgspec.structs.replace(_source_after_move(source, statement), moves=(*source.moves, move))
    changed = msgspec.structs.replace(definition, statement=to, created=_source_after_move(created, statement))
    # Holds name files of the earlier folder.
    return with_definition(catalog, msgspec.structs.replace(relation, holds=()), changed)


def _source_after_move(source: CreateSource, move: MoveSource) -> CreateSource:
    if source.relative is None or source.relative.base != move.was:
        return source
    relative = RelativePath(source.relative.path, move.base, source.relative.from_store)
    options = {**source.options, "path": f"{move.base}/{relative.path}"}
    return msgspec.structs.replace(source, options=options, relative=relative)


def moves_in(before: Relation | None, after: Relation) -> Sequence[tuple[str, str]]:
    """Return the moves (earlier folder, new folder) of a source in an epoch, the first one first.

    Args:
        before: the source in the catalog before the epoch; None if it is new.
    """
    was, now = None if before is None else source_of(before), source_of(after)
    if was is None or now is None or was.moves == now.moves:
        return ()
    known = len(was.moves)
    moves = [(move.base, move.to) for move in now.moves[known:]]
    if known and now.moves[known - 1].to != was.moves[-1].to:  # it continues the last move
        moves.insert(0, (was.moves[-1].to, now.moves[known - 1].to))
    return moves
