"""The settings of `[airflow]` and `[notify]` in the DAGs, and the messages that notifiers send."""

import asyncio
import json
import socketserver
import threading
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes, policy
from pathlib import Path
from types import SimpleNamespace

import pytest
import tussock_notify
import tussock_steps
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from tussock_airflow import AirflowException
from tussock_operators import UndoneError, run_actors

from tests.airflow.dags.test_epoch_dag import parsed
from tussock.jobs.barriers.source_holds import HeldSourcesError
from tussock.jobs.operations.notifiers import check_notifiers
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.tables import NoticeEvent
from tussock.jobs.settings.values import PipelineError

pytestmark = pytest.mark.airflow
SHOP = 'name = "shop"\nstore = "s3://bucket/shop"\nsql = ["views.sql"]\n'
AIRFLOW = """
[airflow]
owner = "sales"
tags = ["daily"]
pool = "spark"
queue = "large"
priority = 7
retries = 5
retry_delay = "2m"
run_limit = "6h"
max_active_runs = 3
default_args = { depends_on_past = true, max_active_tis_per_dagrun = 2 }
"""
FILE = "tests.support.notifiers.notifier.FileNotifier"
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"


def pipeline_of(folder: Path, text: str) -> Pipeline:
    (folder / "shop").mkdir(exist_ok=True)
    (folder / "shop/pipeline.toml").write_text(SHOP + text)
    return load_pipeline(folder / "shop")


def test_the_settings_of_airflow_are_those_of_every_dag_and_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_of(tmp_path, AIRFLOW)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path))
    for kind in ("epoch", "upkeep", "deploy", "rebalance", "verify", "preview"):
        dag = getattr(parsed(kind), f"{kind}_shop")
        assert set(dag.tags) == {"tussock", "daily"}
        for task in dag.tasks:
            assert (task.owner, task.pool, task.queue, task.priority_weight) == ("sales", "spark", "large", 7)
            assert (task.depends_on_past, task.max_active_tis_per_dagrun) == (True, 2)
            assert task.retries == (0 if kind == "verify" else 5)
            assert task.retry_delay == timedelta(minutes=2)
        epoch = kind == "epoch"
        assert (dag.max_active_runs, dag.dagrun_timeout) == ((3, timedelta(hours=6)) if epoch else (1, None))


def test_a_mistyped_argument_of_operators_keeps_only_its_pipeline_from_its_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_of(tmp_path, "[airflow.default_args]\ndepend_on_past = true\n")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path))
    found = tussock_steps.read_definitions()
    assert found.pipelines == ()
    assert str(found.errors[0]).endswith(
        ".depend_on_past: found an unknown argument, expected 'depends_on_past', the nearest argument."
    )


def test_tasks_of_a_pipeline_with_notifiers_report_their_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_of(tmp_path, f'[notify.some]\nnotifier = "{FILE}"\non = ["paused"]\narguments = {{ file = "f" }}\n')
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path))
    assert all(len(task.on_failure_callback) == 1 for task in parsed("epoch").epoch_shop.tasks)
    pipeline_of(tmp_path, "")
    assert not any(task.on_failure_callback for task in parsed("epoch").epoch_shop.tasks)


def test_a_message_contains_the_error_and_its_remedy_and_survives_a_broken_notifier(tmp_path: Path) -> None:
    """The task `health` has one message per finding; the error of any other task is a failure."""
    of = pipeline_of(
        tmp_path,
        f'[notify.broken]\nnotifier = "tests.support.notifiers.notifier.NoSuch"\n'
        f'[notify.file]\nnotifier = "{FILE}"\narguments = {{ file = "{tmp_path}/said" }}\n'
        f'[notify.other]\nnotifier = "{FILE}"\non = ["late"]\narguments = {{ file = "{tmp_path}/said" }}\n[env.prod]\n',
    )
    send = tussock_notify.SendNotices(load_pipeline(of.folder, "prod"))
    undone = UndoneError("both", ((NoticeEvent.HELD, "no file\nClear the run."), (NoticeEvent.PAUSED, "row 7")))
    send({"ti": SimpleNamespace(task_id="health", run_id="r1"), "exception": undone})
    send({"ti": SimpleNamespace(task_id="health", run_id="r1"), "exception": UndoneError("another task failed", ())})
    send.send({"ti": SimpleNamespace(task_id="health", run_id="r1")}, NoticeEvent.EVOLVED, "new column")
    error = HeldSourcesError({"orders": "no file"})
    error.add_note("Clear the run.")
    send({"ti": SimpleNamespace(task_id="run_actors", run_id="r1"), "exception": error})
    assert (tmp_path / "said").read_text().splitlines() == [
        "held: shop (prod): health held: no file Clear the run.",
        "paused: shop (prod): health paused: row 7",
        "evolved: shop (prod): health evolved: new column",
        f"failed: shop (prod): run_actors failed: {str(error).replace(chr(10), ' ')} Clear the run.",
    ]


def test_a_message_about_a_failed_job_has_its_exit_code_and_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's error quotes the command, in which it masks only some of the credentials, and the job's last lines."""
    command = ["sh", "-c", "echo of-the-job; exit 137", "--conf", "spark.hadoop.fs.s3a.session.token=of-mine"]
    monkeypatch.setattr(SparkSubmitHook, "_build_spark_submit_command", lambda *_: command)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://local")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    task = run_actors(pipeline_of(tmp_path, ""))
    with pytest.raises(AirflowException) as error:
        task.submit({}, [])
    assert str(error.value) == "The Spark job ended with exit code 137. The log of this task has the reason."
    assert "session.token=of-mine" in str(error.value.__cause__), "the log has it"


def test_a_job_whose_driver_runs_in_the_cluster_brings_the_pipeline_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(
        SparkSubmitHook, "submit", lambda hook, script, **_: commands.append(hook._build_spark_submit_command(script))
    )
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    pipeline = pipeline_of(tmp_path, "")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(pipeline.folder.parent))
    for mode in ("client", "cluster"):
        connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": mode}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        run_actors(pipeline).submit({}, [])
    client, cluster = commands
    assert client[client.index("--pipeline") + 1] == str(pipeline.folder)
    assert "--archives" not in client
    archive, place = cluster[cluster.index("--archives") + 1].split("#")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "container" / place)
    brought = tmp_path / "container" / cluster[cluster.index("--pipeline") + 1]
    assert {file.name: file.read_bytes() for file in brought.iterdir()} == {
        file.name: file.read_bytes() for file in pipeline.folder.iterdir()
    }


class _Mail(socketserver.StreamRequestHandler):
    """A server of SMTP for one message."""

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        body = False
        for line in self.rfile:
            if body and line == b".\r\n":
                body = False
                self.wfile.write(b"250 ok\r\n")
            elif body:
                self.server.received.append(line)  # type: ignore[attr-defined]
            elif line.upper().startswith(b"DATA"):
                body = True
                self.wfile.write(b"354 go\r\n")
            elif line.upper().startswith(b"QUIT"):
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The lines that a mail server received, which Airflow's connection names."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Mail) as server:
        server.received = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        extra = '{"disable_ssl": true, "disable_tls": true, "from_email": "a@b.org"}'
        monkeypatch.setenv(
            "AIRFLOW_CONN_SMTP_DEFAULT",
            f'{{"conn_type": "smtp", "host": "127.0.0.1", "port": {port}, "extra": {extra}}}',
        )
        yield server.received  # type: ignore[attr-defined]
        server.shutdown()


ARGUMENTS = '{ to = "on@call.org", subject = "{{ tussock.title }}", html_content = "{{ tussock.text }}" }'


def test_airflows_notifier_of_mail_sends_what_a_failed_task_and_a_late_view_report(
    tmp_path: Path, mail: list[bytes]
) -> None:
    of = pipeline_of(tmp_path, f'[notify.mail]\nnotifier = "{SMTP}"\narguments = {ARGUMENTS}\n')
    check_notifiers(of, lambda line: pytest.fail(line))
    tussock_notify.SendNotices(of)(
        {"ti": SimpleNamespace(task_id="run_actors", run_id="r1"), "exception": ValueError("row 7 is bad")}
    )
    assert _sent(mail) == ("shop: run_actors failed", "row 7 is bad")
    mail.clear()
    asyncio.run(tussock_notify.send_late(of, "daily_sales", "view daily_sales should be newer", {}))
    assert _sent(mail) == ("shop: view daily_sales is late", "view daily_sales should be newer")


def test_a_late_view_reaches_a_notifier_without_a_coroutine_once(tmp_path: Path) -> None:
    of = pipeline_of(
        tmp_path, f'[notify.file]\nnotifier = "{FILE}"\non = ["late"]\narguments = {{ file = "{tmp_path}/said" }}\n'
    )
    asyncio.run(tussock_notify.send_late(of, "v", "view v should be newer", {}))
    assert (tmp_path / "said").read_text() == "late: shop: view v is late: view v should be newer\n"


def _sent(lines: list[bytes]) -> tuple[str, str]:
    message = message_from_bytes(b"".join(lines), policy=policy.default)
    body = message.get_body(("html",))
    assert body is not None
    return message["subject"], body.get_content().strip()


MISTAKES = {
    "a class that is not there": (
        SMTP.replace("SmtpNotifier", "SmtpNotifer"),
        "{}",
        "notify.n.notifier: found .*expected a class of .*smtp Did you mean 'SmtpNotifier'",
    ),
    "a mistyped module of an installed package": (
        SMTP.replace("notifications", "notification"),
        "{}",
        "expected a module that exists: no airflow.providers.smtp.notification",
    ),
    "no notifier": ("pathlib.Path", "{}", "expected a class with a method `notify`"),
    "a mistyped argument": (
        FILE,
        '{ file = "f", txt = "t" }',
        "notify.n.arguments.txt: found an unknown argument .*'text'",
    ),
    "a missing argument": (
        FILE,
        "{}",
        "notify.n.arguments.file: found nothing, expected a value: FileNotifier requires it",
    ),
}


@pytest.mark.parametrize(("notifier", "arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_notifier_that_cannot_work_is_an_error_of_the_plan(
    tmp_path: Path, notifier: str, arguments: str, message: str
) -> None:
    of = pipeline_of(tmp_path, f'[notify.n]\nnotifier = "{notifier}"\narguments = {arguments}\n')
    with pytest.raises(PipelineError, match=message):
        check_notifiers(of, lambda line: pytest.fail(line))


def test_a_notifier_of_a_package_that_is_not_installed_is_only_mentioned(tmp_path: Path) -> None:
    slack = "airflow.providers.slack.notifications.slack.SlackNotifier"
    of = pipeline_of(tmp_path, f'[notify.slack]\nnotifier = "{slack}"\n')
    said: list[str] = []
    check_notifiers(of, said.append)
    assert said == ["[notify.slack] is not checked: airflow.providers.slack is not installed here"]


def test_mistakes_in_the_file_name_their_key(tmp_path: Path) -> None:
    for text, message in (
        ('[notify.n]\nnotifier = "x"', "notify.n.notifier: found string 'x', expected a class, by its module and name"),
        ('[notify.n]\nnotifier = "a.B"\non = ["gone"]', "notify.n.on: found array .*expected a list of failed, held"),
        ("[airflow]\nretry = 3", "airflow.retry: found an unknown key, expected 'retries'"),
        ("[airflow.default_args]\nretries = 3", "found an argument that has its own key, expected airflow.retries"),
    ):
        with pytest.raises(PipelineError, match=message):
            pipeline_of(tmp_path, text)
