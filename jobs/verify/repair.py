"""Rebuild views whose rows are wrong: `tussock verify --repair`.

A view that differs is replaced by its own SELECT, as if by CREATE OR REPLACE, and so is each view that reads it,
directly or not. The views that read it cannot process the difference between old and new rows instead: their state is
computed from wrong rows, and no record shows which parts. Readers see the old rows until the epoch that builds the
new ones is published.
"""

from contextlib import suppress

import msgspec

from tussock.jobs.catalog.builds import find_planned
from tussock.jobs.catalog.definition import with_readers
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.jobs.verify.record import Repair, Verdict, Verification
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore


def repair_views(
    meta: MetaStore, pending: PendingCatalog, maker: StatementMaker, writer: StatementWriter, verification: Verification
) -> Verification:
    """Log the statement that rebuilds the views that differ.

    Logs nothing if there are none, or if all are already being rebuilt.

    Returns: the verification, with its repair.
    Raises: CannotFollowError if the SELECT of a view can no longer be bound. Nothing is logged then.
    """
    while True:
        version = meta.read_latest()
        catalog, end = pending.read_catalog(version), pending.log_end
        damaged = _still_different(version.catalog, catalog, verification)
        if not damaged:
            return verification
        draft = DraftTransaction(catalog, version.epoch + 1)
        doomed = with_readers(catalog, *damaged)
        views = [
            r
            for r in catalog.live_relations()
            if r.id in doomed and r.kind in (RelationKind.VIEW, RelationKind.PLAIN_VIEW)
        ]
        for view in views:  # readers come after their input
            maker.bind_again(draft, view, rebuilt=True)
        names = tuple(view.name for view in views if view.kind is RelationKind.VIEW)
        with suppress(LogMovedError):  # another session logged a statement in between
            repair = Repair(names, writer.log_statement(draft.to_statement(), expected=end))
            return msgspec.structs.replace(verification, repair=repair)


def _still_different(verified: Catalog, catalog: Catalog, verification: Verification) -> list[Relation]:
    """The views that differ, unless another view has their name now or a later statement already rebuilds them."""
    live, damaged = {r.id: r for r in catalog.live_relations()}, []
    for check in verification.with_verdict(Verdict.DIFFERENT):
        same = [r.id for r in verified.relations_at(check.epoch) if r.name == check.view]
        damaged += [live[i] for i in same if i in live and find_planned(catalog, check.view) is None]
    return damaged
