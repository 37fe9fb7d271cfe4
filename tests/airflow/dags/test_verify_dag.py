"""The verify DAGs that pipelines/*/pipeline.toml make, without an Airflow database."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
SHOP = 'name = "{name}"\nstore = "store"\nsql = ["a.sql"]\n'

pytestmark = pytest.mark.airflow


def dags_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **pipelines: str) -> ModuleType:
    """`dags/verify.py`, parsed over these pipelines."""
    for name, more in pipelines.items():
        (folder / name).mkdir()
        (folder / name / "pipeline.toml").write_text(SHOP.format(name=name) + more)
        (folder / name / "a.sql").touch()
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder))
    spec = importlib.util.spec_from_file_location("verify_dags", ROOT / "dags/verify.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_pipeline_is_verified_on_its_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = dags_of(tmp_path, monkeypatch, shop="", ship='[verify]\nschedule = "@weekly"\npercent = 5\n')
    assert type(module.verify_shop.timetable).__name__ == "NullTimetable"
    assert module.verify_ship.timetable.summary == "0 0 * * 0"
    assert module.verify_ship.params["percent"] == 5
    assert module.verify_ship.params["repair"] is False
    (task,) = module.verify_ship.tasks
    assert (task.retries, Path(task.application).name, task.job) == (0, "submitted.py", "verify")
