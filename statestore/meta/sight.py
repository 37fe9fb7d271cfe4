"""The view of readers: all relations as of one epoch, except held-back relations, which stay as of an earlier epoch.

A relation is held back if everything else was published but the quality check refused its rows, or the rows of a
relation that it reads (`Published.held`). `held` names a relation of the catalog. Instead of it, readers see the
relation of the same name at the earlier epoch: the relation itself, or one that has replaced it since. Readers that
name an epoch see all relations as of that epoch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.version import HeldBack, HummockVersion


@dataclass(frozen=True, slots=True)
class Sight:
    """The relations that a reader sees: all as of `epoch`, except those in `held`.

    `held` maps a name to the earlier epoch that is shown; 0: hidden, because no rows have passed yet.
    """

    epoch: int
    held: Mapping[str, int] = field(default_factory=dict)

    def epoch_of(self, name: str) -> int:
        """The epoch at which readers see the relation of this name."""
        return self.held.get(name, self.epoch)

    def visible_relations(self, catalog: Catalog) -> tuple[Relation, ...]:
        """The visible relations in order of creation; held-back relations in their earlier form."""
        seen = []
        for relation in catalog.relations_at(self.epoch):
            if (epoch := self.epoch_of(relation.name)) == self.epoch:
                seen.append(relation)
            else:
                seen += [r for r in catalog.relations_at(epoch) if r.name == relation.name]
        return tuple(seen)


def published_sight(version: HummockVersion) -> Sight:
    """The view of readers that name no epoch."""
    return sight_until(version, version.published)


def sight_until(version: HummockVersion, epoch: int) -> Sight:
    """The view of readers when `epoch` was the newest, as far as `version` records it.

    Current holds apply to it too.
    """
    names = {r.id: r.name for r in version.catalog.relations_at(version.published)}
    return Sight(epoch, {names[h.relation]: h.epoch for h in version.held if h.relation in names and h.epoch < epoch})


def oldest_seen(version: HummockVersion) -> int:
    """The oldest epoch visible to readers that name none. It must stay readable."""
    return min((version.published, *(h.epoch for h in version.held if h.epoch)))


def held_back(version: HummockVersion, epoch: int, refused: Collection[int] | None) -> tuple[HeldBack, ...]:
    """The relations to hold back when `epoch` is published.

    Relations that read a refused relation, directly or indirectly, are held back too. A relation that readers already
    see as of `epoch` is never held back.

    Args:
        refused: relations whose rows at `epoch` must stay hidden; None: no check ran, and current holds stay.
    """
    before, there, held_relations = published_sight(version), version.catalog.relations_at(epoch), []
    held_ids = {r.id for r in there if r.name in before.held} if refused is None else set(refused)
    visible = {r.name for r in version.catalog.relations_at(before.epoch)}
    for relation in there:  # Relations follow their inputs.
        if relation.id in held_ids or held_ids & set(relation.depends_on):
            held_ids.add(relation.id)
            stays = before.epoch_of(relation.name) if relation.name in visible else 0
            if relation.kind in (RelationKind.VIEW, RelationKind.TABLE) and stays < epoch:
                held_relations.append(HeldBack(relation.id, stays))
    return tuple(held_relations)
