"""Pages of quality: suite results by epoch, the history of each expectation, and the Data Docs."""

import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, HTTPException, Query, Request
from starlette.responses import FileResponse, Response

from tussock.jobs.facts.history import epoch_page
from tussock.jobs.facts.quality import CheckFacts, EpochQuality, ExpectationHistory, expectations
from tussock_pages.dag import head_of, store_of
from tussock_pages.epochs import qualities
from tussock_pages.guard import DOCS_POLICY, READS_RUNS, User, require_rows
from tussock_pages.page import page
from tussock_pages.remembered import file_version, key_of

EPOCHS_A_PAGE = 25
VIEWS_A_PAGE = 50
SERVED = {".html", ".css", ".png", ".svg", ".ico", ".woff", ".woff2"}
"""File types of Data Docs, except scripts, which may not run."""

router = APIRouter(dependencies=[READS_RUNS])


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The checks of some epochs, by view and epoch. `names`: also of views that have a suite and no check yet."""

    names: tuple[str, ...]
    checks: Mapping[str, Mapping[int, CheckFacts]]


def _collect_grid(judged: Sequence[EpochQuality], files: Sequence[str]) -> Grid:
    """Collect the checks of epochs, newest first. Views whose newest check failed come first.

    `files`: the names of the suites in the pipeline's folder.
    """
    views: dict[str, dict[int, CheckFacts]] = {}
    for quality in judged:
        for check in quality.checks:
            views.setdefault(check.view, {})[quality.epoch] = check
    failed = {name for name, checks in views.items() if next(iter(checks.values())).failures}
    return Grid(tuple(sorted({*views, *files}, key=lambda name: (name not in failed, name))), views)


@router.get("/dags/{dag_id}/quality")
def quality_page(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    before: Annotated[int | None, Query(gt=0, lt=2**64)] = None,
    page_number: Annotated[int, Query(alias="page", ge=1)] = 1,
) -> Response:
    """Show a grid of VIEWS_A_PAGE views by EPOCHS_A_PAGE epochs; views whose newest check failed come first."""
    store = store_of(dag_id)
    epochs = store.at_version(
        ("epochs", before), lambda meta, version: epoch_page(meta, before, EPOCHS_A_PAGE, version)
    )
    judged = tuple(q for q in qualities(store, tuple(epoch.epoch for epoch in epochs.epochs)) if q.checks or q.paused)
    head, suites = head_of(store, dag_id, user, session), store.pipeline.quality
    files = () if suites is None else tuple(file.stem for file in suites.list_suites())
    grid = store.remembered(("grid", key_of(judged), files), lambda: _collect_grid(judged, files), large=True)
    first = (page_number - 1) * VIEWS_A_PAGE
    return page(
        request,
        "quality.html",
        head=head,
        tab="quality",
        judged=judged,
        grid=grid,
        names=grid.names[first : first + VIEWS_A_PAGE],
        total=len(grid.names),
        page_number=page_number,
        pages=max(1, -(-len(grid.names) // VIEWS_A_PAGE)),
        has_suites=bool(files),
        has_docs=head.rights.may_see_rows and suites is not None and (suites.docs / "index.html").is_file(),
        older=epochs.older,
        before=before,
    )


@router.get("/dags/{dag_id}/quality/{view}")
def view_page(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    view: str,
    before: Annotated[int | None, Query(gt=0, lt=2**64)] = None,
) -> Response:
    """Show the history of each expectation of a view's suite, with the last failing rows."""
    store = store_of(dag_id)
    epochs = store.at_version(
        ("epochs", before), lambda meta, version: epoch_page(meta, before, EPOCHS_A_PAGE, version)
    )
    settings = store.pipeline.quality
    judged = qualities(store, tuple(epoch.epoch for epoch in epochs.epochs))
    checks = store.remembered(
        ("checks", key_of(judged), view),
        lambda: tuple(c for quality in judged for c in quality.checks if c.view == view),
        large=True,
    )
    history: tuple[ExpectationHistory, ...] = ()
    if checks or view in {r.name for r in store.version.catalog.live_relations()}:
        file = None if settings is None else file_version(settings.folder / f"{view}.json")
        history = store.remembered(
            ("history", key_of(checks), view, file), lambda: expectations(view, checks, settings)
        )
    if not checks and not history:
        raise HTTPException(404, f"View {view!r} has no suite in the pipeline's folder, and no suite has run on it.")
    head = head_of(store, dag_id, user, session)
    return page(
        request,
        "view_quality.html",
        head=head,
        tab="quality",
        view=view,
        checks=checks,
        history=history,
        older=epochs.older,
        before=before,
    )


@router.get("/dags/{dag_id}/reports/{path:path}")
def data_docs(user: User, dag_id: str, path: str) -> Response:
    """Serve a file of the pipeline's Data Docs, to users who may see rows, because it contains samples.

    Other programs wrote it: it may run no script and load nothing external.
    """
    store = store_of(dag_id)
    require_rows(user, dag_id, store.pipeline, "the Data Docs, which contain values of rows,")
    if store.pipeline.quality is None:
        raise HTTPException(404, "This pipeline has no suites, so it has no Data Docs.")
    root = store.pipeline.quality.docs.resolve()
    try:
        file = (root / (path or "index.html")).resolve()  # resolves links first, so that none leads outside
        is_file = file.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        file, is_file = root, False
    if (
        not file.is_relative_to(root)
        or not is_file
        or file.suffix not in SERVED
        or any(p.startswith(".") for p in file.relative_to(root).parts)
    ):
        raise HTTPException(404, f"The Data Docs have no page {path!r}.")
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return FileResponse(
        file, media_type=kind, headers={"Content-Security-Policy": DOCS_POLICY, "Cache-Control": "private, max-age=60"}
    )
