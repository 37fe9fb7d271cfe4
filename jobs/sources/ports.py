"""Ports: the outputs of a source. Each source has its rows; some also feed a table through another port.

A table that a source feeds is created, numbered and dropped with the source. Only the source writes it
(tussock.jobs.catalog.fed_tables).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources import rejects


class Port(StrEnum):
    """An output of a source's leaf."""

    ROWS = "rows"  # the source's own rows
    REJECTS = "rejects"  # unreadable records
    CHANGES = "changes"  # of a keyed source: the changes of its rows (row_changes.py)
    TRUNCATIONS = "truncations"  # of a keyed source: the changes that delete every row


#: The columns of the ports that feed tables. The others have the source's columns.
FIELDS: Mapping[Port, tuple[Field, ...]] = {Port.REJECTS: rejects.FIELDS}


@dataclass(frozen=True, slots=True)
class FedTable:
    """A table that a source feeds.

    Args:
        key: indices into FIELDS of the port.
        holds: its rows, as errors and comments name them.
    """

    port: Port
    name: str
    key: tuple[int, ...]
    holds: str


def fed_tables(source: CreateSource) -> tuple[FedTable, ...]:
    """Return the tables that a source feeds."""
    if not rejects.quarantines_rejects(source):
        return ()
    name = source.name.lower()
    return (
        FedTable(
            Port.REJECTS, rejects.rejects_name(name), rejects.KEY, f"records of source {name} that could not be read"
        ),
    )
