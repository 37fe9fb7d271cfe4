"""Tussock's pages in Airflow's UI: the plugin that registers them. See docs/design/pages.md for the design.

Every process of Airflow imports this module, including tasks. It is light: the API server imports the app on the first
request.

    app.py       the FastAPI app and its routes                  guard.py    access control
    stores.py    stores, opened once, with cached answers        dag_runs.py DAGs and runs from Airflow's database
    overview.py  all pipelines                                    health.py   problems of a pipeline
    dag.py       a pipeline: its views, its graph, one view       rows.py     rows of a view
    epochs.py    epochs and runs                                  quality.py  results of suites and assertions
    verified.py  comparisons with Spark                           actions.py  forms that trigger runs
    branches.py  branches and previews
    page.py      renders a template of templates/                 remembered.py  answers that pages share
    sparkline.py a series of numbers as a line                    static/     style and scripts
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/tussock"


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Forward to the app, which is imported on the first request."""
    from tussock_pages.app import app

    await app(scope, receive, send)


def _view(name: str, destination: str, href: str, route: str) -> dict[str, str]:
    # Each view needs its own route, since Airflow looks views up by route. No leading slash: Airflow may be served
    # below a path, and its pages set that as their base.
    return {"name": name, "destination": destination, "href": f"{PREFIX.removeprefix('/')}/{href}", "url_route": route}


class TussockPages(AirflowPlugin):
    """A page of all pipelines, and tabs of DAGs and runs."""

    name = "tussock_pages"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Tussock"}]  # noqa: RUF012  Airflow's attribute names
    external_views = [  # noqa: RUF012
        _view("Tussock", "nav", "pipelines", "tussock"),
        _view("Tussock", "dag", "dags/{DAG_ID}", "tussock-dag"),
        _view("Tussock", "dag_run", "dags/{DAG_ID}/runs/{RUN_ID}", "tussock-run"),
    ]
