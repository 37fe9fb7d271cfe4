"""Views that are built over several epochs, because they read more existing rows than one epoch may take.

The catalog holds them apart (`tussock.statestore.meta.catalog.Build`), together with relations that start or change
with them. Relations that they replace stay unchanged, so readers and other views do not see the build. Each epoch
reads another part for them (`jobs/schedule/schedule.py:SnapshotPart`): stored rows of the next vnodes, taken files with
the next numbers, and the changes to everything read so far. After each epoch, they therefore equal their SELECTs over
the part that is read. The epoch that reads the last part puts the whole build in place at once.

While a build runs, statements that would invalidate it are rejected. A statement that redefines one of its views
cancels the build. If rows of a build raise an error, one epoch finishes it (jobs/barriers/builds.py), because an
expression may raise over a part of the rows and not over all of them.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from tussock.jobs.catalog.definition import fragments_of, in_order, with_readers
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import ALL_READ, Build, Catalog, Relation, RelationKind

_NEVER_BUILT = (RelationKind.SOURCE, RelationKind.TABLE)


class BeingBuiltError(InputError):
    """A statement conflicts with views that are being built over several epochs."""

    views: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.views)
        return (
            f"{self.reason}, while {names} is being built over several epochs (SHOW VIEWS shows the progress). "
            "Nothing was changed. Run epochs until it is built (`tussock epoch`), or cancel the build: CREATE OR "
            f"REPLACE MATERIALIZED VIEW {self.views[0]} with its previous SELECT, or DROP it if it is new."
        )


# --- start ------------------------------------------------------------------------------------------------------------


def read_anew(before: Catalog, relation: Relation) -> tuple[int, ...]:
    """The ids of the relations in `before` that a relation which does not exist there reads in full."""
    there = {r.id for r in before.live_relations()}
    return tuple(sorted(i for i in inputs_of(relation) if i in there)) if relation.id not in there else ()


def inputs_of(relation: Relation) -> set[int]:
    """The ids of the relations whose rows a view reads."""
    return {i.relation_id for f in fragments_of(relation) for i in f.inputs if i.relation_id not in (None, relation.id)}


def set_aside(before: Catalog, after: Catalog, epoch: int, large: Collection[int]) -> Catalog:
    """Move new views, and everything that must start with them, into a build that has read nothing yet.

    Returns `after` unchanged if the replaced relations cannot stay, because they read a dropped one.

    Args:
        large: ids of views that exist only in `after`. The build also includes new views that read them or
        that they
            read, and existing views that continue over them.
    """
    was = {r.id: r for r in before.live_relations()}
    new = {r.id: r for r in after.live_relations() if r.id not in was and r.kind not in _NEVER_BUILT}
    changed = {
        r.id: r
        for r in after.live_relations()
        if r.id in was and r.kind is RelationKind.VIEW and r.definition != was[r.id].definition
    }
    aside, follow = set(large), set[int]()
    grown = -1
    while grown < len(aside) + len(follow):
        grown = len(aside) + len(follow)
        follow |= {i for i, r in changed.items() if aside & {*r.depends_on}}
        below = {d for i in aside | follow for d in (new | changed)[i].depends_on}
        aside |= {i for i, r in new.items() if i in below or (aside | follow) & {*r.depends_on}}
    live = {r.name: r for r in after.live_relations()}
    replaces = {r.id for r in was.values() if r.name in live and live[r.name].id in aside}
    remaining = [was[r.id] if r.id in replaces | follow else r for r in after.relations if r.id not in aside]
    standing = {r.id for r in remaining if r.dropped is None}
    if any(r.dropped is None and not {*r.depends_on} <= standing for r in remaining):
        return after
    relations = tuple(r for r in after.live_relations() if r.id in aside)
    upstream = {i for r in relations for i in inputs_of(r)} - aside
    read = {i: 0 if i in was else ALL_READ for i in sorted(upstream)}
    changes = tuple(changed[i] for i in sorted(follow))
    build = Build(epoch, relations, tuple(sorted(replaces)), changes, read)
    return in_order(msgspec.structs.replace(after, relations=tuple(remaining), builds=(*after.builds, build)))


# --- progress ---------------------------------------------------------------------------------------------------------


def advance_builds(catalog: Catalog, epoch: int, further: Callable[[Build], Build]) -> Catalog:
    """The catalog after each build has read its next part.

    Builds that have read everything are put in place with this epoch.

    Args:
        further: a build -> the build with the part that it has read by the end of the epoch.
    """
    builds, catalog = catalog.builds, msgspec.structs.replace(catalog, builds=())
    for build in map(further, builds):
        if all(end == ALL_READ for end in build.read.values()):
            catalog = _put_in_place(catalog, build, epoch)
        else:
            catalog = msgspec.structs.replace(catalog, builds=(*catalog.builds, build))
    return catalog


def _put_in_place(catalog: Catalog, build: Build, epoch: int) -> Catalog:
    follow = {r.id: r for r in build.changed}

    def relation_after(relation: Relation) -> Relation:
        if relation.id in build.replaces:
            return msgspec.structs.replace(relation, dropped=epoch)
        if (changed := follow.get(relation.id)) is not None:
            return msgspec.structs.replace(changed, paused=relation.paused, paused_for=relation.paused_for)
        return relation

    begun = (msgspec.structs.replace(r, created=epoch) for r in build.relations)
    return in_order(msgspec.structs.replace(catalog, relations=(*map(relation_after, catalog.relations), *begun)))


# --- conflicts --------------------------------------------------------------------------------------------------------


def find_planned(catalog: Catalog, name: str) -> Relation | None:
    """The relation of a build with this name, either new or changed. None if there is none."""
    return next(
        (r for build in catalog.builds for r in (*build.relations, *build.changed) if r.name == name.lower()), None
    )


def is_being_built(catalog: Catalog, name: str) -> bool:
    """Whether a build creates a view with this name."""
    return any(r.name == name.lower() for build in catalog.builds for r in build.relations)


def given_up(catalog: Catalog, name: str) -> Catalog:
    """The catalog without the builds that create or change the relation with this name."""
    left = tuple(b for b in catalog.builds if all(r.name != name.lower() for r in (*b.relations, *b.changed)))
    return msgspec.structs.replace(catalog, builds=left)


def drop_disturbed_builds(before: Catalog, after: Catalog, *, cascade: bool) -> Catalog:
    """The catalog after a statement, without the builds that it makes impossible.

    These are builds whose replaced relations it drops, or with `cascade` also their inputs.

    Raises: BeingBuiltError if the statement conflicts with a build.
    """
    if not after.builds:
        return after
    was, live = {r.id: r for r in before.live_relations()}, {r.id: r for r in after.live_relations()}
    builds = []
    for build in after.builds:
        if not all(i in live for i in build.replaces):
            continue
        if (reason := _describe_conflict(build, was, after)) is not None:
            raise BeingBuiltError(tuple(r.name for r in build.relations), reason)
        lost = [was[i].name if i in was else str(i) for i in _stands_on(build) if i not in live]
        if lost and not cascade:
            raise BeingBuiltError(tuple(r.name for r in build.relations), f"{', '.join(lost)} cannot be dropped")
        if not lost:
            builds.append(msgspec.structs.replace(build, changed=tuple(r for r in build.changed if r.id in live)))
    return msgspec.structs.replace(after, builds=tuple(builds))


def drop_paused_builds(catalog: Catalog) -> Catalog:
    """The catalog without the builds that read a paused view, since its missed changes are not stored."""
    paused = {r.id for r in catalog.live_relations() if r.paused is not None}
    if not paused or not catalog.builds:
        return catalog
    left = tuple(b for b in catalog.builds if not paused & {*b.read})
    return msgspec.structs.replace(catalog, builds=left)


def _stands_on(build: Build) -> set[int]:
    own = {r.id for r in (*build.relations, *build.changed)}
    return {i for r in (*build.relations, *build.changed) for i in r.depends_on} - own


def _describe_conflict(build: Build, was: Mapping[int, Relation], after: Catalog) -> str | None:
    """How a statement conflicts with a build. None if it does not."""
    follow = {r.id for r in build.changed}
    over = with_readers(after, *(r for r in after.live_relations() if r.id in build.replaces))
    names = {r.name for r in build.relations}
    for relation in after.live_relations():
        new = relation.id not in was
        if new and relation.name in names:
            return f"{relation.kind} {relation.name!r} cannot be created"
        if new and over & {*relation.depends_on}:
            return f"{relation.kind} {relation.name!r} cannot be created over a relation that is being replaced"
        if not new and relation.id in follow and relation.definition != was[relation.id].definition:
            return f"{relation.kind} {relation.name!r} cannot be changed"
        if (
            not new
            and relation.id in _stands_on(build)
            and _shape_of(relation)[: len(_shape_of(was[relation.id]))] != _shape_of(was[relation.id])
        ):
            return f"names of {relation.kind} {was[relation.id].name!r} cannot be changed"
    return None


def _shape_of(relation: Relation) -> tuple[str, ...]:
    return (relation.name, *(c.name for c in relation.columns))
