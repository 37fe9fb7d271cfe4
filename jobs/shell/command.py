"""Commands of `tussock`: each is one object with its name, help, arguments and function; the parser is made from the list of them.

The list is read whenever somebody asks for help, so modules that hold commands import what a command works with where it runs.
"""

import argparse
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tussock.statestore.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.settings.pipeline import Pipeline
    from tussock.jobs.settings.retention import Retention
    from tussock.statestore.meta.store import MetaStore

Run = Callable[[argparse.Namespace], int | None]  # answers with the exit code; None: 0

_WIDTH = 100  # of help texts, where the terminal is as wide


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or a group of commands whose names begin with its own."""

    name: str  # `epoch`, `inspect rows`
    first: str  # a phrase for the list of commands
    more: str  # sentences for its own help
    examples: tuple[str, ...]
    run: Run | None = None  # None: a group
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    names_store: bool = True  # it takes --store and --pipeline


class WhichStoreError(InputError):
    """No store was named."""

    def __str__(self) -> str:
        return "which store? Say --store URI or --pipeline NAME, or set TUSSOCK_STORE."


class _Parser(argparse.ArgumentParser):
    """A parser that suggests what a mistyped command may have meant, and gets its arguments when it is first asked to parse."""

    arguments: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse's."""
        add, self.arguments = self.arguments, None
        if add is not None:
            add(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with code 2."""
        if (found := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)) is not None:
            near = did_you_mean(found[1], [choice.strip("' ") for choice in found[2].split(",")])
            message += f".{near}" if near else ""
        super().error(message)


def build_parser(overview: str, epilog: str, commands: Sequence[Command]) -> argparse.ArgumentParser:
    """The parser of the command line. What it parses carries `run`, the function of the chosen command.

    Requires: a group stands before its commands.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("tussock", description=overview, epilog=epilog, formatter_class=raw)
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    width = min(_WIDTH, shutil.get_terminal_size().columns - 2)
    for command in commands:
        group, _, word = command.name.rpartition(" ")
        added = groups[group].add_parser(
            word,
            help=command.first,
            description=f"{command.first[0].upper()}{command.first[1:]}.\n\n{textwrap.fill(command.more, width)}",
            epilog="examples:\n" + "\n".join(f"  {line}" for line in command.examples),
            formatter_class=raw,
        )
        if command.run is None:
            groups[command.name] = added.add_subparsers(title="what", metavar="WHAT", required=True)
            continue
        added.set_defaults(run=command.run)
        added.arguments = partial(_add_arguments, command)
    return parser


def _add_arguments(command: Command, parser: argparse.ArgumentParser) -> None:
    command.arguments(parser)
    if command.names_store:
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--store", metavar="URI", help="the store's address (default: $TUSSOCK_STORE)")
        where.add_argument("--pipeline", metavar="NAME", help="the pipeline whose store it is")


def named_pipeline(chosen: argparse.Namespace) -> "Pipeline":
    """The pipeline that the command line names. Raises UnknownPipelineError, PipelineError."""
    from tussock.jobs.settings.pipeline import find_pipeline

    return find_pipeline(chosen.pipeline, pipelines_folder())


def chosen_pipeline(chosen: argparse.Namespace) -> "Pipeline | None":
    """The same; None: the command line names none."""
    return named_pipeline(chosen) if chosen.pipeline else None


def pipelines_folder() -> Path:
    """Where pipelines are looked for: TUSSOCK_PIPELINES, else the nearest `pipelines/` with a pipeline in it, from here upwards.

    Where there is none, `./pipelines`.
    """
    from tussock.jobs.operations.folder import named_folder

    if (named := named_folder()) is not None:
        return named
    here = Path.cwd()
    found = next(
        (above / "pipelines" for above in here.parents if next((above / "pipelines").glob("*/pipeline.toml"), None)),
        None,
    )
    beside = Path("pipelines")
    return beside if found is None or beside.is_dir() else found


def chosen_store(chosen: argparse.Namespace) -> str:
    """The address of the store that the command line or the environment names. Raises WhichStoreError, PipelineError."""
    from tussock.jobs.settings.process import store_address

    pipeline = chosen_pipeline(chosen)
    address = pipeline.store if pipeline is not None else chosen.store or os.environ.get("TUSSOCK_STORE")
    if not address:
        raise WhichStoreError
    return store_address(address)


def opened(chosen: argparse.Namespace) -> "PipelineStore":
    """The store that the command line names, opened, with its pipeline if it names one. Raises NotInitialisedError, as `chosen_store`."""
    from tussock.jobs.operations.store import open_pipeline, open_store

    pipeline = chosen_pipeline(chosen)
    return open_store(chosen_store(chosen)) if pipeline is None else open_pipeline(pipeline)


def chosen_meta(chosen: argparse.Namespace) -> "MetaStore":
    """The meta store of `opened`, for commands that only read."""
    return opened(chosen).meta


def say(line: str) -> None:
    """Print a step of long work at once."""
    print(line, flush=True)


def publish_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `tussock publish` and the job share."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--epoch", type=int, metavar="N", help="a published epoch (default: the one that readers see)")
    what.add_argument(
        "--tidy", action="store_true", help="instead merge small files and remove what is older than [publish] keep"
    )


def publish(at: "PipelineStore", chosen: argparse.Namespace) -> bool:
    """`tussock publish`, and the job. Returns whether a table was brought to another epoch."""
    from tussock.jobs.operations.tables import publish_tables, tidy_tables

    if chosen.tidy:
        tidy_tables(at, say)
        return False
    return bool(publish_tables(at, chosen.epoch, say))


def compact_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `tussock compact` and the job share."""
    parser.add_argument("--full", action="store_true", help="merge everything into the last level, whatever is due")
    parser.add_argument("--dry-run", action="store_true", help="only show the levels, what they cost and what is due")


def vacuum_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `tussock vacuum` and the job share."""
    keep = "every moment of so long ago stays readable, such as 36h or 7d (default: the pipeline's, or 1d)"
    parser.add_argument("--keep", metavar="SPAN", help=keep)
    parser.add_argument(
        "--keep-epochs", type=int, metavar="N", help="and the last N published epochs (default: the pipeline's, or 1)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what could go, with reasons and sizes")


def compact(at: "PipelineStore", chosen: argparse.Namespace, *, on_spark: bool = False) -> None:
    """`tussock compact`, and the job: merge what is due, or only show it."""
    from tussock.jobs.operations import compaction, upkeep
    from tussock.jobs.texts.upkeep import amplification_text, compacted_text, due_text

    if chosen.dry_run:
        print(due_text(compaction.due(at)))
    else:
        print(compacted_text(compaction.compact(at, full=chosen.full, on_spark=on_spark, progress=say)))
    print(amplification_text(upkeep.shape(at)))


def vacuum(at: "PipelineStore", chosen: argparse.Namespace) -> None:
    """`tussock vacuum`, and the job."""
    from tussock.jobs.operations.upkeep import clean
    from tussock.jobs.texts.upkeep import cleaning_text

    done = clean(
        at,
        _retention(at, chosen),
        dry_run=chosen.dry_run,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(cleaning_text(done, names=chosen.dry_run))


def _retention(at: "PipelineStore", chosen: argparse.Namespace) -> "Retention":
    """The pipeline's retention; an option that is given comes first."""
    from tussock.jobs.settings.retention import Retention, duration_ms

    usual = at.pipeline.upkeep.retention
    return Retention(
        usual.keep_epochs if chosen.keep_epochs is None else chosen.keep_epochs,
        usual.keep_ms if chosen.keep is None else duration_ms(chosen.keep),
    )
