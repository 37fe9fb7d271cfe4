"""Branches of a store: create, list and end them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tussock.jobs.barriers.moment import ALL_INPUT
from tussock.jobs.catalog.fed_tables import is_fed_by
from tussock.jobs.driver.merge import Merge, merge_branch, plan_merge, was_adopted
from tussock.jobs.facts.branches import BranchFacts, facts_of_branch, list_branches
from tussock.jobs.operations.epochs import run_pipeline_epochs
from tussock.jobs.operations.runners import Where
from tussock.jobs.operations.store import PipelineStore, open_branch
from tussock.jobs.settings.branches import on_branch
from tussock.jobs.settings.deployed import changes_between, read_deployed, record_deployed
from tussock.statestore.errors import InputError
from tussock.statestore.meta.branch import KEEP_MS, find_branch
from tussock.statestore.meta.names import hash_of
from tussock.statestore.progress import Progress

if TYPE_CHECKING:
    from tussock.jobs.statements.deployment import Deployment

__all__ = [
    "BranchFacts",
    "Merge",
    "branches_of",
    "bring_to_parent",
    "build_in_parent",
    "create_branch",
    "end_branch",
    "follows_parent",
    "merge_into_parent",
    "plan_build_of",
    "plan_merge_of",
]


class NotApprovedError(InputError):
    """A merge differs from the approved one."""

    branch: str
    approved: str
    digest: str

    def __str__(self) -> str:
        return (
            f"the merge has the digest {self.digest}, but {self.approved} was approved: the branch or the files have "
            f"changed since. Nothing was changed. Look at `tussock branch merge {self.branch} --plan` again."
        )


class FilesDifferError(InputError):
    """The files of a pipeline are not applied to the branch."""

    branch: str
    pipeline: str

    def __str__(self) -> str:
        return (
            f"the SQL files of {self.pipeline} differ from branch {self.branch!r}. Nothing was changed. Run `tussock "
            f"plan {self.pipeline} --branch {self.branch}` to see the differences, and `tussock apply {self.pipeline} "
            f"--branch {self.branch}` to apply them first."
        )


def create_branch(
    store: PipelineStore, name: str, epoch: int | None = None, keep_ms: int = KEEP_MS, *, follows: bool = True
) -> BranchFacts:
    """Begin a branch of a store. It copies no row: its first version refers to the store's objects.

    Args:
        epoch: a readable epoch; None: the committed one.
        keep_ms: its age, after which retention of the store ends it.
        follows: it takes the epochs of the store, and no other input than statements on views.

    Raises as MetaStore.open_branch.
    """
    meta = store.meta.open_branch(name, keep_ms, epoch, follows=follows)
    version = store.meta.read_latest()
    return facts_of_branch(find_branch(version, name), version, meta)


def branches_of(store: PipelineStore) -> tuple[BranchFacts, ...]:
    """The open branches of a store, in order of creation."""
    return list_branches(store.meta)


def end_branch(store: PipelineStore, name: str) -> None:
    """End a branch. The next vacuum of the store removes its objects. Raises BranchGoneError."""
    store.meta.end_branch(name)


def plan_merge_of(store: PipelineStore, name: str) -> Merge:
    """Return the effect of merging a branch into its parent. Changes nothing.

    Raises: BranchGoneError, CannotMergeError; FilesDifferError if the pipeline's files are not applied to the branch.
    """
    merge = plan_merge(store.meta.branch(name))
    if not store.pipeline.sql:
        return merge
    from tussock.jobs.operations.deploy import deployed_of  # imports the language

    files, deployed = _require_files(store, name), deployed_of(store.pipeline)
    before = read_deployed(store.meta.objects)
    changes = () if before is None else changes_between(before, deployed)
    digest = hash_of(f"{merge.digest} {files.approval.digest} {deployed.digest}".encode())[:16]
    return replace(merge, digest=digest, files=changes)


def _require_files(store: PipelineStore, name: str) -> "Deployment":
    """Return the plan of the files for the branch, which has no changes. Raises FilesDifferError."""
    from tussock.jobs.operations.deploy import plan  # imports the language

    if (deployment := plan(on_branch(store.pipeline, name))).pending:
        raise FilesDifferError(name, store.pipeline.name)
    return deployment


def follows_parent(store: PipelineStore, name: str) -> bool:
    """Return whether a branch follows its parent, so that the parent can adopt its views. Raises BranchGoneError."""
    return store.meta.branch(name).follows


def bring_to_parent(store: PipelineStore, name: str, progress: Progress) -> None:
    """Bring a following branch to the epoch of its parent. Raises: BranchConflictError; as `run_pipeline_epochs`."""
    branch = open_branch(store, name)
    if branch.meta.follows and not was_adopted(branch.meta):
        done = run_pipeline_epochs(branch, ALL_INPUT, Where.SMALL_HERE, progress)
        if done.needs_spark:
            run_pipeline_epochs(branch, ALL_INPUT, Where.AS_SET, progress)


def plan_build_of(store: PipelineStore, name: str) -> "Deployment":
    """Return what applying the files to the parent changes, for a branch whose views it cannot adopt.

    Changes nothing. Raises: FilesDifferError; as tussock.jobs.operations.deploy.plan.
    """
    from tussock.jobs.operations.deploy import plan  # imports the language
    from tussock.jobs.statements.deployment import DeployOptions

    _require_files(store, name)
    return plan(store.pipeline, DeployOptions(prune=_dropped_in(store, name)))


def _dropped_in(store: PipelineStore, name: str) -> tuple[str, ...]:
    """The relations that a branch has dropped since it began, and that its parent still has."""
    branch, parent = store.meta.branch(name), store.meta.read_latest().catalog
    mine, began = branch.read_latest().catalog.live_relations(), branch.read_version(0).catalog
    ids, names = {r.id for r in mine}, {r.name for r in mine}
    gone = {r.id for r in began.live_relations() if r.id not in ids and r.name not in names}
    dropped = [r for r in parent.live_relations() if r.id in gone and not r.is_internal]
    return tuple(r.name for r in dropped if not any(is_fed_by(r, source) for source in gone))  # they go with it


def build_in_parent(store: PipelineStore, name: str, approved: str | None, progress: Progress) -> "Deployment":
    """Apply the files to the parent, and end the branch. The parent builds the views with its next epoch.

    Raises: FilesDifferError; as tussock.jobs.operations.deploy.apply.
    """
    from tussock.jobs.operations.deploy import apply  # imports the language
    from tussock.jobs.statements.deployment import DeployOptions

    _require_files(store, name)
    done = apply(store.pipeline, DeployOptions(prune=_dropped_in(store, name)), approved, progress)
    store.meta.end_branch(name, "merged")
    return done


def merge_into_parent(store: PipelineStore, name: str, approved: str | None, progress: Progress) -> Merge:
    """Let a store adopt the relations of its branch, publish the epoch, and end the branch.

    Brings the branch to the parent's epoch first. The parent computes no view. A repeated call continues an interrupted
    one. `approved`: the digest of the plan that a person has approved.

    Raises: as `plan_merge_of`; NotApprovedError: nothing was changed; QualityCheckError, HeldViewsError: the epoch is
        committed, and readers keep the rows that the pipeline's suites refused.
    """
    from tussock.jobs.operations.publish import publish_newest

    bring_to_parent(store, name, progress)
    merge = plan_merge_of(store, name)
    if approved is not None and approved != merge.digest:
        raise NotApprovedError(name, approved, merge.digest)
    merge_branch(store.meta.branch(name), merge, progress)
    if store.pipeline.sql:
        from tussock.jobs.operations.deploy import deployed_of  # imports the language

        record_deployed(store.meta.objects, deployed_of(store.pipeline))
    store.meta.end_branch(name, "merged")
    publish_newest(store, progress)
    return merge
