"""Values of rows on all pages: every route, read by every role, under every setting of `[pages] rows`."""

import re
from collections.abc import Iterator

import pytest

from tests.airflow.pages.test_rights import HERE, ROUTES, asked
from tests.support.pages.row_values import CARD, tell_card
from tests.support.pages.serving import PATIENCE_S, ROLES, ROOT, Shop, Visitor
from tests.support.waiting import eventually
from tussock.jobs.settings.tables import RowsFor

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
OVERVIEW = "/tussock/pipelines"
SEEN_BY = {RowsFor.READERS: ROLES, RowsFor.EDITORS: ("user", "op", "admin"), RowsFor.NOBODY: ()}


@pytest.fixture(scope="module")
def told(shop: Shop, visitors: dict[str, Visitor]) -> Shop:
    """The shop, with this value of a row in everything that its store tells and its pages show."""
    tell_card(shop)
    # Pages use a status for some seconds (FRESH_S), also one that an earlier module requested.
    eventually("the pages show the failure", lambda: CARD in visitors["admin"].get(OVERVIEW).text, PATIENCE_S)
    return shop


@pytest.fixture(scope="module")
def run(visitors: dict[str, Visitor]) -> str:
    begun = visitors["admin"].post("/tussock/dags/epoch_shop/actions/epoch", headers=HERE)
    return str(begun.headers["location"]).partition("run=")[2]


@pytest.fixture(params=list(RowsFor))
def rows(request: pytest.FixtureRequest, told: Shop) -> Iterator[RowsFor]:
    toml = told.folder / "pipelines/shop/pipeline.toml"
    before = toml.read_text()
    toml.write_text(f'{before}\n[pages]\nrows = "{request.param}"\n')
    yield request.param
    toml.write_text(before)


@pytest.mark.parametrize("role", ROLES)
def test_a_page_shows_a_value_of_a_row_only_to_those_who_may_see_rows(
    told: Shop, rows: RowsFor, role: str, visitors: dict[str, Visitor], run: str
) -> None:
    shown = set()
    for route, words in ROUTES.items():
        method, address = asked(route, told, run)
        if method == "POST" or "static" in route:
            continue
        for more in (address, address.replace(str(told.epochs[0]), str(told.epochs[2]))):
            if CARD in visitors[role].get(more).text:
                shown.add(words)
    if role in SEEN_BY[rows]:
        assert shown >= {"verified", "an epoch", "quality of a view", "Data Docs", "views", "the overview"}
    else:
        assert shown == set()


# Expressions of templates whose names announce an error, a reason or a value, and what guards each.
GUARDED = {
    "action.html": {"sources.error": "reason", "s.trouble": "reason", "upkeep.error": "of the store"}
    | {"moves.error": "of the store", "reason": "of compaction"},
    "epoch.html": {"unit.hot.key": "may_see_rows"},
    "error.html": {"err": "of the store"},
    "overview.html": {"t.what": "shown_troubles", "row.waiting.unknown": "without_values"},
    "parts.html": {"t.what": "shown_troubles", "t.do": "shown_troubles", "key": "may_see_rows"}
    | {".observed": "without_values", "one.keys": "may_see_rows"},
    "relation.html": {"copy.trouble": "of the sink"},
    "rows.html": {"error": "require_rows", "cell": "require_rows"},
    "run.html": {"left": "reason", "w.what": "the name of a step"},
    "sources_table.html": {"s.trouble": "reason"},
    "views.html": {"work.what": "the name of a step", "head.looked.error": "only whether there is one"},
    "verified.html": {"view.reason": "without_values", "example": "without_values"},
}
_TELLING = re.compile(
    r"[\w.]*\b(?:err|error|reason|trouble|what|do|left|observed|examples?|cell|unknown|keys?|sample)\b(?![\w=(]*=)"
)


def test_every_expression_that_may_quote_a_row_has_a_guard() -> None:
    found: dict[str, set[str]] = {}
    for template in sorted((ROOT / "plugins/tussock_pages/templates").glob("*.html")):
        for printed in re.findall(r"{{(.*?)}}", template.read_text(), re.DOTALL):
            plain = re.sub(r"'[^']*'|\"[^\"]*\"|\|\s*\w+", "", printed)
            found.setdefault(template.name, set()).update(_TELLING.findall(plain))
    assert {name: names for name, names in found.items() if names} == {n: set(g) for n, g in GUARDED.items()}
