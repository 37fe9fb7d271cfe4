"""The FastAPI app: access check, error pages, and the routes of all page modules."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from tussock.jobs.facts.trouble import TroubleKind
from tussock.jobs.settings.pipeline import UnknownPipelineError
from tussock.statestore.errors import TussockError
from tussock_pages import actions, branches, dag, epochs, overview, quality, rows, verified
from tussock_pages.guard import SEES_PLUGINS, with_headers
from tussock_pages.health import trouble_without_store
from tussock_pages.page import FOLDER, page

log = logging.getLogger(__name__)

STATIC = {"pages.css": "text/css", "theme.js": "text/javascript", "refresh.js": "text/javascript"}

app = FastAPI(title="Tussock", dependencies=[SEES_PLUGINS], openapi_url=None, docs_url=None, redoc_url=None)
for router in (
    overview.router,
    dag.router,
    epochs.router,
    quality.router,
    rows.router,
    verified.router,
    branches.router,
    actions.router,
):
    app.include_router(router)


@app.get("/static/{name}")
def static(name: str) -> Response:
    """Serve the stylesheet and the scripts. This is a route because mounts bypass the app's dependencies."""
    if name not in STATIC:
        raise HTTPException(404, f"The pages have no file {name!r}.")
    return FileResponse(
        FOLDER / "static" / name, media_type=STATIC[name], headers={"Cache-Control": "private, max-age=300"}
    )


@app.middleware("http")
async def guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add security headers to every response. Show an error page for unexpected exceptions and log their traceback."""
    try:
        return with_headers(await call_next(request))
    except Exception:
        log.exception("a page of Tussock failed: %s", request.url.path)
        return with_headers(
            _error(request, 500, "This page failed", "See the log of Airflow's API server for the traceback.")
        )


@app.exception_handler(TussockError)
def no_store(request: Request, err: TussockError) -> Response:
    """Show a store error, or a request that the store cannot answer, with the error's message."""
    if isinstance(err, UnknownPipelineError):  # names neither the folder nor pipelines that the user may not see
        text = f"There is no pipeline {err.name!r}. It was removed or renamed, or the address is mistyped."
        return _error(request, 404, "Not found", text)
    trouble = trouble_without_store(err, request.path_params.get("dag_id", ""))
    if trouble.kind is TroubleKind.STORE_MISSING:
        text = f"The {trouble.about} {trouble.what}. {trouble.do}"
        return _error(request, 404, "This pipeline has no store", text, passes=True)
    broken = trouble.kind is TroubleKind.DEFINITION
    title = "The pipeline's definition cannot be loaded" if broken else "The store cannot be read"
    return _error(request, 503, title, trouble.do, err, passes=True)


@app.exception_handler(HTTPException)
def refused(request: Request, err: HTTPException) -> Response:
    """Show an HTTP error as a page. A 401 gets a link to the login."""
    login = None
    if err.status_code == 401:
        login = get_auth_manager().get_url_login(next_url=str(request.url))
        return _error(
            request,
            401,
            "Log in to see this page",
            "You are not logged in to Airflow, or your session has expired.",
            login=login,
        )
    title = {403: "Not allowed", 404: "Not found"}.get(err.status_code, "Request failed")
    return _error(request, err.status_code, title, str(err.detail))


@app.exception_handler(RequestValidationError)
def misread(request: Request, err: RequestValidationError) -> Response:
    """Show an address or form that fails validation."""
    problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors())
    return _error(request, 422, "Invalid request", problems)


def _error(
    request: Request,
    status: int,
    title: str,
    text: str,
    err: BaseException | None = None,
    login: Any = None,
    *,
    passes: bool = False,
) -> Response:
    """The page of an error. `passes`: the page appears without a further request of its reader, once it can."""
    return page(request, "error.html", status, title=title, text=text, err=err, login=login, passes=passes)
