"""What restating a source does, as text for people."""

from collections.abc import Iterator

from tussock.jobs.driver.restate import Restatement
from tussock.jobs.operations.restate import Begun


def begun_lines(begun: Begun) -> Iterator[str]:
    """A line per file, and the views that follow; or that nothing was begun."""
    if begun.found is None:
        yield f"goes on with barrier {begun.resumed}, which this run has put in force"
    else:
        yield from restatement_lines(begun.found)


def restatement_lines(found: Restatement) -> Iterator[str]:
    """The same of a restatement that may not have begun."""
    if not found:
        yield f"nothing to restate: source {found.source} has taken all of it as it is now"
        return
    for verb, items in (("go", found.goes), ("come", found.comes)):
        yield from (f"rows {verb}: {item.name} ({item.nbytes:,} bytes)" for item in items)
    yield f"views that follow: {', '.join(found.readers) or 'none'}"
