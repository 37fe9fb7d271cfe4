"""Commands that check the notifiers of `[notify]`. tests/airflow/dags/test_airflow_settings.py has the messages."""

import logging
from pathlib import Path

import pytest

from tussock.jobs.operations.notifiers import check_notifiers
from tussock.jobs.settings.pipeline import load_pipeline

# As `import airflow.sdk` does.
CONFIGURES_LOGGING = """
import logging, sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True)


class Notifier:
    def notify(self, context):
        pass
"""


def test_a_notifier_whose_module_configures_logging_leaves_the_logging_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_notifier.py").write_text(CONFIGURES_LOGGING)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/pipeline.toml").write_text(
        'name = "shop"\nstore = "s"\nsql = ["v.sql"]\n[notify.n]\nnotifier = "loud_notifier.Notifier"\n'
    )
    root = logging.getLogger()
    before = list(root.handlers), root.level
    check_notifiers(load_pipeline(tmp_path / "shop"), pytest.fail)
    assert (list(root.handlers), root.level) == before
    logging.getLogger("botocore.credentials").info("Found credentials")
    assert capsys.readouterr().out == ""
