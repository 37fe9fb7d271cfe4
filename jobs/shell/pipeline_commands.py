"""`tussock new`, `init`, `apply` and `epoch`: a pipeline is begun, a store is made, statements enter its log, and its views advance."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.settings.pipeline import EPOCH_BYTES, NEW_STORE_UNITS
from tussock.jobs.shell.command import (
    Command,
    chosen_store,
    named_pipeline,
    opened,
    pipelines_folder,
    publish,
    publish_arguments,
    say,
)

if TYPE_CHECKING:
    from tussock.jobs.operations.epochs import Advanced
    from tussock.jobs.operations.store import PipelineStore

SOMETHING_TO_DO = 2  # the exit code of `tussock plan`


def _new(chosen: argparse.Namespace) -> None:
    from tussock.jobs.shell.new_pipeline import make_pipeline

    pipelines = pipelines_folder()
    made = make_pipeline(chosen.name, pipelines)
    print(f"made {pipelines / chosen.name}")
    for path in made:
        print(f"  {path}")
    home = pipelines.absolute()
    set_ = os.environ.get("TUSSOCK_PIPELINES")
    export = f"export TUSSOCK_PIPELINES={shlex.quote(str(home))}"
    where = f"TUSSOCK_PIPELINES is {set_}" if set_ else f"from other folders than {home.parent}, first: {export}"
    print(
        f"Next ({where}):\n"
        f"  tussock apply {chosen.name}                          # its sources, tables and views enter the store's log\n"
        f"  tussock epoch --pipeline {chosen.name}               # one epoch takes in what waits\n"
        f"  tussock read --pipeline {chosen.name} daily_sales    # what readers see"
    )


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a lower-case letter, then lower-case letters, digits and _")


def _airflow_files(chosen: argparse.Namespace) -> None:
    from tussock.jobs.shell.airflow_files import write_airflow_files

    for path in write_airflow_files(Path(chosen.folder)):
        print(f"wrote {path}")
    pipelines = shlex.quote(str(pipelines_folder().absolute()))
    print(
        "Next, in the environment of each of Airflow's processes:\n"
        f"  export TUSSOCK_PIPELINES={pipelines}\n"
        "and where its Spark jobs run, unless Airflow has a connection spark_default that leads to a cluster. On its own machine:\n"
        """  export AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2,4]", "extra": {"deploy-mode": "client"}}'\n"""
        "Its DAGs are called epoch_<pipeline> and upkeep_<pipeline>. `tussock apply <pipeline>` comes before their first run."
    )


def _airflow_files_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="Airflow's folder of DAG files: [core] dags_folder, $AIRFLOW_HOME/dags by default",
    )


def _init(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.process import create_store
    from tussock.statestore.objectstore.base import BadObjectNameError

    store = chosen_store(chosen)
    try:
        settings = create_store(store, vnode_count=chosen.vnodes, units=chosen.units, time_zone=chosen.time_zone)
    except BadObjectNameError as err:  # part of the way there is a file
        err.add_note(f"{store} cannot be made a directory")
        raise
    print(f"created {store}: {settings}, {chosen.units} parallel units")


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vnodes", type=int, default=256, metavar="N", help="virtual nodes, a power of two, for good (default 256)"
    )
    units = f"parallel units to start with (default {NEW_STORE_UNITS})"
    parser.add_argument("--units", type=int, default=NEW_STORE_UNITS, metavar="N", help=units)
    parser.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="time zone of all SQL, for good (default UTC)"
    )


def _plan(chosen: argparse.Namespace) -> int:
    from tussock.jobs.operations.deploy import plan
    from tussock.jobs.texts.deployment import deployment_text

    pipeline = named_pipeline(chosen)
    deployment = plan(pipeline, chosen.prune, chosen.resume, say)
    print(deployment_text(deployment, pipeline.name, chosen.full))
    if chosen.save is not None:
        Path(chosen.save).write_text(deployment.approval.json())
    return SOMETHING_TO_DO if deployment.pending else 0


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    _deployment_arguments(parser)
    parser.add_argument(
        "--full",
        action="store_true",
        help="show all of each statement that is new or runs, and the code of new functions",
    )
    parser.add_argument("--save", metavar="FILE", help="write the plan to FILE, for `tussock apply --approved FILE`")


def _apply(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.deploy import apply
    from tussock.jobs.texts.deployment import deployment_text

    pipeline = named_pipeline(chosen)
    approved = chosen.approved
    if approved is not None and Path(approved).is_file():
        approved = Path(approved).read_text()
    print(deployment_text(apply(pipeline, chosen.prune, chosen.resume, approved, say), pipeline.name))


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    _deployment_arguments(parser)
    approved = "apply this plan and nothing else: its digest, as `tussock plan` prints it, or the file of `tussock plan --save`"
    parser.add_argument("--approved", metavar="DIGEST|FILE", help=approved)


def _deployment_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder below pipelines/")
    parser.add_argument(
        "--prune", action="store_true", help="drop the views that the files do not name (tables and sources stay)"
    )
    resume = "a paused view that is to go on: it is built anew, and the views that were paused with it"
    parser.add_argument("--resume", action="append", default=[], metavar="VIEW", help=resume)


def _epoch(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.epochs import Where, Wish, advance, interval_of, require_all_taken_in

    at = opened(chosen)
    interval = None if chosen.interval is None else interval_of(at, *chosen.interval)
    done = advance(at, Wish(interval), Where.AS_SET, say)
    if not _release(at, done, hold=chosen.hold):
        print(f"nothing waits; the store is at epoch {done.epoch}")
    require_all_taken_in(at, done.summaries, interval)


def _release(at: "PipelineStore", done: "Advanced", *, hold: bool) -> bool:
    """Print what epochs did, and publish the newest to readers and tables, unless it is to be held. Returns whether there was anything to
    print."""
    from tussock.jobs.driver.summary import show_summary
    from tussock.jobs.operations.publish import publish_newest

    for summary in done.summaries:
        print(show_summary(summary))
    if hold or (published := publish_newest(at)) is None:
        return bool(done.summaries)
    print(f"published epoch {published}")
    if at.pipeline.publish is not None:
        from tussock.jobs.operations.tables import publish_tables

        publish_tables(at, published, lambda line: say(f"  {line}"))
    return True


def _epoch_arguments(parser: argparse.ArgumentParser) -> None:
    interval = "of sources with {start:…} or {end:…} in their path, only this data interval's files (ISO 8601)"
    parser.add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    _hold_argument(parser)


def _hold_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hold", action="store_true", help="commit without publishing: readers go on seeing the epoch before"
    )


def _restate(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations import restate
    from tussock.jobs.operations.epochs import interval_of, require_all_taken_in
    from tussock.jobs.sources.base import Restated
    from tussock.jobs.sources.errors import CannotRestateError
    from tussock.jobs.sources.listing import absolute_path
    from tussock.jobs.texts.restatement import restatement_lines

    at = opened(chosen)
    interval = None if chosen.interval is None else interval_of(at, *chosen.interval)
    if not chosen.file and (chosen.with_ or chosen.gone):
        raise CannotRestateError(chosen.source, "--with and --gone say what becomes of one --file, and of nothing else")
    item, by = ("" if path is None else absolute_path(path, Path.cwd()) for path in (chosen.file, chosen.with_))
    asked = [
        "tussock",
        "restate",
        chosen.source,
        *(f"{name}={value}" for name, value in (("file", item), ("with", by)) if value),
    ]
    asked += ["--time-zone"] if chosen.time_zone else []
    restating = restate.look(
        at, chosen.source, Restated(item, by, chosen.gone, interval, chosen.time_zone), {"command": " ".join(asked)}
    )
    for line in restatement_lines(restating.found):
        print(line)
    if not restating.found:
        return
    if chosen.plan:
        goes, comes = restate.count_rows(at, restating)
        print(f"{goes:,} rows go, {comes:,} rows come; nothing was changed")
        return
    done = restate.restate(at, restating, say)
    _release(at, done, hold=chosen.hold)
    require_all_taken_in(at, done.summaries, None)


def _restate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the source")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--file", metavar="OLD", help="a file that was taken: its rows go, and those that it has now come"
    )
    interval = "all files of this data interval (ISO 8601): those that have changed, are gone, or came late"
    what.add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    zone = "files of csv, json and xml that an earlier release read in UTC: read the bytes that were taken again, in the store's time zone"
    what.add_argument("--time-zone", action="store_true", help=zone)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--with", dest="with_", metavar="NEW", help="with --file: the rows of this file come instead")
    instead.add_argument("--gone", action="store_true", help="with --file: no rows come instead")
    parser.add_argument(
        "--plan", action="store_true", help="only say which rows would go and come, and which views would follow"
    )
    _hold_argument(parser)


def _publish(chosen: argparse.Namespace) -> None:
    if not publish(opened(chosen), chosen) and not chosen.tidy:
        print("nothing to do: the tables are there already")


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder below pipelines/")
    publish_arguments(parser)


COMMANDS = (
    Command(
        "new",
        "begin a pipeline: a folder with a commented example to change",
        "Makes NAME in the folder of the pipelines, with a pipeline.toml, a source and its files, a table, "
        "three views and a suite of expectations. It works as it is.",
        (
            "tussock new shop",
            "tussock apply shop",
            "tussock epoch --pipeline shop",
            "tussock read --pipeline shop daily_sales",
        ),
        _new,
        _new_arguments,
        names_store=False,
    ),
    Command(
        "airflow-files",
        "show an Airflow the pipelines' DAGs: two small files in its DAG folder",
        "For an Airflow whose Python has this package installed. The files import the DAGs from the package, so a new release needs no new "
        "ones; the plugin is found by its entry point. TUSSOCK_PIPELINES says to Airflow's processes which pipelines there are. Files that "
        "the command did not write stay as they are.",
        ("tussock airflow-files ~/airflow/dags",),
        _airflow_files,
        _airflow_files_arguments,
        names_store=False,
    ),
    Command(
        "init",
        "create an empty store",
        "In a directory that need not exist yet, or below a prefix of a bucket whose server honours conditional writes.",
        (
            "tussock init --store ./demo",
            "tussock init --store 's3://bucket/demo?endpoint=http://localhost:9000&path_style=true' --units 8",
        ),
        _init,
        _init_arguments,
    ),
    Command(
        "plan",
        "compare a pipeline's SQL files with its store",
        "Says what `tussock apply` would do: what is new, what has changed and how, which views follow, what is read for it. Nothing is "
        f"written, and Spark starts only where a text has changed. The exit code is {SOMETHING_TO_DO} where there is something to do. "
        "The digest at the end covers the texts of all statements, functions and suites, the settings, and each action; estimates and "
        "epochs do not change it. `tussock apply --approved` takes it.",
        ("tussock plan flights", "tussock plan flights --prune", "tussock plan flights --full --save plan.json"),
        _plan,
        _plan_arguments,
        names_store=False,
    ),
    Command(
        "apply",
        "make a pipeline's SQL files hold in its store",
        "All of it as one entry of the store's log, or nothing; it takes effect with the next epoch. The store is made where there is "
        "none. It can be applied again and again: what is there as the files say is left alone; a view whose text has changed is built "
        "anew beside the one that readers see, and the views over it follow; a changed table or source is refused, with the difference; "
        "an INSERT, UPDATE, DELETE, MERGE, TRUNCATE or ALTER TABLE runs once, until its text changes. A pipeline is a folder below "
        "pipelines/ with a pipeline.toml.",
        ("tussock apply flights", "tussock epoch --pipeline flights", "tussock apply flights --approved plan.json"),
        _apply,
        _apply_arguments,
        names_store=False,
    ),
    Command(
        "epoch",
        "advance all views over what waits, commit, publish",
        "New statements in the log and new files of the sources are taken in, an epoch's files being at most max_bytes of the "
        f"pipeline's [epoch] ({EPOCH_BYTES >> 20} MiB where it names none, and with --store). An epoch that another run "
        "began and did not finish is finished first. The command can be stopped at any point and started twice: nothing is visible "
        "before it is committed. A source in trouble (a file that cannot be read, a path that is gone) is held: its new files wait, "
        'everything else is taken in and published, and the exit code is 1; so it is where [epoch] on_error = "pause" had a view paused '
        "whose rows raise.",
        ("tussock epoch --store ./demo", "tussock epoch --pipeline flights --interval 2013-01-01 2013-01-02"),
        _epoch,
        _epoch_arguments,
    ),
    Command(
        "restate",
        "correct what a source has taken",
        "The rows that were taken from a file go, and those that it has now (or another file has, or none) come, in one ordinary epoch: "
        "every view over the source follows at the cost of those rows, and readers see all of it or nothing. The source has to keep the "
        "bytes of its files, as it does by itself (OPTIONS (…, retain 'files')). Where all is as it was taken, nothing is done. A run of a "
        "data interval restates by itself what has changed in it.",
        (
            "tussock restate orders --pipeline shop --file data/2024-01-02.csv --plan",
            "tussock restate orders --pipeline shop --file data/2024-01-02.csv --with data/2024-01-02-corrected.csv",
            "tussock restate trips --pipeline taxi --interval 2024-01-02 2024-01-03",
        ),
        _restate,
        _restate_arguments,
    ),
    Command(
        "publish",
        "bring the tables of [publish] to what readers see",
        "Copies of the published views for other tools: Delta tables, or Parquet files, as [publish] of the pipeline's pipeline.toml says. "
        "`tussock epoch --pipeline` and the DAG do this by themselves; by hand it makes up for what was cut off. It can be stopped at any "
        "point and started twice: no change is applied twice.",
        ("tussock publish flights", "tussock publish flights --tidy"),
        _publish,
        _publish_arguments,
        names_store=False,
    ),
)
