"""A project that moved: the files of its sources are in another folder, and are the same files.

A source with a relative path records the folder from which it starts, and the way to that folder from the store's. If
a project is moved or copied with its store, the way leads to the new folder. The next run logs a MoveSource for each
such source. Its epoch takes no input of the source. It renames the taken files in the source's table
(jobs/sources/taken.py), so that no file counts as new. Rows that contain names of files, such as rejects, keep the
names, since a restatement must find them: `CreateSource.moved` records the earlier folders by file number.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tussock.jobs.logical.statements import CreateSource, EarlierBase, MoveSource, RelativePath
from tussock.jobs.plan.alter_source import NOT_SETTLED, created_source, with_definition
from tussock.jobs.plan.definition import SourceDefinition, definition_of, find, source_of
from tussock.jobs.settings.home import folder_of
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.registry import READERS
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.objectstore.base import ObjectStore


def moved_sources(catalog: Catalog, store: ObjectStore) -> Iterator[MoveSource]:
    """Yield the moves of the sources whose folder is elsewhere now, as seen from the store's folder.

    A source stays if the recorded folder is the same one, under any name, or if there is no folder at the new place.

    Cost: two stats per source with a relative path.
    """
    if (root := folder_of(store)) is None:
        return
    for relation in catalog.live():
        source = source_of(relation) if relation.kind is RelationKind.SOURCE else None
        if source is None or isinstance(source.relative, msgspec.UnsetType):
            continue
        if not isinstance(READERS.get(source.format), FileSource):
            continue
        was = source.relative.base
        now = os.path.normpath(os.path.join(root, source.relative.from_store))  # noqa: PTH118
        if now != was and Path(now).is_dir() and not (Path(was).exists() and Path(was).samefile(now)):
            yield MoveSource(relation.name, was, now)


def move_source(catalog: Catalog, statement: MoveSource) -> Catalog:
    """Return the catalog with a source's path in its new folder. No effect if another entry has moved it."""
    relation = find(catalog, statement.name, RelationKind.SOURCE)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    source, created = definition.statement, created_source(definition)
    if isinstance(source.relative, msgspec.UnsetType) or source.relative.base != statement.was:
        return catalog
    to = msgspec.structs.replace(_at(source, statement), moved=(*source.moves, EarlierBase(statement.was, NOT_SETTLED)))
    changed = msgspec.structs.replace(definition, statement=to, created=_at(created, statement))
    # Holds name files of the earlier folder.
    return with_definition(catalog, msgspec.structs.replace(relation, holds=()), changed)


def _at(source: CreateSource, move: MoveSource) -> CreateSource:
    if isinstance(source.relative, msgspec.UnsetType) or source.relative.base != move.was:
        return source
    relative = RelativePath(source.relative.path, move.base, source.relative.from_store)
    options = {**source.options, "path": f"{move.base}/{relative.path}"}
    return msgspec.structs.replace(source, options=options, relative=relative)


def move_of(before: Relation | None, after: Relation) -> tuple[str, str] | None:
    """Return the folders (earlier, new) of a source that an epoch moves; None for others.

    Args:
        before: the source in the catalog before the epoch; None if it is new.
    """
    was, now = None if before is None else source_of(before), source_of(after)
    if was is None or now is None or was.moves == now.moves:
        return None
    assert not isinstance(now.relative, msgspec.UnsetType), "only such a source moves"
    return now.moves[-1].base, now.relative.base
