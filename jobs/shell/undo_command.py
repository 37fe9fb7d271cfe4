"""`tussock undo`: return a store to an earlier epoch, as a new epoch."""

import argparse

from tussock.jobs.shell.command import Command, choose_pipeline, open_chosen, say

_INPUT = {"taken": True, "again": False}


def _run_undo(chosen: argparse.Namespace) -> None:
    from tussock.jobs.driver.summary import show_summary
    from tussock.jobs.operations.undo import undo_epochs

    choose_pipeline(chosen, chosen.name)
    keeps_input = None if chosen.input is None else _INPUT[chosen.input]
    run = {"run": "tussock undo"}
    print(show_summary(undo_epochs(open_chosen(chosen), chosen.to, keeps_input=keeps_input, run=run, progress=say)))


def _undo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PIPELINE", help="name of a folder in pipelines/")
    parser.add_argument("--to", type=int, required=True, metavar="E", help="the epoch whose rows come back")
    taken = (
        "`again`: later epochs take the input since then again; `taken`: it counts as taken, and its rows stay out. "
        "Required if a source has taken input since then"
    )
    parser.add_argument("--input", choices=sorted(_INPUT), help=taken)


COMMANDS = (
    Command(
        "undo",
        "go back to the rows of an earlier epoch",
        "A new epoch gets the rows and the relations of an earlier readable epoch, and is published. Readers, changes "
        "and sinks get the difference. So an INSERT, a file or an apply since then is taken back. Statements since "
        "then are not repeated; give them again.",
        (
            "tussock undo shop --to 117221385216000000",
            "tussock undo shop --to 117221385216000000 --input again",
        ),
        _run_undo,
        _undo_arguments,
    ),
)
