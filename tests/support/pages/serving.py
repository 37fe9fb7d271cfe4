"""Tussock's pages in this process: Airflow's app and login, a separate database, and pipelines with local epochs."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
if "tussock-airflow-" not in os.environ.get("AIRFLOW_HOME", ""):
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(
        prefix="tussock-airflow-"
    )  # before Airflow is imported, for it reads its settings then
HOME = Path(os.environ["AIRFLOW_HOME"])
ROLES = ("viewer", "user", "op", "admin")
os.environ |= {
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(HOME / "passwords.json"),
    "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of tests, of sixty-four bytes or more, for HS512 wants so many",
    "AIRFLOW__API__SECRET_KEY": "another secret of tests",
}

import pytest  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from httpx2 import Response  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store  # noqa: E402
from tests.support.jobs.plan.catalogs import counted, scan, table, view  # noqa: E402
from tussock.jobs.driver.publish import publish_epoch  # noqa: E402
from tussock.jobs.logical.statements import CreateSchema  # noqa: E402
from tussock.jobs.quality.record import Failure, Metric, QualityRecord, ViewQuality, write_record  # noqa: E402
from tussock.statestore.meta.store import MetaStore  # noqa: E402

PATIENCE_S = 60.0
SUITE = """{"expectations": [
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "g"}, "severity": "warning"}
]}"""
FAILED = Failure(
    "expect_column_values_to_be_between(column='n', min_value=1)", "1 of 2 rows, e.g. 0", ({"g": "8", "n": "0"},)
)


class Shop:
    """The pipeline `shop`: table `t`, view `per_g` over it with a suite, and three epochs; the last failed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipeline = folder / "pipelines/shop"
        (pipeline / "quality").mkdir(parents=True)
        (pipeline / "quality/per_g.json").write_text(SUITE)
        (pipeline / "pipeline.toml").write_text(
            f'name = "shop"\ndescription = "Orders of a <b>shop</b>"\nstore = "{folder}/store"\nsql = ["views.sql"]\n'
            f'[quality]\ndocs = "{folder}/docs"\n[publish]\nto = "{folder}/tables"\n[freshness]\nper_g = "2h"\n'
        )
        self.meta: MetaStore = new_store(folder / "store")
        append(self.meta, table("t"), view("per_g", counted(scan("t"), 1)))
        insert(self.meta, "t", (1, 7, 1), (2, 7, 2), (3, 8, 3))
        self.epochs = [epoch(self.meta).epoch]
        for k in (4, 5):
            insert(self.meta, "t", (k, 7, 1))
            self.epochs.append(epoch(self.meta).epoch)
        for place, number in enumerate(self.epochs):
            failures = (FAILED,) if place == 2 else ()
            metrics = (
                Metric("expect_column_values_to_be_between(column='n', min_value=1)", float(len(failures))),
                Metric("expect_column_values_to_not_be_null(column='g')", 0.0),
            )
            write_record(
                self.meta.objects, QualityRecord(number, (ViewQuality("per_g", 2, 2, failures, metrics=metrics),))
            )
        publish_epoch(self.meta, self.epochs[1])
        (folder / "docs/validations").mkdir(parents=True)
        (folder / "docs/index.html").write_text("<h1>Data quality</h1><script>alert(1)</script>")
        (folder / "docs/validations/one.html").write_text("one")
        (folder / "docs/.hidden.html").write_text("hidden")
        (folder / "secret.html").write_text("what is outside")
        (folder / "docs/out.html").symlink_to(folder / "secret.html")


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def app(shop: Shop) -> Iterator[FastAPI]:
    """Airflow's app with the plugin from its entry point, the DAGs in its database, a calm and three bad pipelines."""
    pipelines = shop.folder / "pipelines"
    calm = new_store(shop.folder / "calm")
    append(calm, table("t"), CreateSchema("north"), table("north.t"))  # two schemas that share names
    append(calm, view("per_g", counted(scan("t"), 1)), view("north.per_g", counted(scan("north.t"), 1)))
    insert(calm, "t", (1, 7, 1), (2, 7, 2))
    insert(calm, "north.t", (1, 9, 1))
    publish_epoch(calm, epoch(calm).epoch)
    for name in ("absent", "calm", "damaged"):
        (pipelines / name).mkdir()
        (pipelines / name / "pipeline.toml").write_text(
            f'name = "{name}"\nstore = "{shop.folder}/{name}"\nsql = ["views.sql"]\n'
        )
    (pipelines / "typing").mkdir()
    (pipelines / "typing/pipeline.toml").write_text('name = "typing"\nstore = "x"\nsql = ["views.sql"]\ncolour = 1\n')
    (shop.folder / "damaged/meta").mkdir(parents=True)
    (shop.folder / "damaged/meta/store.json").write_text("{")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUSSOCK_PIPELINES", str(pipelines))
        yield _app()


def _app() -> FastAPI:
    import airflow.models
    from airflow import settings
    from airflow.api_fastapi.app import cached_app
    from airflow.models.base import Base
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.db import synchronize_log_template
    from airflow.utils.session import create_session

    from tests.support.airflow import dag_bag, sync_bag_to_db

    airflow.models.import_all_models()
    Base.metadata.create_all(settings.engine)
    synchronize_log_template()
    with create_session() as session:
        session.add(DagBundleModel(name="tests"))
    bag = dag_bag(ROOT / "dags", "tests")
    assert {Path(file).name for file in bag.import_errors} <= {"broken_pipelines.py"}, "of the pipeline `typing`"
    sync_bag_to_db(bag, "tests", None)
    return cached_app(apps="core")


class Visitor(TestClient):
    """A logged-in user with a role. `get` and `post` request Tussock's pages; a raising page shows its error page."""

    def __init__(self, app: FastAPI, role: str | None) -> None:
        super().__init__(app, "http://localhost:8080", raise_server_exceptions=False, follow_redirects=False)
        if role is not None:
            password = json.loads((HOME / "passwords.json").read_text())[role]
            answer = self.post("/auth/token", json={"username": role, "password": password})
            self.cookies.set("_token", answer.json()["access_token"])

    def get(self, *asked: Any, **more: Any) -> Response:
        """Request a page like a browser: load it again until it no longer requests a reload."""
        answers = []

        def whole() -> bool:
            answers.append(self.get_once(*asked, **more))
            return "refresh" not in answers[-1].headers

        eventually(f"{asked} is looked up", whole, PATIENCE_S, every_s=0.1)
        return answers[-1]

    def get_once(self, *asked: Any, **more: Any) -> Response:
        """The first response, before any reload."""
        return super().get(*asked, **more)


@pytest.fixture(scope="session")
def visitors(app: FastAPI) -> dict[str, Visitor]:
    """By role; `nobody` is not logged in."""
    return {"nobody": Visitor(app, None), **{role: Visitor(app, role) for role in ROLES}}


@pytest.fixture
def admin(visitors: dict[str, Visitor]) -> Visitor:
    return visitors["admin"]
