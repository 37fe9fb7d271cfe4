"""How far views that are built over several epochs read in each: `max_bytes` of what is stored, at least one vnode or file.

The smallest relation is read first, so that those that a large one is joined with are there when its rows come.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tussock.jobs.driver.epoch_plan import Base
from tussock.jobs.plan.builds import advanced, given_up, read_anew, set_aside
from tussock.jobs.plan.definition import source_of
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import ALL_READ, Build, Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore


@dataclass(slots=True)
class Building:
    """Decides what builds read in the epoch after a base.

    Args:
        max_bytes: of stored rows and of sources' files, for each build; None: no bound, so that each build is finished.
    """

    meta: MetaStore
    base: Base
    max_bytes: int | None
    _sizes: dict[int, Mapping[int, int]] = field(default_factory=dict)

    def on(self, catalog: Catalog, epoch: int) -> Catalog:
        """The catalog in which builds that are under way have read on, and new views that together read more than `max_bytes` are set
        aside, the first part read. Cost: for sources that they read, a scan of what those have taken."""
        before = self.base.version.catalog
        if self.max_bytes is not None:
            read = {r.id: found for r in _new_views(catalog, epoch) if (found := read_anew(before, catalog, r))}
            if self._bytes({i for found in read.values() for i in found}) > self.max_bytes:
                catalog = set_aside(before, catalog, epoch, read)
        return advanced(catalog, epoch, self._further) if catalog.builds else catalog

    def _bytes(self, relations: Iterable[int]) -> int:
        return sum(sum(self._sizes_of(relation).values()) for relation in relations)

    def _further(self, build: Build) -> Build:
        """The build as far as it has read by the end of the epoch."""
        read, left = dict(build.read), self.max_bytes
        sizes = {relation: self._sizes_of(relation) for relation in read}
        for relation in sorted(read, key=lambda r: (sum(sizes[r].values()), r)):
            if read[relation] == ALL_READ:
                continue
            waiting = {place: size for place, size in sizes[relation].items() if place >= read[relation]}
            fit = _fitting([*waiting.values()], left, at_least_one=left == self.max_bytes)
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
        """Bytes of what a relation has stored, or has taken, by vnode or number, ascending; nothing of one that is new."""
        if relation not in self._sizes:
            known = next((r for r in self.base.version.catalog.live() if r.id == relation), None)
            self._sizes[relation] = {} if known is None else self._measured(known)
        return self._sizes[relation]

    def _measured(self, relation: Relation) -> Mapping[int, int]:
        version = self.base.version
        if (statement := source_of(relation)) is not None:
            taken = open_table(self.meta.objects, version, relation.state_tables[0], buffer=self.base.buffer)
            reader = reader_of(statement)
            sizes = reader.taken_sizes(taken)
            return {0: sum(item.nbytes for item in reader.taken_items(taken))} if sizes is None else sizes
        table = stored_table(relation)
        ssts = (sst for level in version.levels for sst in level)
        stored = sum(section.bytes for sst in ssts for section in sst.sections if section.table_id == table.table_id)
        if not table.distribution:
            return {0: stored}
        vnodes = len(version.mapping.units)
        return dict.fromkeys(range(vnodes), -(-stored // vnodes))


@dataclass(frozen=True, slots=True)
class AsInBarrier:
    """What builds read in an epoch whose barrier another one supersedes: the same, but for builds that are to be finished or given up.

    Args:
        held: the catalog of the barrier that is superseded; `epoch` is that barrier's.
        finished: the name of a view of a build that reads all that is left; empty: of none.
        given_up: that of one of a build that ends here, likewise.
    """

    before: Catalog
    held: Catalog
    epoch: int
    finished: str = ""
    given_up: str = ""

    def on(self, catalog: Catalog, epoch: int) -> Catalog:
        """The catalog of the barrier that supersedes."""
        aside = {r.name for build in self.held.builds if build.began == self.epoch for r in build.relations}
        if large := [r.id for r in _new_views(catalog, epoch) if r.name in aside]:
            catalog = set_aside(self.before, catalog, epoch, large)
        catalog = given_up(catalog, self.given_up)
        return advanced(catalog, epoch, self._further) if catalog.builds else catalog

    def _further(self, build: Build) -> Build:
        names = {r.name for r in build.relations}
        held = next((b for b in self.held.builds if {r.name for r in b.relations} == names), None)
        if held is None or self.finished in names:
            return msgspec.structs.replace(build, read=dict.fromkeys(build.read, ALL_READ))
        read = {relation: held.read.get(relation, ALL_READ) for relation in build.read}
        return msgspec.structs.replace(build, read=read, bytes_read=held.bytes_read, bytes_total=held.bytes_total)


def _new_views(catalog: Catalog, epoch: int) -> list[Relation]:
    return [r for r in catalog.live() if r.kind is RelationKind.VIEW and r.created == epoch]


def _fitting(sizes: Sequence[int], most: int | None, *, at_least_one: bool) -> int:
    """How many of the first are at most `most` together; None: all."""
    fit = len(sizes) if most is None else int(np.searchsorted(np.cumsum(sizes), most, side="right"))
    return max(fit, 1) if at_least_one and sizes else fit
