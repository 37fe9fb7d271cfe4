"""The commands that a message prints."""

import shlex
from collections.abc import Iterator

from tussock.jobs.settings.printed_commands import quoted_commands


def commands_in(text: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each different command of `tussock` in a message."""
    return (tuple(shlex.split(command.strip("`")))[1:] for command in quoted_commands(text))
