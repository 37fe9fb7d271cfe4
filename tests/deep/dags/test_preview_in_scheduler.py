"""A pull request in a real Airflow: preview, page, approval, merge, and undo. Takes minutes."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT, airflow_environment
from scripts.browser import browser, chromium
from scripts.pages_pictures import log_in
from tests.deep.dags.test_deploy_in_scheduler import Home
from tests.deep.pages.test_in_browser import see
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.deep,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(chromium() is None, reason="no chromium (Debian: apt-get install chromium)"),
    pytest.mark.filterwarnings("ignore"),
]
TOML = (
    'name = "shop"\nstore = "{folder}/store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n[deploy]\napprove = true\n'
)
SQL = """CREATE TABLE sales (id int, shop string, n int, day date, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, sum(n) AS n FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW per_day AS SELECT day, sum(n) AS n FROM sales GROUP BY day;
INSERT INTO sales VALUES (1, 'a', 5, DATE'2026-01-01'), (2, 'a', 20, DATE'2026-01-02'), (3, 'b', 30, DATE'2026-01-02');
"""
CHANGED = SQL.replace("FROM sales GROUP BY", "FROM sales WHERE n > 10 GROUP BY")
TEST = """- name: small sales do not count
  view: per_shop
  rows: {sales: [{id: 1, shop: a, n: 20}, {id: 2, shop: a, n: 3}]}
  expect: [{shop: a, n: 20}]
"""


class Shop(Home):
    """A home with a pipeline in a Git repository."""

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.folder, check=True)

    def tussock(self, *words: str) -> str:
        return self.python("-m", "tussock.jobs.cli", *words)

    def run_to_its_end(self, dag: str, conf: dict[str, object]) -> dict[str, str]:
        """Trigger a run, and return the state of each task at its end."""
        run = self.trigger(dag, {"logical_date": None, "conf": conf})
        ended = f"SELECT state FROM dag_run WHERE run_id = '{run}' AND state IN ('success', 'failed')"
        wait_for(f"{dag} ends", lambda: bool(self.query(ended)))
        found = self.query(f"SELECT task_id, state FROM task_instance WHERE run_id = '{run}'")
        return {task: state for task, state in found if task}

    def rows(self, view: str) -> list[tuple[object, ...]]:
        with Session(str(self.folder / "store"), create=False, runner="local", workers=1) as session:
            return sorted(tuple(row.values()) for row in session.read(view).to_pylist())


def test_a_pull_request_is_previewed_approved_merged_and_undone(tmp_path: Path) -> None:
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(TOML.format(folder=tmp_path))
    home = Shop(tmp_path, ROOT, {**airflow_environment(tmp_path), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")})
    home.write(SQL)
    home.git("init", "-q")
    home.git("add", "pipelines")
    home.git("commit", "-qm", "first")
    home.git("checkout", "-qb", "change")
    home.write(CHANGED)
    (tmp_path / "pipelines/shop/tests").mkdir()
    (tmp_path / "pipelines/shop/tests/per_shop.yaml").write_text(TEST)
    home.git("add", "pipelines")
    home.git("commit", "-qm", "change")
    home.git("checkout", "-q", "-")
    home.tussock("apply", "shop")
    home.tussock("epoch", "--pipeline", "shop")
    before = open_meta(str(tmp_path / "store")).read_latest().epoch
    whole, large = [("a", 25), ("b", 30)], [("a", 20), ("b", 30)]
    base = home.env["AIRFLOW__API__BASE_URL"]
    with home.up("preview_shop", PATIENCE_S):
        for dag in ("preview_shop", "deploy_shop", "epoch_shop"):
            home.airflow("dags", "unpause", dag)
        states = home.run_to_its_end("preview_shop", {"revision": "change", "name": "pr-1", "keep": True})
        assert set(states.values()) == {"success"}, states
        assert home.rows("per_shop") == whole, "readers see nothing of it"
        password = json.loads((tmp_path / ".airflow/passwords.json").read_text())["admin"]
        with browser() as page:
            page.size(1280, 1400)
            log_in(page, base, password)
            text = see(page, f"{base}/plugin/tussock/tussock/dags/preview_shop/branches")
            assert "per_shop: 1 row changed" in text
            assert "pr-1" in text
            assert "tests of views" in text
            page.picture(tmp_path / "branches.png")
        assert set(home.run_to_its_end("epoch_shop", {"branch": "pr-1"}).values()) <= {"success", "skipped"}

        home.git("merge", "-q", "change")
        run = home.trigger("deploy_shop", {"logical_date": None, "conf": {"merge": "pr-1"}})
        wait_for("it asks", lambda: "approve" in home.asking(run))
        plan = home.read_before_answering(run)
        assert "adopted from the branch" in plan
        assert "1 row changed" in plan.replace("\u00a0", " "), "the rows that readers will see changed"
        assert home.answer(run, "Approve") == {"plan": "success", "approve": "success", "apply": "success"}
        assert home.rows("per_shop") == large
        assert "nothing to do" in home.tussock("plan", "shop")
        assert set(home.run_to_its_end("epoch_shop", {}).values()) <= {"success", "skipped"}

    home.tussock("undo", "shop", "--to", str(before))
    assert home.rows("per_shop") == whole
