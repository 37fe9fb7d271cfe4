"""The FastAPI app: its guard, its error pages, and the routes of each page's module."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from tussock.statestore.errors import TussockError
from tussock.statestore.meta.errors import NotInitialisedError
from tussock_pages import actions, dag, epochs, overview, quality, verified
from tussock_pages.guard import SEES_PLUGINS, with_headers
from tussock_pages.page import FOLDER, page

log = logging.getLogger(__name__)

STATIC = {"pages.css": "text/css", "theme.js": "text/javascript"}

app = FastAPI(title="Tussock", dependencies=[SEES_PLUGINS], openapi_url=None, docs_url=None, redoc_url=None)
for router in (overview.router, dag.router, epochs.router, quality.router, verified.router, actions.router):
    app.include_router(router)


@app.get("/static/{name}")
def static(name: str) -> Response:
    """The stylesheet, and the script that asks which theme Airflow has. A route, since what is mounted is not guarded."""
    if name not in STATIC:
        raise HTTPException(404, f"there is no file {name!r}")
    return FileResponse(
        FOLDER / "static" / name, media_type=STATIC[name], headers={"Cache-Control": "private, max-age=300"}
    )


@app.middleware("http")
async def guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Headers for every answer; a page for what nobody foresaw, whose trace is in the server's log."""
    try:
        return with_headers(await call_next(request))
    except Exception:
        log.exception("a page of Tussock failed: %s", request.url.path)
        return with_headers(
            _error(request, 500, "This page failed", "What happened is in the log of Airflow's API server.")
        )


@app.exception_handler(TussockError)
def no_store(request: Request, err: TussockError) -> Response:
    """A store that cannot be read, or what is asked of it that cannot be had, in its own words."""
    if isinstance(err, NotInitialisedError):
        return _error(
            request,
            404,
            "This pipeline has no store yet",
            "Apply it: trigger its deploy DAG, or run `tussock apply`.",
            err,
        )
    return _error(
        request, 503, "The store cannot be read", "The pipeline is not affected by this page. What was found:", err
    )


@app.exception_handler(HTTPException)
def refused(request: Request, err: HTTPException) -> Response:
    """What a guard says, as a page."""
    login = None
    if err.status_code == 401:
        login = get_auth_manager().get_url_login(next_url=str(request.url))
        return _error(
            request,
            401,
            "Log in to see this page",
            "You are not logged in to Airflow, or were so too long ago.",
            login=login,
        )
    title = {403: "Not allowed", 404: "Not found"}.get(err.status_code, "Not done")
    return _error(request, err.status_code, title, str(err.detail))


@app.exception_handler(RequestValidationError)
def misread(request: Request, err: RequestValidationError) -> Response:
    """An address or a form that says something else than was asked."""
    found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors())
    return _error(request, 422, "Not understood", found)


def _error(
    request: Request, status: int, title: str, text: str, err: BaseException | None = None, login: Any = None
) -> Response:
    return page(request, "error.html", status, title=title, text=text, err=err, login=login)
