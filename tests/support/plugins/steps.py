"""Rows and helpers of test_steps.py, which is in several lanes."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """A pipeline `shop` with one source of daily files; only the file of 2 January exists."""
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "quality/sales.json").write_text('{"expectations": []}')
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\ntime_zone = "Europe/Berlin"\n'
        f'[quality]\ndocs = "{tmp_path}/docs"\n[pages]\nrows = "readers"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    (tmp_path / "data").mkdir()
    write_day(tmp_path, "2013-01-02")
    MetaStore.init(open_object_store(f"{tmp_path}/store"), time_zone="Europe/Berlin")
    meta = open_meta(f"{tmp_path}/store")
    path = f"{tmp_path}/data/{{start:%Y-%m-%d}}.parquet"
    source = CreateSource("orders", "parquet", (Field("id", "bigint"),), {"path": path})
    meta.append_log("test/1", msgspec.json.encode(source))
    return meta


def write_day(root: Path, day: str) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), root / f"data/{day}.parquet")
