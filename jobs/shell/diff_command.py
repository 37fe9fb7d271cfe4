"""`tussock diff`: compare the rows of two stores, or of two epochs of one."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.settings.user_files import errors_of_writing, write_text
from tussock.jobs.shell.command import (
    Command,
    branch_argument,
    chosen_branch,
    environment_argument,
    number_of,
    pipelines_folder,
)
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore

DIFFERENT, FAILED = 1, 2


class WhichSideError(InputError):
    """The command line names one state of a store only."""

    store: str
    other: str = ""  # a word that may have been meant as the other store

    def __str__(self) -> str:
        unknown = f"{self.other!r} is no open branch, no pipeline and no address of a store, so it counts as a view. "
        return (
            f"{unknown if self.other else ''}Nothing is given to compare {self.store!r} with. Name two epochs with "
            f"--from and --to, as in `tussock diff {self.store} --from E --to E` (`tussock inspect epochs` lists "
            "them), or another store after the first one."
        )


def _run_diff(chosen: argparse.Namespace) -> int:
    from tussock.jobs.catalog.store_zone import store_zone
    from tussock.jobs.compare.compare import ComparisonOptions
    from tussock.jobs.operations.differences import compare_pipelines, compare_with_branch
    from tussock.jobs.texts.comparison import comparison_json, comparison_markdown, comparison_text
    from tussock.jobs.texts.comparison_page import comparison_page

    before, after, names = _open_sides(chosen)
    wanted = ComparisonOptions(tuple(names), chosen.tolerance, chosen.samples)
    progress = partial(print, file=sys.stderr, flush=True)
    if after is not None and after.pipeline.branch:
        comparison = compare_with_branch(before, after, wanted, progress=progress)
    else:
        comparison = compare_pipelines(before, after or before, wanted, chosen.since, chosen.until, progress=progress)
    zone = store_zone(before.meta)
    if chosen.html is not None:
        with errors_of_writing(chosen.html):
            write_text(chosen.html, comparison_page(comparison, zone))
    form = comparison_json if chosen.json else comparison_markdown if chosen.markdown else comparison_text
    print(form(comparison, zone).rstrip("\n"))
    return DIFFERENT if comparison.differs else 0


def _open_sides(chosen: argparse.Namespace) -> "tuple[PipelineStore, PipelineStore | None, list[str]]":
    """Open the two sides, None for another epoch of the first one. Also returns the names of views.

    A chosen branch, or an environment that is one, is compared with its parent unless another side is named.

    Raises: WhichSideError; as `_open_first`.
    """
    from tussock.jobs.operations.store import open_branch

    first, *names = chosen.what
    environment, branch = _place_of(first, chosen)
    store = _open_first(first, environment)
    on_branch = open_branch(store, branch) if branch else None
    if chosen.since is not None or chosen.until is not None:
        _address_commands(chosen, first)
        return on_branch or store, None, names
    if names and (other := _open_other(names[0], store, environment)) is not None:
        return store if other.pipeline.branch else on_branch or store, other, names[1:]
    if on_branch is not None:
        return store, on_branch, names
    _address_commands(chosen, first)
    raise WhichSideError(first, names[0] if names else "")


def _address_commands(chosen: argparse.Namespace, store: str) -> None:
    """Let the commands in an error name the only store of the command line."""
    setattr(chosen, "store" if _is_address(store) else "pipeline", store)


def _place_of(first: str, chosen: argparse.Namespace) -> tuple[str | None, str]:
    """The environment of the store, which is the parent's if the chosen one is a branch; and the branch, or empty."""
    from tussock.jobs.settings.pipeline import find_pipeline, parent_environment

    if not _is_address(first):
        pipeline = find_pipeline(first, pipelines_folder(), chosen.env)
        if (parent := parent_environment(pipeline.store)) is not None:
            return parent, pipeline.environment
    return chosen.env, chosen_branch(chosen)


def _open_first(name: str, environment: str | None) -> "PipelineStore":
    """Open the store of a pipeline, or at an address. Raises UnknownPipelineError, NotInitialisedError."""
    from tussock.jobs.operations.store import open_pipeline, open_store
    from tussock.jobs.settings.pipeline import find_pipeline
    from tussock.jobs.settings.process import store_address

    if _is_address(name):
        return open_store(store_address(name))
    return open_pipeline(find_pipeline(name, pipelines_folder(), environment))


def _open_other(name: str, before: "PipelineStore", environment: str | None) -> "PipelineStore | None":
    """Open a branch of the first store, another pipeline or a store at an address. None: the name is neither."""
    from tussock.jobs.operations.store import open_branch
    from tussock.jobs.settings.pipeline import pipeline_names

    if any(branch.name == name for branch in before.meta.read_latest().branches):
        return open_branch(before, name)
    if _is_address(name) or name in pipeline_names(pipelines_folder()):
        return _open_first(name, environment)
    return None


def _is_address(name: str) -> bool:
    return "/" in name or ":" in name


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a tolerance: expected a number from 0 to 1, such as 1e-9")
    return value


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    what = (
        "a pipeline or the address of a store; then one of its branches, or another store (unless --from or --to is "
        "given); then views (default: all views and tables)"
    )
    parser.add_argument("what", nargs="+", metavar="STORE", help=what)
    parser.add_argument("--from", dest="since", type=int, metavar="E", help="compare the rows of this epoch")
    until = "with the rows of this epoch of the same store (default: the published one)"
    parser.add_argument("--to", dest="until", type=int, metavar="E", help=until)
    tolerance = "numbers are equal if they differ by at most this share of the larger one, such as 1e-9"
    parser.add_argument("--tolerance", type=_tolerance, default=0.0, metavar="SHARE", help=tolerance)
    samples = "rows to show of each kind of difference and view (default 5)"
    parser.add_argument("--samples", type=number_of("rows", 0), default=5, metavar="N", help=samples)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the result as JSON")
    form.add_argument("--markdown", action="store_true", help="print it as Markdown, for a comment on a pull request")
    page = "also write a page with a picture: how many rows of which view differ, by day"
    parser.add_argument("--html", type=Path, metavar="FILE", help=page)
    environment_argument(parser)
    branch_argument(parser)


COMMANDS = (
    Command(
        "diff",
        "compare the rows of two stores, or of two epochs of one",
        "Views and tables of the same name are compared by their key: rows that are missing, added or changed, and the "
        "columns that differ. Without a common key, whole rows are compared. Both sides are read as their readers see "
        "them, or at two epochs. The cost follows the difference: what both sides share is not read. Exit code 0: "
        "no differences. 1: rows or columns differ. 2: error.",
        (
            "tussock diff shop --from 117221385216000000 --to 117221389148160000",
            "tussock diff shop pr-142",
            "tussock diff shop --branch pr-142 --from 117221385216000000",
            "tussock diff shop shop_next daily_sales --tolerance 1e-9",
            "tussock diff shop s3://bucket/other --markdown --samples 0",
        ),
        _run_diff,
        _diff_arguments,
        names_store=False,
        failed=FAILED,
    ),
)
