"""Tussock's pages in Airflow's UI: the plugin that registers them. docs/design/pages.md says how they are built.

Every process of Airflow imports this, tasks included, so it is light: the app is imported by the API server when somebody asks for a page.

    app.py       the FastAPI app and its routes                  guard.py    who may see and do what, and from where
    stores.py    stores, opened once and asked seldom            dag_runs.py what Airflow's database says of DAGs and runs
    overview.py, dag.py, epochs.py, quality.py, actions.py          one page each: facts to what a template shows
    graph.py, spark.py                                           places and paths of drawings
    templates/, static/
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/tussock"


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """The app, imported when it is first asked."""
    from tussock_pages.app import app

    await app(scope, receive, send)


def _view(name: str, destination: str, href: str, route: str) -> dict[str, str]:
    # Each a route of its own: Airflow looks a view up by it, and not by where it is shown. No leading slash: Airflow may be served below a
    # path, and its pages say so by their base.
    return {"name": name, "destination": destination, "href": f"{PREFIX.removeprefix('/')}/{href}", "url_route": route}


class TussockPages(AirflowPlugin):
    """A page of all pipelines, and tabs of DAGs and runs."""

    name = "tussock_pages"
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Tussock"}]  # noqa: RUF012  the attributes that Airflow looks for
    external_views = [  # noqa: RUF012
        _view("Tussock", "nav", "pipelines", "tussock"),
        _view("Tussock", "dag", "dags/{DAG_ID}", "tussock-dag"),
        _view("Tussock", "dag_run", "dags/{DAG_ID}/runs/{RUN_ID}", "tussock-run"),
    ]
