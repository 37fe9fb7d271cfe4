"""Statements that run once in a store's life, though their script runs again and again: `tussock apply`'s INSERTs, UPDATEs, ALTERs
and what else changes a table.

Such a statement is known by its text (blanks and comments do not count), by the table it changes (one that was dropped and created again is
another table), and by how many equal statements stand before it in the same run. That makes its client id in the statement log, which takes
an id once: so the memory is the log's own, as durable as the statement, and shared by all who apply.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from jobs.sql.grammar import changed_table
from jobs.sql.source_text import SourceText
from jobs.sql.tokens import tokens_of
from statestore.meta.catalog import Catalog, RelationKind


@dataclass(slots=True)
class Once:
    """One run of scripts whose statements on tables run once."""

    _seen: Counter[str] = field(default_factory=Counter)

    def client_id(self, catalog: Catalog, text: str) -> str | None:
        """The client id of the next statement of the run; None for one that changes no table, or one that is not there."""
        source = SourceText(text)
        if (name := changed_table(source)) is None:
            return None
        tables = [r.id for r in catalog.live() if (r.name, r.kind) == (name, RelationKind.TABLE)]
        if not tables:
            return None
        words = "\0".join(t.text for t in tokens_of(source))
        statement = f"once/{tables[0]}/{hashlib.sha256(words.encode()).hexdigest()[:32]}"
        self._seen[statement] += 1
        return f"{statement}/{self._seen[statement]}"
