"""Ports: what a source puts out. Each source has its rows; some feed a table through another port, too.

A table that a source feeds is made, numbered and dropped with the source, which alone writes it (tussock.jobs.plan.fed_tables).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources import rejects


class Port(StrEnum):
    """An output of a source's leaf."""

    ROWS = "rows"  # the source's own
    REJECTS = "rejects"  # records that cannot be read


#: The columns of what ports put out, but for ROWS, whose columns are the source's.
FIELDS: Mapping[Port, tuple[Field, ...]] = {Port.REJECTS: rejects.FIELDS}


@dataclass(frozen=True, slots=True)
class FedTable:
    """A table that a source feeds. `key`: into FIELDS of the port. `holds`: its rows, as errors and comments name them."""

    port: Port
    name: str
    key: tuple[int, ...]
    holds: str


def fed_tables(source: CreateSource) -> tuple[FedTable, ...]:
    """The tables that a source feeds."""
    if not rejects.quarantines(source):
        return ()
    name = source.name.lower()
    return (
        FedTable(
            Port.REJECTS, rejects.rejects_name(name), rejects.KEY, f"records of source {name} that could not be read"
        ),
    )
