"""Quality: run the suites of a pipeline on one committed epoch, and record their results."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.arrival import digest_of
from tussock.jobs.quality.assertions import read_assertions
from tussock.jobs.quality.record import (
    HeldViewsError,
    QualityCheckError,
    QualityRecord,
    QualityVerdict,
    ViewQuality,
    find_current_record,
    read_record,
    record_lines,
    write_record,
)
from tussock.jobs.quality.suite import read_suites
from tussock.jobs.settings.tables import QUALITY_FOLDER, QualityScope
from tussock.jobs.settings.user_files import errors_of_writing
from tussock.statestore.errors import InputError
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.quality.epoch_check import SparkStarter


def has_suites(store: PipelineStore) -> bool:
    """Return whether the pipeline has suites or assertions. Cost: two directory listings."""
    quality = store.pipeline.quality
    return bool(store.pipeline.arrival) or (
        quality is not None and bool(quality.list_suites() or quality.list_assertions())
    )


def checks_each_view(store: PipelineStore) -> bool:
    """Return whether a failed suite holds back only its view, and not the whole epoch."""
    return store.pipeline.quality is not None and store.pipeline.quality.scope is QualityScope.VIEW


def find_record(store: PipelineStore, epoch: int) -> QualityRecord | None:
    """Return the record of `epoch` for the current suites; None if they have not run on it."""
    digests = {suite.view: suite.digest for suite in read_suites(store.pipeline.quality)}
    digests |= {one.name: one.digest for one in read_assertions(store.pipeline)}
    return find_current_record(store.meta.objects, epoch, digests, digest_of(store.pipeline.arrival))


def verdict(store: PipelineStore, epoch: int) -> QualityVerdict:
    """Return the verdict of `find_record`; NONE without a record."""
    record = find_record(store, epoch)
    return QualityVerdict.NONE if record is None else record.verdict


def check_here(store: PipelineStore, epoch: int, costs: Progress = no_progress) -> QualityRecord:
    """Run the suites on `epoch` without Spark, and store the record.

    Raises: SparkNeededError before anything ran; QualitySuiteError.
    """
    from tussock.jobs.quality.epoch_check import (
        check_epoch,
        refuse_spark,
    )  # importing Great Expectations takes a second

    return check_epoch(refuse_spark, store.meta, store.pipeline, epoch, costs=costs)


def check_once(store: PipelineStore, epoch: int, progress: Progress, costs: Progress = no_progress) -> QualityRecord:
    """Return the record of the current suites on `epoch`.

    If they have not run on it, run them, on Spark if one of them needs it, and store the record.

    Raises: QualitySuiteError.
    """
    if (record := find_record(store, epoch)) is not None:
        progress(f"the current suites have already judged epoch {epoch}")
        return record
    from tussock.jobs.quality.epoch_check import check_epoch

    with _spark_on_demand(store, progress) as start:
        return check_epoch(start, store.meta, store.pipeline, epoch, costs=costs)


def check(store: PipelineStore, views: Sequence[str], epoch: int | None, progress: Progress) -> QualityRecord:
    """Run suites on an epoch, on Spark if one of them needs it, without storing the record.

    Args:
        views: only the suites of these views; empty: all.
        epoch: None: the newest.

    Raises: NoSuiteError, NoEpochYetError, QualitySuiteError; EpochNotCommittedError, EpochExpiredError.
    """
    from tussock.jobs.quality.epoch_check import check_suites

    with _spark_on_demand(store, progress) as start:
        return check_suites(start, store.meta, store.pipeline, views, epoch, costs=progress)


@contextmanager
def _spark_on_demand(store: PipelineStore, progress: Progress) -> "Iterator[SparkStarter]":
    """Yield a function that starts Spark. Spark is stopped at the end."""
    from tussock.jobs.operations.runners import spark_of

    with ExitStack() as stack:

        def start(reasons: Sequence[str]) -> "SparkSession":
            progress("\n  ".join(["suites run on Spark, because of:", *reasons]))
            return stack.enter_context(spark_of(store.pipeline, "quality"))

        yield start


def propose(store: PipelineStore, view: str) -> Path:
    """Write a first suite for a view or table, from its rows at the newest epoch. Return its file.

    Raises: UnknownRelationError; SuiteThereError if the view has a suite; NoEpochYetError.
    Cost: reads the view.
    """
    from tussock.jobs.catalog.definition import find_relation
    from tussock.jobs.quality.epoch_check import NoEpochYetError
    from tussock.jobs.quality.propose import proposed
    from tussock.jobs.reading.reader import key_of, relation_rows

    quality = store.pipeline.quality
    folder = store.pipeline.folder / QUALITY_FOLDER if quality is None else quality.folder
    if (epoch := store.meta.read_latest().epoch) == 0:
        raise NoEpochYetError(store.pipeline.name)
    with store.meta.open_for_reading(epoch) as version:
        relation = find_relation(version.catalog, view)
        file = folder / f"{relation.name}.json"
        if file.exists():
            raise SuiteThereError(str(file))
        rows = relation_rows(store.meta.objects, version, relation, epoch, sys.maxsize)
        assert rows is not None, "no view has more rows"
        names = [column.name for column in relation.columns]
        key = key_of(relation)
        visible = [names[place] for place in key] if all(place < len(names) for place in key) else []
        document = proposed(rows, visible)
    with errors_of_writing(file):
        folder.mkdir(exist_ok=True)
        file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


class SuiteThereError(InputError):
    """A proposed suite would replace an existing one."""

    file: str

    def __str__(self) -> str:
        return f"{self.file} exists, and was not changed. Rename it first to get a proposal."


def record_news(store: PipelineStore, record: QualityRecord) -> Iterator[str]:
    """Describe the results for the log of a run. Rows of warnings that the published epoch has too are left out.

    Cost: two GETs if there are warnings.
    """
    published = store.meta.read_latest().published if any(view.warnings for view in record.views) else 0
    yield from record_lines(
        record, read_record(store.meta.objects, published) if 0 < published < record.epoch else None
    )


def record_unchecked(store: PipelineStore, epoch: int, command: str) -> None:
    """Record that `command` publishes `epoch` without its checks. Earlier results of the epoch stay in the record."""
    before = read_record(store.meta.objects, epoch) or QualityRecord(epoch, ())
    write_record(store.meta.objects, msgspec.structs.replace(before, unchecked=command))


def require_passed(store: PipelineStore, record: QualityRecord) -> None:
    """Raises QualityCheckError if suites failed and the quality check judges the whole pipeline."""
    if not record.passed and not checks_each_view(store):
        raise QualityCheckError(record, store.meta.read_latest().published)


def find_refusal(store: PipelineStore, epoch: int) -> str | None:
    """Return in a sentence that suites failed a run's whole epoch; None if they did not.

    Cost: two GETs, or none if the quality check judges view by view.
    """
    if checks_each_view(store) or (record := read_record(store.meta.objects, epoch)) is None or record.passed:
        return None
    if record.was_published:
        return f"epoch {epoch} did not pass its suites, but was published{record.publisher} before they ran"
    published = store.meta.read_latest().published
    return f"epoch {epoch} is not published, because suites failed" if published < epoch else None


def require_none_held_back(store: PipelineStore, epoch: int) -> None:
    """Raises HeldViewsError for the failures at `epoch` that no later epoch has corrected."""
    record = read_record(store.meta.objects, epoch)
    if record is None or record.passed:
        return
    version = store.meta.read_latest()
    newest = read_record(store.meta.objects, version.published) if version.published > epoch else None
    left = tuple(one for one in record.views if one.failures and not _is_corrected(one, epoch, version, newest))
    if left:
        raise HeldViewsError(msgspec.structs.replace(record, views=left))


def _is_corrected(failed: ViewQuality, epoch: int, version: HummockVersion, newest: QualityRecord | None) -> bool:
    """Whether readers see a later epoch of everything that a failure at `epoch` held back.

    If it held back nothing that exists, the record of the published epoch decides (`newest`; None: that is `epoch`).
    """
    sight = published_sight(version)
    names = {relation.name for relation in version.catalog.relations_at(version.published)}
    if seen := [sight.epoch_of(name) for name in failed.held_back if name in names]:
        return min(seen) > epoch
    return newest is not None and not newest.unchecked and failed.view not in newest.failed


def failure(store: PipelineStore, epoch: int) -> str | None:
    """Return the reason why `epoch` did not pass the quality check; None if it passed or was not judged."""
    record = read_record(store.meta.objects, epoch)
    if record is None or record.passed:
        return None
    return str(QualityCheckError(record, store.meta.read_latest().published))
