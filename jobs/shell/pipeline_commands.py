"""Commands that create pipelines and stores, and that advance them: `new` to `publish`."""

import argparse
import os
import re
import shlex
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from tussock.jobs.settings.tables import EPOCH_BYTES, NEW_STORE_UNITS
from tussock.jobs.settings.user_files import is_file, text_of, write_text
from tussock.jobs.shell.command import (
    Command,
    branch_argument,
    chosen_pipeline,
    chosen_store,
    environment_argument,
    named_pipeline,
    open_chosen,
    pipelines_folder,
    publish,
    publish_arguments,
    say,
    to_run,
)
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tussock.jobs.operations.epochs import LevelRunner, RunResult
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.statements.deployment import DeployOptions

SOMETHING_TO_DO = 2  # exit code of `tussock plan`


def _run_new(chosen: argparse.Namespace) -> None:
    from tussock.jobs.shell.new_pipeline import counting_view, make_pipeline
    from tussock.statestore.extras import missing_spark

    if (missing := missing_spark()) is not None:
        say(f"`tussock apply` needs Spark, which is not installed here: {missing.command}")
    pipelines, over, view = pipelines_folder(), None, "daily_sales"
    if chosen.path is not None:
        from tussock.jobs.sources.preview import preview_source

        over = preview_source(_whole_path(chosen.path), format=chosen.format)
        view = counting_view(over.source.name)
    new_pipeline = make_pipeline(chosen.name, pipelines, over)
    print(f"created {pipelines / chosen.name}")
    for path in new_pipeline:
        print(f"  {path}")
    home = pipelines.absolute()
    set_ = os.environ.get("TUSSOCK_PIPELINES")
    export = f"export TUSSOCK_PIPELINES={shlex.quote(str(home))}"
    where = f"(TUSSOCK_PIPELINES is {set_})" if set_ else f"in {home.parent} (in another folder, first run: {export})"
    commands = {
        f"tussock apply {chosen.name}": "queue its sources, tables and views in the store's log",
        f"tussock epoch --pipeline {chosen.name}": "process the queued statements and the source files",
        f"tussock read --pipeline {chosen.name} {view}": "print a view",
    }
    width = max(map(len, commands)) + 4
    print(f"Next, {where}:", *(f"  {command:<{width}}# {effect}" for command, effect in commands.items()), sep="\n")


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a lower-case letter, then lower-case letters, digits and _")
    path = "instead of the example, create a source over these files, with the columns that `tussock preview` infers"
    parser.add_argument("--from", dest="path", metavar="PATH", help=path)
    format_argument(parser)


def format_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --format, for commands that infer a source."""
    parser.add_argument(
        "--format", default="", metavar="FORMAT", help="csv, json or parquet (default: from the names of the files)"
    )


def _run_preview(chosen: argparse.Namespace) -> None:
    from tussock.jobs.sources.preview import preview_source
    from tussock.jobs.texts.preview import preview_text

    path, name = _whole_path(chosen.path), (chosen.name or "").lower()
    print(preview_text(preview_source(path, name, chosen.format, header=not chosen.no_header)))


def _whole_path(path: str) -> str:
    """The absolute path of a local path. A statement in a SQL file must not depend on the working directory."""
    return path if re.match(r"[a-z0-9]+:", path) else os.path.abspath(path)  # noqa: PTH100  keeps links, removes `..`


def _preview_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="a file, a folder, a glob in quotes, or a path with {start:…}; also s3://…"
    )
    format_argument(parser)
    parser.add_argument("--name", metavar="NAME", help="name of the source (default: from the path)")
    parser.add_argument(
        "--no-header", action="store_true", help="of csv files: the first record is a row, not the names of the columns"
    )


def _airflow_files(chosen: argparse.Namespace) -> None:
    from tussock.jobs.shell.airflow_files import write_airflow_files

    for path in write_airflow_files(Path(chosen.folder)):
        print(f"wrote {path}")
    pipelines = shlex.quote(str(pipelines_folder().absolute()))
    print(
        "Next, set in the environment of every Airflow process:\n"
        f"  export TUSSOCK_PIPELINES={pipelines}\n"
        "Unless Airflow has a connection spark_default to a cluster, also set, to run Spark jobs on Airflow's own "
        "machine:\n"
        """  export AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2,4]", """
        """"extra": {"deploy-mode": "client"}}'\n"""
        "Each pipeline has six DAGs:\n"
        "  epoch_<pipeline>      updates the views and publishes them; runs on [schedule] of pipeline.toml\n"
        "  upkeep_<pipeline>     compaction, vacuum and retention; runs on [upkeep]\n"
        "  deploy_<pipeline>     applies changed SQL files; runs only when triggered\n"
        "  rebalance_<pipeline>  moves vnodes between units; runs only when triggered\n"
        "  verify_<pipeline>     compares views with Spark's results; runs on [verify], or only when triggered\n"
        "  preview_<pipeline>    tries changed SQL files on a branch; runs only when triggered\n"
        "Run `tussock apply <pipeline>` before the first run."
    )


def _airflow_files_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="Airflow's folder of DAG files: [core] dags_folder, by default $AIRFLOW_HOME/dags",
    )


_DEFAULT = "default: the pipeline's, else {}"


def _run_init(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.pipeline import Pipeline
    from tussock.jobs.settings.process import create_store
    from tussock.statestore.objectstore.base import BadObjectNameError

    store = chosen_store(chosen)
    of = chosen_pipeline(chosen) or Pipeline("", Path(), store, ())  # with the default settings
    vnodes = of.epoch.vnodes if chosen.vnodes is None else chosen.vnodes
    units = (of.epoch.units or NEW_STORE_UNITS) if chosen.units is None else chosen.units
    zone = of.time_zone if chosen.time_zone is None else chosen.time_zone
    try:
        settings = create_store(store, vnode_count=vnodes, units=units, time_zone=zone)
    except BadObjectNameError as err:  # a parent of the path is a file
        err.add_note(f"The directory {store} could not be created.")
        raise
    print(f"created {store}: {settings}, {units} parallel units")


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--vnodes", type=int, metavar="N", help=f"virtual nodes, a power of two, permanent ({_DEFAULT.format(256)})")
    units = f"initial number of parallel units ({_DEFAULT.format(NEW_STORE_UNITS)})"
    add("--units", type=int, metavar="N", help=units)
    add("--time-zone", metavar="ZONE", help=f"time zone of all SQL, permanent ({_DEFAULT.format('UTC')})")


def _run_plan(chosen: argparse.Namespace) -> int:
    from tussock.jobs.operations.deploy import plan
    from tussock.jobs.texts.bill import describe_bill
    from tussock.jobs.texts.deployment import deployment_text

    pipeline = named_pipeline(chosen)
    deployment = plan(pipeline, _chosen_options(chosen), say)
    bill = describe_bill(pipeline, deployment, whole=chosen.bill)
    print(deployment_text(deployment, pipeline.argument, chosen.full, bill=bill))
    if chosen.save is not None:
        write_text(Path(chosen.save), deployment.approval.to_json())
    return SOMETHING_TO_DO if deployment.pending else 0


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    _deployment_arguments(parser)
    parser.add_argument(
        "--full",
        action="store_true",
        help="print new statements and statements that will run in full, and the code of new functions",
    )
    parser.add_argument("--bill", action="store_true", help="print rows, seconds, requests and dollars of each view")
    parser.add_argument("--save", metavar="FILE", help="write the plan to FILE, for `tussock apply --approved FILE`")


def _run_apply(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.deploy import apply
    from tussock.jobs.texts.deployment import deployment_text

    pipeline = named_pipeline(chosen)
    approved = chosen.approved
    if approved is not None and is_file(approved):
        approved = text_of(Path(approved))
    done = apply(pipeline, _chosen_options(chosen), approved, say)
    print(deployment_text(done, pipeline.argument))


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    _deployment_arguments(parser)
    approved = "apply only this plan: a digest printed by `tussock plan`, or a file written by `tussock plan --save`"
    parser.add_argument("--approved", metavar="DIGEST|FILE", help=approved)


def _chosen_options(chosen: argparse.Namespace) -> "DeployOptions":
    from tussock.jobs.statements.deployment import DeployOptions

    return DeployOptions(chosen.prune, chosen.resume, zone_rules=chosen.zone_rules)


def _deployment_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder in pipelines/")
    environment_argument(parser)
    branch_argument(parser)
    parser.add_argument(
        "--prune", action="store_true", help="drop views that the files do not define (tables and sources stay)"
    )
    resume = "rebuild this paused view and resume it, with the views that were paused together with it"
    parser.add_argument("--resume", action="append", default=[], metavar="VIEW", help=resume)
    zones = "move the store to this Java's rules of its time zones, and rebuild the views that convert by them"
    parser.add_argument("--zone-rules", action="store_true", help=zones)


def _run_epoch(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.epochs import (
        Where,
        input_request_of,
        interval_of,
        recorded_to_its_end,
        require_all_taken_in,
        require_arrived,
        run_pipeline_epochs,
    )

    store = open_chosen(chosen)
    interval = None if chosen.interval is None else interval_of(store, *chosen.interval)

    def run_epochs(runner: "LevelRunner | None" = None) -> "tuple[RunResult, bool]":
        """Run and publish all waiting input; return what ran, and whether readers see something new."""
        with recorded_to_its_end(store, "epoch"):
            done = run_pipeline_epochs(
                store, input_request_of(store, interval, chosen.moment), Where.AS_SET, say, runner=runner
            )
            checks = [
                lambda: require_all_taken_in(store, done.summaries, interval),
                lambda: require_arrived(store, interval),
            ]
            return done, _release(store, done, chosen, checks)

    if chosen.every is None:
        done, has_news = run_epochs()
        if not has_news:
            _say_no_input(chosen, done)
        return
    from tussock.jobs.operations.resident import run_repeatedly

    say(f"epochs every {chosen.every / 1000:g} s; SIGINT or SIGTERM ends them after the current one")
    with stop_on_signals() as stop:
        run_repeatedly(store, chosen.every / 1000, stop, run_epochs, lambda line: say(to_run(chosen, line)))
    say("ended; the next start continues")


@contextmanager
def stop_on_signals() -> "Iterator[Event]":
    """Yield an event that the first SIGINT or SIGTERM sets during the block. A later one interrupts the block."""
    stop, first = Event(), 0.0

    def set_stop(number: int, frame: object) -> None:
        nonlocal first
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
        elif time.monotonic() - first > 1:  # some supervisors send one signal twice: to a process, and to its group
            raise KeyboardInterrupt

    before = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _release(
    store: "PipelineStore", done: "RunResult", chosen: argparse.Namespace, checks: "Sequence[Callable[[], None]]"
) -> bool:
    """Print the summaries of the epochs and, unless the command holds it, publish the newest as far as it passed.

    Args:
        checks: each raises an InputError if the command left something undone.

    Returns: whether an epoch ran, or was published.

    Raises: QualityCheckError, HeldViewsError, and the errors of `checks`; others are notes of the first.
    """
    from tussock.jobs.driver.pauses import PausedViewsError
    from tussock.jobs.driver.summary import show_summary
    from tussock.jobs.operations.publish import publish_newest
    from tussock.jobs.quality.record import QualityCheckError

    for summary in done.summaries:
        print(show_summary(summary, reasons=False))  # the error that follows contains them
    unchecked = f"tussock {chosen.command} --no-check" if chosen.no_check else ""

    def undone_reasons(said: str) -> "Iterator[InputError]":
        """Yield the reasons why the command left something undone, besides those in a message."""
        for check in checks:
            try:
                check()
            except PausedViewsError as err:
                if (left := err.without_views(said)) is not None:
                    yield left
            except InputError as err:
                yield err

    try:
        published = None if chosen.hold else publish_newest(store, say, unchecked=unchecked)
    except InputError as failed:
        for err in undone_reasons(str(failed)):
            failed.add_note(str(err))
        version = store.meta.read_latest()
        if version.published < version.epoch and not isinstance(failed, QualityCheckError):
            failed.add_note(f"Epoch {version.epoch} is committed, but not published: `tussock epoch` publishes it.")
        raise
    if reasons := list(undone_reasons("")):
        for err in reasons[1:]:
            reasons[0].add_note(str(err))
        raise reasons[0]
    return published is not None or bool(done.summaries)


def _say_no_input(chosen: argparse.Namespace, done: "RunResult") -> None:
    queue = "`tussock apply PIPELINE` queues its statements" if chosen.pipeline else "`tussock query` queues statements"
    nothing = f"no new input; the store is at epoch {done.epoch}" if done.epoch else f"no input, no epoch yet: {queue}"
    print(to_run(chosen, nothing))


def _epoch_arguments(parser: argparse.ArgumentParser) -> None:
    interval = "take only this data interval's files (ISO 8601) of sources with {start:…} or {end:…} in their path"
    input_ = parser.add_mutually_exclusive_group()
    input_.add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    every = "look for input again after this time, such as 10s or 5m, until a signal ends the command"
    input_.add_argument("--every", type=_parse_pause, metavar="SPAN", help=every)
    input_.add_argument("--watch", dest="every", action="store_const", const=1000, help="the same as --every 1s")
    moment = (
        "the value of now() in views (ISO 8601), or now for the clock; allows the epoch to pass over intervals that "
        "have not run (default: the end of the interval; without an interval, the previous value if the pipeline runs "
        "by intervals, else the clock)"
    )
    parser.add_argument("--moment", metavar="TIME", help=moment)
    _release_arguments(parser, "epoch")


def _parse_pause(text: str) -> int:
    """Parse a time span, in milliseconds."""
    from tussock.jobs.settings.retention import BadDurationError, duration_ms

    try:
        if (span := duration_ms(text)) > 0:
            return span
    except BadDurationError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no time span: expected a number and a unit, as in 10s, 5m or 1h")


def _release_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    parser.set_defaults(command=command)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--hold", action="store_true", help="commit without publishing: readers keep seeing the previous epoch"
    )
    no_check = "publish without running the pipeline's quality suites; the store records this"
    instead.add_argument("--no-check", action="store_true", help=no_check)


def _run_restate(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations import restate
    from tussock.jobs.operations.epochs import interval_of, recorded_to_its_end, require_no_view_paused
    from tussock.jobs.sources.base import Restated
    from tussock.jobs.sources.errors import CannotRestateError
    from tussock.jobs.sources.listing import absolute_path
    from tussock.jobs.texts.restatement import restatement_lines

    store = open_chosen(chosen)
    interval = None if chosen.interval is None else interval_of(store, *chosen.interval)
    if not chosen.file and (chosen.with_ or chosen.gone):
        raise CannotRestateError(
            chosen.source, "--with and --gone require --file: they describe how to replace that file"
        )
    items = [absolute_path(path, Path.cwd()) for path in chosen.file or ()]
    by = "" if chosen.with_ is None else absolute_path(chosen.with_, Path.cwd())
    asked = ["tussock", "restate", chosen.source, *(f"file={item}" for item in items)]
    asked += [f"with={by}"] if by else []
    asked += ["--options"] if chosen.options else ["--all"] if chosen.all else []
    restating = restate.preview_restatement(
        store,
        chosen.source,
        Restated("".join(items[:1]), by, chosen.gone, interval, chosen.options, tuple(items[1:])),
        {"command": " ".join(asked)},
    )
    for line in restatement_lines(restating.restatement):
        print(line)
    if not restating.restatement:
        return
    if chosen.plan:
        goes, comes = restate.count_rows(store, restating)
        print(f"{goes:,} rows would be removed and {comes:,} added; nothing was changed")
        return
    with recorded_to_its_end(store, f"restate {chosen.source}"):
        done = restate.restate_source(store, restating, say)
        # A held source is no concern of this command, which takes no new files.
        if not _release(store, done, chosen, [lambda: require_no_view_paused(store, done.summaries)]):
            _say_no_input(chosen, done)


def _restate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="name of the source")
    what = parser.add_mutually_exclusive_group(required=True)
    file = (
        "replace the rows of these processed files with their current rows, in one epoch; a folder or a glob stands "
        "for all its files that changed, disappeared or came late"
    )
    what.add_argument("--file", metavar="OLD", nargs="+", action="extend", help=file)
    interval = "replace the rows of all files of this data interval (ISO 8601) that changed, disappeared or came late"
    what.add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    options = "read the recorded bytes of files that were read before the source's options changed again"
    what.add_argument("--options", action="store_true", help=options)
    everything = "replace the rows of all files that changed; load a table of Postgres again"
    what.add_argument("--all", action="store_true", help=everything)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--with", dest="with_", metavar="NEW", help="with --file: take the rows of this file instead")
    instead.add_argument("--gone", action="store_true", help="with --file: remove the rows and add none")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only print the rows that would be removed and added, and the affected views",
    )
    _release_arguments(parser, "restate")


def _run_publish(chosen: argparse.Namespace) -> None:
    if not publish(open_chosen(chosen), chosen) and not chosen.tidy:
        print("nothing to do: the tables are up to date")


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder in pipelines/")
    environment_argument(parser)
    branch_argument(parser)
    publish_arguments(parser)


COMMANDS = (
    Command(
        "new",
        "create a pipeline from a commented example",
        "Creates the folder NAME next to the other pipelines, with a pipeline.toml, a source and its files, a table, "
        "three views, a suite of expectations and tests of a view. The example runs without changes.",
        (
            "tussock new shop",
            "tussock apply shop",
            "tussock epoch --pipeline shop",
            "tussock read --pipeline shop daily_sales",
            "tussock new events --from 'data/events/*.json'",
        ),
        _run_new,
        _new_arguments,
        names_store=False,
        uses_engine=False,
    ),
    Command(
        "preview",
        "infer the columns of files, show ten rows, and print a CREATE SOURCE",
        "Reads at most 4 MB of each of three files, without Spark, and creates nothing. Paste the statement into a SQL "
        "file of a pipeline, or start a pipeline with `tussock new NAME --from PATH`. Whole numbers become bigint, "
        "numbers with leading zeros text. Numbers with a fraction become decimals in columns of money, such as `price` "
        "and `amount`, else double. Dates and times are recognised in ISO 8601 only.",
        (
            "tussock preview 'data/*.csv'",
            "tussock preview 's3://bucket/events/*.json' --name events",
            "tussock preview 's3://bucket/{start:%Y-%m-%d}.csv?endpoint=http://localhost:9000&path_style=true'",
        ),
        _run_preview,
        _preview_arguments,
        names_store=False,
    ),
    Command(
        "airflow-files",
        "write the two files that import the pipelines' DAGs into Airflow's DAG folder",
        "Requires this package in Airflow's Python environment. The files import the DAGs from the package, so a new "
        "release needs no new files. Airflow finds the plugin by its entry point. TUSSOCK_PIPELINES in the "
        "environment of Airflow's processes names the folder of the pipelines. The command does not overwrite files "
        "that it did not write.",
        ("tussock airflow-files ~/airflow/dags",),
        _airflow_files,
        _airflow_files_arguments,
        names_store=False,
        uses_engine=False,
    ),
    Command(
        "init",
        "create an empty store",
        "Creates the directory if it does not exist. A bucket's server must support conditional writes. A pipeline "
        "does not need this command: `tussock apply` creates its store.",
        (
            "tussock init --store ./demo",
            "tussock init --store 's3://bucket/demo?endpoint=http://localhost:9000&path_style=true' --units 8",
        ),
        _run_init,
        _init_arguments,
    ),
    Command(
        "plan",
        "compare a pipeline's SQL files with its store",
        "Prints the changes that `tussock apply` would make: new and changed relations, the views that they affect, "
        "and the data that it would read. Writes nothing, and starts Spark only if a text has changed. Exits with "
        f"code {SOMETHING_TO_DO} if there are changes. Ends with a digest for `tussock apply --approved`. The digest "
        "covers the texts of all statements, functions and suites, the settings, and each action. Estimates and "
        "epochs do not change it.",
        ("tussock plan flights", "tussock plan flights --prune", "tussock plan flights --full --save plan.json"),
        _run_plan,
        _plan_arguments,
        names_store=False,
    ),
    Command(
        "apply",
        "apply a pipeline's SQL files to its store",
        "Writes all changes as one entry of the store's log, or none. They take effect with the next epoch. A missing "
        "store is created. You can apply a pipeline repeatedly. Unchanged statements have no effect. A view whose "
        "text has changed is rebuilt while readers still see the old one, and the views that read it follow. Changed "
        "options, and new, renamed or wider columns of a source take effect in place. Other changes of a source, and a "
        "changed table, are rejected with the difference. INSERT, UPDATE, DELETE, MERGE, TRUNCATE and ALTER "
        "TABLE run once, and again when their text changes. A pipeline is a folder in pipelines/ with a pipeline.toml.",
        ("tussock apply flights", "tussock epoch --pipeline flights", "tussock apply flights --approved plan.json"),
        _run_apply,
        _apply_arguments,
        names_store=False,
    ),
    Command(
        "epoch",
        "update all views with the waiting input, commit and publish",
        "Processes the queued statements and the new files of the sources. One epoch reads at most max_bytes of "
        f"decoded rows, from [epoch] of the pipeline ({EPOCH_BYTES >> 20} MiB by default, and with --store). If "
        "another run left an unfinished epoch, the command finishes it first. You can stop the command at any point "
        "and run it twice: nothing is visible before the commit. If a file cannot be read or a path has disappeared, "
        "the source is held: its new files wait, everything else is processed and published, and the exit code is 1. "
        "With --pipeline, the quality suites judge the epoch before it is published; if one "
        "fails, readers keep seeing the previous rows, and the exit code is 1. The exit code is also 1 if a view was "
        'paused because of [epoch] on_error = "pause". With --every, the command stays: its processes and caches are '
        "warm for the next epoch, an error is printed and the next look tries again, and a second such command waits "
        "until the first one ends or dies.",
        (
            "tussock epoch --store ./demo",
            "tussock epoch --pipeline flights --interval 2013-01-01 2013-01-02",
            "tussock epoch --pipeline shop --every 10s",
        ),
        _run_epoch,
        _epoch_arguments,
    ),
    Command(
        "restate",
        "correct data that a source has already processed",
        "Replaces the rows that were read from files with their current rows, with the rows of another file, or with "
        "none. This is one ordinary epoch: it costs the rows that differ, every view that reads the source follows, "
        "and readers see all of it or nothing. The source must keep the bytes of its files, which is the default "
        "(OPTIONS (…, retain 'files')). If no file has changed, the command does nothing. A run of a data interval "
        "restates its changed files automatically.",
        (
            "tussock restate orders --pipeline shop --file data/2024-01-02.csv --plan",
            "tussock restate orders --pipeline shop --file data/2024-01-02.csv --with data/2024-01-02-corrected.csv",
            "tussock restate orders --pipeline shop --file data/2024-01-02.csv data/2024-01-05.csv",
            "tussock restate orders --pipeline shop --file 'data/2024-02-*.csv'",
            "tussock restate trips --pipeline taxi --interval 2024-01-02 2024-01-03",
        ),
        _run_restate,
        _restate_arguments,
    ),
    Command(
        "publish",
        "update the tables of [publish] to the epoch that readers see",
        "Maintains copies of the published views for other tools, such as Delta tables, configured by [publish] or "
        "[[publish]] of pipeline.toml. Several sinks run side by side, and one that fails holds back no other. "
        "`tussock epoch --pipeline` and the DAG run this step automatically; run it by "
        "hand after an interruption. You can stop it at any point and run it twice: no change is applied twice.",
        ("tussock publish flights", "tussock publish flights --tidy", "tussock publish flights --sink lake"),
        _run_publish,
        _publish_arguments,
        names_store=False,
    ),
)
