"""CREATE OR REPLACE: replace a relation, and update the relations that read it.

A replacing view is a separate relation with its own ids. Its first epoch builds it while the old view still exists;
the old one ends with that epoch. A view that reads the old one is bound again, and then is either

* *fed the difference*, if its new plan differs only in the columns that it reads: it keeps its state, and its next
  epoch receives the old rows at weight -1 and the new ones at weight 1 (tussock.jobs.schedule.schedule);
* or *replaced* as well.

A statement with `rebuilt` always replaces its view, because its rows or its state are wrong (jobs/verify/repair.py).

In a branch, a view of the parent is always replaced, because its state tables are also the parent's.

A view that is fed a difference sees deleted rows. So a view whose plan assumes that no rows are deleted (over sources,
which only grow) is replaced.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import msgspec

from tussock.jobs.catalog.create import columns_of, create_relation, read_by, upstream_lookup
from tussock.jobs.catalog.definition import (
    ViewDefinition,
    created_by,
    definition_of,
    encode_definition,
    in_order,
    with_readers,
)
from tussock.jobs.catalog.difference import list_differences, without_places
from tussock.jobs.logical.nodes import Plan, scans_of
from tussock.jobs.logical.statements import CreateFunction, CreatePlainView, CreateView
from tussock.jobs.plan.fragments import Input
from tussock.jobs.plan.stream import ViewPlan, plan_view
from tussock.jobs.plan.streams.builder import Upstream
from tussock.statestore.errors import InputError
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind


def _belongs_to_parent(catalog: Catalog, relation: Relation) -> bool:
    """Whether a branch has a relation from its parent."""
    own = own_ids(catalog)
    return bool(own) and relation.id not in own


Replacement = CreateView | CreatePlainView | CreateFunction


class CannotReplaceError(InputError):
    """A view would read itself."""

    name: str
    through: str

    def __str__(self) -> str:
        return (
            f"view {self.name!r} cannot be replaced like this: its query reads {self.through!r}, which itself reads "
            f"{self.name!r}. Nothing was changed. Read the inputs of that relation instead."
        )


class UnsettledError(InputError):
    """A view reads a replaced relation, and the statement that replaces it does not include the view."""

    view: str
    replaced: str

    def __str__(self) -> str:
        return (
            f"{self.replaced!r} cannot be replaced: another session created {self.view!r}, which reads it, after "
            "this statement was checked. Nothing was changed. Run the statement again."
        )


@dataclass(slots=True)
class EntryReplacements:
    """The replacements of one entry of the log."""

    epoch: int
    unsettled: dict[int, str] = field(
        default_factory=dict
    )  # relations that must be bound again -> the replaced relation that they read
    _instead: dict[int, Relation] = field(default_factory=dict)  # id of a new relation -> the relation that it replaces
    _disturbed: set[int] = field(
        default_factory=set
    )  # relations that lose rows in this epoch even if they are append-only

    _reshaped: set[str] = field(default_factory=set)  # sources whose columns get other names or types

    def replace_relation(self, catalog: Catalog, relation: Relation, statement: Replacement) -> Catalog:
        """The catalog after the statement has replaced the relation with its name and kind.

        Raises: CannotReplaceError if it would read itself; as `create_relation`.
        """
        settles = self.unsettled.pop(relation.id, None) is not None
        rebuilt = isinstance(statement, CreateView) and statement.rebuilt
        if (
            not (settles or rebuilt)
            and relation.paused is None
            and not list_differences(created_by(relation), statement)
        ):
            return catalog
        readers = with_readers(catalog, relation) - {relation.id}
        for reader in readers:
            self.unsettled.setdefault(reader, relation.name)
        after = self._catalog_after(catalog, relation, statement)
        (new,) = (r for r in after.live_relations() if r.name == relation.name)
        for read in after.live_relations():
            if read.id in readers and read.id in _read_by(after, new):
                raise CannotReplaceError(new.name, read.name)
        return in_order(after)

    def disturb_readers(self, catalog: Catalog, source: Relation) -> None:
        """Note that the views which read a source must be bound again, because its columns change."""
        self._reshaped.add(source.name)
        for relation in catalog.live_relations():
            if source.id in relation.depends_on and relation.kind in (RelationKind.VIEW, RelationKind.PLAIN_VIEW):
                self.unsettled.setdefault(relation.id, source.name)

    def require_settled(self, catalog: Catalog) -> None:
        """Raises UnsettledError if a view still reads a replaced relation. Another session created it meanwhile."""
        for relation in catalog.live_relations():
            if relation.id in self.unsettled:
                raise UnsettledError(relation.name, self.unsettled[relation.id])

    def _catalog_after(self, catalog: Catalog, relation: Relation, statement: Replacement) -> Catalog:
        if isinstance(statement, CreateView):
            keeps = not statement.rebuilt and not _belongs_to_parent(catalog, relation)
            if keeps and (fed := self._view_with_kept_state(catalog, relation, statement)) is not None:
                if any(i in self._instead or i in self._disturbed for i in fed.depends_on):
                    self._disturbed.add(relation.id)
                return _swap_relation(catalog, fed)
            statement = msgspec.structs.replace(statement, or_replace=False, rebuilt=False)
        gone = msgspec.structs.replace(relation, dropped=self.epoch)
        relations = [gone if r.id == relation.id else r for r in catalog.relations]
        catalog = msgspec.structs.replace(catalog, relations=tuple(r for r in relations if r.dropped != r.created))
        new = create_relation(catalog, statement, self.epoch)
        self._instead[new.id] = relation
        return add_relation(catalog, new)

    def _view_with_kept_state(self, catalog: Catalog, view: Relation, statement: CreateView) -> Relation | None:
        """The view over its current inputs with its state unchanged. None if it cannot keep its state."""
        before = definition_of(view)
        assert isinstance(before, ViewDefinition)
        first = view.state_tables[0].table_id
        known = upstream_lookup(catalog)
        planned = plan_view(statement.plan, view.id, self._losing_rows(known), first)
        renamed = (
            columns_of(statement.plan.fields) != view.columns
        )  # reads of earlier epochs use the names of that time
        retyped = _scanned_columns(before.plan, self._reshaped) != _scanned_columns(statement.plan, self._reshaped)
        if renamed or retyped or view.paused is not None or not self._same_state(view, before, planned):
            return None
        append_only = plan_view(statement.plan, view.id, known, first).output.append_only
        output = msgspec.structs.replace(planned.output, append_only=append_only)
        return msgspec.structs.replace(
            view,
            definition=encode_definition(
                ViewDefinition(
                    statement.sql, statement.plan, planned.fragments, output, statement.columns, statement.written
                )
            ),
            depends_on=read_by(catalog, statement, planned),
        )

    def _losing_rows(self, known: Callable[[str], Upstream]) -> Callable[[str], Upstream]:
        """The planner's information about relations; one that loses rows in this epoch is no longer append-only."""

        def upstream_of(name: str) -> Upstream:
            upstream = known(name)
            if upstream.output is None or not (
                upstream.relation_id in self._instead or upstream.relation_id in self._disturbed
            ):
                return upstream
            return replace(upstream, output=msgspec.structs.replace(upstream.output, append_only=False))

        return upstream_of

    def _same_state(self, view: Relation, before: ViewDefinition, planned: ViewPlan) -> bool:
        """Whether a plan keeps exactly the view's current state, apart from replaced inputs."""
        promise = before.output.append_only
        if (
            planned.tables != view.state_tables
            or msgspec.structs.replace(planned.output, append_only=promise) != before.output
        ):
            return False
        if [len(f.inputs) for f in planned.fragments] != [len(f.inputs) for f in before.fragments]:
            return False
        as_before = [
            msgspec.structs.replace(
                f, inputs=tuple(self._as_before(new, old) for new, old in zip(f.inputs, g.inputs, strict=True))
            )
            for f, g in zip(planned.fragments, before.fragments, strict=True)
        ]
        return without_places(msgspec.to_builtins(as_before)) == without_places(msgspec.to_builtins(before.fragments))

    def _as_before(self, new: Input, old: Input) -> Input:
        """The input with its previous ids and columns, if it reads the replacement of its previous relation."""
        gone = None if new.relation_id is None else self._instead.get(new.relation_id)
        if gone is None or gone.id != old.relation_id:
            return new
        return msgspec.structs.replace(new, relation_id=old.relation_id, columns=old.columns)


def add_relation(catalog: Catalog, relation: Relation) -> Catalog:
    """The catalog with one more relation, which has its next ids."""
    return msgspec.structs.replace(
        catalog,
        relations=(*catalog.relations, relation),
        next_relation_id=catalog.next_relation_id + 1,
        next_table_id=catalog.next_table_id + len(relation.state_tables),
    )


def _swap_relation(catalog: Catalog, changed: Relation) -> Catalog:
    return msgspec.structs.replace(
        catalog, relations=tuple(changed if r.id == changed.id else r for r in catalog.relations)
    )


def _scanned_columns(plan: Plan, sources: Collection[str]) -> set[tuple[str, int, str]]:
    """The columns of sources that a plan reads: (source, column, type)."""
    return {
        (scan.relation, column, field.type)
        for scan in scans_of(plan)
        if scan.relation in sources
        for column, field in zip(scan.columns, scan.fields, strict=True)
    }


def _read_by(catalog: Catalog, relation: Relation) -> set[int]:
    """The ids of all relations that a relation reads, directly or not."""
    by_id = {r.id: r for r in catalog.relations}
    ids, pending = set[int](), [*relation.depends_on]
    while pending:
        if (at := pending.pop()) not in ids:
            ids.add(at)
            pending += by_id[at].depends_on if at in by_id else ()
    return ids
