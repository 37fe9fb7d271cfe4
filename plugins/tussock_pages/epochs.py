"""Pages of epochs: the list, one epoch, and the tab of a run with its epochs."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from tussock.jobs.facts.barrier import BarrierFacts, FileFacts, barrier_facts
from tussock.jobs.facts.bill import RowsCompared, compare_rows
from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.history import EpochPage, epoch_page, epochs_of_run, injected_by, one_epoch, taken_by
from tussock.jobs.facts.quality import EpochQuality, pages_of, quality_of_epoch, record_etags
from tussock.jobs.quality.index import RESULTS
from tussock.jobs.quality.record import read_record
from tussock.jobs.settings.tables import QualityScope
from tussock.statestore.meta.store import MetaStore
from tussock_pages.dag import head_of, store_of
from tussock_pages.dag_runs import LAST_TASK, committed_epoch, failed_tasks, find_run
from tussock_pages.guard import READS_RUNS, User
from tussock_pages.page import page
from tussock_pages.remembered import file_version
from tussock_pages.stores import SeenStore

EPOCHS_A_PAGE = 25
MOST_OF_A_RUN = 50  # newest epochs of a run that its tab shows; the list of epochs has the others
SHOWN_ROWS = 5  # newest epochs of a run whose rows its tab shows by relation
router = APIRouter(dependencies=[READS_RUNS])


@router.get("/dags/{dag_id}/epochs")
def epochs_page(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    before: Annotated[int | None, Query(gt=0, lt=2**64)] = None,
) -> Response:
    """List epochs, newest first, EPOCHS_A_PAGE per page."""
    store = store_of(dag_id)
    epochs: EpochPage = store.at_version(
        ("epochs", before), lambda meta, version: epoch_page(meta, before, EPOCHS_A_PAGE, version)
    )
    quality = {q.epoch: q for q in qualities(store, tuple(epoch.epoch for epoch in epochs.epochs))}
    return page(
        request,
        "epochs.html",
        head=head_of(store, dag_id, user, session),
        tab="epochs",
        epochs=epochs,
        quality=quality,
        before=before,
    )


@router.get("/dags/{dag_id}/epochs/{epoch}")
def epoch(request: Request, user: User, session: SessionDep, dag_id: str, epoch: int) -> Response:
    """Show one epoch: rows in and out by relation, seconds by step, and the quality check's verdict."""
    store = store_of(dag_id)
    facts = store.at_version(("epoch", epoch), lambda meta, _: one_epoch(meta, epoch))
    if facts is None:
        raise HTTPException(404, f"The store has no committed epoch {epoch}. Retention may have expired it.")
    run = injected_by(store.meta, facts)
    rows = compared_rows(store, (facts,))[epoch]
    (quality,) = qualities(store, (epoch,))
    head = head_of(store, dag_id, user, session)
    return page(request, "epoch.html", head=head, tab="epochs", epoch=facts, rows=rows, run=run, quality=quality)


@router.get("/dags/{dag_id}/runs/{run_id:path}/report")
def report(request: Request, user: User, session: SessionDep, dag_id: str, run_id: str) -> Response:
    """Show the quality check's verdict on the epoch that a run committed."""
    store, run = store_of(dag_id), find_run(session, dag_id, run_id)
    if run is not None and run.branch:  # no suite of the store has run
        return run_page(request, user, session, dag_id, run_id)
    epoch = committed_epoch(session, dag_id, run_id)
    verdicts = qualities(store, () if epoch is None else (epoch,))
    head = head_of(store, dag_id, user, session)
    return page(
        request, "report.html", head=head, tab="quality", quality=verdicts[0] if verdicts else None, run_id=run_id
    )


@router.get("/dags/{dag_id}/runs/{run_id:path}")
def run_page(request: Request, user: User, session: SessionDep, dag_id: str, run_id: str) -> Response:
    """Show how a run ended, and the epochs whose barriers it injected. Epochs of a branch are not the store's."""
    store = store_of(dag_id)
    if (run := find_run(session, dag_id, run_id)) is None:
        raise HTTPException(404, f"DAG {dag_id} has no run {run_id!r}.")
    committed = None if run.branch else committed_epoch(session, dag_id, run_id)
    asked: Mapping[str, str] = {"dag": dag_id, "run": run_id}
    epochs, files = store.at_version(
        ("run", dag_id, run_id, committed), lambda meta, _: _of_run(meta, asked, committed)
    )
    quality = {q.epoch: q for q in qualities(store, tuple(epoch.epoch for epoch in epochs))}
    head = head_of(store, dag_id, user, session)
    opened = _open_of(store, asked)
    last = None if head.status is None else head.status.run
    return page(
        request,
        "run.html",
        head=head,
        tab="",
        run=run,
        failed=failed_tasks(session, [run]).get((dag_id, run_id), ()),
        last_task=LAST_TASK,
        recorded=last if last is not None and last.run == asked else None,
        epochs=epochs,
        rows=compared_rows(store, epochs[:SHOWN_ROWS]),
        quality=quality,
        committed=committed,
        most=MOST_OF_A_RUN,
        files=files,
        opened=opened,
        work=head.status.work if opened is not None and head.status is not None else (),
    )


def compared_rows(store: SeenStore, epochs: Sequence[EpochFacts]) -> Mapping[int, tuple[RowsCompared, ...]]:
    """The rows of these epochs beside the expected ones, by epoch."""

    def compare(epoch: EpochFacts) -> tuple[RowsCompared, ...]:
        return store.at_version(("rows", epoch.epoch), lambda meta, _: compare_rows(meta, epoch))

    return {epoch.epoch: compare(epoch) for epoch in epochs}


def _of_run(
    meta: MetaStore, asked: Mapping[str, str], committed: int | None
) -> tuple[tuple[EpochFacts, ...], tuple[FileFacts, ...]]:
    epochs = epochs_of_run(meta, asked, committed, MOST_OF_A_RUN)
    return epochs, taken_by(meta, epochs)


def _open_of(store: SeenStore, asked: Mapping[str, str]) -> BarrierFacts | None:
    """The open barrier if this run injected it."""
    barrier = store.meta.barrier_after(store.version.epoch)
    return None if barrier is None or barrier.run != asked else barrier_facts(store.meta, store.version, barrier)


def qualities(store: SeenStore, epochs: tuple[int, ...]) -> tuple[EpochQuality, ...]:
    """The quality check's verdicts on these epochs, in the same order.

    A suite may be corrected and run again, so each page compares the ETags of the records. It reads only the ones that
    have changed. Cost: a HEAD per epoch, PARALLEL at once.
    """
    objects, settings = store.meta.objects, store.pipeline.quality
    pages: Mapping[int, Mapping[str, tuple[str, ...]]] = {}
    if settings is not None:
        docs = settings.docs
        pages = store.remembered(("docs", docs, file_version(docs / RESULTS), epochs), lambda: pages_of(docs, epochs))

    by_view = settings is not None and settings.scope is QualityScope.VIEW

    def quality_of(epoch: int, etag: str | None) -> EpochQuality:
        of = pages.get(epoch, {})

        def read_quality() -> EpochQuality:
            return quality_of_epoch(epoch, read_record(objects, epoch), of, by_view=by_view)

        return store.remembered(("quality", epoch, etag, tuple(of.items()), by_view), read_quality, large=True)

    return tuple(quality_of(epoch, etag) for epoch, etag in zip(epochs, record_etags(objects, epochs), strict=True))
