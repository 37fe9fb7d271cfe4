"""The example pipelines in use: files arrive in parts, and after each part every view equals Spark over all files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from pipelines.nexmark.generate import STREAMS, generate
from pipelines.tpch.load import TABLES, load
from tests.spark.queries.test_queries_equal_spark import REFUSED
from tests.support.queries.judge import Judge
from tests.support.queries.texts import ROOT, views_of
from tussock.jobs.logical.script import split_script
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline

PARTS: dict[str, tuple[tuple[str, ...], Callable[[Path, int], object]]] = {
    "nexmark": (tuple(STREAMS), lambda out, part: generate(out, 2_000, part)),
    "tpch": (TABLES, lambda out, part: load(out, "0.002", 2, [part])),
}


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("name", PARTS)
def test_an_example_pipeline_equals_spark_after_each_part_of_its_files(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{name.upper()}_DATA", str(tmp_path / "data"))
    monkeypatch.setenv(f"{name.upper()}_STORE", str(tmp_path / "store"))
    pipeline = load_pipeline(ROOT / "pipelines" / name)
    sources, make = PARTS[name]
    make(tmp_path / "data", 1)
    views, judge = views_of(ROOT / "pipelines" / name / "views.sql"), Judge(spark)
    for view in (yaml.safe_load(REFUSED.read_text()) or {}).get(name, {}):
        del views[view]
    with Session(pipeline.store, spark) as session:
        for path, script in pipeline.read_scripts():
            for statement in split_script(script):
                if path.name != "views.sql" or any(f"EXISTS {view} AS" in statement.text for view in views):
                    session.execute(statement.text, base=path.parent)
        for part in (1, 2):
            if part > 1:
                make(tmp_path / "data", part)
            session.flush()
            judge.look_at_files({source: tmp_path / "data" / source for source in sources})
            if name == "nexmark":
                judge.look_at_rows("side_input", session.read("side_input"))
            for view, sql in views.items():
                judge.compare(session.read(view), sql, f"{view} of {name} after part {part}")
