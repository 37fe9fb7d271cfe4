"""Finds copies of source files (tussock.jobs.sources.kept) that are no longer needed.

A copy is made before the barrier that pins it, for the epoch after the one in its name. After a later epoch is
committed, only the tables of taken files can refer to the copy. Nothing refers to files of dropped sources, or to files
whose rows were taken back.

An undo may return to any readable epoch, so copies to which one of these refers stay. A copy that was made before the
floor, and that a readable epoch needs, is named at the floor or in the newest epoch.

A branch reads the copies that its first version refers to. One that follows also reads those of later epochs, when it
takes them.
"""

from collections.abc import Iterator

from tussock.jobs.barriers.taken_tables import statement_of
from tussock.jobs.reading.reader import open_table
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.hummock.vacuum import Garbage
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.names import SOURCES, epoch_of_copy, list_numbered
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


def copies_of_no_use(meta: MetaStore) -> Iterator[Garbage]:
    """Yield the removable copies. Cost: a listing of the copies, and a scan of each source's taken files."""
    yield from on_newest(meta, lambda version: _no_longer_needed(meta, version))


def _no_longer_needed(meta: MetaStore, version: HummockVersion) -> list[Garbage]:
    end = min((version.min_readable_epoch, *(branch.epoch for branch in version.branches if branch.follows)))
    old = [source_copy for epoch, source_copy in list_numbered(meta.objects, SOURCES, epoch_of_copy) if epoch < end]
    if not old:
        return []
    named: set[str] = set()
    for began in (version, *(meta.read_version(branch.version) for branch in version.branches)):
        for epoch in {began.min_readable_epoch, began.epoch}:
            for relation in began.catalog.relations_at(epoch):
                if relation.kind is RelationKind.SOURCE:
                    taken = open_table(meta.objects, began, relation.state_tables[0], epoch)
                    named.update(reader_of(statement_of(relation)).kept_objects(taken))
    reason = "a copy of a source file that no source refers to"
    return [Garbage(source_copy.name, source_copy.size, reason) for source_copy in old if source_copy.name not in named]
