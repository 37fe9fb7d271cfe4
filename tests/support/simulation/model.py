"""The rules of a history, computed in plain Python from the inserted rows.

The rows of an epoch are those after some beginning of the statement log, for all tables and for the view at once. An
epoch contains all insertions that were acknowledged before it began, and all of the epoch before.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Row = tuple[int, int, int]  # k (the key), g, a


@dataclass
class Insertion:
    """Rows that a client inserts once, however often it has to try."""

    client: str
    table: str
    rows: tuple[Row, ...]
    is_acknowledged: bool = False


@dataclass
class Books:
    """The acknowledged insertions and epochs."""

    counted: str  # the table that the view reads
    insertions: list[Insertion]
    committed: dict[int, frozenset[str]] = field(default_factory=dict)  # by epoch: clients that it must contain
    published: int = 0

    def acknowledged(self) -> frozenset[str]:
        """The clients whose insertions were acknowledged."""
        return frozenset(one.client for one in self.insertions if one.is_acknowledged)


def state_after(insertions: Sequence[Insertion]) -> dict[tuple[str, int], Row]:
    """The rows by table and key after these insertions: a later row replaces one of the same key."""
    return {(one.table, row[0]): row for one in insertions for row in one.rows}


def rows_of(state: Mapping[tuple[str, int], Row], table: str) -> list[Row]:
    """The rows of a table, sorted."""
    return sorted(row for (name, _), row in state.items() if name == table)


def counts_of(state: Mapping[tuple[str, int], Row], table: str) -> list[tuple[int, int]]:
    """SELECT g, count(*) FROM table GROUP BY g."""
    return sorted(Counter(row[1] for row in rows_of(state, table)).items())


def log_fault(books: Books, clients: Sequence[str]) -> str | None:
    """Find a fault of the log, given the clients of its entries in order; None if it has none."""
    known = {one.client for one in books.insertions}
    counts = Counter(client for client in clients if client in known)
    if twice := sorted(client for client, count in counts.items() if count > 1):
        return f"the log has insertions twice: {twice}"
    if lost := sorted(books.acknowledged() - counts.keys()):
        return f"acknowledged insertions are not in the log: {lost}"
    return None


def epoch_fault(
    books: Books,
    clients: Sequence[str],
    must: frozenset[str],
    least: int,
    tables: Mapping[str, Sequence[Row]],
    counts: Sequence[tuple[int, int]],
) -> tuple[str | None, int]:
    """Find a fault of the rows of an epoch. Also returns the number of log entries that it contains.

    Args:
        clients: of the log's entries, in order.
        must: clients whose rows it must contain.
        least: the number of entries that an earlier epoch contained.
        tables: the rows of the tables that were read.
        counts: the rows of the view.
    """
    by_client = {one.client: one for one in books.insertions}
    order = [client for client in clients if client in by_client]
    entries = [by_client[client] for client in order]
    fits = []
    for length in range(len(entries) + 1):
        state = state_after(entries[:length])
        same = all(sorted(found) == rows_of(state, name) for name, found in tables.items())
        if same and counts_of(state, books.counted) == sorted(counts):
            fits.append(length)
    if not fits:
        return f"rows {dict(tables)} and counts {sorted(counts)} are of no beginning of {entries}", least
    best = max(fits)
    if best < least:
        return f"it contains {best} insertions, an earlier epoch {least}", least
    if missing := sorted(must - set(order[:best])):
        return f"it lacks acknowledged insertions {missing}", best
    return None, max(least, min(length for length in fits if length >= least))
