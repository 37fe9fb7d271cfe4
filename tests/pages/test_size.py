"""Pages of a pipeline with 1,000 views: each is there within 0.3 s. A minute long."""

import time
from pathlib import Path

import pytest
from fastapi import FastAPI

from jobs.driver.publish import publish
from tests.jobs.driver.embedded import append, epoch, insert, new_store
from tests.jobs.plan.catalogs import counted, scan, table, view
from tests.pages.serving import Shop, Visitor

pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]
VIEWS, EPOCHS, MOST_S = 1000, 4, 0.3


@pytest.fixture(scope="module")
def large(app: FastAPI, shop: Shop) -> str:
    """The DAG of a pipeline beside `shop`. Airflow need not know the DAG: its admin may read all."""
    folder = shop.folder / "pipelines/large"
    folder.mkdir()
    store = Path(shop.folder / "large")
    (folder / "pipeline.toml").write_text(f'name = "large"\nstore = "{store}"\nsql = ["views.sql"]\n')
    meta = new_store(store)
    append(meta, table("t"), *(view(f"view_with_a_rather_long_name_{i}", counted(scan("t"), 1)) for i in range(VIEWS)))
    for k in range(EPOCHS):
        insert(meta, "t", (k, k % 7, 1))
        publish(meta, epoch(meta).epoch)
    return "epoch_large"


def test_each_page_is_there_within_0_3_seconds(admin: Visitor, large: str) -> None:
    dag = f"/tussock/dags/{large}"
    pages = [
        "",
        "?page=20",
        "?named=999",
        "/graph",
        "/graph?focus=t",
        "/epochs",
        "/quality",
        "/relations/t",
        "/relations/view_with_a_rather_long_name_7",
    ]
    took: dict[str, float] = {}
    for path in ["/tussock/pipelines", *(dag + page for page in pages)]:
        admin.get(path)  # the first of a version asks the store; those after it are what a reader meets
        begun = time.perf_counter()
        answer = admin.get(path)
        took[path] = time.perf_counter() - begun
        assert answer.status_code == 200, path
        assert len(answer.content) < 1_000_000, path
    print(*(f"{seconds:.3f} {path}" for path, seconds in took.items()), sep="\n")
    assert {path: seconds for path, seconds in took.items() if seconds > MOST_S} == {}
