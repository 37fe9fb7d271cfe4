"""`tussock status`: the state of a pipeline, problems first."""

import argparse

from tussock.jobs.shell.command import Command, chosen_meta, chosen_pipeline

EXIT_WRONG = 4
"""Exit code if the pipeline has a problem. The command itself succeeded."""


def _status(chosen: argparse.Namespace) -> int:
    import msgspec

    from tussock.jobs.facts.status import now_of, status
    from tussock.jobs.settings.process import clock_ms
    from tussock.jobs.texts.status import status_text

    chosen.pipeline = chosen.name or chosen.pipeline
    pipeline, meta = chosen_pipeline(chosen), chosen_meta(chosen)
    found = status(
        meta,
        now_of(clock_ms()),
        pipeline="" if pipeline is None else pipeline.name,
        environment="" if pipeline is None else pipeline.environment,
        prices=None if pipeline is None else pipeline.prices,
        last=chosen.last,
        everything=chosen.everything,
        freshness=None if pipeline is None else pipeline.freshness,
        publish=None if pipeline is None else pipeline.publish,
    )
    print(msgspec.json.format(msgspec.json.encode(found)).decode() if chosen.json else status_text(found, chosen.most))
    return EXIT_WRONG if found.wrong else 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="PIPELINE", help="the pipeline; same as --pipeline")
    add("--json", action="store_true", help="print JSON instead of text")
    add(
        "--last",
        type=int,
        default=5,
        metavar="N",
        help="list N epochs, and sum unit load and cost over them (default 5)",
    )
    add(
        "--most",
        type=int,
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
        "Prints the problems, each with its next step. Then come the newest epochs, the waiting input of the sources, "
        "the freshness, size and suite results of the views, the load of each parallel unit, and the size and cost of "
        "the store. The column `behind` is the age of the oldest change that readers do not see yet. Exit code 0: no "
        "problem. 4: at least one problem; notes do not count. Changes nothing, and reads no more from a store with "
        "many epochs than from one with few. Dollar amounts use [prices] of pipeline.toml.",
        ("tussock status flights", "tussock status --store ./demo --json", "tussock status flights --everything"),
        _status,
        _arguments,
    ),
)
