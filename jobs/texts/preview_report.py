"""A preview as Markdown: the differences, then the checks."""

from collections.abc import Iterator

from tussock.jobs.compare.preview_record import Preview
from tussock.jobs.texts.comparison import comparison_markdown


def preview_markdown(preview: Preview, time_zone: str) -> str:
    """The text for the comment on a pull request."""
    return "\n".join([comparison_markdown(preview.difference, time_zone), *_check_lines(preview)])


def preview_headline(preview: Preview) -> str:
    """The files and the epochs of a preview in one phrase."""
    files = preview.files or "the deployed files"
    epochs = f", over {preview.followed} more epoch{'s' * (preview.followed != 1)}" if preview.followed else ""
    return f"{files} on branch {preview.branch}{epochs}"


def _check_lines(preview: Preview) -> Iterator[str]:
    for check in preview.checks:
        yield f"* {check.name}: {'passed' if check.passed else '**failed**'}"
    for check in preview.checks:
        if not check.passed:
            fence = "`" * max(3, *(_ticks_in(line) + 1 for line in check.lines or ("",)))
            yield from ("", f"**{check.name}**", fence, *check.lines, fence)
    yield f"\nThis was a preview of {preview_headline(preview)}."


def _ticks_in(line: str) -> int:
    """The longest run of backticks in a line."""
    longest = run = 0
    for character in line:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
