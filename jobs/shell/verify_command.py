"""`tussock verify`: compare views with Spark's result, and rebuild views that differ."""

import argparse
import sys
from typing import TYPE_CHECKING

from tussock.jobs.shell.command import Command, ContradictingOptionsError, open_chosen

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore

VIEWS_DIFFER = 4
NOT_ALL_COMPARED = 5
ALL_KEYS = 100  # percent


def _run_verify(chosen: argparse.Namespace) -> int:
    import msgspec

    from tussock.jobs.operations.verify import verify_views
    from tussock.jobs.texts.verification import verification_text

    store = open_chosen(chosen)
    if chosen.published:
        _require_alone(chosen)
        return _verify_published(store)
    verification = verify_views(
        store,
        *chosen.views,
        percent=chosen.sample,
        epoch=chosen.epoch,
        repair=chosen.repair,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(msgspec.json.encode(verification).decode() if chosen.json else verification_text(verification))
    return VIEWS_DIFFER if verification.different else 0 if verification.proven else NOT_ALL_COMPARED


def _require_alone(chosen: argparse.Namespace) -> None:
    """Raise ContradictingOptionsError for an option that has no effect on published tables."""
    others = {
        "the name of a view": chosen.views,
        "--sample": chosen.sample != ALL_KEYS,
        "--epoch": chosen.epoch is not None,
        "--repair": chosen.repair,
        "--json": chosen.json,
    }
    if (other := next((name for name, given in others.items() if given), None)) is not None:
        raise ContradictingOptionsError("--published", other, "Omit one of them: all published tables are compared.")


def _verify_published(store: "PipelineStore") -> int:
    """Compare the published tables with the store."""
    from tussock.jobs.operations.tables import check_published

    checks = check_published(store)
    for check in checks:
        result = check.objection or ("equal" if check.compared else "its rows cannot be read back")
        print(f"{check.sink}: {check.relation}: {result}")
    different = any(check.objection is not None for check in checks)
    return VIEWS_DIFFER if different else 0 if all(check.compared for check in checks) else NOT_ALL_COMPARED


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "views", nargs="*", metavar="VIEW", help="verify these views and the views that they read (default: all views)"
    )
    sample = "percentage of each view's keys to compare; every epoch selects other keys (default 100)"
    parser.add_argument("--sample", type=int, default=ALL_KEYS, metavar="PERCENT", help=sample)
    parser.add_argument("--epoch", type=int, metavar="E", help="compare at this epoch instead of the published one")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="let the next epoch rebuild the views that differ, and the views that read them",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--published",
        action="store_true",
        help="compare the tables of all sinks with the store instead, and check the locators of their rows",
    )


COMMANDS = (
    Command(
        "verify",
        "compare views with Spark's result for their SELECT",
        "Spark computes each view from the rows of the tables and from the files that the sources have read, at the "
        "published epoch. The command counts the rows that differ and prints a few of them. With --repair, the next "
        "epoch rebuilds these views and the views that read them. Exit code 0: all views are equal. 4: a view "
        "differs. 5: no view differs, but some could not be compared.",
        (
            "tussock verify --pipeline flights",
            "tussock verify --store ./demo by_shop --sample 10",
            "tussock verify --pipeline flights --repair",
            "tussock verify --pipeline flights --published",
        ),
        _run_verify,
        _verify_arguments,
    ),
)
