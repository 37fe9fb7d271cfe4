"""`tussock branch`: try a change on real state, without a copy of the rows and without the readers seeing it."""

import argparse
from typing import TYPE_CHECKING

from tussock.jobs.settings.retention import duration_ms
from tussock.jobs.shell.command import Command, choose_pipeline, open_chosen, pipelines_folder, say

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore


def _open_parent(chosen: argparse.Namespace) -> "tuple[PipelineStore, str]":
    """The parent store, and the name of the branch: the last of one or two names, the first is the pipeline's."""
    name = _take_names(chosen)
    _leave_branch(chosen)
    return open_chosen(chosen), name


def _take_names(chosen: argparse.Namespace) -> str:
    *pipeline, name = chosen.names
    choose_pipeline(chosen, next(iter(pipeline), None))
    return str(name)


def _leave_branch(chosen: argparse.Namespace) -> None:
    """If the chosen environment is a branch, choose the environment of its parent instead."""
    from tussock.jobs.settings.pipeline import find_pipeline, parent_environment

    if chosen.pipeline:
        pipeline = find_pipeline(chosen.pipeline, pipelines_folder(), chosen.env)
        chosen.env = parent_environment(pipeline.store) or chosen.env


def _run_create(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.branches import create_branch
    from tussock.jobs.texts.branches import created_text

    name = _take_names(chosen)
    parent = open_chosen(chosen)
    print(created_text(create_branch(parent, name, chosen.at, duration_ms(chosen.keep), follows=not chosen.own)))


def _run_list(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.branches import branches_of
    from tussock.jobs.texts.branches import branches_text

    choose_pipeline(chosen, chosen.name)
    _leave_branch(chosen)
    store = open_chosen(chosen)
    print(branches_text(branches_of(store), store.pipeline.prices))


def _run_merge(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations import branches
    from tussock.jobs.texts.branches import merge_text

    parent, name = _open_parent(chosen)
    if not branches.follows_parent(parent, name) and parent.pipeline.sql:
        _build_views(parent, name, chosen)
        return
    if chosen.plan:
        _print_merge(parent, name)
        return
    print(merge_text(branches.merge_into_parent(parent, name, chosen.approved, say)))
    print(f"branch {name} is merged, and has ended")


def _print_merge(parent: "PipelineStore", name: str) -> None:
    """Print the relations that the parent would adopt, and the rows that its readers would see changed."""
    from tussock.jobs.catalog.store_zone import store_zone
    from tussock.jobs.operations.branches import plan_merge_of
    from tussock.jobs.operations.differences import compare_for_merge
    from tussock.jobs.texts.branches import merge_text
    from tussock.jobs.texts.comparison import comparison_text

    merge = plan_merge_of(parent, name)
    print(comparison_text(compare_for_merge(parent, name, say), store_zone(parent.meta)))
    print(merge_text(merge))


def _build_views(parent: "PipelineStore", name: str, chosen: argparse.Namespace) -> None:
    """Merge a branch with its own input, whose rows are not the parent's: the parent builds the views."""
    from tussock.jobs.operations.branches import build_in_parent, plan_build_of
    from tussock.jobs.texts.deployment import deployment_text

    print(f"branch {name} takes its own input, so the parent adopts no rows and builds these views with an epoch:")
    if chosen.plan:
        environment = f" --env {parent.pipeline.environment}" if parent.pipeline.environment else ""
        command = f"branch merge {parent.pipeline.name} {name}{environment}"
        print(deployment_text(plan_build_of(parent, name), parent.pipeline.argument, command=command))
        return
    print(deployment_text(build_in_parent(parent, name, chosen.approved, say), parent.pipeline.argument))
    print(f"branch {name} has ended")


def _merge_arguments(parser: argparse.ArgumentParser) -> None:
    _name_arguments(parser)
    parser.add_argument("--plan", action="store_true", help="only print the relations that would change")
    approved = "merge only if the plan has this digest, which --plan prints"
    parser.add_argument("--approved", metavar="DIGEST", help=approved)


def _run_end(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.branches import end_branch

    parent, name = _open_parent(chosen)
    end_branch(parent, name)
    print(f"branch {name} has ended; the next vacuum of the store removes its objects")


class _Names(argparse.Action):
    """Accepts one or two names."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, *_: object
    ) -> None:
        assert isinstance(values, list)
        if len(values) > 2:
            parser.error(f"expected [PIPELINE] BRANCH, found {len(values)} names")
        setattr(namespace, self.dest, values)


def _name_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="[PIPELINE] BRANCH", action=_Names, help="the pipeline, and the branch of its store"
    )


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _name_arguments(parser)
    parser.add_argument("--at", type=int, metavar="EPOCH", help="begin at this epoch (default: the newest one)")
    input_ = parser.add_mutually_exclusive_group()
    follow = "take the epochs of the parent, one by one, and no other input (the default)"
    input_.add_argument("--follow", dest="own", action="store_false", help=follow)
    input_.add_argument("--own", action="store_true", help="take input itself, and no later epoch of the parent")
    parser.set_defaults(own=False)
    keep = "end the branch after this time span, such as 36h or 7d (default 7d)"
    parser.add_argument("--keep", default="7d", metavar="SPAN", help=keep)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PIPELINE", help="name of a folder in pipelines/")


COMMANDS = (
    Command(
        "branch",
        "try changes on a branch of a store, which copies no row",
        "A branch is a store that begins as one version of another store, its parent. It refers to the parent's "
        "objects and writes only below its own prefix. Readers of the parent never see it. Pass --branch NAME "
        "to other commands to use it.",
        (
            "tussock branch create shop pr-142",
            "tussock apply shop --branch pr-142",
            "tussock epoch --pipeline shop --branch pr-142",
            "tussock branch merge shop pr-142",
        ),
    ),
    Command(
        "branch create",
        "begin a branch of a store",
        "Takes as long for a large store as for a small one. While the branch is open, vacuum of the store keeps the "
        "objects that the branch began with.",
        ("tussock branch create shop pr-142", "tussock branch create shop pr-142 --keep 36h"),
        _run_create,
        _create_arguments,
        takes_branch=False,
    ),
    Command(
        "branch list",
        "list the open branches of a store",
        "Prints the epoch of each branch, the epochs that its parent is ahead, the bytes below its prefix, and the "
        "monthly price of storing them.",
        ("tussock branch list shop",),
        _run_list,
        _list_arguments,
        takes_branch=False,
    ),
    Command(
        "branch merge",
        "let a store adopt the views that its branch has built",
        "Brings the branch to the store's epoch. The store then gets the branch's views with their rows in one epoch, "
        "which computes nothing. The command ends the branch and publishes the epoch. From a branch with its own "
        "input, the store adopts no rows: the command applies the files, and the next epoch builds the views.",
        ("tussock branch merge shop pr-142 --plan", "tussock branch merge shop pr-142"),
        _run_merge,
        _merge_arguments,
        takes_branch=False,
    ),
    Command(
        "branch end",
        "end a branch of a store",
        "Its rows are lost. The next vacuum of the store removes its objects.",
        ("tussock branch end shop pr-142",),
        _run_end,
        _name_arguments,
        takes_branch=False,
    ),
)
