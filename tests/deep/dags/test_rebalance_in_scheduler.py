"""A rebalancing in a real scheduler: a person approves it while another process moves vnodes too. Takes minutes."""

import time
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.airflow.dags.test_rebalance_dag import store_in, write
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.waiting import eventually

DAG = "rebalance_shop"
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
READING_S = 4  # if the answer comes before Airflow notices the end of the task's process, a retry needs another


class Home(AirflowHome):
    """A home with one pipeline that needs an approval before vnodes move."""

    def asks(self, units: int) -> str:
        """Trigger a rebalancing and wait until it needs an answer; return the run."""
        run = self.trigger(DAG, {"logical_date": None, "conf": {"units": units}})
        wait_for("it asks", lambda: self.asking(run))
        return run

    def answer(self, run: str, said: str) -> dict[str, str]:
        """Say yes or no, and wait for the run's end; the state of each task."""
        ended = f"SELECT state FROM dag_run WHERE run_id = '{run}' AND state IN ('success', 'failed')"

        def happened() -> bool:
            if self.asking(run):
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

    def asking(self, run: str) -> bool:
        """Whether it waits for a person."""
        asked = (
            "SELECT t.task_id FROM task_instance t JOIN hitl_detail h ON h.ti_id = t.id "
            "WHERE t.state = 'awaiting_input'"
        )
        return bool(self.query(f"{asked} AND h.responded_at IS NULL AND t.run_id = '{run}'"))

    def read_before_answering(self, run: str) -> str:
        body: str = self.query(
            f"SELECT h.body FROM hitl_detail h JOIN task_instance t ON t.id = h.ti_id WHERE t.run_id = '{run}'"
        )[0][0]
        return body


def test_only_approved_moves_run_and_the_later_of_two_rebalancings_fails(tmp_path: Path) -> None:
    write(tmp_path, "[rebalance]\napprove = true\n")
    meta = store_in(tmp_path)
    home = Home(tmp_path, ROOT, {**airflow_environment(tmp_path), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")})
    done = {"measure": "success", "decide": "success", "approve": "success"}
    with home.up(DAG, PATIENCE_S):
        home.airflow("dags", "unpause", DAG)
        run = home.asks(3)
        assert "85 of 256 vnodes move, to 3 units" in home.read_before_answering(run)
        assert home.answer(run, "Reject") == {**done, "move": "skipped", "verify": "skipped"}
        assert meta.read_latest().mapping.id == 0
        assert home.answer(home.asks(3), "Approve") == {**done, "move": "success", "verify": "success"}
        assert meta.read_latest().mapping.unit_count == 3
        run = home.asks(8)
        meta.rescale(2)
        assert home.answer(run, "Approve") == {**done, "move": "failed", "verify": "upstream_failed"}
        assert meta.read_latest().mapping.unit_count == 2
