"""Buttons on tasks: to the page of the epoch that the run made, and to what the quality gate reports of it.

A link is written by the worker when the task ends. It names the run; which epochs that is, the page finds when somebody asks.
"""

from typing import Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from tussock_airflow import conf

_PAGES = "plugin/tussock/tussock"  # within Airflow's own frame, whose login leads back to it


def page_address(*parts: str) -> str:
    """The address of a page, as a browser asks for it."""
    base = str(conf.get("api", "base_url", fallback="/")).rstrip("/")
    return "/".join([base, _PAGES, *(quote(part, safe="") for part in parts)])


class EpochLink(BaseOperatorLink):
    """From a task to the page of its run's epochs."""

    name: ClassVar[str] = "Epoch"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return page_address("dags", ti_key.dag_id, "runs", ti_key.run_id)


class ReportLink(BaseOperatorLink):
    """From a task to what the suites found."""

    name: ClassVar[str] = "Quality report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return page_address("dags", ti_key.dag_id, "runs", ti_key.run_id, "report")


LINKS = (EpochLink(), ReportLink())
LINKED = ("run_actors", "validate_views", "publish_views")
"""The tasks that have these buttons: those that one opens to know what became of an epoch. Each link is a row in Airflow's database."""
