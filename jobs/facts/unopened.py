"""The troubles that no store shows: an unreadable definition or store, and runs of which only the scheduler knows."""

import shlex
from datetime import datetime

import msgspec

from tussock.jobs.facts.runs import RunFacts, RunState
from tussock.jobs.facts.trouble import Trouble, TroubleKind
from tussock.jobs.settings.environments import UnknownEnvironmentError
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.errors import BranchGoneError, NotInitialisedError


def _broken_definition(err: TussockError) -> Trouble:
    """Return the trouble of a pipeline whose pipeline.toml cannot be loaded: it has no DAGs, so nothing runs."""
    do = "Correct the file. Until then the pipeline has no DAGs; its store and all other pipelines are unaffected."
    return Trouble(TroubleKind.DEFINITION, "pipeline.toml", without_secrets(f"cannot be loaded: {err}"), do)


def _unreadable_store(err: Exception, store: str) -> Trouble:
    """Return the trouble of a store that this process cannot read."""
    do = (
        "The state of the pipeline is unknown. Check the address, the network, and this process's credentials. If the "
        f"store is damaged, `tussock scrub --store {shlex.quote(store)}` lists the damaged objects."
    )
    what = without_secrets(f"cannot be read: {type(err).__name__}: {err}")
    return Trouble(TroubleKind.STORE_UNREADABLE, f"store {store}", what, do)


def _missing_store(pipeline: Pipeline) -> Trouble:
    """Return the note of a pipeline without a store: nothing here shows whether it ever had one."""
    if pipeline.branch:
        do = "If the store of its parent exists, the next command or run of the environment begins the branch."
        return Trouble(TroubleKind.STORE_MISSING, f"store {pipeline.store}", "does not exist", do, wrong=False)
    do = (
        f"For a new pipeline, `tussock apply {pipeline.argument}` or its deploy DAG creates it. Otherwise correct "
        "`store` in pipeline.toml, or bring its objects back: an apply would process all input again."
    )
    return Trouble(TroubleKind.STORE_MISSING, f"store {pipeline.store}", "does not exist", do, wrong=False)


def _trouble_of_vanished(missing: Trouble, run: str, ended: datetime | None) -> Trouble:
    """Return the trouble of a store that does not exist, but did when a run succeeded."""
    what = f"does not exist any more: run {run} succeeded with it"
    do = (
        "Correct `store` in pipeline.toml if it names another place now. Otherwise bring the objects back, for example "
        "older versions of them in the bucket. An apply would create an empty store and process all input again."
    )
    return msgspec.structs.replace(missing, what=what, do=do, wrong=True, since=ended)


def trouble_of_unopened(err: Exception, pipeline: Pipeline | None, store: str = "") -> Trouble:
    """Return the only known trouble of a pipeline whose definition or store cannot be read.

    `store`: its address if the pipeline is unknown.
    """
    match err:
        case PipelineError() | UnknownEnvironmentError():
            return _broken_definition(err)
        case NotInitialisedError() | BranchGoneError() if pipeline is not None:
            return _missing_store(pipeline)
        case _:
            return _unreadable_store(err, store if pipeline is None else pipeline.store)


def with_scheduler(
    troubles: tuple[Trouble, ...], run: str, state: str, since: datetime | None, last: RunFacts | None
) -> tuple[Trouble, ...]:
    """Add what only the scheduler knows of its newest run: that it failed, or that the store existed.

    A failed run is added if `troubles` and `last` do not show why. An incomplete run is not: the troubles show it.

    Args:
        troubles: the result of `find_troubles` or `trouble_of_unopened`.
        run, state, since: the run's name, its state in Airflow, and its end.
        last: the last run in the store; None: there is none, or the store cannot be read.
    """
    if state == "success":
        return tuple(
            _trouble_of_vanished(one, run, since) if one.kind is TroubleKind.STORE_MISSING else one for one in troubles
        )
    if state != "failed" or any(trouble.wrong for trouble in troubles):
        return troubles
    if last is not None and last.state in (RunState.SUCCEEDED, RunState.COMMITTED, RunState.INCOMPLETE):
        is_it = last.run.get("run") == run
        took_all = last.what == "epoch" and last.interval is None  # also the input of the failed run
        if (last.state is RunState.INCOMPLETE) if is_it else (took_all and since is not None and last.at > since):
            return troubles
    do = "The red task's log in Airflow has the reason. Its input is not lost: clear the run, or start another one."
    return (Trouble(TroubleKind.RUN_FAILED, f"run {run}", "failed in Airflow", do, since=since), *troubles)
