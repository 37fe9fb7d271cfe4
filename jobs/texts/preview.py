"""The preview of a source's files as text."""

from tussock.jobs.logical.hidden_columns import OF_FILES, hidden_names
from tussock.jobs.sources.preview import SourcePreview, source_text
from tussock.jobs.texts.table import text_table


def preview_text(preview: SourcePreview) -> str:
    """The files, their first rows, the statement to paste, and notes as comments of SQL."""
    files = f"{preview.files:,} {'file' if preview.files == 1 else 'files'}, {preview.nbytes:,} bytes"
    shown = _shorten_lines(text_table(preview.rows.select([f.name for f in preview.source.fields])))
    hidden = hidden_names(OF_FILES, [f.name for f in preview.source.fields])
    more = [f"Views can also select the file of a row: {', '.join(hidden)}."] if hidden else []
    notes = "".join(f"-- {note}\n" for note in (*preview.notes, *more))
    return f"{files}\n\n{shown}\n\n{notes}{source_text(preview.source)}"


def _shorten_lines(table: str) -> str:
    """Lines of at most 200 characters."""
    return "\n".join(line if len(line) <= 200 else f"{line[:199]}…" for line in table.splitlines())
