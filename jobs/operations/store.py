"""A pipeline with its opened store: the first argument of every operation."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tussock.jobs.settings import process
from tussock.jobs.settings.branches import at_its_store, on_branch
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.meta.store import MetaStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PipelineStore:
    """A pipeline, and its store as opened by this process.

    Args:
        pipeline: for a store without a pipeline, one with an empty name, no files and default settings.
    """

    pipeline: Pipeline
    meta: MetaStore
    clock_ms: Callable[[], int] = process.clock_ms

    @property
    def now(self) -> datetime:
        """The current time in UTC."""
        return time_of_ms(self.clock_ms())


class NeverAppliedError(NotInitialisedError):
    """A pipeline has no store, because it was never applied. Args: the store's address, and `Pipeline.argument`."""

    pipeline: str

    def __str__(self) -> str:
        return (
            f"{self.uri} contains no store. Create it with `tussock apply {self.pipeline}`, or correct `store` in "
            "pipeline.toml."
        )


def open_pipeline(pipeline: Pipeline) -> PipelineStore:
    """Open a pipeline's store. Raises NeverAppliedError if it does not exist, and as `at_its_store`."""
    pipeline = at_its_store(pipeline)
    meta = process.open_meta(pipeline.store)
    try:
        _ = meta.settings  # read now, so that a missing store is an error before any work
    except NotInitialisedError as err:
        raise NeverAppliedError(err.uri, pipeline.argument) from err
    log.info("pipeline %s: store %s", pipeline.title, pipeline.store)
    return PipelineStore(pipeline, meta)


def open_at_home(pipeline: Pipeline) -> PipelineStore:
    """Like `open_pipeline`, for processes that write outside of the store.

    Raises CopiedStoreError for a copied store, because its tables and events belong to the original, and as
    `open_pipeline`.
    """
    store = open_pipeline(pipeline)
    home_of(store.meta.objects)
    return store


def open_branch(parent: PipelineStore, name: str) -> PipelineStore:
    """Open a branch of a store, to read it. Raises BranchGoneError."""
    return PipelineStore(on_branch(parent.pipeline, name), parent.meta.branch(name))


def open_store(store: str) -> PipelineStore:
    """Open the store at an address, without a pipeline. Raises NotInitialisedError."""
    meta = process.open_meta(store)
    return PipelineStore(Pipeline("", Path(), store, (), time_zone=meta.settings.time_zone), meta)
