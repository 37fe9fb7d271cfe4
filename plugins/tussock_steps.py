"""Where Airflow's processes find pipelines, and how a task opens one. What tasks then do: tussock/jobs/operations.

DAG files import this whenever they are parsed, so it imports the engine only in tasks.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.operations.folder import named_folder
from tussock.jobs.settings.pipeline import Pipeline, PipelineError, find_pipeline, load_pipeline, pipeline_names
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore


def pipelines_folder() -> Path:
    """Where the pipelines are: TUSSOCK_PIPELINES, or `pipelines/` of Airflow's home."""
    return named_folder() or airflow_home() / "pipelines"


def pipeline_of(name: str) -> Pipeline:
    """A pipeline by its name. Raises UnknownPipelineError, PipelineError."""
    return find_pipeline(name, pipelines_folder())


def opened(name: str) -> "PipelineStore":
    """A pipeline with its store, for this task.

    Raises: NotInitialisedError if `tussock apply` has not made the store yet; CopiedStoreError for a copy of a store, which must not emit
        the events of the original.
    """
    from tussock.jobs.operations.store import open_at_home
    from tussock.jobs.settings.arrow import leave_pandas

    leave_pandas()
    return open_at_home(pipeline_of(name))


def airflow_home() -> Path:
    """The folder that Airflow calls its home."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


@dataclass(frozen=True, slots=True)
class Definitions:
    """The pipelines that can be read, and what is wrong with the others; both in name order."""

    pipelines: tuple[Pipeline, ...]
    errors: tuple[InputError, ...]


class BrokenPipelinesError(InputError):
    """Pipelines that have no DAGs, for their definitions cannot be read."""

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(
            [*map(str, self.errors), "Until this is mended these pipelines have no DAGs. All others run on."]
        )


class NoPipelinesFolderError(InputError):
    """Airflow looks for pipelines where there is no folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return (
            f"pipelines are looked for in {self.folder}, and there is no such folder. Set TUSSOCK_PIPELINES to the folder that holds them, "
            "in the environment of each of Airflow's processes."
        )


def definitions() -> Definitions:
    """Every pipeline of the folder, each read by itself: what is wrong with one says nothing about another."""
    pipelines: list[Pipeline] = []
    errors: list[InputError] = []
    folder = pipelines_folder()
    if not folder.is_dir():
        errors.append(NoPipelinesFolderError(str(folder)))
    for name in pipeline_names(folder):
        try:
            pipelines.append(load_pipeline(folder / name))
        except PipelineError as err:
            errors.append(err)
    return Definitions(tuple(pipelines), tuple(errors))
