"""Buttons on tasks: to the page of the run's epochs, and to the report of the quality check.

The worker writes a link when its task ends. The link names only the run; the page looks up the epochs when it is
opened.
"""

from typing import Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from tussock_airflow import conf

_PAGES = "plugin/tussock/tussock"  # within Airflow's frame, so that a login returns to the page


def page_address(*parts: str) -> str:
    """The address of a page for a browser."""
    return _page_address(_PAGES, *(quote(part, safe="") for part in parts))


def run_address(dag_id: str, run_id: str) -> str:
    """The address of Airflow's own page of a run."""
    return _page_address("dags", quote(dag_id, safe=""), "runs", quote(run_id, safe=""))


def _page_address(*parts: str) -> str:
    base = str(conf.get("api", "base_url", fallback="/")).rstrip("/")
    return "/".join([base, *parts])


class EpochLink(BaseOperatorLink):
    """Link from a task to the epochs of its run."""

    name: ClassVar[str] = "Epoch"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return page_address("dags", ti_key.dag_id, "runs", ti_key.run_id)


class ReportLink(BaseOperatorLink):
    """Link from a task to the results of the suites."""

    name: ClassVar[str] = "Quality report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return page_address("dags", ti_key.dag_id, "runs", ti_key.run_id, "report")


LINKS = (EpochLink(), ReportLink())
LINKED = ("run_actors", "validate_views", "publish_views")
"""The tasks with these buttons.

Each link is a row in Airflow's database, so only the tasks that users open have them.
"""
