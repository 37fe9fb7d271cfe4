"""The files of a pipeline at another place than the deployed ones: at a Git revision, or in a folder of changes."""

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.statestore.errors import InputError
from tussock.statestore.local_disk import TemporaryFolder

VARIABLE = "TUSSOCK_PREVIEWS"


class UnknownRevisionError(InputError):
    """Git does not find a revision, or not the pipeline in it."""

    revision: str
    folder: str
    reason: str

    def __str__(self) -> str:
        return (
            f"Git found no revision {self.revision!r} of {self.folder}: {self.reason}. Nothing was changed. The folder "
            "of the pipelines must be in a Git repository that has the revision: fetch it there, or give its hash."
        )


class OutsidePreviewsError(InputError):
    """The files of a preview are not in the folder for them."""

    folder: str
    root: str  # empty: the variable is unset

    def __str__(self) -> str:
        root = f"{VARIABLE} is {self.root!r}" if self.root else f"{VARIABLE} is not set"
        return (
            f"The folder {self.folder!r} is no folder with changed pipelines: {root}. Nothing was changed. Set "
            f"{VARIABLE}, for each of Airflow's processes, to the folder in which such folders lie, and name one of "
            "them."
        )


def resolve_revision(pipelines: Path, revision: str) -> str:
    """Return the hash of the commit that a Git revision means. Raises UnknownRevisionError."""
    output = _run_git(
        pipelines, revision, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    commit = output.decode().strip()
    if re.fullmatch("[0-9a-f]{40,64}", commit) is None:
        raise UnknownRevisionError(revision, str(pipelines), f"found {commit!r}")
    return commit


@contextmanager
def files_at_commit(deployed: Pipeline, commit: str) -> Iterator[Pipeline]:
    """Yield the pipeline as a commit has it, from a temporary folder. Raises UnknownRevisionError, PipelineError."""
    packed = _run_git(deployed.folder, commit, "archive", "--format=tar", "--end-of-options", commit, ".")
    with TemporaryFolder("preview") as root:
        folder = Path(root, "pipelines", deployed.name)
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        yield _load_changed(folder, deployed)


def files_in_folder(deployed: Pipeline, name: str) -> Pipeline:
    """Return the pipeline as a folder of changes has it. Raises OutsidePreviewsError, PipelineError.

    Args:
        name: path of a folder with pipelines, below the folder in TUSSOCK_PREVIEWS.
    """
    root = os.environ.get(VARIABLE, "")
    folder = Path(root, name, deployed.name)
    if not root or not folder.is_dir() or not folder.resolve().is_relative_to(Path(root).resolve()):
        raise OutsidePreviewsError(name, root)
    return _load_changed(folder, deployed)


def _load_changed(folder: Path, deployed: Pipeline) -> Pipeline:
    """Load changed files. Relative places lead from the home of the deployed ones."""
    return load_pipeline(folder, deployed.environment or None, deployed.folder.parent.parent)


def _run_git(folder: Path, revision: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True, timeout=300)
    except subprocess.CalledProcessError as err:
        reason = err.stderr.decode(errors="replace").strip() or "it is unknown"
        raise UnknownRevisionError(revision, str(folder), reason) from err
    except (OSError, subprocess.TimeoutExpired) as err:
        raise UnknownRevisionError(revision, str(folder), str(err)) from err
    return done.stdout
