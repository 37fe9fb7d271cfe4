"""The pieces that all commands of `tussock` share, and the parser built from the list of commands.

Every `--help` imports the modules that define commands. These modules therefore import the engine inside the functions
that run a command.
"""

import argparse
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tussock.statestore.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.settings.pipeline import Pipeline
    from tussock.jobs.settings.retention import Retention
    from tussock.statestore.meta.store import MetaStore

Run = Callable[[argparse.Namespace], int | None]  # returns the exit code; None means 0

_WIDTHS = (20, 100)  # the narrowest and the widest help texts, in characters


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands that share the first word of their names."""

    name: str  # `epoch`, `inspect rows`
    first: str  # a phrase for the list of commands
    more: str  # sentences for the command's own help
    examples: tuple[str, ...]
    run: Run | None = None  # None for a group
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    names_store: bool = True  # accepts --store and --pipeline
    uses_engine: bool = True  # imports the engine, and with it pyarrow
    takes_branch: bool = True  # accepts --branch, if it names a store
    failed: int = 1  # the exit code of an error


class WhichStoreError(InputError):
    """The command line names no store. `folder`: the folder without a pipeline, if the command looked for all."""

    folder: str = ""

    def __str__(self) -> str:
        searched = f", and {self.folder} contains no pipeline" if self.folder else ""
        return f"No store is given{searched}. Pass --store URI or --pipeline NAME, or set TUSSOCK_STORE."


class NoPipelineError(InputError):
    """The command line names an environment, but no pipeline."""

    environment: str

    def __str__(self) -> str:
        return f"--env {self.environment} is an environment of a pipeline. Name the pipeline with --pipeline NAME."


class ContradictingOptionsError(InputError):
    """Two parts of the command line exclude each other. `do`: the remedy."""

    first: str
    second: str
    do: str

    def __str__(self) -> str:
        return f"{self.first} and {self.second} exclude each other. {self.do}"


class _Parser(argparse.ArgumentParser):
    """A parser that suggests a word for a mistyped one and adds its command's arguments on first use."""

    arguments: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Add the arguments of this command, then parse like argparse. A command refuses unknown ones itself, because
        only it knows its options.
        """
        add, self.arguments = self.arguments, None
        if add is not None:
            add(self)
        values, unknown = super().parse_known_args(args, namespace)
        if unknown and add is not None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggest_argument(unknown[0])}")
        return values, unknown

    def _suggest_argument(self, unknown: str) -> str:
        """Return a sentence with the argument that an unknown one stands for; empty if none is similar."""
        options = self._option_string_actions
        if unknown.startswith("-"):
            near = did_you_mean(unknown.partition("=")[0], [option for option in options if option != "--help"])
            return f".{near}" if near else ""
        is_pipeline = (
            "--pipeline" in options
            and re.fullmatch(r"[a-z][a-z0-9_]{0,99}", unknown)  # SQL may be too long for a file's name
            and (pipelines_folder() / unknown / "pipeline.toml").is_file()
        )
        return f". Name the pipeline with --pipeline {unknown}" if is_pipeline else ""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, with a suggestion for a mistyped command, and exit with code 2."""
        if (match := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)) is not None:
            near = did_you_mean(match[1], [choice.strip("' ") for choice in match[2].split(",")])
            message += f".{near}" if near else ""
        super().error(message)


class _Version(argparse.Action):
    """Prints the versions, which are read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version
        from platform import python_version

        from tussock import __version__

        versions = [f"Python {python_version()}"]
        for package in ("pyarrow", "duckdb", "pyspark", "apache-airflow", "great-expectations", "deltalake"):
            try:
                versions.append(f"{package} {version(package)}")
            except PackageNotFoundError:  # of an extra
                continue
        print(f"tussock {__version__}\n{', '.join(versions)}")
        parser.exit()


def build_parser(overview: str, epilog: str, commands: Sequence[Command]) -> argparse.ArgumentParser:
    """Return the parser of the command line. A parsed namespace holds the command's function as `run`.

    Requires: in `commands`, a group precedes its commands.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("tussock", description=overview, epilog=epilog, formatter_class=raw)
    about = "print the version of Tussock and of the packages that decide its results, and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=about)
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    width = max(_WIDTHS[0], min(_WIDTHS[1], shutil.get_terminal_size().columns - 2))
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
            groups[command.name] = added.add_subparsers(title="subcommands", metavar="COMMAND", required=True)
            continue
        run = _without_pandas(command.run) if command.uses_engine else command.run
        added.set_defaults(run=run, failed=command.failed)
        added.arguments = partial(_add_arguments, command)
    return parser


def _without_pandas(run: Run) -> Run:
    """Return `run` for a process in which pyarrow does not import pandas, which takes longer than most commands."""

    def run_without_pandas(chosen: argparse.Namespace) -> int | None:
        from tussock.jobs.settings.arrow import leave_pandas

        leave_pandas()
        return run(chosen)

    return run_without_pandas


def _add_arguments(command: Command, parser: argparse.ArgumentParser) -> None:
    command.arguments(parser)
    if command.names_store:
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--store", metavar="URI", help="address of the store (default: $TUSSOCK_STORE)")
        where.add_argument("--pipeline", metavar="NAME", help="use the store of this pipeline")
        environment_argument(parser)
        if command.takes_branch:
            branch_argument(parser)


def branch_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --branch, for commands that work on a store."""
    parser.add_argument(
        "--branch", metavar="NAME", help="work on this branch of the store (default: $TUSSOCK_BRANCH, else none)"
    )


def chosen_branch(chosen: argparse.Namespace) -> str:
    """Return the name of the branch that the command works on; empty for the store itself."""
    from tussock.jobs.settings.branches import VARIABLE

    return (chosen.branch or os.environ.get(VARIABLE) or "") if hasattr(chosen, "branch") else ""


def environment_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --env, for commands that name a pipeline."""
    parser.add_argument(
        "--env", metavar="NAME", help="environment of the pipeline, [env.NAME] of its file (default: $TUSSOCK_ENV)"
    )


def named_pipeline(chosen: argparse.Namespace) -> "Pipeline":
    """Return the pipeline that the command line names. Raises UnknownPipelineError, PipelineError."""
    from tussock.jobs.settings.branches import at_its_store
    from tussock.jobs.settings.pipeline import find_pipeline

    return at_its_store(find_pipeline(chosen.pipeline, pipelines_folder(), chosen.env), chosen_branch(chosen))


def choose_pipeline(chosen: argparse.Namespace, name: str | None) -> None:
    """Choose the pipeline that the command line names without --pipeline. Raises ContradictingOptionsError."""
    if not name:
        return
    if chosen.store or (chosen.pipeline or name) != name:
        option = f"--store {chosen.store}" if chosen.store else f"--pipeline {chosen.pipeline}"
        raise ContradictingOptionsError(name, option, "Name the store only once.")
    chosen.pipeline = name


def chosen_pipeline(chosen: argparse.Namespace) -> "Pipeline | None":
    """Return the pipeline that the command line names, or None. Raises NoPipelineError, and as `named_pipeline`."""
    if not chosen.pipeline and chosen.env:
        raise NoPipelineError(chosen.env)
    return named_pipeline(chosen) if chosen.pipeline else None


def pipelines_folder() -> Path:
    """Return the folder of the pipelines.

    It is TUSSOCK_PIPELINES if that is set, else the nearest `pipelines/` in the working directory or its parents, else
    `./pipelines`. A `pipelines/` in a parent counts only if it contains a pipeline.
    """
    from tussock.jobs.operations.folder import named_folder

    if (named := named_folder()) is not None:
        return named
    here = Path.cwd()
    folder = next(
        (above / "pipelines" for above in here.parents if next((above / "pipelines").glob("*/pipeline.toml"), None)),
        None,
    )
    beside = Path("pipelines")
    return beside if folder is None or beside.is_dir() else folder


def chosen_store(chosen: argparse.Namespace) -> str:
    """Return the address of the chosen store, or of its branch. Raises WhichStoreError, PipelineError."""
    from tussock.jobs.settings.branches import branch_address
    from tussock.jobs.settings.process import store_address

    pipeline = chosen_pipeline(chosen)
    address = pipeline.store if pipeline is not None else chosen.store or os.environ.get("TUSSOCK_STORE")
    if not address:
        raise WhichStoreError
    branch = "" if pipeline is not None else chosen_branch(chosen)
    return branch_address(address, branch) if branch else store_address(address)


def chosen_catalogs(chosen: argparse.Namespace) -> "Mapping[str, str]":
    """Return `[catalogs]` of the pipeline that the command line names; empty without one. Raises PipelineError."""
    pipeline = chosen_pipeline(chosen)
    return {} if pipeline is None else pipeline.catalogs


def chosen_schema(chosen: argparse.Namespace) -> str:
    """Return `schema` of the pipeline that the command line names; the default one without a pipeline."""
    from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA

    pipeline = chosen_pipeline(chosen)
    return DEFAULT_SCHEMA if pipeline is None else pipeline.schema


def open_chosen(chosen: argparse.Namespace) -> "PipelineStore":
    """Open the chosen store, with its pipeline if one is named. Raises NotInitialisedError, and as `chosen_store`."""
    from tussock.jobs.operations.store import open_pipeline, open_store

    pipeline = chosen_pipeline(chosen)
    return open_store(chosen_store(chosen)) if pipeline is None else open_pipeline(pipeline)


def chosen_meta(chosen: argparse.Namespace) -> "MetaStore":
    """Return the meta store of the chosen store, for commands that only read."""
    return open_chosen(chosen).meta


def to_run(chosen: argparse.Namespace, message: str) -> str:
    """Return a message whose commands address the store as the command line does, so that they work as printed."""
    from tussock.jobs.settings.printed_commands import address_commands, in_commands

    pipeline, environment, store = (getattr(chosen, name, None) or "" for name in ("pipeline", "env", "store"))
    branch = chosen_branch(chosen)
    named = pipeline and in_commands(pipeline, environment, branch)
    return address_commands(message, pipeline=named, store=store, branch=branch)


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print Tussock's warnings as notes to standard error, each text once, such as for a view with older rows.

    Binding and running a query may both warn about the relations that it reads.
    """
    said: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        ours = category.__module__.startswith("tussock.")
        text = f"note: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line)
        if text not in said:
            print(text.rstrip(), file=sys.stderr)
        said.add(text)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"tussock\.")
        warnings.showwarning = show
        yield


def say(line: str) -> None:
    """Print a progress line and flush it."""
    print(line, flush=True)


def print_progress(line: str) -> None:
    """Print a progress line to the standard error, beside a result for a program."""
    print(line, file=sys.stderr, flush=True)


def number_of(things: str, least: int = 1) -> Callable[[str], int]:
    """The type of an option that is a number of things. It raises argparse.ArgumentTypeError."""

    def parse_number(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {things}: expected {least} or more")
        return int(text)

    return parse_number


def publish_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `tussock publish` and its Spark job share."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--epoch", type=int, metavar="N", help="copy this published epoch (default: the one that readers see)"
    )
    what.add_argument(
        "--tidy",
        action="store_true",
        help="copy nothing; merge small files, and remove states older than [publish] keep",
    )
    parser.add_argument("--sink", metavar="NAME", help="only this sink of [[publish]] (default: all)")


def publish(store: "PipelineStore", chosen: argparse.Namespace) -> bool:
    """Run `tussock publish` or its Spark job. Return whether a table moved to another epoch."""
    from tussock.jobs.operations.tables import publish_tables, tidy_tables

    if chosen.tidy:
        tidy_tables(store, say, chosen.sink)
        return False
    return bool(publish_tables(store, chosen.epoch, say, chosen.sink))


def compact_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `tussock compact` and its Spark job share."""
    parser.add_argument("--full", action="store_true", help="merge everything into the last level, due or not")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the levels, their cost and the tasks that are due"
    )


def vacuum_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `tussock vacuum` and its Spark job share."""
    keep = "keep the epochs of this time span readable, such as 36h or 7d (default: the pipeline's, or 1d)"
    parser.add_argument("--keep", metavar="SPAN", help=keep)
    parser.add_argument(
        "--keep-epochs",
        type=number_of("epochs"),
        metavar="N",
        help="also keep the last N published epochs (default: the pipeline's, or 1)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list removable objects with reason and size, and remove none"
    )


def compact(store: "PipelineStore", chosen: argparse.Namespace, *, on_spark: bool = False) -> None:
    """Run `tussock compact` or its Spark job: run the tasks that are due, or only print them."""
    from tussock.jobs.operations import compaction, upkeep
    from tussock.jobs.texts.upkeep import amplification_text, compacted_text, due_text

    if chosen.dry_run:
        print(due_text(compaction.due_picks(store, full=chosen.full)))
    else:
        print(compacted_text(compaction.compact(store, full=chosen.full, on_spark=on_spark, progress=say)))
    print(amplification_text(upkeep.measure_levels(store)))


def vacuum(store: "PipelineStore", chosen: argparse.Namespace) -> None:
    """Run `tussock vacuum` or its Spark job."""
    from tussock.jobs.operations.upkeep import clean_store
    from tussock.jobs.texts.upkeep import cleaning_text

    done = clean_store(
        store,
        _chosen_retention(store, chosen),
        dry_run=chosen.dry_run,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(cleaning_text(done, names=chosen.dry_run))


def _chosen_retention(store: "PipelineStore", chosen: argparse.Namespace) -> "Retention":
    """Return the pipeline's retention, overridden by the options that are given."""
    from tussock.jobs.settings.retention import Retention, duration_ms

    usual = store.pipeline.upkeep.retention
    return Retention(
        usual.keep_epochs if chosen.keep_epochs is None else chosen.keep_epochs,
        usual.keep_ms if chosen.keep is None else duration_ms(chosen.keep),
    )
