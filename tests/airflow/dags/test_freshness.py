"""Stale views: one report in the log, to the user's function and in `tussock status`; no report of fresh views."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.plan.catalogs import view
from tests.support.plugins import by_name as steps
from tests.support.release import needs_airflow
from tussock.jobs import cli
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = pytest.mark.airflow
FIELDS = (Field("k", "int"),)
TOML = (
    'name = "shop"\nstore = "{0}/store"\nsql = ["v.sql"]\n'
    '[freshness]\nv = "2h"\n[alerts]\ncall = "pages_of_a_company.stale"\n'
)
HOUR = 3600.0
Told = list[tuple[str, str, str]]


@pytest.fixture
def told() -> Iterator[Told]:
    """The arguments of each call of the user's function."""
    module, calls = ModuleType("pages_of_a_company"), Told()
    module.stale = lambda *said: calls.append(said)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield calls
    del sys.modules[module.__name__]


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """A published view over a folder of files."""
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(TOML.format(tmp_path))
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    (tmp_path / "data").mkdir()
    MetaStore.init(open_object_store(f"{tmp_path}/store"))
    meta = open_meta(f"{tmp_path}/store")
    append(meta, CreateSource("s", "parquet", FIELDS, {"path": f"{tmp_path}/data"}), view("v", Scan("s", (0,), FIELDS)))
    arrives(tmp_path, "one", 0)
    publish(meta)
    return meta


def arrives(folder: Path, name: str, age_s: float) -> None:
    """A file that was written so long ago."""
    file = folder / f"data/{name}.parquet"
    pq.write_table(pa.table({"k": pa.array([1], pa.int32())}), file)
    os.utime(file, (time.time() - age_s,) * 2)


def publish(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    meta.publish(meta.read_latest().epoch)


def alerts(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder / "store")) for file in folder.glob("store/alerts/*"))


def test_a_stale_view_is_reported_once_until_it_is_published_again(meta: MetaStore, tmp_path: Path, told: Told) -> None:
    assert steps.say_if_stale("shop", "v").said == "view v is up to date"
    arrives(tmp_path, "two", 3 * HOUR)
    for _ in range(3):
        assert steps.say_if_stale("shop", "v").wait_s is None
    assert [(pipeline, name) for pipeline, name, _ in told] == [("shop", "v")]
    assert "view v should be at most 2 h old: readers see it as of" in told[0][2]
    assert told[0][2].endswith("and miss a change of 3 h ago")
    assert "already reported" in steps.say_if_stale("shop", "v").said
    assert alerts(tmp_path) == ["alerts/v.json"]
    publish(meta)
    steps.let_go_of_alerts("shop")
    assert alerts(tmp_path) == []
    arrives(tmp_path, "three", 5 * HOUR)
    steps.say_if_stale("shop", "v")
    assert len(told) == 2, "it has fallen behind once more"


def test_a_view_that_remains_stale_while_epochs_continue_is_reported_once(
    meta: MetaStore, tmp_path: Path, told: Told
) -> None:
    (broken := tmp_path / "data/two.parquet").write_bytes(b"no rows")
    os.utime(broken, (time.time() - 3 * HOUR,) * 2)
    before = meta.read_latest().published
    for _ in range(2):
        assert steps.say_if_stale("shop", "v").wait_s is None
        publish(meta)  # its source is held; that is an epoch
        steps.let_go_of_alerts("shop")
    assert meta.read_latest().published > before
    assert "already reported" in steps.say_if_stale("shop", "v").said
    assert len(told) == 1


def test_a_change_that_came_late_is_waited_for_until_it_is_too_old_or_seen(
    meta: MetaStore, tmp_path: Path, told: Told
) -> None:
    from tussock_freshness import say_if_stale

    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            publish(meta)

    arrives(tmp_path, "two", HOUR)
    assert asyncio.run(say_if_stale("shop", "v", None, sleep)) == "view v is up to date"
    assert waited == [pytest.approx(HOUR, abs=30)]
    assert told == []


def test_no_report_names_an_unknown_view_or_one_without_a_freshness_limit(
    meta: MetaStore, tmp_path: Path, told: Told
) -> None:
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace('v = "2h"', 'w = "2h"'))
    assert steps.say_if_stale("shop", "w").said == "pipeline shop has no view w"
    assert steps.say_if_stale("shop", "v").said == "view v no longer has a freshness"
    assert told == []


def test_the_status_reports_a_stale_view_and_a_name_without_a_view(
    meta: MetaStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "shop"]) == 0
    arrives(tmp_path, "two", 3 * HOUR)
    assert cli.main(["status", "shop"]) == 4
    assert "is too old: readers miss a change of 3 h ago; at most 2 h is allowed" in capsys.readouterr().out
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace('v = "2h"', 'w = "2h"'))
    assert cli.main(["status", "shop"]) == 4
    assert "view w" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[freshness]\nv = "soon"\n', "freshness.v: found string 'soon', expected a time span"),
        (
            '[alerts]\ncall = "print"\n',
            "alerts.call: found string 'print', expected a function, by its module and name",
        ),
    ],
)
def test_an_unusable_setting_is_refused_with_its_key(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/pipeline.toml").write_text('name = "shop"\nstore = "x"\nsql = ["v.sql"]\n' + text)
    with pytest.raises(PipelineError, match=message):
        load_pipeline(tmp_path / "shop")


@needs_airflow("3.2")
def test_a_scheduled_run_has_a_deadline_for_each_view_and_survives_the_way_to_the_scheduler(
    meta: MetaStore, tmp_path: Path
) -> None:
    from airflow.serialization.decoders import decode_deadline_alert
    from airflow.serialization.encoders import encode_deadline_alert
    from tussock_deadline import IntervalEnd
    from tussock_freshness import view_deadlines

    (alert,) = view_deadlines(load_pipeline(tmp_path / "pipelines/shop"))
    assert alert.interval.total_seconds() == 2 * HOUR
    encoded = encode_deadline_alert(alert)
    assert encoded["reference"]["__class_path"] == "tussock_deadline.IntervalEnd"
    assert encoded["callback"]["__data__"]["path"] == "tussock_freshness.say_if_stale"
    decoded = decode_deadline_alert({"__type": "deadline_alert", "__var": encoded})
    assert isinstance(decoded.reference.inner_ref, IntervalEnd), "by the plugin's entry point"
