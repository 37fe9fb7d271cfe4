"""`tussock check`: run quality suites."""

import argparse

from tussock.jobs.settings.user_files import text_of
from tussock.jobs.shell.command import Command, branch_argument, environment_argument, named_pipeline, print_progress


def _check(chosen: argparse.Namespace) -> int:
    from tussock.jobs.operations.quality import check, propose
    from tussock.jobs.operations.store import open_pipeline
    from tussock.jobs.quality.record import failure_lines, record_lines
    from tussock.jobs.settings.pipeline import FILE

    store = open_pipeline(named_pipeline(chosen))
    if chosen.propose is not None:
        file = propose(store, chosen.propose)
        print(f"wrote {file}:\n{text_of(file)}", end="")
        if store.pipeline.quality is None:
            print(f'To run it, add to {store.pipeline.folder / FILE}:\n[quality]\nfolder = "quality"')
        return 0

    record = check(store, chosen.views, chosen.epoch, print_progress)
    for line in (*record_lines(record), *failure_lines(record)):
        print(line)
    print(f"epoch {record.epoch}: {record.verdict.value}")
    return 0 if record.passed else 1


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder in pipelines/")
    parser.add_argument("views", nargs="*", metavar="VIEW", help="run the suites of these views (default: all suites)")
    parser.add_argument("--epoch", type=int, metavar="E", help="check this epoch instead of the newest one")
    proposal = "write a first suite for this view, from its rows; existing suites are not changed"
    parser.add_argument("--propose", metavar="VIEW", help=proposal)
    environment_argument(parser)
    branch_argument(parser)


COMMANDS = (
    Command(
        "check",
        "run the quality suites of a pipeline, and print the report",
        "Runs the suites in the pipeline's quality folder on the newest epoch, published or not, as the quality check "
        "does before an epoch is published. Changes nothing: the store's quality record and the Data Docs stay. Exit "
        "code 0: all expectations hold, or only warnings failed. 1: an expectation failed, or a suite cannot be used.",
        (
            "tussock check shop",
            "tussock check shop daily_sales",
            "tussock check shop --epoch 117158905282560000",
            "tussock check shop --propose daily_sales",
        ),
        _check,
        _check_arguments,
        names_store=False,
    ),
)
