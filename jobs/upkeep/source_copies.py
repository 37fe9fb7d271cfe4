"""Finds copies of source files (tussock.jobs.sources.kept) that are no longer needed.

A copy is made before the barrier that pins it, for the epoch after the one in its name. After a later epoch is
committed, only the tables of taken files can refer to the copy. Nothing refers to files of dropped sources, or to files
whose rows were taken back.
"""

from collections.abc import Iterator

from tussock.jobs.barriers.barrier import statement_of, taken_table
from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.hummock.vacuum import Garbage
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.names import SOURCES, epoch_of_copy
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


def copies_of_no_use(meta: MetaStore) -> Iterator[Garbage]:
    """Yield the removable copies. Cost: a listing of the copies, and a scan of each source's taken files."""
    yield from on_newest(meta, lambda version: _no_longer_needed(meta, version))


def _no_longer_needed(meta: MetaStore, version: HummockVersion) -> list[Garbage]:
    old = [
        source_copy
        for source_copy in meta.objects.list(SOURCES)
        if (epoch := epoch_of_copy(source_copy.name)) is not None and epoch < version.epoch
    ]
    if not old:
        return []
    base = Base(version)
    named: set[str] = set()
    for relation in version.catalog.live_relations():
        if relation.kind is RelationKind.SOURCE and (taken := taken_table(meta, base, relation)) is not None:
            named.update(reader_of(statement_of(relation)).kept_objects(taken))
    reason = "a copy of a source file that no source refers to"
    return [Garbage(source_copy.name, source_copy.size, reason) for source_copy in old if source_copy.name not in named]
