"""Location of the pipelines in Airflow's processes, and how a task opens one. The tasks' work: tussock/jobs/operations.

DAG files import this module at every parse, so only tasks import the engine.
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, get_parsing_context

from tussock.jobs.operations.folder import FolderEntry, definition_in, named_folder
from tussock.jobs.settings.pipeline import FILE, Pipeline, UnknownPipelineError, find_pipeline, pipeline_names
from tussock.jobs.settings.row_values import prints_for_airflow
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore


KINDS = ("epoch", "deploy", "upkeep", "rebalance", "verify", "preview")
"""The kinds of DAGs: the ids of a pipeline's DAGs begin with them."""


def pipelines_folder() -> Path:
    """The folder of the pipelines: TUSSOCK_PIPELINES, or `pipelines/` in Airflow's home."""
    return named_folder() or airflow_home() / "pipelines"


def pipeline_of(name: str) -> Pipeline:
    """Load a pipeline by its name. Raises UnknownPipelineError, PipelineError, and as `at_its_store`."""
    from tussock.jobs.settings.branches import at_its_store

    return at_its_store(find_pipeline(name, pipelines_folder()))


def parent_pipeline_of(name: str) -> Pipeline:
    """As `pipeline_of`. In an environment that is a branch: the pipeline in the environment of its parent."""
    from tussock.jobs.settings.branches import at_its_store, parent_of

    pipeline = find_pipeline(name, pipelines_folder())
    return at_its_store(parent_of(pipeline) or pipeline)


def open_parent_store(name: str, branch: str = "") -> "PipelineStore":
    """As `open_pipeline_store`, for `parent_pipeline_of`."""
    return _open_for_task(parent_pipeline_of(name), branch)


def open_pipeline_store(name: str, branch: str = "") -> "PipelineStore":
    """Open a pipeline with its store, for a task, which then prints rows only if all readers of its DAG may see them.

    Args:
        branch: of the store; empty: the store itself, or the branch that is the store of the environment.

    Raises:
        BranchGoneError: no open branch has this name.
        NotInitialisedError: `tussock apply` has not created the store yet.
        CopiedStoreError: this is a copy of a store, which must not emit the events of the original.
    """
    return _open_for_task(pipeline_of(name), branch)


def _open_for_task(pipeline: Pipeline, branch: str) -> "PipelineStore":
    from tussock.jobs.operations.store import open_at_home, open_pipeline
    from tussock.jobs.settings.arrow import leave_pandas
    from tussock.jobs.settings.branches import at_its_store

    leave_pandas()
    pipeline = at_its_store(pipeline, branch)
    prints_for_airflow(pipeline.pages.rows)
    return open_pipeline(pipeline) if pipeline.branch else open_at_home(pipeline)


def airflow_home() -> Path:
    """Airflow's home folder."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


@dataclass(frozen=True, slots=True)
class Definitions:
    """The pipelines of the folder in name order. `errors` also contains the folder's."""

    entries: tuple[FolderEntry, ...]
    errors: tuple[InputError, ...]

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The readable ones."""
        return tuple(one.pipeline for one in self.entries if one.pipeline is not None)


class BrokenPipelinesError(InputError):
    """Pipelines without DAGs, because their definitions cannot be read."""

    errors: tuple[InputError, ...]

    def __str__(self) -> str:
        return "\n".join(
            [*map(str, self.errors), "Until this is corrected, these pipelines have no DAGs. All others run normally."]
        )


class NoPipelinesFolderError(InputError):
    """The folder of the pipelines does not exist."""

    folder: str

    def __str__(self) -> str:
        return (
            f"The pipelines folder {self.folder} does not exist. Set the environment variable TUSSOCK_PIPELINES to the "
            "folder of the pipelines, for each of Airflow's processes."
        )


def read_definition(name: str) -> FolderEntry:
    """Read one pipeline of the folder."""
    return _check_entry(definition_in(pipelines_folder(), name))


def read_definitions() -> Definitions:
    """Read every pipeline in the folder. An error in one does not affect the others."""
    folder = pipelines_folder()
    missing = () if folder.is_dir() else (NoPipelinesFolderError(str(folder)),)
    entries = tuple(map(read_definition, pipeline_names(folder)))
    return Definitions(entries, (*missing, *(one.error for one in entries if one.error is not None)))


def pipelines_of(kind: str) -> tuple[Pipeline, ...]:
    """The pipelines whose DAGs `<kind>_<pipeline>` and `<kind>_<pipeline>.<sink>` a DAG file must build.

    The DAG processor needs all of them. A task parses the file again and needs only its own DAG.

    Raises: the reason why a task has no DAG: PipelineError, and UnknownPipelineError if its folder is gone. Airflow
        logs it before it fails the task.
    """
    if (dag := get_parsing_context().dag_id) is None:
        return read_definitions().pipelines
    if not dag.startswith(f"{kind}_"):
        return ()
    folder, asked = pipelines_folder(), dag.removeprefix(f"{kind}_").partition(".")[0]
    if asked not in (names := pipeline_names(folder)):
        raise UnknownPipelineError(asked, str(folder.absolute()), names)
    entry = read_definition(asked)
    if entry.pipeline is None:
        raise entry.error or BrokenPipelinesError(())
    return (entry.pipeline,)


def _check_entry(entry: FolderEntry) -> FolderEntry:
    try:
        if entry.pipeline is None:
            return entry
        _require_dags(_with_known_arguments(entry.pipeline))
        return entry
    except PipelineError as err:
        return FolderEntry(entry.name, None, err)


def _require_dags(pipeline: Pipeline) -> None:
    """Require that Airflow accepts the names and settings of a pipeline's DAGs. Raises PipelineError.

    Airflow removes all DAGs of a file that raises, also those of other pipelines. Cost: builds empty DAGs.
    """
    from tussock_defaults import run_limit, tags_of, task_defaults
    from tussock_triggers import schedule_of  # which imports this module

    ids = [f"{kind}_{pipeline.name}" for kind in KINDS]
    ids += [f"upkeep_{pipeline.name}.{sink.title}" for sink in pipeline.publish if sink.upkeep is not None]
    schedule = pipeline.schedule
    try:
        of_epochs: dict[str, Any] = {
            "schedule": schedule_of(pipeline),
            "start_date": schedule.start if schedule else pipeline.triggers.start,
            "dagrun_timeout": run_limit(pipeline),
        }
        for dag_id in ids:
            more: dict[str, Any] = of_epochs if dag_id.startswith("epoch_") else {"schedule": None}
            dag = DAG(dag_id, default_args=task_defaults(pipeline), tags=tags_of(pipeline), **more)
            BaseOperator(task_id="task", dag=dag)
    except PipelineError:
        raise
    except Exception as err:  # of Airflow, which has no common class for its refusals
        finding = f"a name or a setting that Airflow refuses ({type(err).__name__}: {err})"
        raise PipelineError(str(pipeline.folder / FILE), "airflow", finding, "values that its DAGs accept") from err


def _with_known_arguments(pipeline: Pipeline) -> Pipeline:
    """Check the names in `[airflow] default_args`, since Airflow ignores unknown ones. Raises PipelineError."""
    known = signature(BaseOperator).parameters
    for name in pipeline.airflow.default_args:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            expected = f"{near[0]!r}, the nearest argument" if near else "an argument of Airflow's BaseOperator"
            key = f"airflow.default_args.{name}"
            raise PipelineError(str(pipeline.folder / FILE), key, "an unknown argument", expected)
    return pipeline
