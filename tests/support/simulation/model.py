"""The rules of a history, computed in plain Python from the inserted rows.

The rows of an epoch are those after some beginning of the statement log, for table `t` and for its view at once. An
epoch contains all insertions that were acknowledged before it began, and all of the epoch before.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

Row = tuple[int, int, int]  # k (the key), g, a


@dataclass
class Insertion:
    """Rows that a client inserts once, however often it has to try."""

    client: str
    rows: tuple[Row, ...]
    is_acknowledged: bool = False


@dataclass
class Books:
    """The acknowledged insertions and epochs."""

    insertions: list[Insertion]
    committed: dict[int, frozenset[str]] = field(default_factory=dict)  # by epoch: clients that it must contain
    published: int = 0

    def acknowledged(self) -> frozenset[str]:
        """The clients whose insertions were acknowledged."""
        return frozenset(one.client for one in self.insertions if one.is_acknowledged)


def state_after(entries: Sequence[tuple[Row, ...]]) -> dict[int, Row]:
    """Table `t` after these insertions: a later row replaces one of the same key."""
    state: dict[int, Row] = {}
    for rows in entries:
        for row in rows:
            state[row[0]] = row
    return state


def counts_of(state: dict[int, Row]) -> list[tuple[int, int]]:
    """SELECT g, count(*) FROM t GROUP BY g."""
    return sorted(Counter(row[1] for row in state.values()).items())


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
    table: Sequence[Row] | None,
    counts: Sequence[tuple[int, int]],
) -> tuple[str | None, int]:
    """Find a fault of the rows of an epoch. Also returns the number of log entries that it contains.

    Args:
        clients: of the log's entries, in order.
        must: clients whose rows it must contain.
        least: the number of entries that an earlier epoch contained.
        table, counts: the rows of `t` and of its view; None: not read.
    """
    by_client = {one.client: one.rows for one in books.insertions}
    entries = [by_client[client] for client in clients if client in by_client]
    order = [client for client in clients if client in by_client]
    fits = []
    for length in range(len(entries) + 1):
        state = state_after(entries[:length])
        if counts_of(state) == sorted(counts) and (table is None or sorted(state.values()) == sorted(table)):
            fits.append(length)
    if not fits:
        return f"rows {sorted(table or ())} and counts {sorted(counts)} are of no beginning of {entries}", least
    best = max(fits)
    if best < least:
        return f"it contains {best} insertions, an earlier epoch {least}", least
    if missing := sorted(must - set(order[:best])):
        return f"it lacks acknowledged insertions {missing}", best
    return None, max(least, min(length for length in fits if length >= least))
