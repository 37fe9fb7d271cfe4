"""The page of rows: for whom, with which rows, and that texts of rows cannot become markup."""

import re
from pathlib import Path

import pytest

from tests.support.pages.serving import Shop, Visitor

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
ADDRESS = "/tussock/dags/epoch_shop/relations/per_g/rows"


def cells(text: str) -> list[list[str]]:
    """The texts of the cells of the page's table."""
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody>")[2], re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_the_page_shows_the_published_rows_those_of_a_key_and_the_changes_of_an_epoch(
    admin: Visitor, shop: Shop
) -> None:
    """Rows of `t`, by its second column: 7, 7, 8, then 7, then 7. The last epoch is not published."""
    whole = admin.get(ADDRESS)
    assert whole.status_code == 200
    assert sorted(cells(whole.text)) == [["7", "3"], ["8", "1"]]
    assert "data-refresh" not in whole.text, "each answer pins an epoch"
    assert cells(admin.get(f"{ADDRESS}?c.c1=8&epoch=").text) == [["8", "1"]]
    assert "No row has these values" in admin.get(f"{ADDRESS}?c.c1=9").text
    changes = admin.get(f"{ADDRESS}?epoch={shop.epochs[2]}")
    assert sorted(cells(changes.text)) == [["7", "3", "delete"], ["7", "4", "insert"]]
    assert "per_g/rows" in admin.get("/tussock/dags/epoch_shop/relations/per_g").text


def test_relations_of_two_schemas_have_own_pages_and_rows(admin: Visitor) -> None:
    dag = "/tussock/dags/epoch_calm"
    listed = admin.get(dag).text
    for name, table, rows in (("per_g", "t", [["7", "2"]]), ("north.per_g", "north.t", [["9", "1"]])):
        assert f"relations/{name}" in listed
        assert cells(admin.get(f"{dag}/relations/{name}/rows").text) == rows
        page = admin.get(f"{dag}/relations/{name}").text
        assert f"{name}/rows" in page
        assert set(re.findall(r"relations/((?:north\.)?t)\b", page)) == {table}
    assert admin.get(f"{dag}/relations/south.per_g").status_code == 404


def test_a_question_without_an_answer_shows_the_reason(admin: Visitor, shop: Shop) -> None:
    assert "The value &#39;&lt;b&gt;&#39; cannot be compared" in admin.get(f"{ADDRESS}?c.c1=<b>").text
    assert "has no column" in admin.get(f"{ADDRESS}?c.other=1").text
    assert admin.get(f"{ADDRESS}?epoch=x").status_code == 422
    assert "not committed" in admin.get(f"{ADDRESS}?epoch={shop.epochs[2] + 1}").text
    assert admin.get(ADDRESS.replace("per_g", "nothing")).status_code == 404


def test_who_may_see_rows_is_a_setting(visitors: dict[str, Visitor], shop: Shop) -> None:
    relation = ADDRESS.removesuffix("/rows")
    assert "per_g/rows" not in visitors["viewer"].get(relation).text, "no link to a page that is refused"
    file = Path(shop.folder / "pipelines/shop/pipeline.toml")
    before = file.read_text()
    try:
        for rows, viewer, user in (("readers", 200, 200), ("editors", 403, 200), ("nobody", 403, 403)):
            file.write_text(f'{before}[pages]\nrows = "{rows}"\n')
            assert [visitors[who].get(ADDRESS).status_code for who in ("viewer", "user")] == [viewer, user]
            assert ("decides" if viewer == 403 else "rows that readers") in visitors["viewer"].get(ADDRESS).text
            failed = visitors["viewer"].get(f"/tussock/dags/epoch_shop/epochs/{shop.epochs[-1]}").text
            assert ("which you may not see" in failed, "failing row</summary>" in failed) == (
                viewer == 403,
                viewer == 200,
            )
    finally:
        file.write_text(before)
