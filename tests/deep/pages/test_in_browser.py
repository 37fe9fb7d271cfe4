"""Pages in a real browser, through the login of a running Airflow: each role's pages and actions. Takes minutes."""

import json
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from scripts.browser import Browser, browser, chromium
from scripts.pages_pictures import log_in
from tests.support.dags.waiting import PATIENCE_S
from tests.support.pages.row_values import CARD, tell_card
from tests.support.pages.serving import ROLES, Shop

DAG = "epoch_shop"
INSIDE = "document.querySelector('iframe')?.contentDocument"
pytestmark = [
    pytest.mark.airflow,
    pytest.mark.deep,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(chromium() is None, reason="no chromium (Debian: apt-get install chromium)"),
    pytest.mark.filterwarnings("ignore"),
]


def see(page: Browser, address: str) -> str:
    """Open an Airflow address and return the text in our frame."""
    page.go(address, f"{INSIDE}?.querySelector('h1') && {INSIDE}.readyState === 'complete'")
    return str(page.value(f"{INSIDE}.body.innerText"))


def test_a_viewer_reads_a_user_acts_and_no_request_goes_to_another_host(tmp_path: Path) -> None:
    tell_card(Shop(tmp_path))
    env = airflow_environment(tmp_path) | {
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
    }
    home = AirflowHome(tmp_path, ROOT, env)
    base = env["AIRFLOW__API__BASE_URL"]
    tab, act = f"{base}/dags/{DAG}/plugin/tussock-dag", f"{base}/plugin/tussock/tussock/dags/{DAG}/actions/pause"
    with home.up(DAG, PATIENCE_S):
        passwords = json.loads((tmp_path / ".airflow/passwords.json").read_text())
        for user in ROLES:
            with browser() as page:
                page.size(1280, 900)
                log_in(page, base, passwords[user], user)
                assert "Orders of a <b>shop</b>" in see(page, f"{base}/plugin/tussock/tussock/pipelines")
                text = see(page, tab)
                assert "per_g" in text
                assert ("Actions" in text) == (user != "viewer")
                ours = [asked for asked in page.requested if "/tussock" in asked]
                assert ours
                assert {asked for asked in ours if not asked.startswith(base)} == set()
                assert [text for text in page.complaints if "Content Security Policy" in text] == []
                text = see(page, act)
                assert ("Not allowed" in text) == (user == "viewer")
                text = see(page, f"{base}/plugin/tussock/tussock/dags/{DAG}/verified")
                assert "per_g" in text
                assert (CARD in text) == (user != "viewer")
        with browser() as page:
            page.size(1280, 900)
            log_in(page, base, passwords["user"], "user")
            see(page, act)
            inside = "document.querySelector('iframe').contentDocument"
            page.value(f"{inside}.querySelector('select').value = 'per_g'")
            page.value(f"{inside}.querySelector('form.action button').click()")
            page.wait(f"{INSIDE}?.body?.innerText.includes(': run started')")
            assert home.query(f"SELECT triggering_user_name FROM dag_run WHERE dag_id = '{DAG}'") == [("user",)]
            assert "Data quality" in see_docs(page, base)


def see_docs(page: Browser, base: str) -> str:
    """Open the Data Docs outside the frame and return their text; their script did not run."""
    page.go(f"{base}/tussock/dags/{DAG}/reports/index.html")
    return page.text()
