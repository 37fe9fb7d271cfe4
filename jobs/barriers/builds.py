"""The progress of builds, which read their inputs over several epochs.

Each epoch reads `max_bytes` per build, but at least one vnode or file. The smallest relation is read first, so that it
is complete when rows of a large one are joined with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.catalog.builds import advance_builds, given_up, read_anew, set_aside
from tussock.jobs.catalog.definition import source_of, stores_rows
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.hummock.version import stored_size
from tussock.statestore.meta.catalog import ALL_READ, Build, Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore


@dataclass(slots=True)
class BuildPacer:
    """Decides how far builds read in the epoch after a base.

    Args:
        max_bytes: limit on stored rows and source files, per build; None: no limit, so every build finishes.
    """

    meta: MetaStore
    base: Base
    max_bytes: int | None
    _sizes: dict[int, Mapping[int, int]] = field(default_factory=dict)

    def advance_catalog(self, catalog: Catalog, epoch: int) -> Catalog:
        """Return the catalog with the progress of all builds in this epoch.

        If new views together read more than `max_bytes`, they become a build that reads its first part. Cost: scans
        the taken files of the sources that they read.
        """
        before = self.base.version.catalog
        if self.max_bytes is not None:
            read = {r.id: read_ids for r in _new_views(catalog, epoch) if (read_ids := read_anew(before, r))}
            if self._count_bytes({i for read_ids in read.values() for i in read_ids}) > self.max_bytes:
                catalog = set_aside(before, catalog, epoch, read)
        return advance_builds(catalog, epoch, self._advance_build) if catalog.builds else catalog

    def _count_bytes(self, relations: Iterable[int]) -> int:
        return sum(sum(self._sizes_of(relation).values()) for relation in relations)

    def _advance_build(self, build: Build) -> Build:
        """Return the build with its progress at the end of the epoch."""
        read, left = dict(build.read), self.max_bytes
        sizes = {relation: self._sizes_of(relation) for relation in read}
        for relation in sorted(read, key=lambda r: (sum(sizes[r].values()), r)):
            if read[relation] == ALL_READ:
                continue
            waiting = {place: size for place, size in sizes[relation].items() if place >= read[relation]}
            fit = _count_fitting([*waiting.values()], left, at_least_one=left == self.max_bytes)
            read[relation] = ALL_READ if fit == len(waiting) else [*waiting][fit]
            if read[relation] != ALL_READ:
                break
            if left is not None:
                left -= sum(waiting.values())
        done = sum(size for relation, of in sizes.items() for place, size in of.items() if place < read[relation])
        return msgspec.structs.replace(
            build, read=read, bytes_read=done, bytes_total=sum(sum(of.values()) for of in sizes.values())
        )

    def _sizes_of(self, relation: int) -> Mapping[int, int]:
        """Return a relation's stored or taken bytes by vnode or number, ascending; empty for a new relation."""
        if relation not in self._sizes:
            known = next((r for r in self.base.version.catalog.live_relations() if r.id == relation), None)
            self._sizes[relation] = {} if known is None else self._measure_relation(known)
        return self._sizes[relation]

    def _measure_relation(self, relation: Relation) -> Mapping[int, int]:
        version = self.base.version
        if (statement := source_of(relation)) is not None and not stores_rows(relation):
            taken = open_table(self.meta.objects, version, relation.state_tables[0], buffer=self.base.buffer)
            reader = reader_of(statement)
            sizes = reader.taken_sizes(taken)
            return {0: reader.taken_total(taken)[1]} if sizes is None else sizes
        table = stored_table(relation)
        _, stored = stored_size(version, table.table_id)
        if not table.distribution:
            return {0: stored}
        vnodes = version.mapping.vnode_count
        return dict.fromkeys(range(vnodes), -(-stored // vnodes))


@dataclass(frozen=True, slots=True)
class AsInBarrier:
    """Repeats the progress of builds in a superseded barrier, except for builds to finish or to give up.

    Args:
        held: the catalog of the superseded barrier; `epoch` is the epoch of that barrier.
        finished: a view whose build reads everything that is left; empty for none.
        given_up: a view whose build ends here; empty for none.
    """

    before: Catalog
    held: Catalog
    epoch: int
    finished: str = ""
    given_up: str = ""

    def advance_catalog(self, catalog: Catalog, epoch: int) -> Catalog:
        """Return the catalog of the new barrier."""
        aside = {r.name for build in self.held.builds if build.began == self.epoch for r in build.relations}
        if large := [r.id for r in _new_views(catalog, epoch) if r.name in aside]:
            catalog = set_aside(self.before, catalog, epoch, large)
        catalog = given_up(catalog, self.given_up)
        return advance_builds(catalog, epoch, self._advance_build) if catalog.builds else catalog

    def _advance_build(self, build: Build) -> Build:
        names = {r.name for r in build.relations}
        build_in_barrier = next((b for b in self.held.builds if {r.name for r in b.relations} == names), None)
        if build_in_barrier is None or self.finished in names:
            return msgspec.structs.replace(build, read=dict.fromkeys(build.read, ALL_READ))
        read = {relation: build_in_barrier.read.get(relation, ALL_READ) for relation in build.read}
        return msgspec.structs.replace(
            build, read=read, bytes_read=build_in_barrier.bytes_read, bytes_total=build_in_barrier.bytes_total
        )


def _new_views(catalog: Catalog, epoch: int) -> list[Relation]:
    return [r for r in catalog.live_relations() if r.kind is RelationKind.VIEW and r.created == epoch]


def _count_fitting(sizes: Sequence[int], most: int | None, *, at_least_one: bool) -> int:
    """Return how many of the first sizes fit in `most` together; None means all."""
    fit = len(sizes) if most is None else int(np.searchsorted(np.cumsum(sizes), most, side="right"))
    return max(fit, 1) if at_least_one and sizes else fit
