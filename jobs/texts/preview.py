"""The preview of a source's files as text."""

from tussock.jobs.sources.preview import SourcePreview, source_text
from tussock.jobs.texts.table import text_table


def preview_text(found: SourcePreview) -> str:
    """The files, their first rows, the statement to paste, and notes as comments of SQL."""
    files = f"{found.files:,} {'file' if found.files == 1 else 'files'}, {found.nbytes:,} bytes"
    shown = _shortened(text_table(found.rows.select([f.name for f in found.source.fields])))
    notes = "".join(f"-- {note}\n" for note in found.notes)
    return f"{files}\n\n{shown}\n\n{notes}{source_text(found.source)}"


def _shortened(table: str) -> str:
    """Lines of at most 200 characters."""
    return "\n".join(line if len(line) <= 200 else f"{line[:199]}…" for line in table.splitlines())
