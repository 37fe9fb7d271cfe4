"""`tussock import`: write the pipeline of a project of another tool, and compare the two."""

import argparse
import os
import re
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.shell.command import Command, pipelines_folder, print_progress, say
from tussock.jobs.shell.pipeline_commands import stop_on_signals
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.importing.imports import ImportReport
    from tussock.jobs.importing.judge import Verdicts
    from tussock.jobs.importing.project import ForeignProject, ReadProject

NOT_ALL_TAKEN = 4  # exit code: the pipeline lacks a part of the project


def run_import(chosen: argparse.Namespace, read: "ReadProject", command: str, given: Path) -> int:
    """Import a project with the options of `import_arguments`, and return the exit code.

    Args:
        given: the path of the project in the command.
        command: the command without the options of this run, for the first line of each file.
    """
    from tussock.jobs.importing.errors import ProjectError
    from tussock.jobs.importing.imports import import_project, watch_project
    from tussock.jobs.importing.judge import judge_project

    if chosen.sample is not None and not Path(chosen.sample).is_dir():  # every source would be read from its own place
        expected = "a folder with one folder or file per source. An empty one tries the files of the project"
        raise ProjectError(f"--try {chosen.sample}", "no such folder", expected)

    def run_once(project: "ForeignProject") -> int:
        _require_name(project.name)
        verdicts = judge_project(project, print_progress)
        report = import_project(project, pipelines_folder(), command, lambda _: verdicts, check=chosen.check)
        equal = chosen.sample is None or _try_project(project, verdicts, chosen)
        if chosen.sample is None or not chosen.json:
            _print_report(report, chosen)
        if chosen.check and report.drift:
            return 1
        return 0 if equal and (chosen.check or not report.refused) else NOT_ALL_TAKEN

    if not chosen.watch:
        return run_once(read())
    with stop_on_signals() as stop:
        say("importing after each change of the project; SIGINT or SIGTERM ends this")
        watch_project(read, run_once, lambda err: say(f"error: {err}"), stop, given)
    return 0


def _try_project(project: "ForeignProject", verdicts: "Verdicts", chosen: argparse.Namespace) -> bool:
    """Run the accepted statements over a sample, print the measured epochs, and return whether all views are equal."""
    from tussock.jobs.importing.trial import try_project
    from tussock.jobs.spark.session import joined_spark
    from tussock.jobs.texts.tried import trial_json, trial_text

    with joined_spark() as spark:
        trial = try_project(project, verdicts, Path(chosen.sample), spark, print_progress)
    say(trial_json(trial) if chosen.json else trial_text(trial))
    return trial.all_equal


def import_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all imports share."""
    parser.add_argument("--name", default="", metavar="NAME", help="name of the pipeline (default: the project's)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    often = parser.add_mutually_exclusive_group()
    often.add_argument(
        "--check", action="store_true", help="write nothing; exit with code 1 if the pipeline differs from the project"
    )
    clock = "leave out columns of refused models that contain the clock of the run, such as current_timestamp()"
    parser.add_argument("--leave-out-clock", action="store_true", help=clock)
    trial = "run the pipeline over a sample in a temporary store, compare each view with Spark, and print the seconds"
    parser.add_argument("--try", dest="sample", metavar="DATA", help=trial)
    often.add_argument("--watch", action="store_true", help="import again after each change, until a signal ends this")


def path_in_command(path: str) -> str:
    """A path of the command line, relative to the folder that contains `pipelines/`, for the written files."""
    from tussock.jobs.importing.imports import path_from

    if re.match(r"[a-z0-9]+:", path):
        return shlex.quote(path)
    return shlex.quote(path_from(pipelines_folder(), Path(path)))


def _require_name(name: str) -> None:
    """Raise BadPipelineNameError for a name that no pipeline can have."""
    from tussock.jobs.settings.pipeline import NAME
    from tussock.jobs.shell.new_pipeline import BadPipelineNameError

    if NAME.fullmatch(name) is None:
        raise BadPipelineNameError(name)


def _print_report(report: "ImportReport", chosen: argparse.Namespace) -> None:
    from tussock.jobs.texts.imported import import_json, import_text

    if chosen.json:
        print(import_json(report))
        return
    say(import_text(report))
    name = report.project.name
    if chosen.check:
        if not report.drift:
            say(f"{report.folder} equals the project")
        return
    for path in report.changed:
        say(f"wrote {report.folder / path}" if (report.folder / path).exists() else f"removed {report.folder / path}")
    if not report.changed:
        say(f"{report.folder} already equals the project")
    say(f"Next: `tussock apply {name}`, then `tussock epoch --pipeline {name}`")


class BadSourceError(InputError, hides_row_values=True):
    """An option `--source` is not a name and a path."""

    text: str

    def __str__(self) -> str:
        return f"--source {self.text}: expected NAME=PATH, such as --source shop.orders=data/orders/*.parquet."


def _run_dbt(chosen: argparse.Namespace) -> int:
    from tussock.jobs.importing.dbt_project import DbtOptions, read_dbt_project

    places, words = {}, ["tussock", "import", "dbt", path_in_command(chosen.manifest)]
    for text in chosen.source:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise BadSourceError(text)
        places[name] = path if re.match(r"[a-z0-9]+:", path) else os.path.abspath(path)  # noqa: PTH100  keeps links
        words += ["--source", f"{name}={path_in_command(path)}"]
    words += ["--name", chosen.name] if chosen.name else []
    words += ["--dialect", chosen.dialect] if chosen.dialect else []
    words += ["--leave-out-clock"] if chosen.leave_out_clock else []
    options, manifest = DbtOptions(chosen.name, chosen.dialect, places), Path(chosen.manifest)
    read = partial(read_dbt_project, manifest, options)
    return run_import(
        chosen, partial(_without_clock, read) if chosen.leave_out_clock else read, " ".join(words), manifest
    )


def _without_clock(read: "ReadProject") -> "ForeignProject":
    from tussock.jobs.importing.clock_columns import leave_out_clocks
    from tussock.jobs.importing.sdp_binding import opened_binding
    from tussock.jobs.spark.session import joined_spark

    project = read()
    with joined_spark() as spark, opened_binding(lambda: spark) as binding:
        return leave_out_clocks(project, binding)


def _dbt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", help="target/manifest.json of the project, compiled by dbt")
    source = "the place of a source of the project; may be repeated"
    parser.add_argument("--source", action="append", default=[], metavar="NAME=PATH", help=source)
    dialect = "translate the SQL from this dialect of sqlglot, such as duckdb (default: it is Spark's)"
    parser.add_argument("--dialect", default="", metavar="NAME", help=dialect)
    import_arguments(parser)


COMMANDS = (
    Command(
        "import",
        "write a pipeline from a project of another tool",
        "Reads a project without changing it, and writes pipelines/NAME. The report lists each model: incremental, or "
        "the reason why not.",
        ("tussock import dbt shop/target/manifest.json",),
    ),
    Command(
        "import dbt",
        "write the pipeline of a dbt project",
        "Reads the manifest that `dbt compile --full-refresh` writes. Models become views, seeds and sources become "
        "sources, snapshots become flows of SCD type 2, and tests become assertions. Spark binds each statement, and "
        "the report has the reason for each one that cannot be maintained. A file that was written or edited by hand "
        "is never overwritten. Exits with code 4 if a model or test was not taken.",
        (
            "tussock import dbt shop/target/manifest.json",
            "tussock import dbt shop/target/manifest.json --name shop --source raw.orders='data/orders/*.parquet'",
            "tussock import dbt shop/target/manifest.json --check",
        ),
        _run_dbt,
        _dbt_arguments,
        names_store=False,
    ),
)
