"""The health of a pipeline as all pages show it: its store's health, and the scheduler's newest run.

Only Airflow's database has a run that failed before it read the store, for example while its worker started.
"""

from fastapi import HTTPException

from tussock.jobs.facts.runs import RunFacts
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.facts.trouble import Trouble, without_row_values
from tussock.jobs.facts.unopened import trouble_of_unopened, with_scheduler
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import clock_ms
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock_pages.dag_runs import Run
from tussock_pages.stores import LookResult, SeenStore, name_in, pipeline_of

EPOCHS_LOOKED_AT = 5


def look_at_status(store: SeenStore) -> LookResult:
    """The facts of `tussock status`. Cost: one listing per source."""
    of = store.pipeline

    def look(meta: MetaStore) -> Status:
        return read_status(meta, time_of_ms(clock_ms()), of, last=EPOCHS_LOOKED_AT)

    return store.look("status", look)


def troubles_of(looked: LookResult, store: SeenStore, run: Run | None) -> tuple[Trouble, ...] | None:
    """The troubles of a pipeline; None while they are being determined.

    Args:
        looked: of `look_at_status`.
        run: the newest run of the pipeline's epoch DAG.
    """
    if looked.error is not None:
        return troubles_unopened(looked.error, store.pipeline, run)
    status: Status | None = looked.value
    return None if status is None else _with_run(status.troubles, run, status.run)


def shown_troubles(troubles: tuple[Trouble, ...] | None, *, may_see_rows: bool) -> tuple[Trouble, ...] | None:
    """The troubles as a user may see them."""
    return troubles if troubles is None or may_see_rows else tuple(map(without_row_values, troubles))


def troubles_unopened(err: Exception, pipeline: Pipeline, run: Run | None) -> tuple[Trouble, ...]:
    """The troubles of a pipeline whose store cannot be read. `run`: as `troubles_of`."""
    return _with_run((trouble_of_unopened(err, pipeline),), run, None)


def _with_run(troubles: tuple[Trouble, ...], run: Run | None, last: RunFacts | None) -> tuple[Trouble, ...]:
    return troubles if run is None else with_scheduler(troubles, run.run_id, run.state, run.ended, last)


def trouble_without_store(err: TussockError, dag_id: str) -> Trouble:
    """The trouble of a DAG's pipeline whose definition or store cannot be read."""
    named = name_in(dag_id)
    try:
        return trouble_of_unopened(err, None if named is None else pipeline_of(named[1]))
    except (TussockError, HTTPException):
        return trouble_of_unopened(err, None)
