"""The effects of restating a source, as text."""

from collections.abc import Iterator

from tussock.jobs.operations.restate import Begun
from tussock.jobs.trouble.restate import Restatement


def begun_lines(begun: Begun) -> Iterator[str]:
    """One line per file, then the affected views. If a barrier was resumed, one line that names it."""
    if begun.restatement is None:
        yield f"continues with barrier {begun.resumed}, which this run has put in force"
    else:
        yield from restatement_lines(begun.restatement)


def restatement_lines(restatement: Restatement) -> Iterator[str]:
    """The lines of a planned restatement, whether or not it has begun."""
    if not restatement:
        yield f"nothing to restate: source {restatement.source} has already read the current content of these files"
        return
    for verb, items in (("remove", restatement.goes), ("add", restatement.comes)):
        yield from (f"rows to {verb}: {item.name} ({item.nbytes:,} bytes)" for item in items)
    yield f"affected views: {', '.join(restatement.readers) or 'none'}"
