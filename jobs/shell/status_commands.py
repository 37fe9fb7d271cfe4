"""`tussock status`: how a pipeline stands, what is wrong first."""

import argparse

from tussock.jobs.shell.command import Command, chosen_meta, chosen_pipeline

EXIT_WRONG = 4
"""Something is wrong with the pipeline; the command itself went well."""


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
    add("name", nargs="?", metavar="PIPELINE", help="the pipeline, as with --pipeline")
    add("--json", action="store_true", help="the facts as JSON instead of text")
    add("--last", type=int, default=5, metavar="N", help="epochs to list, and to count units and cost over (default 5)")
    add(
        "--most",
        type=int,
        default=20,
        metavar="N",
        help="rows of each other table, those in trouble first (default 20)",
    )
    add(
        "--everything",
        action="store_true",
        help="also what is stored of each unit, and what vacuum would free: lists the store",
    )


COMMANDS = (
    Command(
        "status",
        "how a pipeline stands: what is wrong first",
        "Then its newest epochs, what waits in its sources, how fresh and large its views are and what their suites found, what "
        "each parallel unit does, and what the store holds and costs. The column behind says how old the oldest change is that "
        "readers do not see yet. Exit code 0: nothing is wrong; 4: something is, and the next step is named; "
        "notes do not count. Changes nothing, and reads no more of a store with many epochs than of one with few. Dollars are by "
        "[prices] of pipeline.toml.",
        ("tussock status flights", "tussock status --store ./demo --json", "tussock status flights --everything"),
        _status,
        _arguments,
    ),
)
