"""The Spark applications of operations: one function opens them, with a name and the pipeline's settings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.operations import deploy, tables
from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import create_store
from tussock.jobs.settings.publishing import DeltaSettings, TableEngine
from tussock.statestore.progress import no_progress


def test_each_has_the_pipelines_name_and_settings_and_publishing_those_of_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = pytest.importorskip("tussock.jobs.spark.session")
    opened: list[tuple[str, Mapping[str, str]]] = []

    @contextmanager
    def spark_session(name: str, settings: Mapping[str, str], *, brief: bool = False) -> Iterator[object]:
        opened.append((name, settings))
        yield object()

    monkeypatch.setattr(session, "spark_session", spark_session)
    own = {"spark.driver.memory": "1g"}
    publish = DeltaSettings(to=str(tmp_path / "tables"), engine=TableEngine.SPARK)
    pipeline = Pipeline("shop", tmp_path, str(tmp_path / "store"), (), spark=own, publish=(publish,))
    create_store(pipeline.store, units=2, time_zone="UTC")
    with spark_of(pipeline, "verify"), tables._spark_for(open_pipeline(pipeline), pipeline.publish):
        pass
    with deploy._open_session(pipeline, pipeline.store, no_progress) as applying:
        _ = applying.spark
    assert opened == [("tussock verify shop", own), ("tussock publish shop", with_delta(own)), ("tussock shop", own)]
