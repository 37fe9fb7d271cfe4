"""Statements that run once in a store's life, though their script runs again and again: `tussock apply`'s INSERTs, UPDATEs, ALTERs
and what else changes a table.

Such a statement is known by its text (blanks and comments do not count), by the table it changes (one that was dropped and created
again is another table), and by how many equal statements stand before it in the same run. Its table keeps the names of those that ran,
as part of its definition: the log takes a statement with its name, or not at all.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.plan.definition import SourceDefinition, TableDefinition, definition_of, ran_of
from tussock.jobs.sql.grammar import changed_table
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind


@dataclass(frozen=True, slots=True)
class OnceStatement:
    """A statement that runs once.

    Args:
        name: by which its table knows it.
        ran: it does already.
        client_id: by which the log knows it where an earlier release ran it.
    """

    name: str
    ran: bool
    client_id: str


@dataclass(slots=True)
class Once:
    """One run of scripts whose statements on tables run once."""

    _seen: Counter[str] = field(default_factory=Counter)
    _ran: dict[int, tuple[Relation, frozenset[str]]] = field(
        default_factory=dict
    )  # by id, of a relation as it was when it was asked for

    def of(self, catalog: Catalog, text: str) -> OnceStatement | None:
        """The next statement of the run; None for one that changes no table, or one that is not there."""
        source = SourceText(text)
        if (name := changed_table(source)) is None:
            return None
        table = next(
            (r for r in catalog.live() if r.name == name and r.kind in (RelationKind.TABLE, RelationKind.SOURCE)), None
        )
        if table is None:
            return None
        words = "\0".join(t.text for t in tokens_of(source))
        digest = hashlib.sha256(words.encode()).hexdigest()[:32]
        self._seen[f"{table.id}/{digest}"] += 1
        statement = f"{digest}/{self._seen[f'{table.id}/{digest}']}"
        return OnceStatement(statement, statement in self._ran_of(table), f"once/{table.id}/{statement}")

    def _ran_of(self, table: Relation) -> frozenset[str]:
        known = self._ran.get(table.id)
        if known is None or known[0] is not table:
            definition = definition_of(table)
            assert isinstance(definition, TableDefinition | SourceDefinition)
            known = self._ran[table.id] = table, frozenset(ran_of(definition))
        return known[1]
