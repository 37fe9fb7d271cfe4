"""Commands in messages, completed so that they work as printed.

A message is made deep in the engine, which does not know how its reader addresses the store. It contains commands such
as `` `tussock barrier abandon --skip-file '/a b.csv'` ``. Every place that shows messages passes them through
`address_commands`, which adds `--pipeline shop` or `--store URI`. Stored messages, such as the reason of a hold, keep
no address, so that a store can move.
"""

import re
import shlex
from collections.abc import Iterator

_COMMAND = re.compile(r"""`tussock ((?:[^`'"]|'[^']*'|"[^"]*")+)`""")
_PLACEHOLDER = re.compile(r"\bPIPELINE\b")
BY_NAME = ("apply", "check", "diff", "plan", "publish", "status", "test", "undo")
"""Commands with the pipeline's name as an argument. `branch` is another one, and gets the parent's."""

WITHOUT_STORE = ("new", "preview", "airflow-files", "import")
"""Commands without a store."""


def quoted_commands(text: str) -> Iterator[str]:
    """Each different command of `tussock` that a message contains, in its backticks."""
    yield from dict.fromkeys(match[0] for match in _COMMAND.finditer(text))


def in_commands(pipeline: str, environment: str, branch: str = "") -> str:
    """The pipeline as an argument of a command: `shop`, or `shop --env prod --branch pr-142`."""
    named = f"{pipeline} --env {environment}" if environment else pipeline
    return f"{named} --branch {branch}" if branch else named


def address_commands(text: str, *, pipeline: str = "", store: str = "", branch: str = "") -> str:
    """Return a message whose commands name the pipeline, or else the store. Commands that name one are unchanged.

    Args:
        pipeline: as of `in_commands`.
        branch: of the store, if no pipeline is given.
    """
    if not (pipeline or store):
        return text
    of_store = f" --store {shlex.quote(store)}" + (f" --branch {branch}" if branch else "")
    where = f" --pipeline {pipeline}" if pipeline else of_store

    def complete_command(match: re.Match[str]) -> str:
        command = match[1]
        first = command.split(maxsplit=1)[0]
        if pipeline and _PLACEHOLDER.search(command):
            return f"`tussock {_PLACEHOLDER.sub(pipeline, command)}`"
        if first == "branch":  # a branch begins and ends in its parent
            return f"`tussock {command}{where.partition(' --branch')[0]}`"
        if first.startswith("--") or first in WITHOUT_STORE or "--pipeline" in command or "--store" in command:
            return match[0]
        if first in BY_NAME:
            if not pipeline or "--env" in command:
                return match[0]
            alone = f"{first} {pipeline.split()[0]}"  # the message names the pipeline, perhaps without its environment
            known = alone if f"{command} ".startswith(f"{alone} ") else first
            return f"`tussock {first} {pipeline}{command[len(known) :]}`"
        return f"`tussock {command}{where}`"

    return _COMMAND.sub(complete_command, text)
