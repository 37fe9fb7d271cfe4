"""What every operation takes first: a pipeline with its opened store."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tussock.jobs.settings import process
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class PipelineStore:
    """A pipeline, and its store as this process opened it.

    Args:
        pipeline: of a bare store, one without a name and files, whose settings are the defaults.
    """

    pipeline: Pipeline
    meta: MetaStore
    clock_ms: Callable[[], int] = process.clock_ms

    @property
    def now(self) -> datetime:
        """This moment."""
        return datetime.fromtimestamp(self.clock_ms() / 1000, UTC)


def open_pipeline(pipeline: Pipeline) -> PipelineStore:
    """A pipeline with its store. Raises NotInitialisedError for a store that `tussock apply` has not made yet."""
    meta = process.open_meta(pipeline.store)
    _ = meta.settings  # read once; a missing store is an error here, before anything is done
    return PipelineStore(pipeline, meta)


def open_at_home(pipeline: Pipeline) -> PipelineStore:
    """As `open_pipeline`, for processes that write outside the store. Raises CopiedStoreError for a copy of a store: what it would publish
    or announce is the original's."""
    at = open_pipeline(pipeline)
    home_of(at.meta.objects)
    return at


def open_store(store: str) -> PipelineStore:
    """The store at an address, without a pipeline. Raises NotInitialisedError."""
    meta = process.open_meta(store)
    return PipelineStore(Pipeline("", Path(), store, (), time_zone=meta.settings.time_zone), meta)
