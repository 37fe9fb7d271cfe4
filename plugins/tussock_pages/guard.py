"""Who may see a page, who may act, and what a browser may do with what it gets.

Airflow mounts a plugin's app as it is: nothing of it is guarded unless it guards itself. So

* the app as a whole asks for the right to see plugins, each route of a DAG for the right to read that DAG, each action for the right to
  edit it and to trigger runs of the DAG that it triggers;
* nothing is mounted and nothing generated (no StaticFiles, no OpenAPI): those would stand beside the app's dependencies;
* every answer carries a Content-Security-Policy. Pages load from here alone, one script among it. Data Docs, which others' programs
  have written, run no script at all and send no form.

A form of another site could carry the cookie of who looks at it: an action is a POST, and asks where it comes from (`from_here`).
"""

from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag, requires_access_view
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status
from starlette.responses import Response

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
DOCS_POLICY = (
    # allow-same-origin: else the browser withholds the cookie, and with it the next page of the reports. No script can use it.
    "sandbox allow-same-origin; default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

User = Annotated[BaseUser, Depends(get_user)]
SEES_PLUGINS = Depends(requires_access_view(AccessView.PLUGINS))
READS_RUNS = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
EDITS_DAG = Depends(requires_access_dag("PUT"))


def readable_dags(user: BaseUser) -> set[str]:
    """The DAGs that a user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def may_edit(user: BaseUser, dag_id: str) -> bool:
    """Whether a user may edit a DAG and start runs of it."""
    return _may(user, dag_id, "PUT", None) and _may(user, dag_id, "POST", DagAccessEntity.RUN)


def from_here(request: Request) -> None:
    """Raises HTTPException 403 for a POST that no page of this server has sent.

    Browsers say where a request comes from, and no page can change what they say: Sec-Fetch-Site, and Origin. Without either, it is no
    browser, which has no ambient cookie that another site could use. Airflow's cookie is SameSite=Lax besides, so that no other site's
    form carries it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        fine = site == "same-origin"
    else:
        here = {request.headers.get("host"), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
        fine = origin is None or urlsplit(origin).netloc in here - {None, ""}
    if not fine:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN, "this request comes from another site. Open the page in Airflow, and act there"
        )


def with_headers(response: Response) -> Response:
    """The response, with the headers that it does not have of its own."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _may(user: BaseUser, dag_id: str, method: str, entity: DagAccessEntity | None) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)  # type: ignore[arg-type]
