"""The deploy DAGs of pipelines/*/pipeline.toml without an Airflow database, and real runs of one of them."""

import importlib.util
import re
import subprocess
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from markdown_it import MarkdownIt
from tussock_approval import in_lines

from scripts.airflow_home import airflow_environment
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.jobs.statements.deployment import Deployment, DeployOptions, Step, StepAction
from tussock.jobs.texts.deployment import deployment_text

ROOT = Path(__file__).resolve().parents[3]
SHOP = 'name = "shop"\nstore = "store"\nsql = ["views.sql"]\n'
TABLE = "CREATE TABLE IF NOT EXISTS t (k int, PRIMARY KEY (k));\n"
VIEW = "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT count(*) AS n FROM t;\n"
pytestmark = pytest.mark.airflow


def dags_of(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> ModuleType:
    """`dags/deploy.py`, parsed over one pipeline."""
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "pipeline.toml").write_text(text)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder))
    spec = importlib.util.spec_from_file_location("deploy_dags", ROOT / "dags/deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("more", "tasks"), [("", ["plan", "apply"]), ("[deploy]\napprove = true\n", ["plan", "approve", "apply"])]
)
def test_an_approval_follows_the_plan_if_the_pipeline_requires_it(
    more: str, tasks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dags_of(tmp_path, monkeypatch, SHOP + more).deploy_shop
    assert [task.task_id for task in dag.topological_sort()] == tasks
    assert (dag.schedule, dag.max_active_runs) == (None, 1)
    if more:
        assert "ti.xcom_pull(task_ids='plan', key='text')" in dag.get_task("approve").body, "it shows the plan"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "+ view v    v.sql:3  is new\n      CREATE VIEW v AS\n        SELECT `a  b`, '<b>*x*</b>'\n\n\n    FROM t",
        "SELECT '```'\n```\n# Nothing is dropped\n- x\n| a | b |\n|---|---|",
        "`````",
        "a \\\n`\n ` x",
    ],
)
def test_a_person_reads_the_plan_line_by_line_whatever_its_statements_contain(text: str) -> None:
    page = MarkdownIt("commonmark").enable("table").render(in_lines(text)).strip()
    assert page.startswith("<p>"), "one paragraph"
    lines = page.removeprefix("<p>").removesuffix("</p>").split("<br />\n")
    assert [re.sub("^<code>(.*)</code>$", r"\1", line) for line in lines] == [
        escape(re.sub("^ +| {2,}", lambda run: "\u00a0" * len(run[0]), line), quote=True).replace("&#x27;", "'")
        or "\u00a0"
        for line in text.split("\n")
    ]


def test_a_plan_cuts_the_rows_of_an_insert_but_no_definition() -> None:
    lines = "\n".join(f"line {n}" for n in range(1, 30))
    steps = (
        Step(StepAction.RUN, "INSERT INTO t", "a.sql:1", text=f"insert into t (a, b)\nVALUES\n{lines}"),
        Step(StepAction.RUN, "DELETE FROM t", "a.sql:40", text=f"DELETE FROM t WHERE 'VALUES'\n{lines}"),
        Step(StepAction.CREATE, "view v", "", text=lines),
    )
    found = deployment_text(Deployment(steps, True, None, 0), "shop", full=True, run_lines=20).splitlines()
    assert [found.count(f"      line {n}") for n in (1, 18, 19, 29)] == [3, 3, 2, 2]
    assert found.index("      … 11 more lines, in the log of `plan`") == 21
    assert "more lines" not in deployment_text(Deployment(steps, True, None, 0), "shop", full=True)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({}, ""),
        ({"prune": True, "resume": ["v", "w"]}, " --prune --resume v --resume w"),
        ({"zone_rules": True}, " --zone-rules"),
    ],
)
def test_each_choice_of_the_form_reaches_the_plan_and_the_command_in_its_last_line(
    form: dict[str, Any],
    options: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dag = dags_of(tmp_path, monkeypatch, SHOP).deploy_shop
    (tmp_path / "shop/views.sql").write_text("")

    def planned(self: Session, texts: object, chosen: DeployOptions) -> Deployment:
        assert (chosen.prune, list(chosen.resume), chosen.zone_rules) == (
            form.get("prune", False),
            form.get("resume", []),
            form.get("zone_rules", False),
        )
        return Deployment((), True, None, 0)

    monkeypatch.setattr(Session, "plan", planned)
    params = {name: param.value for name, param in dag.params.items()}
    assert set(form) <= set(params), "the form has the field"
    dag.get_task("plan").python_callable("shop", params={**params, **form})
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"`tussock apply shop{options}` makes these changes")


@pytest.mark.deep
@pytest.mark.spark
def test_runs_bring_all_changes_and_nothing_without_changes(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(SHOP)
    env = {**airflow_environment(tmp_path / "home"), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")}
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "deploy_shop"]

    def run() -> str:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout + done.stderr

    (folder / "views.sql").write_text(TABLE + VIEW)
    assert "view v" in run()
    meta = open_meta(str(tmp_path / "store"))
    assert meta.log_end() == 1
    assert "The store of 'shop' is up to date with the pipeline's files." in run()
    assert meta.log_end() == 1
    (folder / "views.sql").write_text(TABLE + VIEW.replace("count(*)", "max(k)"))
    assert "query (- store, + statement)" in run()
    assert meta.log_end() == 2
