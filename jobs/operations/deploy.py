"""Deployment of a pipeline's files to its store, for `tussock plan`, `tussock apply` and the DAG deploy_<pipeline>."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.facts.bill import Bill, record_bill
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA
from tussock.jobs.operations.bill import bill_of, require_affordable
from tussock.jobs.operations.notifiers import check_notifiers
from tussock.jobs.operations.runners import spark_of
from tussock.jobs.quality.arrival import require_sources
from tussock.jobs.quality.assertions import Assertion, assertion_statements, read_assertions
from tussock.jobs.quality.measures import measure_statements
from tussock.jobs.quality.suite import Suite, read_suite
from tussock.jobs.session import Session
from tussock.jobs.settings.deployed import DeployedFiles, record_deployed
from tussock.jobs.settings.pipeline import FILE, Pipeline
from tussock.jobs.settings.process import create_store, open_meta, store_exists
from tussock.jobs.settings.tables import NEW_STORE_UNITS, QUALITY_FOLDER
from tussock.jobs.statements.approval import Approval, ItemKind, PlanItem, approval_of, describe_edits, statement_items
from tussock.jobs.statements.deployment import Deployment, DeployOptions, Derived, DerivedScript
from tussock.statestore.errors import InputError
from tussock.statestore.extras import missing_spark
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.errors import AlreadyInitialisedError
from tussock.statestore.meta.names import hash_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OtherTimeZoneError(InputError):
    """pipeline.toml and the store have different time zones."""

    pipeline: str
    wanted: str
    store: str
    there: str

    def __str__(self) -> str:
        return (
            f"pipeline.toml of {self.pipeline!r} has time_zone {self.wanted!r}, but the store {self.store} permanently "
            f"has {self.there!r}. "
            f'Nothing was changed. Set time_zone = "{self.there}", or name another `store`, which is then created in '
            f"{self.wanted!r}."
        )


class PlanOutdatedError(InputError):
    """The approved plan differs from the current one."""

    def __init__(self, pipeline: str, edits: Sequence[str], approved: str, now: str) -> None:
        super().__init__(pipeline, edits, approved, now)
        self.pipeline, self.edits, self.approved, self.now = (
            pipeline,
            tuple(edits),
            approved,
            now,
        )  # digests; `edits` is empty if only the digest was approved

    def __str__(self) -> str:
        alone = (
            f"\n  digest {self.approved} approved, {self.now} now. Approve a plan saved by `--save FILE` to see the "
            "differences here."
        )
        edit_lines = "".join(f"\n  {line}" for line in self.edits) or alone
        return (
            f"the approved plan of {self.pipeline!r} differs from the current one:{edit_lines}\nNothing was changed. "
            f"Run `tussock plan {self.pipeline}` again, and approve the new plan."
        )


def plan(pipeline: Pipeline, options: DeployOptions | None = None, progress: Progress = no_progress) -> Deployment:
    """Return the changes that `apply` would make. Writes nothing; if the store does not exist, everything is new.

    Args:
        options: `derived` and `schema` are the pipeline's. None: the default ones.
        progress: receives one line if Spark starts, and one if suites exist that never run.

    Raises: InputError branches with file and place.
    """
    check_notifiers(pipeline, progress)
    _report_unused_suites(pipeline, progress)
    return _make_plan(pipeline, _read_files(pipeline, options), progress)


def _make_plan(pipeline: Pipeline, read: "_Read", progress: Progress) -> Deployment:
    with ExitStack() as stack:
        store = pipeline.store
        if read.makes_store:
            progress(f"{store} does not exist yet; `tussock apply {pipeline.argument}` creates it")
            store = stack.enter_context(TemporaryFolder("plan"))  # an empty store to compare with
            MetaStore.init(open_object_store(store), time_zone=pipeline.time_zone)
        session = stack.enter_context(_open_session(pipeline, store, progress))
        return read.complete_plan(session.plan(read.scripts, read.options))


def apply(
    pipeline: Pipeline,
    options: DeployOptions | None = None,
    approved: Approval | str | None = None,
    progress: Progress = no_progress,
) -> Deployment:
    """Apply the pipeline's files to its store atomically. Creates the store if it does not exist.

    The files are read and bound once. With `approved`, texts are compared before they are bound, and actions before
    they are logged. A second apply of the same plan changes nothing.

    Args:
        options: as of `plan`.
        approved: the approved plan, as `Approval` or JSON, or a text that contains its digest.

    Raises: PlanOutdatedError with each difference; NoApprovalError; OverLimitError; as `plan`.
    """
    check_notifiers(pipeline, progress)
    _report_unused_suites(pipeline, progress)
    read = _read_files(pipeline, options)
    approved = approval_of(approved) if isinstance(approved, str) else approved
    if approved is not None:
        read.require_inputs(approved)
        if read.makes_store:
            read.require_whole(
                approved, _make_plan(pipeline, read, progress)
            )  # checked first, because a rejected apply must not leave an empty store
    if read.makes_store and (missing := missing_spark()) is not None:
        raise missing  # Spark binds the statements; an apply that fails must not leave an empty store
    try:
        units = pipeline.epoch.units or NEW_STORE_UNITS
        create_store(pipeline.store, vnode_count=pipeline.epoch.vnodes, units=units, time_zone=pipeline.time_zone)
        progress(f"created {pipeline.store}")
    except AlreadyInitialisedError:
        pass
    bill: Bill | None = None

    def require_wanted(deployment: Deployment) -> None:
        nonlocal bill
        if approved is not None:
            read.require_approved(approved, deployment)
        bill = bill_of(pipeline, deployment) if deployment.pending else None
        require_affordable(pipeline, bill)

    with _open_session(pipeline, pipeline.store, progress) as session:
        done = session.apply(read.scripts, read.options, require=require_wanted)
        if done.position is not None and bill is not None:
            record_bill(session.meta, bill)
        if not pipeline.branch:
            record_deployed(session.meta.objects, deployed_of(pipeline))
        return read.complete_plan(done)


def deployed_of(pipeline: Pipeline) -> DeployedFiles:
    """The suites and sinks of a pipeline's files. Raises QualitySuiteError."""
    sinks = {sink.title: hash_of(repr(sink).encode()) for sink in pipeline.publish}
    return DeployedFiles({item.name: hash_of(item.text.encode()) for item in _suite_items(pipeline)}, sinks)


def _suite_items(pipeline: Pipeline) -> Iterator[PlanItem]:
    for suite in _read_suites(pipeline):
        yield PlanItem(ItemKind.SUITE, suite.file.name, suite.text)
    for one in read_assertions(pipeline):
        yield PlanItem(ItemKind.SUITE, one.name, f"-- severity: {one.severity}\n{one.select}")


@dataclass(frozen=True, slots=True)
class _Read:
    """The files and settings of a pipeline, read once for the comparison and for the apply after it.

    Args:
        items: the settings, suites and variables.
        makes_store: the store does not exist yet.
    """

    name: str
    scripts: Sequence[tuple[Path, str]]
    options: DeployOptions
    items: tuple[PlanItem, ...]
    makes_store: bool

    def complete_plan(self, deployment: Deployment) -> Deployment:
        """Return the deployment with the pipeline's settings and suites added to its plan."""
        return replace(deployment, approval=Approval((*self.items, *deployment.approval.items)))

    def require_inputs(self, approved: Approval | str) -> None:
        """Raises PlanOutdatedError if texts or settings differ from the approved ones.

        Ignores a bare digest, which also covers actions.
        """
        if isinstance(approved, str):
            return
        then, now = approved.input_items(), Approval((*self.items, *statement_items(self.scripts))).input_items()
        if now.digest != then.digest:
            raise PlanOutdatedError(self.name, describe_edits(then, now), then.digest, now.digest)

    def require_approved(self, approved: Approval | str, deployment: Deployment) -> None:
        """Like `require_whole`, for a deployment without the pipeline's own items."""
        self.require_whole(approved, self.complete_plan(deployment))

    def require_whole(self, approved: Approval | str, deployment: Deployment) -> None:
        """Raises PlanOutdatedError if the deployment differs from the approved one and contains changes."""
        now = deployment.approval
        digest = approved if isinstance(approved, str) else approved.digest
        if deployment.pending and now.digest != digest:
            raise PlanOutdatedError(
                self.name, () if isinstance(approved, str) else describe_edits(approved, now), digest, now.digest
            )


def _read_files(pipeline: Pipeline, options: DeployOptions | None) -> _Read:
    """Raises: PipelineError, QualitySuiteError."""
    options = options or DeployOptions()
    prune = options.prune
    suites, makes_store = _read_suites(pipeline), not store_exists(pipeline.store)
    assertions = read_assertions(pipeline)
    folder = pipeline.folder
    settings = {
        **({"env": pipeline.environment} if pipeline.environment else {}),
        "store": pipeline.store,
        "data": pipeline.data or "",
        **({} if pipeline.schema == DEFAULT_SCHEMA else {"schema": pipeline.schema}),
        "time_zone": pipeline.time_zone,
        "sql": ", ".join(
            str(file.relative_to(folder) if file.is_relative_to(folder) else file) for file in pipeline.sql
        ),
        **{f"spark.{key}": value for key, value in sorted(pipeline.spark.items()) if key.startswith("spark.sql.")},
        "--prune": ("yes" if prune else "no") if isinstance(prune, bool) else ", ".join(sorted(prune)) or "no",
        "--resume": ", ".join(options.resume),
        **({"--zone-rules": "yes"} if options.zone_rules else {}),
    }
    items = (
        *_new_store(pipeline, makes_store),
        *(PlanItem(ItemKind.SETTING, name, value) for name, value in settings.items()),
        *_suite_items(pipeline),
        *(PlanItem(ItemKind.VARIABLE, name, value) for name, value in sorted(pipeline.find_variables().items())),
    )
    derived = partial(_derive_statements, pipeline, suites, assertions)
    options = replace(options, derived=derived, schema=pipeline.schema)
    return _Read(pipeline.argument, pipeline.read_scripts(), options, items, makes_store)


def _new_store(pipeline: Pipeline, makes_store: bool) -> Iterator[PlanItem]:
    """Yield the size of a new store. An empty store counts as new."""
    vnodes, units = pipeline.epoch.vnodes, pipeline.epoch.units or NEW_STORE_UNITS
    if not makes_store:
        meta = open_meta(pipeline.store)
        version = meta.read_latest()
        if version.epoch or meta.log_end():
            return
        vnodes, units = meta.settings.vnode_count, version.mapping.unit_count
    yield PlanItem(ItemKind.ACTION, "new store", f"{vnodes} vnodes, {units} units")


def _report_unused_suites(pipeline: Pipeline, progress: Progress) -> None:
    """Report suites and assertions in the default folder that never run, because pipeline.toml has no `[quality]`.

    A script that pipeline.toml lists is none of them.
    """
    folder, scripts = pipeline.folder / QUALITY_FOLDER, {file.resolve() for file in pipeline.sql}
    candidates = [] if pipeline.quality is not None else [*folder.glob("*.json"), *folder.glob("*.sql")]
    files = [file for file in candidates if file.resolve() not in scripts]
    if files:
        progress(
            f"{folder} contains {', '.join(sorted(file.name for file in files))}, but nothing runs them. Add a table "
            f"[quality] to {pipeline.folder / FILE}."
        )


def _read_suites(pipeline: Pipeline) -> list[Suite]:
    return [read_suite(file) for file in (pipeline.quality.list_suites() if pipeline.quality is not None else ())]


def derive_measures(pipeline: Pipeline) -> Derived:
    """Return the hidden views that a pipeline's suites need. Raises QualitySuiteError if a suite cannot be read."""
    return partial(_derive_statements, pipeline, _read_suites(pipeline), read_assertions(pipeline))


def _derive_statements(
    pipeline: Pipeline,
    suites: Sequence[Suite],
    assertions: Sequence[Assertion],
    catalog: Catalog,
) -> Iterator[DerivedScript]:
    """Yield the statements of the hidden views. Raises for rules that the catalog does not fit."""
    require_sources(pipeline.arrival, catalog)
    for file, text in measure_statements(suites, catalog):
        yield DerivedScript(file, text, may_be_left=True)
    for file, text in assertion_statements(assertions):
        yield DerivedScript(file, text, schema=pipeline.schema)


@contextmanager
def _open_session(pipeline: Pipeline, store: str, progress: Progress) -> Iterator[Session]:
    """Open a session over a store. It starts Spark on demand, with the pipeline's settings."""

    def start_spark() -> "SparkSession":
        progress("starting Spark")
        return stack.enter_context(spark_of(pipeline, brief=True))

    with ExitStack() as stack:
        session = stack.enter_context(Session(store, start_spark, create=False))
        if session.time_zone != pipeline.time_zone:
            raise OtherTimeZoneError(pipeline.name, pipeline.time_zone, pipeline.store, session.time_zone)
        yield session
