"""Transactions under construction: statements that enter the log together.

Each statement is bound over the catalog that results from the previous ones.
"""

from dataclasses import dataclass, field

from tussock.jobs.catalog.apply import EntryApplier
from tussock.jobs.catalog.checks import check_relations, check_statement
from tussock.jobs.catalog.definition import PlainViewDefinition, ViewDefinition, definition_of
from tussock.jobs.catalog.statement_log import WaitingLog
from tussock.jobs.executors.operator import Entry
from tussock.jobs.logical.statements import Change, Delete, Insert, Single, Statement, Transaction, Update
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation


class CannotFollowError(InputError):
    """Views read a relation that changes, and their SELECTs are not valid over the new one."""

    view: str  # the first of them
    reason: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        also = f"The same is true of {', '.join(map(repr, self.others))}. " if self.others else ""
        these = "these views" if self.others else f"{self.view!r}"
        return (
            f"view {self.view!r} reads a relation that changes here, and its SELECT is not valid over the new one: "
            f"{self.reason}\n{also}Nothing was changed. Change {these} in the same `tussock apply`, or by CREATE OR "
            f"REPLACE in the same transaction (BEGIN … COMMIT)."
        )


@dataclass(slots=True)
class DraftTransaction:
    """A transaction under construction.

    Args:
        before: the pending catalog.
        epoch: the first epoch in which it can take effect.
    """

    before: Catalog
    epoch: int
    statements: list[Single] = field(default_factory=list)
    _once: list[tuple[int, str]] = field(default_factory=list)
    _applying: EntryApplier = field(init=False)

    def __post_init__(self) -> None:
        self._applying = EntryApplier(self.before, self.epoch)

    @property
    def catalog(self) -> Catalog:
        """The catalog after the statements so far."""
        return self._applying.catalog

    def waiting_log(self, before: WaitingLog) -> WaitingLog:
        """The waiting statements, followed by this transaction's as the next entry of the log.

        `before`: with the catalog `before`.
        """
        rows = {
            table: [Entry(before.end, change, given) for given, change in changes]
            for table, changes in self._applying.rows.items()
        }
        return before.with_draft(self.catalog, self.statements, rows)

    def add_statement(self, statement: Single, once: str | None = None) -> bool:
        """Add a statement and return whether it changes anything. A statement without effect is not added.

        Raises: as `checks.admit_statement`.
        """
        check_statement(statement)
        before, unsettled = self.catalog, self._applying.unsettled_relations
        if not self._applying.apply_single(statement, once):
            return False
        check_relations(before, self.catalog)
        settles = len(self._applying.unsettled_relations) < len(unsettled)
        if (
            once is None
            and self.catalog == before
            and not settles
            and not isinstance(statement, Insert | Change | Update | Delete)
        ):
            return False
        if once is not None:
            self._once.append((len(self.statements), once))
        self.statements.append(statement)
        return True

    def is_unsettled(self, relation: Relation) -> bool:
        """Whether a relation must still be bound again, because it reads a replaced relation."""
        return any(r.id == relation.id for r in self._applying.unsettled_relations)

    @property
    def unsettled_relations(self) -> tuple[Relation, ...]:
        """The views that must still be bound again. Readers come after their input."""
        return self._applying.unsettled_relations

    def to_statement(self) -> Statement:
        """The statement to log. Requires: at least one statement, and nothing unsettled."""
        if len(self.statements) == 1 and not self._once:
            return self.statements[0]
        return Transaction(tuple(self.statements), tuple(self._once))


def query_of(view: Relation) -> tuple[str, tuple[str, ...]]:
    """A view's SELECT and the column names of its statement. Empty: the SELECT names the columns."""
    definition = definition_of(view)
    if isinstance(definition, PlainViewDefinition):
        names = tuple(f.name for f in definition.statement.fields)
        return definition.statement.sql, () if names == definition.statement.columns else names
    assert isinstance(definition, ViewDefinition), "only views can be bound again"
    return definition.sql, definition.columns
