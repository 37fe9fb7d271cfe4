"""`tussock status`: the state of a pipeline, problems first."""

import argparse
import os

from tussock.jobs.shell.command import (
    Command,
    WhichStoreError,
    choose_pipeline,
    chosen_pipeline,
    chosen_store,
    number_of,
    open_chosen,
    pipelines_folder,
)
from tussock.statestore.meta.epoch import time_of_ms

EXIT_WRONG = 4
"""Exit code if the pipeline has a problem. The command itself succeeded."""


def _run_status(chosen: argparse.Namespace) -> int:
    from tussock.jobs.facts.status_reader import read_status
    from tussock.jobs.facts.unopened import trouble_of_unopened
    from tussock.jobs.settings.process import clock_ms
    from tussock.jobs.settings.values import PipelineError
    from tussock.jobs.texts.status import health_text, status_text
    from tussock.statestore.errors import DamagedError, RetryableError
    from tussock.statestore.meta.errors import NotInitialisedError
    from tussock.statestore.objectstore.base import AccessDeniedError, BadStoreError

    choose_pipeline(chosen, chosen.name)
    if not (chosen.pipeline or chosen.store or os.environ.get("TUSSOCK_STORE")):
        return _all_pipelines(chosen)
    now = time_of_ms(clock_ms())
    try:
        store = open_chosen(chosen)
        status = read_status(store.meta, now, store.pipeline, last=chosen.last, everything=chosen.everything)
    except (
        PipelineError,
        DamagedError,
        RetryableError,
        NotInitialisedError,
        AccessDeniedError,
        BadStoreError,
    ) as err:
        name, broken = chosen.pipeline or "", isinstance(err, PipelineError)
        pipeline = None if broken else chosen_pipeline(chosen)
        if pipeline is None and isinstance(err, NotInitialisedError | BadStoreError):
            raise
        trouble = trouble_of_unopened(err, pipeline, "" if broken else chosen_store(chosen))
        print(_to_json({"pipeline": name, "troubles": [trouble]}) if chosen.json else health_text(name, [trouble], now))
        return EXIT_WRONG if trouble.wrong else 0
    print(_to_json(status) if chosen.json else status_text(status, chosen.most))
    return EXIT_WRONG if status.wrong else 0


def _all_pipelines(chosen: argparse.Namespace) -> int:
    """Print the health of every pipeline of the folder, in the chosen environment.

    Raises WhichStoreError if there is none.
    """
    from tussock.jobs.facts.trouble import HealthVerdict, health_verdict
    from tussock.jobs.operations.folder import definitions_in
    from tussock.jobs.operations.health import health_of
    from tussock.jobs.texts.status import overview_text

    folder = pipelines_folder()
    troubles_of_pipelines = [(one.name, health_of(one)) for one in definitions_in(folder, chosen.env)]
    if not troubles_of_pipelines:
        raise WhichStoreError(str(folder.absolute()))
    if chosen.json:
        print(
            _to_json(
                [
                    {"pipeline": name, "health": health_verdict(troubles), "troubles": troubles}
                    for name, troubles in troubles_of_pipelines
                ]
            )
        )
    else:
        print(overview_text(troubles_of_pipelines))
    return (
        EXIT_WRONG
        if any(health_verdict(troubles) is HealthVerdict.WRONG for _, troubles in troubles_of_pipelines)
        else 0
    )


def _to_json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value)).decode()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        metavar="PIPELINE",
        help="the pipeline; same as --pipeline; without it, and without a store, all pipelines",
    )
    add("--json", action="store_true", help="print JSON instead of text")
    add(
        "--last",
        type=number_of("epochs"),
        default=5,
        metavar="N",
        help="list N epochs, and sum unit load and cost over them (default 5)",
    )
    add(
        "--most",
        type=number_of("rows"),
        default=20,
        metavar="N",
        help="maximum rows of every other table, problems first (default 20)",
    )
    add(
        "--everything",
        action="store_true",
        help="also print the stored bytes per unit, and what vacuum would remove; lists the store",
    )


COMMANDS = (
    Command(
        "status",
        "show the state of a pipeline, problems first",
        "Prints the problems, each with its next step. Then come the newest epochs, the last run, the waiting input of "
        "the sources, the freshness, size and suite results of the views, the load of each parallel unit, and the "
        "size and cost of the store. Without a pipeline or a store, it prints one line for each pipeline of the "
        "folder. The column `behind` is the age of the oldest change that readers do not see yet. Exit code 0: no "
        "problem. 4: at least one problem; notes do not count. Changes nothing, and reads no more from a store with "
        "many epochs than from one with few. Dollar amounts use [prices] of pipeline.toml.",
        (
            "tussock status",
            "tussock status flights",
            "tussock status --store ./demo --json",
            "tussock status flights --everything",
        ),
        _run_status,
        _add_arguments,
    ),
)
