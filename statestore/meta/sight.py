"""What readers see of a version: relations as of one epoch, but for those that are held back, which they go on seeing as of an earlier one.

A relation is held back where the quality gate refused its rows, or those of one that it reads, and everything else was published
(`Published.held`). Held back is a relation of the catalog; what readers see instead is the relation of its name at the epoch that it
stays at: itself, or one whose place it took since. Who names an epoch sees all relations as of that one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.version import HeldBack, HummockVersion


@dataclass(frozen=True, slots=True)
class Sight:
    """Relations as of `epoch`; those named in `held` as of the epoch there, 0: not at all, for they never had rows that passed."""

    epoch: int
    held: Mapping[str, int] = field(default_factory=dict)

    def epoch_of(self, name: str) -> int:
        """The epoch at which the relation of this name is seen."""
        return self.held.get(name, self.epoch)

    def relations(self, catalog: Catalog) -> tuple[Relation, ...]:
        """The relations that are seen, in order of creation; one that is held back as it was."""
        seen = []
        for relation in catalog.at(self.epoch):
            if (epoch := self.epoch_of(relation.name)) == self.epoch:
                seen.append(relation)
            else:
                seen += [r for r in catalog.at(epoch) if r.name == relation.name]
        return tuple(seen)


def published_sight(version: HummockVersion) -> Sight:
    """What a reader sees who names no epoch."""
    return sight_until(version, version.published)


def sight_until(version: HummockVersion, epoch: int) -> Sight:
    """What readers saw when `epoch` was the newest, as far as the version says: what is held back now is not seen any later either."""
    names = {r.id: r.name for r in version.catalog.at(version.published)}
    return Sight(epoch, {names[h.relation]: h.epoch for h in version.held if h.relation in names and h.epoch < epoch})


def oldest_seen(version: HummockVersion) -> int:
    """The oldest epoch that a reader may see who names none: it stays readable."""
    return min((version.published, *(h.epoch for h in version.held if h.epoch)))


def held_back(version: HummockVersion, epoch: int, refused: Collection[int] | None) -> tuple[HeldBack, ...]:
    """What is held back once `epoch` is published.

    Args:
        refused: relations whose rows at `epoch` readers are not to see; None: nobody was asked, and what is held back stays so.

    Those that read them, directly or not, are held back with them. Nothing goes back: what is seen as of `epoch` already, stays so.
    """
    before, there, held = published_sight(version), version.catalog.at(epoch), []
    found = {r.id for r in there if r.name in before.held} if refused is None else set(refused)
    visible = {r.name for r in version.catalog.at(before.epoch)}
    for relation in there:  # readers always come after what they read
        if relation.id in found or found & set(relation.depends_on):
            found.add(relation.id)
            stays = before.epoch_of(relation.name) if relation.name in visible else 0
            if relation.kind in (RelationKind.VIEW, RelationKind.TABLE) and stays < epoch:
                held.append(HeldBack(relation.id, stays))
    return tuple(held)
