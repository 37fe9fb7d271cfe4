"""Whether a value of a row may be printed: the one decision for pages, reports, errors, notifications, XCom and logs.

`[pages] rows` of a pipeline names the users of Airflow who may see its rows. A page knows its user (`may_see_rows`). A
task's log, an XCom and a message have the same text for everyone, so a process of Airflow prints rows only if all
readers may see them (`prints_for_airflow`). A terminal belongs to a person who can read the store.

Most texts keep values apart: failing rows, samples, examples. A reason of another library does not, so
`without_values` leaves out the clause with the first word that announces a value, and all that follows it except the
commands of the remedy.
"""

import re
from enum import Enum, auto

from tussock.jobs.settings.printed_commands import quoted_commands
from tussock.jobs.settings.tables import RowsFor

_WITH_SQL = "`tussock query "  # its statement may quote a row
HINT = "[values of rows are hidden: `[pages] rows`]"


class Audience(Enum):
    """The people who may see a text."""

    OWNERS = auto()  # of a terminal or a session, who can read the store
    EDITORS = auto()  # users of Airflow who may edit the pipeline's DAG
    READERS = auto()  # all users who may see the DAG, and so its logs, XCom and messages


def may_see_rows(rows: RowsFor, audience: Audience) -> bool:
    """Return whether an audience may see values of a pipeline's rows. `rows`: its setting."""
    match audience:
        case Audience.OWNERS:
            return True
        case Audience.EDITORS:
            return rows is not RowsFor.NOBODY
        case Audience.READERS:
            return rows is RowsFor.READERS


class _Process:
    """What this process prints: a terminal shows rows, a task of Airflow asks the setting of its pipeline."""

    prints_rows = True


def prints_for_airflow(rows: RowsFor) -> None:
    """Let this process print values of rows only if all readers of the pipeline's DAG may see them."""
    _Process.prints_rows = may_see_rows(rows, Audience.READERS)


def prints_for_owners() -> None:
    """Let this process print values of rows, as at its start."""
    _Process.prints_rows = may_see_rows(RowsFor.NOBODY, Audience.OWNERS)


def prints_rows() -> bool:
    """Return whether this process may print values of rows."""
    return _Process.prints_rows


# A condition of Spark (`[CAST_INVALID_INPUT]`) quotes the value, and `g=7` is a column of a row.
_VALUE = re.compile(
    r"\b(?:records?|rows?|lines?|values?|keys?|groups?|found|observed|contains?|got)\b|\be\.g\.|\[[A-Z][A-Z_.]{3,}\]"
    r"|(?<![\w(])\w+=\S",
    re.IGNORECASE,
)


def without_values(text: str) -> str:
    """Return a reason up to the clause that announces a value of a row, with a hint and the commands of the remedy.

    The reason is returned as it is without such a clause.
    """
    if (match := _VALUE.search(text)) is None:
        return text
    clause = list(re.finditer(r"[:;.,]\s|\n", text[: match.start()]))
    end = clause[-1].start() if clause else 0
    commands = ", ".join(command for command in quoted_commands(text[end:]) if not command.startswith(_WITH_SQL))
    return f"{text[:end]} {HINT}{f'. Commands: {commands}' if commands else ''}".strip()


def printed_reason(text: str) -> str:
    """Return a reason as this process may print it."""
    return text if prints_rows() else without_values(text)


def printed_error(err: BaseException) -> str:
    """Return the text of an error as this process may print it.

    Errors with `hides_row_values` contain no value of a row, or omit it themselves. The text of any other error is cut.
    """
    return str(err) if prints_rows() or getattr(err, "hides_row_values", False) else without_values(str(err))
