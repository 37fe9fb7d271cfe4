"""A deployment in a real scheduler: a person approves a plan, and only that plan is applied. Takes minutes."""

import time
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.waiting import eventually
from tussock.jobs.settings.process import open_meta

DAG = "deploy_shop"
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
READING_S = 4  # if the answer comes before Airflow notices the end of the task's process, a retry needs another
TOML = 'name = "shop"\nstore = "{folder}/store"\nsql = ["views.sql"]\n[deploy]\napprove = true\n'
SQL = """CREATE TABLE t (k int, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t;
"""


class Home(AirflowHome):
    """A home with one pipeline that needs an approval before a deployment."""

    def write(self, sql: str) -> None:
        (self.folder / "pipelines/shop/views.sql").write_text(sql)

    def asks(self) -> str:
        """Trigger a deployment and wait until it needs an answer; return the run."""
        run = self.trigger(DAG, {"logical_date": None})
        wait_for("it asks", lambda: "approve" in self.asking(run))
        return run

    def answer(self, run: str, said: str) -> dict[str, str]:
        """Say yes or no, and wait for the run's end; the state of each task."""
        ended = f"SELECT state FROM dag_run WHERE run_id = '{run}' AND state IN ('success', 'failed')"

        def happened() -> bool:
            if "approve" in self.asking(run):
                began = time.monotonic()
                eventually("the person has read it", lambda: time.monotonic() > began + READING_S, 2 * READING_S + 1)
                self.api(
                    f"dags/{DAG}/dagRuns/{run}/taskInstances/approve/-1/hitlDetails",
                    {"chosen_options": [said]},
                    "PATCH",
                )
            return bool(self.query(ended))

        wait_for("it ends", happened)
        return dict(
            self.query(f"SELECT task_id, state FROM task_instance WHERE run_id = '{run}'")  # type: ignore[arg-type]
        )

    def asking(self, run: str) -> list[str]:
        """The tasks that wait for a person."""
        asked = (
            "SELECT t.task_id FROM task_instance t JOIN hitl_detail h ON h.ti_id = t.id "
            "WHERE t.state = 'awaiting_input'"
        )
        return [task for (task,) in self.query(f"{asked} AND h.responded_at IS NULL AND t.run_id = '{run}'")]

    def read_before_answering(self, run: str) -> str:
        return self.query(
            f"SELECT h.body FROM hitl_detail h JOIN task_instance t ON t.id = h.ti_id WHERE t.run_id = '{run}'"
        )[0][0]


def test_only_the_plan_that_a_person_approved_is_applied(tmp_path: Path) -> None:
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(TOML.format(folder=tmp_path))
    home = Home(tmp_path, ROOT, {**airflow_environment(tmp_path), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")})
    home.write(SQL)
    with home.up(DAG, PATIENCE_S):
        home.airflow("dags", "unpause", DAG)
        run = home.asks()
        assert "+ table t" in home.read_before_answering(run)
        assert "SELECT count(*) AS n FROM t" in home.read_before_answering(run), "every new statement is shown"
        assert not (tmp_path / "store").exists() or open_meta(str(tmp_path / "store")).log_end() == 0
        assert home.answer(run, "Approve") == {"plan": "success", "approve": "success", "apply": "success"}
        meta = open_meta(str(tmp_path / "store"))
        assert meta.log_end() == 1

        home.write(SQL.replace("count(*)", "max(k)"))
        run = home.asks()
        assert "~ view v" in home.read_before_answering(run)
        assert home.answer(run, "Reject") == {"plan": "success", "approve": "success", "apply": "skipped"}
        assert meta.log_end() == 1

        run = home.asks()
        home.write(SQL.replace("count(*)", "min(k)"))  # not the plan that the person reads
        assert home.answer(run, "Approve") == {"plan": "success", "approve": "success", "apply": "failed"}
        assert meta.log_end() == 1

        assert home.answer(home.asks(), "Approve")["apply"] == "success"
        assert meta.log_end() == 2
