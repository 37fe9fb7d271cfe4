"""The folder of the pipelines."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline, pipeline_names
from tussock.statestore.errors import InputError


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A pipeline of the folder: its settings, or the error for which its pipeline.toml cannot be loaded."""

    name: str  # of its folder
    pipeline: Pipeline | None
    error: InputError | None = None


def named_folder() -> Path | None:
    """Return the folder in TUSSOCK_PIPELINES; None if it is unset. The default folder depends on the entry point."""
    named = os.environ.get("TUSSOCK_PIPELINES")
    return Path(named) if named else None


def definition_in(folder: Path, name: str, environment: str | None = None) -> FolderEntry:
    """Load one pipeline of a folder. `environment`: as in `load_pipeline`."""
    try:
        return FolderEntry(name, load_pipeline(folder / name, environment))
    except InputError as err:  # an invalid file, or no such environment
        return FolderEntry(name, None, err)


def definitions_in(folder: Path, environment: str | None) -> Iterator[FolderEntry]:
    """Load each pipeline of a folder, by name. An error in one does not affect the others.

    `environment`: as in `load_pipeline`.
    """
    return (definition_in(folder, name, environment) for name in pipeline_names(folder))
