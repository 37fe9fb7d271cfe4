"""What the tasks of the DAGs do that need no Spark: pin, commit, publish; retain, vacuum. Knows the engine, and nothing of Airflow.

Each step may be run again, and by two tasks at once: it looks at the store first and does what is left to do. Names and epochs travel
between tasks, never data; an epoch travels as text, for it does not fit into the numbers of a browser.
"""

import logging
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from tussock.jobs.settings.pipeline import GateScope, Pipeline, PipelineError, Runner, find_pipeline, load_pipeline, pipeline_names
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.facts.lineage import LineageFacts, TableCopy
    from tussock.jobs.gate.record import GateVerdict, QualityRecord
    from tussock.jobs.sinks.manifest import TableState
    from tussock.jobs.sources.listing import Interval
    from tussock.statestore.meta.catalog import Relation
    from tussock.statestore.meta.store import MetaStore
    from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedView:
    """What a publish brought to the readers of a view.

    Args:
        rows: of the view; None where no suite looked at all of them.
        changed_rows: changes that the view's operators put out, in all epochs that this publish let readers see; None where the counts of
            some are gone.
        quality: what the view's own suite said at the published epoch; NONE where it has none.
        since: the epoch as of which readers saw the view before; 0: not at all.
        warnings: expectations that failed and only report.
    """

    name: str
    rows: int | None
    changed_rows: int | None
    quality: "GateVerdict"
    since: int = 0
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """What readers see from now on. `views`: those of which they see other rows than before; `held`: those held back, by name, each with
    the epoch as of which they are seen."""

    epoch: int
    version: int
    views: tuple[PublishedView, ...]
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """What Airflow has been told of a relation so far. `epoch`: of its newest event, 0 where there is none; `again`: there is something to
    say of that epoch, too."""

    epoch: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class SourceNews:
    """What was taken in of a source since Airflow was told of it last.

    Args:
        epoch: the committed one, with all that was taken in.
        since: nothing is new up to here; 0: nobody knows.
        files: that came; of a topic or a Delta table, its ranges. None: more epochs than anybody goes through.
        rows: that came, less those that were taken back; None: nobody counted them, or no view reads the source.
        own: one run took in all of it, the one that asks.
    """

    name: str
    epoch: int
    version: int
    since: int
    files: int | None
    bytes: int | None
    rows: int | None
    own: bool


def pipelines_folder() -> Path:
    """Where the pipelines are: TUSSOCK_PIPELINES, or `pipelines/` of Airflow's home."""
    return Path(os.environ.get("TUSSOCK_PIPELINES") or airflow_home() / "pipelines")


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
        return "\n".join([*map(str, self.errors), "Until this is mended these pipelines have no DAGs. All others run on."])


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


def open_meta(pipeline: Pipeline) -> "MetaStore":
    """The pipeline's store, for this process.

    Raises: NotInitialisedError when `tussock apply` has not been run yet; CopiedStoreError for a copy of a store, which must not emit the
        events of the original.
    """
    from tussock.jobs.settings import process
    from tussock.jobs.settings.arrow import leave_pandas
    from tussock.jobs.settings.home import home_of

    leave_pandas()
    meta = process.open_meta(pipeline.store)
    _ = meta.settings  # a missing store is an error here, by its own name
    home_of(meta.objects)
    return meta


_CREATED = {
    RelationKind.VIEW: re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?MATERIALIZED\s+VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?`?(\w+)", re.IGNORECASE),
    RelationKind.SOURCE: re.compile(r"CREATE\s+SOURCE\s+(?:IF\s+NOT\s+EXISTS\s+)?`?(\w+)", re.IGNORECASE),
}


def created_in_files(pipeline: Pipeline, kind: RelationKind) -> tuple[str, ...]:
    """The materialized views, or the sources, that a pipeline's SQL files create; none where a file cannot be read, which `tussock apply`
    reports.

    Cost: reads the files; 0.1 s for 1,000 views.
    """
    from tussock.jobs.logical.script import split_script

    try:
        statements = [statement.text for _, text in pipeline.scripts() for statement in split_script(text)]
    except InputError:
        return ()
    found = (_CREATED[kind].match(statement) for statement in statements)
    return tuple(dict.fromkeys(match[1].lower() for match in found if match is not None))


def day_of(pipeline: Pipeline, start: datetime | None, end: datetime | None) -> str | None:
    """The day that an interval lies in, by the pipeline's clock; None for no interval, and for one of more than a day."""
    if start is None or end is None:
        return None
    zone = ZoneInfo(pipeline.time_zone)
    day = start.astimezone(zone).date()
    return day.isoformat() if (end.astimezone(zone) - timedelta(microseconds=1)).date() == day else None


def interval_of(pipeline: Pipeline, start: datetime | None, end: datetime | None) -> "Interval | None":
    """A run's interval in the pipeline's time zone, which is the one paths are formatted in."""
    from tussock.jobs.sources.listing import Interval

    if start is None or end is None:
        return None
    zone = ZoneInfo(pipeline.time_zone)
    return Interval(start.astimezone(zone), end.astimezone(zone))


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """What an apply of a pipeline's files would do: for a person, with every new statement in full; and as `apply` takes it."""

    text: str
    approval: str
    digest: str


def plan(name: str, prune: bool, resume: Sequence[str], say: Callable[[str], None]) -> PlannedFiles | None:
    """What an apply of the pipeline's files would do; None where that is nothing."""
    from tussock.jobs.operations.deploy import plan as plan_files
    from tussock.jobs.texts.deployment import deployment_text

    deployment = plan_files(find_pipeline(name, pipelines_folder()), prune, resume, progress=say)
    text = deployment_text(deployment, name, full=True)
    say(text)
    return PlannedFiles(text, deployment.approval.json(), deployment.digest) if deployment.pending else None


def apply(name: str, prune: bool, resume: Sequence[str], approved: str, say: Callable[[str], None]) -> None:
    """Make the pipeline's files hold, as the plan says. Raises PlanOutdatedError where it is another now.

    Args:
        approved: `PlannedFiles.approval`.
    """
    from tussock.jobs.operations.deploy import apply as apply_files
    from tussock.jobs.texts.deployment import deployment_text

    pipeline = find_pipeline(name, pipelines_folder())
    say(deployment_text(apply_files(pipeline, prune, resume, approved=approved, progress=say), name))


def inject(name: str, start: datetime | None, end: datetime | None, run: Mapping[str, str]) -> dict[str, str] | None:
    """Put the run's barrier in force, or find the one that a run before it left unfinished; None where nothing waits.

    A barrier that is open already, by whichever run, comes first: the epoch job finishes it, and then takes in this run's interval.
    """
    from tussock.jobs.driver.barrier import Wish
    from tussock.jobs.driver.barrier import inject as inject_barrier

    pipeline = find_pipeline(name, pipelines_folder())
    barrier = inject_barrier(open_meta(pipeline), Wish(interval_of(pipeline, start, end), run=run), pipeline.epoch)
    return None if barrier is None else {"barrier": f"{barrier.prev_epoch}/{barrier.attempt}", "epoch": str(barrier.epoch)}


def pause(name: str, views: Sequence[str], run: Mapping[str, str]) -> None:
    """Put a barrier in force that pauses these views, and those over them; one that is open is superseded. Those that are paused stay so.

    Raises: InputError where one is unknown or cannot be paused; LostRaceError.
    """
    from tussock.jobs.driver.detour import Detour
    from tussock.jobs.driver.supersede import abandon

    meta = open_meta(find_pipeline(name, pipelines_folder()))
    barrier = meta.open_barrier()
    catalog = meta.latest().catalog if barrier is None or barrier.catalog is None else barrier.catalog
    paused = {r.name for r in catalog.live() if r.paused is not None}
    if wanted := tuple(view for view in dict.fromkeys(views) if view not in paused):
        abandon(meta, Detour(pause=wanted), run)


def restate(name: str, source: str, file: str, interval: tuple[datetime, datetime] | None, run: Mapping[str, str]) -> tuple[str, ...]:
    """Put a barrier in force that takes in again what was taken of a source: a file, or all files of an interval. Returns what it does.

    Without effect where the open barrier is this run's already, and where all is as it was taken.

    Raises: EpochUnderWayError where another run's barrier is open; CannotRestateError; UnknownRelationError.
    """
    from tussock.jobs.driver.restate import Restating
    from tussock.jobs.sources.base import Restated
    from tussock.jobs.sources.errors import CannotRestateError

    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    if (barrier := meta.open_barrier()) is not None and barrier.run == run:
        return (f"goes on with barrier {barrier.epoch}, which this run has put in force",)
    if not file and interval is None:
        raise CannotRestateError(source, "neither a file nor an interval is named")
    asked = Restated(file) if file else Restated(interval=interval_of(pipeline, *(interval or (None, None))))
    restating = Restating(meta, source, asked, run)
    found = restating.found
    if restating.begin() is None:
        return (f"nothing to restate: source {found.source} has taken all of it as it is now",)
    items = [f"rows {verb}: {item.name}" for verb, of in (("go", found.goes), ("come", found.comes)) for item in of]
    return (*items, f"views that follow: {', '.join(found.readers) or 'none'}")


def runs_small_epochs_here(name: str) -> bool:
    """Whether the pipeline wants its small epochs run without Spark."""
    return find_pipeline(name, pipelines_folder()).epoch.runner is Runner.AUTO


def advance(name: str, start: datetime | None, end: datetime | None, run: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Finish the open barrier and take in the run's interval in this process, without Spark, as the epoch job does on it.

    Raises SparkWantedError when an epoch comes up that is to run on Spark, or where Spark alone can ask what a source has; the
    epochs before it are committed then.
    """
    from tussock.jobs.driver import epoch
    from tussock.jobs.driver.barrier import Wish
    from tussock.jobs.driver.runner import AutoRunner, SparkWantedError, no_spark
    from tussock.jobs.driver.summary import show_summary

    pipeline = find_pipeline(name, pipelines_folder())
    wish = Wish(interval_of(pipeline, start, end), run=run)
    done = epoch.advance(AutoRunner(no_spark), open_meta(pipeline), wish, pipeline.epoch, say)
    for summary in done:
        say(show_summary(summary))
    if spark_must_ask(name):
        raise SparkWantedError


def spark_must_ask(name: str) -> bool:
    """Whether a source is held since a process without Spark could not ask what it has. Cost: reads the newest version."""
    from tussock.jobs.sources.kafka_errors import KafkaNeedsSparkError

    catalog = open_meta(find_pipeline(name, pipelines_folder())).latest().catalog
    return any(hold.kind == KafkaNeedsSparkError.__name__ for relation in catalog.live() for hold in relation.holds)


def require_not_held(name: str, start: datetime | None, end: datetime | None) -> None:
    """Raises HeldSourcesError where a source in trouble kept files from a run of this interval. Cost: reads the newest version."""
    from tussock.jobs.driver.source_holds import require_not_held as require

    pipeline = find_pipeline(name, pipelines_folder())
    require(open_meta(pipeline).latest().catalog, interval_of(pipeline, start, end))


def require_none_paused(name: str, run: Mapping[str, str]) -> None:
    """Raises PausedViewsError where an epoch of this run paused a view, and nobody has had it go on since. Cost: as `require_not_held`, and
    two GETs a paused view."""
    from tussock.jobs.driver.pauses import require_none_paused_by

    require_none_paused_by(open_meta(find_pipeline(name, pipelines_folder())), run)


def commit(name: str) -> dict[str, str]:
    """Commit what is sealed and not committed; without effect when the epoch job has done so itself, as it does unless it was killed."""
    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    if (barrier := meta.open_barrier()) is not None and (sealed := meta.sealed(barrier.epoch)) is not None:
        meta.commit_epoch(sealed)
    version = meta.latest()
    return {"epoch": str(version.epoch), "version": str(version.id)}


def suites_of(name: str) -> tuple[Path, ...]:
    """The pipeline's suites; none where it asks for none."""
    quality = find_pipeline(name, pipelines_folder()).quality
    return () if quality is None else quality.suites()


def verdict(name: str, epoch: int) -> "GateVerdict":
    """What the pipeline's suites, as they are now, have said of `epoch`; NONE where they were not run on it."""
    from tussock.jobs.gate.record import GateVerdict, judged
    from tussock.jobs.gate.suite import read_suites

    pipeline = find_pipeline(name, pipelines_folder())
    record = judged(open_meta(pipeline).objects, epoch, read_suites(pipeline.quality))
    return GateVerdict.NONE if record is None else record.verdict


def judge(name: str, epoch: int) -> "QualityRecord":
    """Run the suites on `epoch` in this process, and keep the record.

    Raises: SparkNeededError, before anything is done; QualitySuiteError.
    """
    from tussock.jobs.gate.gate import validate_epoch, without_spark

    pipeline = find_pipeline(name, pipelines_folder())
    return validate_epoch(without_spark, open_meta(pipeline), pipeline, epoch)


def require_none_held_back(name: str, epoch: int) -> None:
    """Raises HeldViewsError where suites failed at `epoch`."""
    from tussock.jobs.gate.record import HeldViewsError, read_record

    record = read_record(open_meta(find_pipeline(name, pipelines_folder())).objects, epoch)
    if record is not None and not record.passed:
        raise HeldViewsError(record)


def judges_views(name: str) -> bool:
    """Whether the gate holds back a view whose suite fails, and not the epoch."""
    quality = find_pipeline(name, pipelines_folder()).quality
    return quality is not None and quality.scope is GateScope.VIEW


def gate_failure(name: str, epoch: int) -> str | None:
    """What the quality gate holds against `epoch`, for people; None where it passed or was not asked."""
    from tussock.jobs.gate.record import QualityGateError, read_record

    record = read_record(open_meta(find_pipeline(name, pipelines_folder())).objects, epoch)
    return None if record is None or record.passed else str(QualityGateError(record))


def publish(name: str, epoch: int) -> Publication:
    """Let readers see `epoch`, as far as its quality record passed. Never goes back; when it is repeated, it answers what it did the first
    time.

    Raises:
        QualityGateError: a suite failed, and the gate judges the pipeline as a whole; readers go on seeing the epoch before.
        MissingRecordError: the pipeline has suites, and nobody ran them at this epoch.
    """
    from tussock.jobs.driver.publish import publish as move
    from tussock.jobs.gate.record import stays_published
    from tussock.statestore.meta.sight import published_sight

    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    record = _passed_record(meta, pipeline, epoch)
    failed = () if record is None else record.failed
    move(meta, epoch, [r.id for r in meta.latest().catalog.at(epoch) if r.name in failed])
    before, version = _publish_of(meta, epoch)
    mine = version.published == epoch  # else a later epoch was published, and this one with it
    seen_before, seen = published_sight(before), published_sight(version)
    views = [r for r in version.catalog.at(epoch) if r.kind is RelationKind.VIEW and not r.internal]
    views = [r for r in views if not stays_published(before, r, epoch)]
    news = [r for r in views if r.name not in seen.held and (not mine or seen_before.epoch_of(r.name) < epoch)]
    since = {r.name: seen_before.epoch_of(r.name) or max(0, r.created - 1) for r in news}
    changed = _changed_rows(meta, since, epoch) if mine else dict.fromkeys(since, 0)
    shown = {view: seen_before.epoch_of(view) if mine else 0 for view in since}
    return Publication(epoch, version.id, tuple(_published_views(record, shown, changed)), dict(seen.held))


def _published_views(record: "QualityRecord | None", since: Mapping[str, int], changed: Mapping[str, int]) -> "Iterator[PublishedView]":
    """What is to be said of each view of `since`."""
    from tussock.jobs.gate.record import GateVerdict

    judged = {} if record is None else {view.view: view for view in record.views}
    for view, epoch in since.items():
        quality = judged.get(view)
        yield PublishedView(
            view,
            rows=quality.rows if quality is not None and quality.all_rows else None,
            changed_rows=changed.get(view),
            quality=GateVerdict.NONE if quality is None else quality.verdict,
            since=epoch,
            warnings=0 if quality is None else len(quality.warnings),
        )


def view_news(name: str, said: Callable[[str], Said]) -> Publication:
    """The views of which readers see other rows than when Airflow was told of them last, as readers see them now. None where nobody has
    published anything yet.

    A view that is held back has none, nor one that is paused at rows of which Airflow was told. Where Airflow was told of an epoch that the
    store does not have, the view is new as a whole.

    Cost: one question to `said` a view; a GET for each epoch that is news, MOST_EPOCHS of tussock.jobs.facts.intake at most.
    """
    from tussock.jobs.gate.record import read_record
    from tussock.statestore.meta.sight import published_sight

    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    version = meta.latest()
    epoch, held = version.published, published_sight(version).held
    since: dict[str, int] = {}
    for relation in version.catalog.at(epoch) if epoch else ():
        if relation.kind is not RelationKind.VIEW or relation.name in held:
            continue
        told = said(relation.name)
        lost = told.epoch > 0 and not meta.has_epoch(told.epoch)  # the store was restored from a copy
        if lost or told.again or (told.epoch < epoch and not _rests(version, relation, told.epoch)):
            # a view that came by this name after Airflow was told of another one is new as a whole
            since[relation.name] = told.epoch if told.epoch >= relation.created and not lost else 0
    if not since:
        return Publication(epoch, version.id, (), dict(held))
    created = {r.name: r.created for r in version.catalog.at(epoch)}
    changed = _changed_rows(meta, {view: at or max(0, created[view] - 1) for view, at in since.items()}, epoch)
    record = read_record(meta.objects, epoch) if suites_of(name) else None
    _, shown = _publish_of(meta, epoch)
    return Publication(epoch, shown.id, tuple(_published_views(record, since, changed)), dict(held))


def _rests(version: "HummockVersion", view: "Relation", since: int) -> bool:
    """Whether a view is paused, and no epoch between `since` and its pause can have changed it. Where some of these epochs are no longer
    listed, they may have."""
    if view.paused is None or not view.paused_at(version.published):
        return False
    listed = version.epochs[0] <= since if version.epochs else False
    return since >= view.paused or (listed and not any(since < epoch < view.paused for epoch in version.epochs))


_LAST_EPOCHS = 10  # in which a run looks for its own


def source_news(name: str, said: Callable[[str], Said], run: Mapping[str, str]) -> tuple[SourceNews, ...]:
    """The sources of which something was taken in, by committed epochs, since Airflow was told of any of them last: who tells it of one
    looks at all of them, at the same epoch.

    Args:
        run: the one that asks.

    Where more epochs were committed than anybody goes through, each source may have news, without numbers. Cost: that of
    tussock.jobs.facts.intake.intakes, and one question to `said` a source.
    """
    from tussock.jobs.facts.intake import intakes

    meta = open_meta(find_pipeline(name, pipelines_folder()))
    version = meta.latest()
    sources = {r.id: r.name for r in version.catalog.live() if r.kind is RelationKind.SOURCE}
    told = {source: said(source) for source in sources.values()}
    since = max((one.epoch for one in told.values()), default=version.epoch)
    whole = since == version.epoch or meta.has_epoch(since)  # else the store was restored from a copy
    looked_at = intakes(meta, version.catalog, since, version.epoch)
    of_run: set[int] = set()
    if any(one.again for one in told.values()):  # another run may have told of what this one took in
        of_run = {taken.source for taken in intakes(meta, version.catalog, 0, version.epoch, _LAST_EPOCHS).found if taken.run == run}
    read = {id for r in version.catalog.live() for id in r.depends_on}  # files that no view wants are taken, and not opened
    news = []
    for relation, source in sources.items():
        mine = [taken for taken in looked_at.found if taken.source == relation]
        if not mine and looked_at.whole and not (told[source].again and relation in of_run):
            continue
        items = [item for taken in mine for item in taken.items if not item.goes]
        rows = [taken.rows for taken in mine]
        news.append(
            SourceNews(
                source,
                version.epoch,
                version.id,
                since if whole else 0,
                files=len(items) if looked_at.whole else None,
                bytes=sum(item.nbytes for item in items) if looked_at.whole else None,
                rows=sum(n or 0 for n in rows) if looked_at.whole and relation in read and None not in rows else None,
                own=bool(mine) and all(taken.run == run for taken in mine),
            )
        )
    return tuple(news)


def lineage(name: str, published: Publication) -> "LineageFacts":
    """What the views of a publish were made of since readers saw them before. Cost: as tussock.jobs.facts.lineage.lineage_of."""
    from tussock.jobs.facts.lineage import lineage_of

    meta = open_meta(find_pipeline(name, pipelines_folder()))
    before, _ = _publish_of(meta, published.epoch)
    return lineage_of(meta, name, [view.name for view in published.views], before.published, published.epoch)


def table_lineage(name: str, epoch: int, tables: "Mapping[str, TableState]") -> "tuple[TableCopy, ...]":
    """The tables outside of the store that an epoch wrote, with what they copy."""
    from tussock.jobs.facts.lineage import copies_of

    places = {relation: (state.table, state.version) for relation, state in tables.items() if state.written == str(epoch)}
    return copies_of(open_meta(find_pipeline(name, pipelines_folder())), name, epoch, places)


def _passed_record(meta: "MetaStore", pipeline: Pipeline, epoch: int) -> "QualityRecord | None":
    """What the gate found at an epoch that it lets pass; None where the pipeline has no suites. Raises as `publish`."""
    from tussock.jobs.gate.record import require_judged, require_passed

    if pipeline.quality is None or not pipeline.quality.suites():
        return None
    return (require_judged if pipeline.quality.scope is GateScope.VIEW else require_passed)(meta.objects, epoch)


def publish_tables(name: str, epoch: int) -> None:
    """Bring the tables of `[publish]` to `epoch`, in this process; what holds a later epoch stays.

    Requires: the pipeline has such tables, and their writer needs no Spark. Raises as `tussock.jobs.sinks.publication.publish_tables`.
    """
    from tussock.jobs.operations.publish import run_publish

    run_publish(find_pipeline(name, pipelines_folder()), epoch, tidy=False, progress=log.info)


def tables_at(name: str, epoch: int) -> "Mapping[str, TableState]":
    """The state of each table at `epoch`, by relation; none where that epoch was not published to them. One GET."""
    from tussock.jobs.lake.location import location_of
    from tussock.jobs.sinks.manifest import read_manifest

    settings = find_pipeline(name, pipelines_folder()).publish
    manifest = None if settings is None else read_manifest(location_of(settings.to).objects, epoch)
    return {} if manifest is None else manifest.tables


def tables_published(name: str) -> "tuple[int, Mapping[str, TableState]]":
    """The epoch that readers see, and as `tables_at` that one. Cost: two GETs."""
    epoch = open_meta(find_pipeline(name, pipelines_folder())).latest().published
    return epoch, tables_at(name, epoch)


def has_epoch(pipeline: Pipeline, epoch: int) -> bool:
    """Whether the store has committed an epoch; 0 counts. A restored store lacks those after the copy."""
    return epoch == 0 or open_meta(pipeline).has_epoch(epoch)


def tidy_tables(name: str) -> None:
    """Merge the small files of those tables, and remove what is too old. Requires: as `publish_tables`."""
    from tussock.jobs.operations.publish import run_publish

    run_publish(find_pipeline(name, pipelines_folder()), None, tidy=True, progress=log.info)


def _publish_of(meta: "MetaStore", epoch: int) -> "tuple[HummockVersion, HummockVersion]":
    """The version before, and the one after, readers were let see `epoch` as they do now: one delta apart. Requires: it is published.

    Cost: the newest version is tried first; a publish of long ago is searched by halves.
    """
    newest = meta.latest()

    def shown(version: "HummockVersion") -> bool:
        if version.published == epoch == newest.published:
            return version.held == newest.held  # a suite was corrected since, and the same epoch published again
        return version.published >= epoch

    if newest.id > 0 and not shown(before := meta.version(newest.id - 1)):
        return before, newest
    first = bisect_left(range(newest.id + 1), True, key=lambda version_id: shown(meta.version(version_id)))
    return meta.version(max(0, first - 1)), meta.version(first)


def _changed_rows(meta: "MetaStore", since: Mapping[str, int], until: int) -> dict[str, int]:
    """Changes of each view, summed over the epochs after `since` up to `until`; without those of which an epoch's count is gone, or
    too far back.

    Cost: one GET an epoch, MOST_EPOCHS at most.
    """
    from tussock.jobs.facts.intake import MOST_EPOCHS

    changed, epoch = dict.fromkeys(since, 0), until
    open_, looked_at = set(since), 0
    while open_ := {view for view in open_ if since[view] < epoch}:
        looked_at += 1
        if looked_at > MOST_EPOCHS or (sealed := meta.sealed(epoch)) is None or sealed.rows is None:
            return {view: rows for view, rows in changed.items() if view not in open_}
        for view in open_ & sealed.rows.keys():
            changed[view] += sealed.rows[view].rows_out
        epoch = sealed.prev_epoch
    return changed


def holder(name: str, dag: str) -> str | None:
    """The run of `dag` whose epoch is open, or committed and not published; None where there is none, or somebody else made it.

    Cost: two GETs, three where an epoch waits for its publish.
    """
    meta = open_meta(find_pipeline(name, pipelines_folder()))
    version = meta.latest()
    barrier = meta.barrier_after(version.epoch)
    if barrier is None and version.published < version.epoch and (sealed := meta.sealed(version.epoch)) is not None:
        barrier = meta.barrier_after(sealed.prev_epoch)
    return barrier.run.get("run") if barrier is not None and barrier.run.get("dag") == dag else None


def retain(name: str) -> dict[str, str]:
    """Apply the pipeline's retention: nobody starts to read below the floor from here on. Never goes back."""
    from tussock.jobs.upkeep.vacuum import apply_retention

    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    apply_retention(meta, pipeline.upkeep.retention)
    version = meta.latest()
    return {"floor": str(version.min_readable_epoch), "version": str(version.id)}


def compaction_due(name: str) -> tuple[str, ...]:
    """Why the pipeline's store is to be compacted, most urgent first; empty: nothing is due."""
    from tussock.jobs.upkeep.compaction import due

    return tuple(pick.reason for pick in due(open_meta(find_pipeline(name, pipelines_folder()))))


def vacuum(name: str) -> dict[str, str | int]:
    """Remove what nobody can read or commit any more. Returns how much that was, and what the store holds now."""
    from tussock.jobs.upkeep.vacuum import sweep

    done = sweep(open_meta(find_pipeline(name, pipelines_folder())))
    removed = (*done.vacuumed.garbage, *done.copies)
    return {
        "removed objects": len(removed),
        "removed bytes": sum(found.size for found in removed),
        "kept bytes": done.vacuumed.kept_bytes,
    }


@dataclass(frozen=True, slots=True)
class Decided:
    """What a rebalancing is to do, for a person, and as `move_vnodes` takes it; no plan: nothing is to move."""

    text: str
    plan: str | None
    digest: str


def measure_units(name: str, say: Callable[[str], None]) -> list[dict[str, float]]:
    """What each parallel unit has and carries, said as text and returned as numbers."""
    from tussock.jobs.texts.rebalance import units_text
    from tussock.jobs.upkeep.rebalance import measure, plan

    found = plan(measure(open_meta(find_pipeline(name, pipelines_folder()))))
    say(units_text(found.before))
    return [msgspec.to_builtins(share) for share in found.before]


def plan_rebalance(name: str, units: int | None, target: float | None, approved: str | None = None) -> Decided:
    """Which vnodes are to move: to another number of units, or off the units that carry more than `target` times the mean.

    Args:
        approved: the digest of the only moves that are wanted.

    Raises: UnitsInFileError; SettingError; OtherMovesError.
    """
    from tussock.jobs.texts.rebalance import rebalance_text
    from tussock.jobs.upkeep.rebalance import MoveVerdict, cause_of, measure, plan, require_approved, require_units_of_file

    pipeline = find_pipeline(name, pipelines_folder())
    require_units_of_file(pipeline, units)
    meta = open_meta(pipeline)
    measured = measure(meta)
    found = plan(measured, units, pipeline.rebalance.target if target is None else target)
    text = rebalance_text(found, cause_of(meta, measured, found), full=True)
    if approved:
        require_approved(found, approved)
    return Decided(text, msgspec.json.encode(found).decode() if found.verdict is MoveVerdict.MOVE else None, found.digest)


def move_vnodes(name: str, planned: str) -> dict[str, str]:
    """Put a plan's mapping in force; without effect if it is.

    Raises: LostRaceError if another mapping came between; UnitsInFileError if pipeline.toml asks for another number of units by now.
    """
    from tussock.jobs.upkeep.rebalance import Rebalance, move, require_units_of_file

    pipeline, rebalance = find_pipeline(name, pipelines_folder()), decoded(planned, Rebalance)
    require_units_of_file(pipeline, None if rebalance.target is not None else rebalance.planned.unit_count)
    version = move(open_meta(pipeline), rebalance)
    return {"mapping": str(version.mapping.id), "version": str(version.id)}


def verify_rebalance(name: str, planned: str, say: Callable[[str], None]) -> list[dict[str, float]]:
    """Read back what was moved: what each unit has now. Raises OtherMappingError, DamagedSstError."""
    from tussock.jobs.texts.rebalance import units_text
    from tussock.jobs.upkeep.rebalance import Rebalance, verify

    found = verify(open_meta(find_pipeline(name, pipelines_folder())), decoded(planned, Rebalance))
    say(units_text(found))
    return [msgspec.to_builtins(share) for share in found]


@dataclass(frozen=True, slots=True)
class AgeLook:
    """What came of a look at a view's age. `wait_s`: after so long it would be too old; None: there is nothing to wait for."""

    said: str
    wait_s: float | None = None


def say_if_stale(name: str, view: str) -> AgeLook:
    """Say that a view is older than the pipeline wants it, once since it got so: in the log, and to the function of `[alerts] call`.

    Raises what that function raises, after it was noted that it was called: nobody is told twice.
    """
    from tussock.jobs.facts.staleness import first_to_say, let_go, staleness
    from tussock.jobs.facts.status import now_of
    from tussock.jobs.settings.process import clock_ms

    pipeline = find_pipeline(name, pipelines_folder())
    if (wanted_ms := pipeline.freshness.get(view)) is None:
        return AgeLook(f"view {view} has no freshness any more")
    meta, now = open_meta(pipeline), now_of(clock_ms())
    if (found := staleness(meta, view, wanted_ms, now)) is None:
        return AgeLook(f"pipeline {name} has no view {view}")
    if not found.too_old:
        let_go(meta, {view: wanted_ms}, now)
    if not found.behind:
        return AgeLook(f"view {view} is up to date")
    if not found.too_old:
        return AgeLook(str(found), found.wanted_s - (found.age_s or 0.0) + 1.0)
    if not first_to_say(meta, found, now):
        return AgeLook(f"{found}; it has been said")
    log.error("pipeline %s: %s", name, found)
    if pipeline.alerts.call is not None:
        module, _, function = pipeline.alerts.call.rpartition(".")
        getattr(import_module(module), function)(name, view, str(found))
    return AgeLook(str(found))


def let_go_of_alerts(name: str) -> None:
    """After a publish: what was said of views that are not too old any more, is forgotten. Cost: a HEAD for each with a freshness."""
    from tussock.jobs.facts.staleness import let_go
    from tussock.jobs.facts.status import now_of
    from tussock.jobs.settings.process import clock_ms

    pipeline = find_pipeline(name, pipelines_folder())
    if pipeline.freshness:
        let_go(open_meta(pipeline), pipeline.freshness, now_of(clock_ms()))
