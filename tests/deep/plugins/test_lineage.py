"""The OpenLineage events of publish_views and publish_tables, validated against its schemas (openlineage/).

The schemas are OpenLineage's own (https://github.com/OpenLineage/OpenLineage, folder spec, Apache License 2.0).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.airflow_home import airflow_environment
from tests.support.plugins import lineage as shared
from tests.support.plugins.lineage import check
from tussock.jobs.settings.pipeline import find_pipeline
from tussock.statestore.meta.store import MetaStore

meta = shared.meta

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.deep
@pytest.mark.airflow
def test_airflows_provider_sends_these_events_when_the_tasks_have_succeeded(meta: MetaStore, tmp_path: Path) -> None:
    """The provider is not in the tests' environment: it is in a separate folder on the path of the processes."""
    extra = tmp_path / "provider"
    provider = ["apache-airflow-providers-openlineage", "openlineage-integration-common", "openlineage-sql"]
    subprocess.run(["uv", "pip", "install", "-q", "--no-deps", "--target", str(extra), *provider], check=True)
    environment = {
        **airflow_environment(tmp_path / "home"),
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "PYTHONPATH": f"{extra}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(tmp_path / "events")}),
    }
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text() + '[epoch]\nrunner = "auto"\n')
    assert find_pipeline("shop", toml.parents[1]).publish is not None
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "epoch_shop"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    events = [json.loads(line) for file in tmp_path.glob("events*") for line in file.read_text().splitlines()]
    done = {e["job"]["name"]: e for e in events if e["eventType"] == "COMPLETE"}
    assert {o["name"] for o in done["epoch_shop.publish_views"]["outputs"]} == {"priced", "by_g"}, sys.path
    assert f"{tmp_path}/data" in {i["name"] for i in done["epoch_shop.publish_views"]["inputs"]}
    assert {o["name"] for o in done["epoch_shop.publish_tables"]["outputs"]} == {
        f"{tmp_path}/lake/priced",
        f"{tmp_path}/lake/by_g",
    }
    for name in ("epoch_shop.publish_views", "epoch_shop.publish_tables"):
        check(done[name], "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
