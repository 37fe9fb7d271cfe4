"""The rights of each role: every route, tried by every role. The table of docs/pages.md is made from the result."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.support.pages.serving import ROLES, ROOT, Shop, Visitor

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
BEGIN, END = "<!-- made by tests/airflow/pages/test_rights.py -->\n", "<!-- end -->\n"
WHO = ("nobody", *ROLES)
HERE = {"Sec-Fetch-Site": "same-origin"}

ROUTES = {
    "GET /pipelines": "the overview",
    "GET /static/{name}": "stylesheet",
    "GET /dags/{dag_id}": "views",
    "GET /dags/{dag_id}/graph": "the graph",
    "GET /dags/{dag_id}/relations/{name}": "a view",
    "GET /dags/{dag_id}/relations/{name}/rows": "rows of a view",
    "GET /dags/{dag_id}/epochs": "epochs",
    "GET /dags/{dag_id}/epochs/{epoch}": "an epoch",
    "GET /dags/{dag_id}/runs/{run_id:path}": "a run",
    "GET /dags/{dag_id}/runs/{run_id:path}/report": "the report of a run",
    "GET /dags/{dag_id}/quality": "quality",
    "GET /dags/{dag_id}/quality/{view}": "quality of a view",
    "GET /dags/{dag_id}/verified": "verified",
    "GET /dags/{dag_id}/branches": "branches",
    "GET /dags/{dag_id}/reports/{path:path}": "Data Docs",
    "GET /dags/{dag_id}/actions": "the list of actions",
    "GET /dags/{dag_id}/actions/{name}": "the effect of an action",
    "POST /dags/{dag_id}/actions/{name}": "start an action",
    "GET /dags/{dag_id}/actions/{name}/begun": "the confirmation of an action",
}
"""All routes, by a reader's name for each."""


def asked(route: str, shop: Shop, run: str) -> tuple[str, str]:
    """Method and address of a successful request to a route."""
    method, path = route.split(" ")
    action = {"dag_id": "epoch_shop", "name": "epoch"}
    values = {
        "dag_id": "epoch_shop",
        "epoch": shop.epochs[0],
        "view": "per_g",
        "run_id:path": run,
        "path:path": "index.html",
    }
    values |= {"name": "pages.css"} if "static" in path else action if "actions" in path else {"name": "per_g"}
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", str(value))
    return method, f"/tussock{path}" + (f"?run={run}" if path.endswith("begun") else "")


@pytest.fixture(scope="module")
def run(visitors: dict[str, Visitor]) -> str:
    """A run, made by the admin."""
    begun = visitors["admin"].post("/tussock/dags/epoch_shop/actions/epoch", headers=HERE)
    return str(begun.headers["location"]).partition("run=")[2]


def flat(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes of an application. Newer releases of FastAPI keep an included router as one of them."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from (route,) if inner is None else flat(inner.routes)


def test_every_route_is_tried_here(app: FastAPI) -> None:
    from tussock_pages.app import app as pages

    routes = list(flat(pages.routes))
    found = {f"{method} {route.path}" for route in routes if isinstance(route, APIRoute) for method in route.methods}
    assert found == set(ROUTES)
    others = [route for route in routes if not isinstance(route, APIRoute)]
    assert others == [], "mounted or generated routes have no guard"


def test_each_role_has_the_rights_of_the_table(
    visitors: dict[str, Visitor], shop: Shop, run: str, request: pytest.FixtureRequest
) -> None:
    lines = [f"| | {' | '.join(WHO)} |", f"|---|{'---|' * len(WHO)}"]
    for route, words in ROUTES.items():
        method, address = asked(route, shop, run)
        codes = [visitors[who].request(method, address, headers=HERE).status_code for who in WHO]
        assert set(codes) <= {200, 303, 401, 403}, (route, codes)
        lines.append(f"| {words} | {' | '.join('yes' if code in (200, 303) else str(code) for code in codes)} |")
    page = ROOT / "docs/pages.md"
    before, _, rest = page.read_text().partition(BEGIN)
    table = "\n".join(lines) + "\n"
    if request.config.getoption("--update-cases"):
        page.write_text(before + BEGIN + table + END + rest.partition(END)[2])
        return
    assert rest.partition(END)[0] == table, "make docs/pages.md anew with --update-cases, and review it"


def test_no_page_without_a_login_and_no_redirect_within_airflows_frame(visitors: dict[str, Visitor]) -> None:
    answer = visitors["nobody"].get("/tussock/pipelines")
    assert answer.status_code == 401
    assert "/auth/login" in answer.text
    assert "shop" not in answer.text


def test_a_user_without_edit_rights_is_not_offered_actions(visitors: dict[str, Visitor]) -> None:
    address = "/tussock/dags/epoch_shop"
    assert "/actions" not in visitors["viewer"].get(address).text
    assert "/actions" in visitors["user"].get(address).text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},  # a page in a sandbox: Data Docs
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8080"},
    ],
    ids=str,
)
def test_an_action_requested_by_another_site_is_refused(admin: Visitor, headers: dict[str, str]) -> None:
    answer = admin.post("/tussock/dags/epoch_shop/actions/epoch", headers=headers)
    assert (answer.status_code, "another site" in answer.text) == (403, True)


def test_an_action_is_of_the_dag_that_does_it_and_no_get_does_anything(admin: Visitor) -> None:
    assert admin.post("/tussock/dags/epoch_shop/actions/upkeep", headers=HERE).status_code == 404
    assert admin.post("/tussock/dags/upkeep_shop/actions/upkeep", headers=HERE).status_code == 303
    assert admin.get("/tussock/dags/epoch_shop/actions/epoch").status_code == 200
    assert admin.post("/tussock/dags/nothing_shop/actions/epoch", headers=HERE).status_code in (403, 404)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html",
        "%2e%2e/secret.html",
        "..%2fsecret.html",
        "validations/../../secret.html",
        "out.html",  # a link that leads out
        ".hidden.html",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "validations",
        "none.html",
        "a%00b.html",
        f"{'x' * 5000}.html",
    ],
)
def test_data_docs_are_files_below_their_folder_and_no_others(admin: Visitor, path: str) -> None:
    answer = admin.get(f"/tussock/dags/epoch_shop/reports/{path}")
    assert answer.status_code in (404, 401, 403)
    assert "what is outside" not in answer.text
    assert "root:" not in answer.text


def test_data_docs_run_no_script_and_load_nothing_from_elsewhere(admin: Visitor) -> None:
    answer = admin.get("/tussock/dags/epoch_shop/reports/")
    policy = answer.headers["content-security-policy"]
    assert "Data quality" in answer.text
    assert policy.startswith("sandbox allow-same-origin; default-src 'none';")
    assert "allow-scripts" not in policy
    assert "script-src" not in policy, "default-src holds"
    assert admin.get("/tussock/dags/epoch_shop/reports/validations/one.html").text == "one"


def test_every_response_of_a_page_has_a_policy_without_other_hosts(
    visitors: dict[str, Visitor], shop: Shop, run: str
) -> None:
    for who in ("nobody", "admin"):
        for route in ROUTES:
            method, address = asked(route, shop, run)
            answer = visitors[who].request(method, address, headers=HERE)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy, route
            assert "http" not in policy, route
            assert answer.headers["x-content-type-options"] == "nosniff", route


def test_templates_hold_no_script_style_or_address_of_their_own() -> None:
    for file in Path(ROOT / "plugins/tussock_pages/templates").iterdir():
        text = file.read_text()
        for word in ("style=", "onclick", "http://", "https://", "|safe", "| safe"):
            assert word not in text.replace("http://www.w3.org/2000/svg", ""), (file.name, word)
