"""Access control of the pages: rights, cross-site requests, and the browser's Content-Security-Policy.

Airflow mounts a plugin's app without any access control. Therefore:

* The app requires the right to see plugins. Each route of a DAG requires the right to read that DAG. Each action
  requires the rights to edit its DAG and to start runs of it.
* The app mounts nothing and generates nothing (no StaticFiles, no OpenAPI), since those bypass its dependencies.
* Every response carries a Content-Security-Policy. Pages load only from this server, including two scripts. Data Docs
  are written by other programs; they may not run scripts or submit forms.

A form on another site could be sent with the user's cookie. So an action is a POST whose origin is checked
(`from_here`).
"""

from dataclasses import dataclass
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

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.row_values import Audience, may_see_rows
from tussock.jobs.settings.tables import RowsFor

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
DOCS_POLICY = (
    # Without allow-same-origin the browser would send no cookie to the next page of the reports. Scripts stay disabled.
    "sandbox allow-same-origin; default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

User = Annotated[BaseUser, Depends(get_user)]
SEES_PLUGINS = Depends(requires_access_view(AccessView.PLUGINS))
READS_RUNS = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
EDITS_DAG = Depends(requires_access_dag("PUT"))


def readable_dags(user: BaseUser) -> set[str]:
    """The DAGs that a user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def may_read(user: BaseUser, dag_id: str) -> bool:
    """Whether a user may read a DAG, also one that Airflow does not have, because its definition is broken."""
    return _allows(user, _details(dag_id), "GET", None)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a user who may read the runs of a DAG.

    Args:
        may_edit: whether the user may edit the DAG and start runs of it.
        may_see_rows: whether the user may also see rows of the pipeline's views.
    """

    may_edit: bool
    may_see_rows: bool


def rights_of(user: BaseUser, dag_id: str, rows: RowsFor) -> Rights:
    """The rights of a user to a DAG. `rows`: the pipeline's setting. Cost: one query of Airflow's database."""
    details = _details(dag_id)
    edits = _allows(user, details, "PUT", None)
    starts = edits and _allows(user, details, "POST", DagAccessEntity.RUN)
    return Rights(edits and starts, may_see_rows(rows, Audience.EDITORS if edits else Audience.READERS))


def require_rows(user: BaseUser, dag_id: str, pipeline: Pipeline, what: str) -> None:
    """Raise HTTPException 403 unless the user may see values of the pipeline's rows. `what`: contains them."""
    rows = pipeline.pages.rows
    if not rights_of(user, dag_id, rows).may_see_rows:
        raise HTTPException(
            403,
            f"You may not see {what} of {pipeline.name}. `[pages] rows` in its pipeline.toml is {rows.value!r}: the "
            "setting decides who sees them.",
        )


def may_edit(user: BaseUser, dag_id: str) -> bool:
    """Whether a user may edit a DAG and start runs of it."""
    return rights_of(user, dag_id, RowsFor.NOBODY).may_edit


def from_here(request: Request) -> None:
    """Raise HTTPException 403 for a POST that was not sent from a page of this server.

    Browsers set Sec-Fetch-Site and Origin, and no page can change them. A client that sends neither is not a browser,
    so it has no ambient cookie that another site could use. Airflow's cookie is also SameSite=Lax, so forms of other
    sites do not carry it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        fine = site == "same-origin"
    else:
        here = {request.headers.get("host"), urlsplit(conf.get("api", "base_url", fallback="")).netloc}
        fine = origin is None or urlsplit(origin).netloc in here - {None, ""}
    if not fine:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            "This request came from another site. Open the page in Airflow and repeat the action there.",
        )


def with_headers(response: Response) -> Response:
    """Add the headers that the response does not have yet."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _details(dag_id: str) -> DagDetails:
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))


def _allows(user: BaseUser, details: DagDetails, method: str, entity: DagAccessEntity | None) -> bool:
    allows = get_auth_manager().is_authorized_dag
    return allows(method=method, access_entity=entity, details=details, user=user)  # type: ignore[arg-type]
