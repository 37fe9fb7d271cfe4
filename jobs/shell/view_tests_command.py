"""`tussock test`: run the tests of a pipeline's views, without its store and its data."""

import argparse
from pathlib import Path

from tussock.jobs.settings.user_files import errors_of_writing
from tussock.jobs.shell.command import Command, environment_argument, named_pipeline, print_progress


def _run_tests(chosen: argparse.Namespace) -> int:
    from tussock.jobs.texts.view_tests import junit_xml, trials_text
    from tussock.jobs.viewtests.pipeline_tests import ViewTests, run_tests
    from tussock.jobs.viewtests.trial import TrialVerdict

    pipeline = named_pipeline(chosen)
    if chosen.make is not None:
        with ViewTests(pipeline, print_progress) as running:
            print(f"wrote {running.first_test(chosen.make)}")
        return 0
    trials = run_tests(pipeline, chosen.select, print_progress)
    print(trials_text(trials))
    if chosen.junit is not None:
        with errors_of_writing(chosen.junit):
            chosen.junit.write_bytes(junit_xml(trials))
    return int(any(trial.verdict is not TrialVerdict.PASSED for trial in trials.trials))


def _test_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of a folder in pipelines/")
    select = "run only the tests with this text in their view, name or file"
    parser.add_argument("-k", dest="select", default="", metavar="TEXT", help=select)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the result as JUnit XML")
    parser.add_argument(
        "--make", metavar="VIEW", help="run nothing; write a first test from a few current rows of the view's inputs"
    )
    environment_argument(parser)


COMMANDS = (
    Command(
        "test",
        "run the tests of a pipeline's views",
        "A test in tests/*.yaml of the pipeline's folder contains rows for the relations that a view reads, steps, and "
        "the expected rows or changes. The tests need neither the pipeline's store nor its data, and run in this "
        "process. Spark only binds statements that have changed since the last run, and computes expressions that "
        "no kernel computes. Exits with code 1 if a test does not pass. Needs the extra `test`.",
        ("tussock test shop", "tussock test shop -k daily_sales --junit report.xml", "tussock test shop --make by_day"),
        _run_tests,
        _test_arguments,
        names_store=False,
    ),
)
