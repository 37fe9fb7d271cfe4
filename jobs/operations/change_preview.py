"""Previews of changed files of a pipeline: on a branch of its store, without effect on the readers of the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from tussock.jobs.compare.preview_record import Preview, PreviewCheck, add_preview
from tussock.jobs.operations import quality
from tussock.jobs.operations.store import PipelineStore, open_pipeline
from tussock.jobs.quality.record import failure_lines, record_lines
from tussock.jobs.settings.branches import on_branch
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.revision import files_at_commit, files_in_folder, resolve_revision
from tussock.jobs.statements.deployment import Deployment
from tussock.statestore.meta.delta import EpochCommitted
from tussock.statestore.meta.errors import BranchGoneError
from tussock.statestore.progress import Progress


class ChangedFiles(NamedTuple):
    """The place of the changed files: a commit or a folder. Both empty: the deployed files."""

    commit: str = ""
    folder: str = ""

    @property
    def title(self) -> str:
        """For people."""
        return self.commit[:12] or self.folder


def find_files(pipeline: Pipeline, revision: str, folder: str) -> ChangedFiles:
    """Return the place of the changed files, which later steps open. Raises as `open_files`."""
    commit = resolve_revision(pipeline.folder, revision) if revision else ""
    files = ChangedFiles(commit, "" if commit else folder)
    with open_files(pipeline, files):
        return files


@contextmanager
def open_files(deployed: Pipeline, files: ChangedFiles) -> Iterator[Pipeline]:
    """Yield the pipeline with the changed files, over the store of the deployed one.

    Raises: UnknownRevisionError, OutsidePreviewsError, PipelineError.
    """
    if files.commit:
        with files_at_commit(deployed, files.commit) as changed:
            yield _over_store(changed, deployed)
    elif files.folder:
        yield _over_store(files_in_folder(deployed, files.folder), deployed)
    else:
        yield deployed


def _over_store(changed: Pipeline, deployed: Pipeline) -> Pipeline:
    return replace(changed, store=deployed.store, publish=(), pages=deployed.pages)


def begin_branch(store: PipelineStore, name: str, id: str, keep_ms: int) -> None:
    """Begin the branch of a preview, which follows its parent. A repetition with the same `id` changes nothing.

    Raises BranchExistsError.
    """
    store.meta.open_branch(name, keep_ms, id=id)


def end_if_open(store: PipelineStore, name: str) -> bool:
    """End the branch of a preview. Returns whether it was open."""
    try:
        store.meta.end_branch(name, "its preview ended")
    except BranchGoneError:
        return False
    return True


def apply_files(changed: Pipeline, branch: str, progress: Progress) -> Deployment:
    """Apply changed files to a branch. Raises as tussock.jobs.operations.deploy.apply."""
    from tussock.jobs.operations import deploy  # imports the language

    return deploy.apply(on_branch(changed, branch), progress=progress)


def count_followed(branch: PipelineStore) -> int:
    """Return the number of epochs that a following branch has taken from its parent. Cost: reads their deltas."""
    origin = branch.meta.settings.origin
    assert origin is not None
    deltas = branch.meta.parent.read_deltas(origin.version + 1, branch.meta.read_latest().followed)
    return sum(isinstance(delta.change, EpochCommitted) for delta in deltas)


def judge_branch(changed: Pipeline, branch: str, progress: Progress) -> PreviewCheck | None:
    """Run the suites and assertions of changed files on a branch; None if there are none. Stores no result.

    Raises QualitySuiteError.
    """

    store = open_pipeline(on_branch(changed, branch))
    if changed.quality is None or not quality.has_suites(store):
        return None
    record = quality.check(store, (), None, progress)
    return PreviewCheck("suites and assertions", record.passed, (*record_lines(record), *failure_lines(record)))


def record_preview(store: PipelineStore, preview: Preview) -> None:
    """Store the result of a preview in the parent, for the pages. Arguments, cost: as `add_preview`."""
    add_preview(store.meta.objects, preview)
