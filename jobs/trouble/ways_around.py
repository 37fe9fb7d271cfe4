"""The remedies for a row that a view cannot process, as commands to run.

Remedies that keep all data come first. The last one drops the view, and its text lists what would be lost.
"""

import shlex
from dataclasses import dataclass

from tussock.jobs.barriers.epoch_plan import EpochPlan
from tussock.jobs.barriers.leaves import taken_document
from tussock.jobs.catalog.definition import source_of, with_readers
from tussock.jobs.logical.statements import CreateView, Statement, Transaction
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.decoding import decoder_of
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind, shown_name
from tussock.statestore.meta.store import MetaStore

_MOST_ENTRIES = 3  # more log entries than this are not proposed one by one
_statement = decoder_of(Statement)


@dataclass(frozen=True, slots=True)
class WaysAround:
    """The facts that decide the remedies.

    Args:
        view: the view that failed; empty if the remedies are unknown.
        item: the item of a source that contains the row; empty if unknown.
        taken_by: the source that took `item` in an earlier epoch; empty if this epoch takes it.
        entries: the log entries of this epoch that changed rows of tables that the view reads.
        reads_tables, reads_sources: the view reads a table or a source, directly or not.
        pausable: the view and all its readers have rows of an earlier epoch, which they would keep.
        replaced_by: the log entry that replaces the view, if the view is a replacement.
        lost: the views whose rows a drop would remove, the view included; empty if it has no rows yet.
        follows: the store is a branch that follows its parent, whose rows it cannot change.
    """

    view: str = ""
    item: str = ""
    taken_by: str = ""
    entries: tuple[int, ...] = ()
    reads_tables: bool = False
    reads_sources: bool = False
    pausable: bool = False
    replaced_by: int | None = None
    lost: tuple[str, ...] = ()
    follows: bool = False

    def __str__(self) -> str:
        """The remedies as sentences after a message; each begins with a blank."""
        if not self.view:
            return ""
        if self.follows:
            return (
                " The row is the parent's, so the branch can only change the view. Correct its SELECT and run `tussock "
                "apply PIPELINE`, or drop it. The next epoch of the branch then takes this change first."
            )
        return "".join(f" {way}" for way in (*self._correction_ways(), *self._ways_without_view()) if way)

    def _correction_ways(self) -> tuple[str, ...]:
        item = shlex.quote(self.item)
        taken = bool(self.taken_by)
        there = "If the row comes from a file, correct it there" if self.reads_tables else "Correct the row in its file"
        return (
            "Correct the row in this file, and the next run reads the corrected file. To continue without the file, "
            f"run `tussock barrier abandon --skip-file {item}`."
            if self.item and not taken
            else "",
            f"{'If the row comes from a table, correct it' if self.reads_sources else 'Correct the row'} with UPDATE "
            "or DELETE, and run `tussock barrier abandon --take-log`."
            if self.reads_tables
            else "",
            f"To leave out the statement that wrote the row, run {self._skip_commands()}."
            if self.reads_tables and 0 < len(self.entries) <= _MOST_ENTRIES
            else "",
            f"{there}, and the next run reads it. `tussock barrier show` lists the files of this epoch."
            if self.reads_sources and not self.item
            else "",
        )

    def _skip_commands(self) -> str:
        return " or ".join(f"`tussock barrier abandon --skip-entry {entry}`" for entry in self.entries)

    def _ways_without_view(self) -> tuple[str, ...]:
        if self.replaced_by is not None:
            return (
                "To keep the old view, leave out the statement that replaces it: `tussock barrier abandon "
                f"--skip-entry {self.replaced_by}`.",
            )
        restate = ""
        if self.taken_by:
            restate = (
                f" Then correct the row in this file, run `tussock restate {self.taken_by} --file "
                f"{shlex.quote(self.item)}`, and create the view again."
            )
        drop = f"`tussock barrier abandon --drop {self.view}`"
        if not self.lost:
            return (f"To continue without the new view, which has no rows yet, run {drop}.{restate}",)
        pause = (
            f"To keep its present rows and continue, run `tussock barrier abandon --pause {self.view}`."
            if self.pausable
            else ""
        )
        return (
            pause,
            f"As a last resort, {drop} drops {_join_names(tuple(map(shown_name, self.lost)))} with all rows.{restate}",
        )


def ways_around(meta: MetaStore, plan: EpochPlan, view: Relation, item: str) -> WaysAround:
    """Return the remedies for a failing row of a view. `item`: as in WaysAround.

    Cost: reads the taken items, and the epoch's log entries if the view replaces another.
    """
    catalog, barrier = plan.catalog, plan.barrier
    below = _all_inputs(catalog, view)
    entries = {e.position for relation in below for e in plan.changes.get(relation.id, ())}
    readers = with_readers(catalog, view)
    old = {r.id for r in plan.base.version.catalog.live_relations()}
    stopped = [r for r in catalog.live_relations() if r.id in readers and r.kind is RelationKind.VIEW]
    replaces = any((r.name, r.dropped) == (view.name, view.created) for r in catalog.relations)
    return WaysAround(
        view.name,
        item,
        _taken_by(meta, plan, below, item),
        tuple(sorted(entries)),
        any(r.kind is RelationKind.TABLE for r in below),
        any(r.kind is RelationKind.SOURCE for r in below),
        all(r.id in old for r in stopped),
        _entry_of(meta, barrier.log_start, barrier.log_end, view.name) if replaces else None,
        tuple(r.name for r in stopped if r.id in old),
        meta.follows,
    )


def _all_inputs(catalog: Catalog, view: Relation) -> list[Relation]:
    """The relations that a view reads, directly or not."""
    by_id = {r.id: r for r in catalog.stored_relations()}
    ids, pending = set[int](), [*view.depends_on]
    while pending:
        if (at := pending.pop()) not in ids and at in by_id:
            ids.add(at)
            pending += by_id[at].depends_on
    return [by_id[i] for i in sorted(ids)]


def _taken_by(meta: MetaStore, plan: EpochPlan, below: list[Relation], item: str) -> str:
    """The source that took an item in an earlier epoch; empty if this epoch takes it."""
    if not item:
        return ""
    for relation in below:
        if (statement := source_of(relation)) is not None:
            reader = reader_of(statement)
            if any(i.name == item and not i.goes for i in reader.items(plan.barrier.splits.get(relation.id))):
                return ""
            if any(i.name == item for i in reader.items(taken_document(meta, plan.base, relation.id))):
                return relation.name
    return ""


def _entry_of(meta: MetaStore, start: int, end: int, view: str) -> int | None:
    """The last log entry that creates a view of this name; None if no entry does."""
    position = None
    for entry in meta.read_log(start, end):
        statement = _statement.decode(entry.statement)
        parts = statement.statements if isinstance(statement, Transaction) else (statement,)
        if any(isinstance(part, CreateView) and part.name.lower() == view for part in parts):
            position = entry.position
    return position


def _join_names(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
