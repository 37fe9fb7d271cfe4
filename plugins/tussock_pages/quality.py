"""Pages of quality: suite results by epoch, the history of each expectation, and the Data Docs."""

import mimetypes
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import FileResponse, Response

from tussock.jobs.facts.gate import CheckFacts, expectations
from tussock.jobs.facts.history import epoch_page
from tussock_pages.dag import head_of, store_of
from tussock_pages.epochs import qualities
from tussock_pages.guard import DOCS_POLICY, READS_RUNS, User
from tussock_pages.page import page

EPOCHS_A_PAGE = 25
VIEWS_A_PAGE = 50
SERVED = {".html", ".css", ".png", ".svg", ".ico", ".woff", ".woff2"}
"""File types of Data Docs, except scripts, which may not run."""

router = APIRouter(dependencies=[READS_RUNS])


@router.get("/dags/{dag_id}/quality")
def quality_page(
    request: Request,
    user: User,
    dag_id: str,
    before: Annotated[int | None, Query(gt=0, lt=2**64)] = None,
    page_number: Annotated[int, Query(alias="page", ge=1)] = 1,
) -> HTMLResponse:
    """Show a grid of VIEWS_A_PAGE views by EPOCHS_A_PAGE epochs; views whose newest check failed come first."""
    store = store_of(dag_id)
    found = store.at_version(("epochs", before), lambda meta, version: epoch_page(meta, before, EPOCHS_A_PAGE, version))
    judged = [q for q in qualities(store, tuple(epoch.epoch for epoch in found.epochs)) if q.checks or q.paused]
    views: dict[str, dict[int, CheckFacts]] = {}
    for quality in judged:
        for check in quality.checks:
            views.setdefault(check.view, {})[quality.epoch] = check
    head, suites = head_of(store, dag_id, user), store.pipeline.quality
    files = () if suites is None else tuple(file.stem for file in suites.suites())
    newest = {name: next(iter(checks.values())) for name, checks in views.items()}
    failed = {name for name, check in newest.items() if check.failures}
    names = sorted({*views, *files}, key=lambda name: (name not in failed, name))
    first = (page_number - 1) * VIEWS_A_PAGE
    return page(
        request,
        "quality.html",
        head=head,
        tab="quality",
        judged=judged,
        views={name: views.get(name, {}) for name in names[first : first + VIEWS_A_PAGE]},
        total=len(names),
        page_number=page_number,
        pages=max(1, -(-len(names) // VIEWS_A_PAGE)),
        has_suites=bool(files),
        has_docs=suites is not None and (suites.docs / "index.html").is_file(),
        older=found.older,
        before=before,
    )


@router.get("/dags/{dag_id}/quality/{view}")
def view_page(
    request: Request, user: User, dag_id: str, view: str, before: Annotated[int | None, Query(gt=0, lt=2**64)] = None
) -> HTMLResponse:
    """Show the history of each expectation of a view's suite, with the last failing rows."""
    store = store_of(dag_id)
    found = store.at_version(("epochs", before), lambda meta, version: epoch_page(meta, before, EPOCHS_A_PAGE, version))
    checks = [
        check
        for quality in qualities(store, tuple(epoch.epoch for epoch in found.epochs))
        for check in quality.checks
        if check.view == view
    ]
    history = (
        expectations(view, checks, store.pipeline.quality)
        if checks or view in {r.name for r in store.meta.latest().catalog.live()}
        else ()
    )
    if not checks and not history:
        raise HTTPException(404, f"View {view!r} has no suite in the pipeline's folder, and no suite has run on it.")
    head = head_of(store, dag_id, user)
    return page(
        request,
        "view_quality.html",
        head=head,
        tab="quality",
        view=view,
        checks=checks,
        history=history,
        older=found.older,
        before=before,
    )


@router.get("/dags/{dag_id}/reports/{path:path}")
def data_docs(dag_id: str, path: str) -> Response:
    """Serve a file of the pipeline's Data Docs.

    Other programs wrote it: it may run no script and load nothing external.
    """
    store = store_of(dag_id)
    if store.pipeline.quality is None:
        raise HTTPException(404, "This pipeline has no suites, so it has no Data Docs.")
    root = store.pipeline.quality.docs.resolve()
    file = (root / (path or "index.html")).resolve()  # resolves links first, so that none leads outside
    if (
        not file.is_relative_to(root)
        or not file.is_file()
        or file.suffix not in SERVED
        or any(p.startswith(".") for p in file.relative_to(root).parts)
    ):
        raise HTTPException(404, f"The Data Docs have no page {path!r}.")
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return FileResponse(
        file, media_type=kind, headers={"Content-Security-Policy": DOCS_POLICY, "Cache-Control": "private, max-age=60"}
    )
