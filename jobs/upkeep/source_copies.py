"""Which copies of sources' files (tussock.jobs.sources.kept) nobody needs any more.

A copy is made before the barrier that pins it, for the epoch after the one in its name. Once a later epoch than that is committed, only
what sources have recorded as taken can name it. Files of sources that are dropped, or whose rows were taken back, are named by nothing.
"""

from collections.abc import Iterator

from tussock.jobs.driver.barrier import statement_of, taken_table
from tussock.jobs.driver.epoch_plan import Base
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.hummock.vacuum import Garbage
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.names import SOURCES, epoch_of_copy
from tussock.statestore.meta.store import MetaStore


def copies_of_no_use(meta: MetaStore) -> Iterator[Garbage]:
    """The copies that may go. Cost: a listing of the copies, and a scan of what each source has taken."""
    version = meta.latest()
    old = [
        found
        for found in meta.objects.list(SOURCES)
        if (epoch := epoch_of_copy(found.name)) is not None and epoch < version.epoch
    ]
    if not old:
        return
    base = Base(version)
    named: set[str] = set()
    for relation in version.catalog.live():
        if relation.kind is RelationKind.SOURCE and (taken := taken_table(meta, base, relation)) is not None:
            named.update(reader_of(statement_of(relation)).kept(taken))
    for found in old:
        if found.name not in named:
            yield Garbage(found.name, found.size, "a copy of a source's file that no source has taken any more")
