"""The steps of an epoch DAG that need no Spark, against a real store."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.plugins import by_name as steps
from tests.support.plugins import steps as shared
from tests.support.plugins.steps import write_day
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import HeldSourcesError, held_sources
from tussock.jobs.driver.epoch import advance_store, interval_of
from tussock.jobs.driver.pauses import PausedViewsError
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.logical.nodes import Call, Column, Field, Literal, Project, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop
from tussock.jobs.operations.publication import Publication
from tussock.jobs.quality.record import (
    Failure,
    MissingRecordError,
    QualityCheckError,
    QualityRecord,
    QualityVerdict,
    ViewQuality,
    write_record,
)
from tussock.jobs.quality.suite import read_suite
from tussock.jobs.reading.read import PausedViewWarning
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import EpochUnderWayError
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.meta.manifest import RowCounts, manifest_of
from tussock.statestore.meta.store import MetaStore

meta = shared.meta

DAY = datetime(2013, 1, 1, 23, tzinfo=UTC), datetime(2013, 1, 2, 23, tzinfo=UTC)  # 2 January in Berlin


def test_only_a_cleared_run_restates_changed_files_of_its_interval(meta: MetaStore, tmp_path: Path) -> None:
    path = f"{tmp_path}/data/{{start:%Y-%m-%d}}.parquet"
    fields = (Field("id", "bigint"),)
    meta.append_log("test/0", msgspec.json.encode(Drop(RelationKind.SOURCE, "orders")))
    meta.append_log(
        "test/2", msgspec.json.encode(CreateSource("kept", "parquet", fields, {"path": path, "retain": "files"}))
    )
    meta.append_log("test/3", msgspec.json.encode(CreateView("ids", "SELECT …", Scan("kept", (0,), fields))))

    def run(day: tuple[datetime, datetime]) -> list[int]:
        steps.inject("shop", *day, {"run": "again"})
        (done,) = advance_store(
            LocalRunner(), meta, InputRequest(interval_of(*(moment.isoformat() for moment in day), "Europe/Berlin"))
        )
        with Session(f"{tmp_path}/store", create=False) as session:
            return sorted(session.read("ids", epoch=done.epoch)["id"].to_pylist())

    assert run(DAY) == [1, 2, 3]
    pq.write_table(pa.table({"id": [1, 2, 9]}), tmp_path / "data/2013-01-02.parquet")
    write_day(tmp_path, "2013-01-03")
    after = DAY[1], DAY[1] + timedelta(days=1)
    assert run(after) == [1, 1, 2, 2, 3, 3]
    assert run(DAY) == [1, 1, 2, 2, 3, 9]


def seal(meta: MetaStore) -> int:
    """Run the epoch job's part up to its commit, for an epoch whose actors wrote nothing."""
    barrier = meta.open_barrier()
    assert barrier is not None
    meta.seal_epoch(manifest_of(barrier, meta.writer, ()))
    return barrier.epoch


def test_inject_pins_the_intervals_files_in_the_pipelines_time_zone_once(meta: MetaStore, tmp_path: Path) -> None:
    write_day(tmp_path, "2013-01-01")
    write_day(tmp_path, "2013-01-03")
    first = steps.inject("shop", *DAY, {"run": "a"})
    barrier = meta.open_barrier()
    assert barrier is not None
    assert first == barrier
    assert [Path(file.path).name for document in barrier.splits.values() for file in files_of(document)] == [
        "2013-01-02.parquet"
    ]
    assert barrier.run == {"run": "a"}
    assert barrier.moment == DAY[1].timestamp() * 1_000_000, "now() in views means the end of the run's interval"
    assert steps.inject("shop", None, None, {"run": "b"}) == first  # the open barrier comes before another run's


def test_a_source_that_only_spark_can_list_is_left_to_spark_and_all_other_input_is_processed(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text() + '[epoch]\nrunner = "auto"\n')
    topic = CreateSource(
        "events", "kafka", (Field("value", "binary"),), {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
    )
    meta.append_log("test/kafka", msgspec.json.encode(topic))
    assert not steps.spark_must_ask("shop")
    assert steps.inject("shop", *DAY, {"run": "a"}) is not None
    advance_store(LocalRunner(), meta)
    for _ in range(2):
        assert steps.advance("shop", *DAY, {"run": "a"}, lambda line: None).needs_spark
        assert steps.spark_must_ask("shop")
        assert steps.inject("shop", *DAY, {"run": "a"}) is None, "nothing else waits"
    assert set(held_sources(meta.read_latest().catalog)) == {"events"}


def test_only_a_run_that_pauses_a_view_fails_until_the_view_resumes(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text() + '[epoch]\non_error = "pause"\n')
    fields = (Field("id", "bigint"),)
    least = 2**63 - 101
    added = Call("Add", "bigint", (Literal(least, "bigint"), Column(0, "bigint")), "ANSI")
    plan = Project(Scan("orders", (0,), fields), (added,), (Field("q", "bigint"),))
    views = (
        CreateView("q", "SELECT … + id AS q FROM orders", plan),
        CreateView("ids", "SELECT id FROM orders", Scan("orders", (0,), fields)),
    )
    for number, view in enumerate(views):
        meta.append_log(f"test/v{number}", msgspec.json.encode(view))
    advance_store(
        LocalRunner(), meta, InputRequest(Interval(*(moment - timedelta(days=9) for moment in DAY)))
    )  # the views begin, over no files
    a, b = {"dag": "epoch_shop", "run": "a"}, {"dag": "epoch_shop", "run": "b"}
    steps.advance("shop", *DAY, a, print)
    steps.require_none_paused("shop", a)
    pq.write_table(pa.table({"id": [101]}), tmp_path / "data/2013-01-03.parquet")
    next_day = DAY[0] + timedelta(days=1), DAY[1] + timedelta(days=1)
    said: list[str] = []
    steps.advance("shop", *next_day, b, said.append)
    steps.advance("shop", *next_day, b, said.append)  # again: nothing waits
    assert any("q is paused from this epoch on" in line for line in said)
    steps.require_none_paused("shop", a)
    for _ in range(2):
        with pytest.raises(PausedViewsError, match=r"view 'q' is paused: .*Overflow in addition.*2013-01-03\.parquet"):
            steps.require_none_paused("shop", b)
    with Session(f"{tmp_path}/store", create=False) as session:
        newest = meta.read_latest().epoch
        assert sorted(session.read("ids", epoch=newest).column("id").to_pylist()) == [1, 2, 3, 101]
        with pytest.warns(PausedViewWarning, match="Overflow in addition"):
            assert sorted(session.read("q", epoch=newest).column("q").to_pylist()) == [least + 1, least + 2, least + 3]
    meta.append_log("test/drop", msgspec.json.encode(Drop(RelationKind.VIEW, "q")))
    steps.advance("shop", *next_day, {"run": "c"}, print)
    steps.require_none_paused("shop", b)


def test_only_a_run_whose_interval_needs_a_damaged_file_fails_at_its_end(meta: MetaStore, tmp_path: Path) -> None:
    file = tmp_path / "data/2013-01-02.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    write_day(tmp_path, "2013-01-03")
    meta.append_log(
        "test/2", msgspec.json.encode(CreateView("v", "SELECT …", Scan("orders", (0,), (Field("id", "bigint"),))))
    )
    next_day = DAY[0] + timedelta(days=1), DAY[1] + timedelta(days=1)
    advance_store(
        LocalRunner(), meta, InputRequest(Interval(*(moment - timedelta(days=9) for moment in DAY)))
    )  # the view begins, over no files
    for day in (DAY, next_day):
        steps.advance("shop", *day, {}, print)
    with pytest.raises(
        HeldSourcesError, match=r"source 'orders' is held: file .*2013-01-02\.parquet cannot be read as parquet"
    ):
        steps.require_not_held("shop", *DAY)
    steps.require_not_held("shop", *next_day)
    file.write_bytes(whole)
    steps.advance("shop", *DAY, {}, print)
    steps.require_not_held("shop", *DAY)
    assert list_sources(meta)[0].taken_files == 2


def committed() -> tuple[int, int]:
    version = steps.commit("shop")
    return version.epoch, version.id


def test_commit_commits_a_sealed_epoch_and_has_no_effect_when_repeated(meta: MetaStore) -> None:
    steps.inject("shop", *DAY, {})
    assert committed() == (0, 0)  # nothing is sealed: the epoch job has yet to run
    epoch = seal(meta)
    assert committed() == (epoch, 1)
    assert committed() == (epoch, 1)
    assert meta.read_latest().published == 0
    assert meta.read_latest().moment == DAY[1].timestamp() * 1_000_000


def test_an_epoch_is_published_only_when_its_own_record_passed(meta: MetaStore) -> None:
    steps.inject("shop", *DAY, {})
    epoch = seal(meta)
    steps.commit("shop")
    with pytest.raises(MissingRecordError, match=rf"epoch {epoch} has no quality record"):
        steps.publish("shop", epoch)
    failed = QualityRecord(
        epoch, (ViewQuality("sales", 3, 1, (Failure("expect_x(column='id')", "1 of 3 rows", ({"id": "2"},)),)),)
    )
    write_record(meta.objects, failed)
    with pytest.raises(QualityCheckError, match=r"failing rows: id=2"):
        steps.publish("shop", epoch)
    assert steps.failure_of_check("shop", epoch) == str(QualityCheckError(failed))
    assert meta.read_latest().published == 0
    write_record(meta.objects, QualityRecord(epoch, (ViewQuality("sales", 3, 1),)))
    assert steps.failure_of_check("shop", epoch) is None
    assert steps.publish("shop", epoch) == Publication(epoch, 2, ())
    assert meta.read_latest().published == epoch
    assert steps.publish("shop", epoch).version == 2  # again: without effect


def test_a_pipeline_without_suites_is_published_without_a_record(meta: MetaStore, tmp_path: Path) -> None:
    (tmp_path / "pipelines/shop/quality/sales.json").unlink()
    steps.inject("shop", *DAY, {})
    epoch = seal(meta)
    steps.commit("shop")
    steps.publish("shop", epoch)
    assert meta.read_latest().published == epoch


def commit_of(meta: MetaStore, views: tuple[str, ...], run: str = "", **changes: int) -> int:
    """Commit an epoch whose views put out the given numbers of changes, and add `views` to the catalog."""
    version = meta.read_latest()
    relations = tuple(Relation(n, view, RelationKind.VIEW, (), msgspec.Raw(b"{}")) for n, view in enumerate(views, 1))
    plan = BarrierPlan(
        mapping=version.mapping,
        log_end=version.log_end,
        catalog=Catalog(relations, len(relations) + 1) if views else None,
        run={"dag": "epoch_shop", "run": run} if run else {},
    )
    barrier = meta.inject_barrier(version.epoch, plan)
    rows = {view: RowCounts(0, changes) for view, changes in changes.items()}
    meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, (), rows)))
    return barrier.epoch


def test_a_publish_counts_the_changes_of_all_epochs_that_it_lets_readers_see_and_so_does_its_repetition(
    meta: MetaStore,
) -> None:
    views = ("sales", "visits")
    first = commit_of(meta, views, sales=1, visits=2)
    write_record(meta.objects, QualityRecord(first, ()))
    steps.publish("shop", first)
    for changes in (10, 100):
        last = commit_of(meta, views, sales=changes)
    write_record(meta.objects, QualityRecord(last, ()))
    once = steps.publish("shop", last)
    assert {view.name: view.changed_rows for view in once.views} == {"sales": 110, "visits": 0}
    meta.raise_floor(first)  # an unrelated delta
    assert steps.publish("shop", last) == once
    again = steps.publish("shop", first)
    assert ({view.name: view.changed_rows for view in again.views}, again.epoch) == ({"sales": 1, "visits": 2}, first)


def test_only_a_view_with_a_suite_is_reported_as_passed(meta: MetaStore) -> None:
    epoch = commit_of(meta, ("sales", "visits"), sales=1)
    write_record(meta.objects, QualityRecord(epoch, (ViewQuality("sales", 3, 1),)))
    sales, visits = steps.publish("shop", epoch).views
    assert (sales.quality, sales.rows) == (QualityVerdict.PASSED, 3)
    assert (visits.quality, visits.rows) == (QualityVerdict.NONE, None)


def test_the_unfinished_run_has_the_open_barrier_or_the_unpublished_epoch(
    meta: MetaStore,
) -> None:
    assert steps.holder("shop", "epoch_shop") is None
    steps.inject("shop", *DAY, {"dag": "epoch_shop", "run": "a"})
    assert steps.holder("shop", "epoch_shop") == "a"
    assert steps.holder("shop", "another") is None
    epoch = seal(meta)
    steps.commit("shop")
    assert steps.holder("shop", "epoch_shop") == "a"
    meta.publish(epoch)
    assert steps.holder("shop", "epoch_shop") is None
    commit_of(meta, (), run="b")
    assert steps.holder("shop", "epoch_shop") == "b"


def test_an_epoch_is_judged_again_only_by_other_suites(meta: MetaStore, tmp_path: Path) -> None:
    epoch = commit_of(meta, ("sales",))
    assert steps.verdict("shop", epoch) is QualityVerdict.NONE
    digest = read_suite(tmp_path / "pipelines/shop/quality/sales.json").digest
    for failures, verdict in (
        ((), QualityVerdict.PASSED),
        ((Failure("expect_x()", "1 of 3 rows"),), QualityVerdict.FAILED),
    ):
        write_record(meta.objects, QualityRecord(epoch, (ViewQuality("sales", 3, 1, failures, suite=digest),)))
        assert steps.verdict("shop", epoch) is verdict
    write_record(meta.objects, QualityRecord(epoch, (), paused=("sales",)))
    assert steps.verdict("shop", epoch) is QualityVerdict.PASSED
    write_record(meta.objects, QualityRecord(epoch, (ViewQuality("sales", 3, 1, suite=digest),)))
    (tmp_path / "pipelines/shop/quality/visits.json").write_text('{"expectations": []}')
    assert steps.verdict("shop", epoch) is QualityVerdict.NONE
    (tmp_path / "pipelines/shop/quality/visits.json").unlink()
    (tmp_path / "pipelines/shop/quality/sales.json").write_text('{"expectations": [ ]}')
    assert steps.verdict("shop", epoch) is QualityVerdict.NONE


def test_publishing_imports_neither_spark_nor_great_expectations() -> None:
    heavy = "{'pyspark', 'great_expectations', 'tussock.jobs.quality.epoch_check'}"
    code = f"import sys, tussock.jobs.quality.record; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_store_that_does_not_exist_yet_is_named(tmp_path: Path, meta: MetaStore) -> None:
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace("/store", "/elsewhere"))
    with pytest.raises(NotInitialisedError, match="elsewhere contains no store"):
        steps.inject("shop", None, None, {})


def test_a_run_pauses_the_views_that_its_form_names_once(meta: MetaStore) -> None:
    fields = (Field("id", "bigint"),)
    meta.append_log("test/2", msgspec.json.encode(CreateView("ids", "SELECT …", Scan("orders", (0,), fields))))
    steps.inject("shop", *DAY, {"run": "first"})
    advance_store(
        LocalRunner(), meta, InputRequest(interval_of(*(moment.isoformat() for moment in DAY), "Europe/Berlin"))
    )
    run = {"dag": "epoch_shop", "run": "by hand"}
    steps.pause("shop", ["ids"], run)
    barrier = meta.open_barrier()
    assert barrier is not None
    assert (barrier.run, barrier.mutation.kind) == (run, "pause"), "the barrier names the run that requested it"
    steps.pause("shop", ["ids"], run)
    assert meta.open_barrier() == barrier, "a retry finds it done"
    advance_store(LocalRunner(), meta)
    assert [r.name for r in meta.read_latest().catalog.live_relations() if r.paused is not None] == ["ids"]
    steps.pause("shop", ["ids"], run)
    assert meta.open_barrier() is None


def test_a_run_restates_the_files_of_its_form_and_a_retry_continues(meta: MetaStore, tmp_path: Path) -> None:
    path, fields = f"{tmp_path}/data/{{start:%Y-%m-%d}}.parquet", (Field("id", "bigint"),)
    meta.append_log(
        "test/2", msgspec.json.encode(CreateSource("kept", "parquet", fields, {"path": path, "retain": "files"}))
    )
    meta.append_log("test/3", msgspec.json.encode(CreateView("ids", "SELECT …", Scan("kept", (0,), fields))))
    interval = interval_of(*(moment.isoformat() for moment in DAY), "Europe/Berlin")
    advance_store(LocalRunner(), meta, InputRequest(interval))
    run = {"dag": "epoch_shop", "run": "by hand"}
    assert steps.begin_restating("shop", "kept", "", DAY, run) == (
        "nothing to restate: source kept has already read the current content of these files",
    )
    file = tmp_path / "data/2013-01-02.parquet"
    before = file.stat().st_size
    pq.write_table(pa.table({"id": [1, 2, 9]}), file)
    lines = (
        f"rows to remove: {file} ({before:,} bytes)",
        f"rows to add: {file} ({file.stat().st_size:,} bytes)",
        "affected views: ids",
    )
    absent = f"{tmp_path}/data/2013-01-03.parquet"
    with pytest.raises(CannotRestateError, match="no epoch has read a file"):
        steps.begin_restating("shop", "kept", f"{file}\n\n{absent}\n", None, run)
    assert steps.begin_restating("shop", "kept", f" {file}\n{file.parent}/*\n", None, run) == lines
    assert "continues with barrier" in steps.begin_restating("shop", "kept", str(file), None, run)[0]
    with pytest.raises(EpochUnderWayError):
        steps.begin_restating("shop", "kept", str(file), None, {"run": "another"})
    advance_store(LocalRunner(), meta, InputRequest(interval))
    with Session(f"{tmp_path}/store", create=False) as session:
        assert sorted(session.read("ids", epoch=meta.read_latest().epoch)["id"].to_pylist()) == [1, 2, 9]
    with pytest.raises(CannotRestateError, match="neither a file nor an interval"):
        steps.begin_restating("shop", "kept", "", None, run)
