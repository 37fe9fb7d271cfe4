"""Statements of `tussock apply` that run once in a store's life although their script runs repeatedly.

These are the INSERTs, UPDATEs, ALTERs and other statements that change a table.

Such a statement is identified by its text (without blanks, comments, and the case of letters outside of strings), by
its table (a table that was dropped and created again is another one), and by the number of equal statements before it
in the same run. The table's definition contains the names of the statements that ran,
`i/<digest of the text>/<number>`, so the log takes a statement and its name together or not at all.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tussock.jobs.catalog.definition import SourceDefinition, TableDefinition, definition_of
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.sql.grammar import changed_table
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind


@dataclass(frozen=True, slots=True)
class OnceStatement:
    """A statement that runs once.

    Args:
        name: the name under which its table records it.
        ran: whether it has already run.
    """

    name: str
    ran: bool


@dataclass(slots=True)
class Once:
    """One run of scripts whose statements on tables run once."""

    _seen: Counter[str] = field(default_factory=Counter)
    _ran: dict[int, tuple[Relation, frozenset[str]]] = field(
        default_factory=dict
    )  # by relation id: the relation that was last examined, and its statements

    def next_statement(self, catalog: Catalog, source: SourceText) -> OnceStatement | None:
        """The next statement of the run. None if it changes no table, or if its table does not exist."""
        if (name := changed_table(source)) is None:
            return None
        table = next(
            (
                r
                for r in catalog.live_relations()
                if r.name == name and r.kind in (RelationKind.TABLE, RelationKind.SOURCE)
            ),
            None,
        )
        if table is None:
            return None
        name = self._name_statement(
            table, [t.text if t.kind == "string" else t.text.lower() for t in tokens_of(source)]
        )
        return OnceStatement(name, name in self._ran_of(table))

    def _name_statement(self, table: Relation, words: Sequence[str]) -> str:
        """The name of a statement of these words, with its number among the equal ones of this run."""
        text = "i/" + hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
        self._seen[f"{table.id}/{text}"] += 1
        return f"{text}/{self._seen[f'{table.id}/{text}']}"

    def _ran_of(self, table: Relation) -> frozenset[str]:
        known = self._ran.get(table.id)
        if known is None or known[0] is not table:
            definition = definition_of(table)
            assert isinstance(definition, TableDefinition | SourceDefinition)
            known = self._ran[table.id] = table, frozenset(definition.ran)
        return known[1]
