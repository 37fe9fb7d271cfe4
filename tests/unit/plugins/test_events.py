"""The news of sources and views for Airflow: all changes since the previous event. No Airflow, no Spark."""

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tussock_events as events
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from tests.support.jobs.driver.embedded import append, insert, new_store
from tests.support.jobs.plan.catalogs import counted, view
from tests.support.plugins import by_name as steps
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable
from tussock.jobs.operations.news import LastEvent, SourceNews
from tussock.jobs.reading import intake
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
RUN = {"dag": "epoch_shop", "run": "a"}


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """A pipeline `shop` with two file sources, a table, and one view each over source `sales` and table `shops`."""
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["v.sql"]\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    meta = new_store(tmp_path / "store")
    for source in ("sales", "visits"):
        (tmp_path / source).mkdir()
        append(meta, CreateSource(source, "parquet", FIELDS, {"path": str(tmp_path / source)}))
    append(meta, CreateTable("shops", FIELDS, (0,)), view("by_g", counted(Scan("sales", (1,), FIELDS[1:2]), 0)))
    append(meta, view("shops_by_g", counted(Scan("shops", (1,), FIELDS[1:2]), 0)))
    return meta


def write(folder: Path, name: str, rows: int) -> int:
    """A file of so many rows; its bytes."""
    columns = {f.name: pa.array(range(rows), pa.int32()) for f in FIELDS}
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return (folder / f"{name}.parquet").stat().st_size


def told(**epochs: int) -> Any:
    return lambda name: LastEvent(epochs.get(name, 0))


def test_the_news_of_a_source_covers_all_files_since_the_last_event_of_any_source(
    meta: MetaStore, tmp_path: Path
) -> None:
    size = write(tmp_path / "sales", "one", 3)
    (first,) = advance_store(LocalRunner(), meta, InputRequest(run=RUN))
    (sales,) = steps.source_news("shop", told(), RUN)
    assert sales == SourceNews("sales", first.epoch, meta.read_latest().id, 0, files=1, bytes=size, rows=3, own=True)
    assert steps.source_news("shop", told(sales=first.epoch), RUN) == ()

    sizes = [write(tmp_path / "sales", "two", 5), write(tmp_path / "sales", "three", 7)]
    visits = write(tmp_path / "visits", "one", 2)
    advance_store(LocalRunner(), meta, InputRequest(run=RUN), EpochSettings(max_bytes=1))  # an epoch a file
    last = meta.read_latest().epoch
    news = {source.name: source for source in steps.source_news("shop", told(sales=first.epoch), RUN)}
    assert (news["sales"].files, news["sales"].bytes, news["sales"].rows, news["sales"].since) == (
        2,
        sum(sizes),
        12,
        first.epoch,
    )
    assert (news["visits"].files, news["visits"].bytes, news["visits"].rows) == (1, visits, None), (
        "visits has no reader, so its rows are not counted"
    )
    assert {source.epoch for source in news.values()} == {last}
    assert not any(source.own for source in steps.source_news("shop", told(sales=first.epoch), {**RUN, "run": "b"}))

    insert(meta, "shops", (1, 1, 1))
    advance_store(LocalRunner(), meta)
    assert steps.source_news("shop", told(sales=last), RUN) == (), "visits had nothing new at the event of sales"


def test_after_more_epochs_than_are_searched_each_source_may_have_news(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "sales", "one", 3)
    (first,) = advance_store(LocalRunner(), meta)
    for row in range(4):
        insert(meta, "shops", (row, 1, 1))
        advance_store(LocalRunner(), meta)
    assert steps.source_news("shop", told(sales=first.epoch), RUN) == ()
    monkeypatch.setattr(intake.read_intakes, "__defaults__", (3,))
    assert [(s.name, s.files, s.rows) for s in steps.source_news("shop", told(sales=first.epoch), RUN)] == [
        ("sales", None, None),
        ("visits", None, None),
    ]


def test_the_news_of_a_view_covers_all_publishes_since_its_last_event(meta: MetaStore, tmp_path: Path) -> None:
    assert steps.view_news("shop", told()).views == (), "nothing is published"
    write(tmp_path / "sales", "one", 3)
    (first,) = advance_store(LocalRunner(), meta)
    steps.publish("shop", first.epoch)
    assert [(v.name, v.since) for v in steps.view_news("shop", told()).views] == [("by_g", 0), ("shops_by_g", 0)]
    assert steps.view_news("shop", told(by_g=first.epoch, shops_by_g=first.epoch)).views == ()
    for name in ("two", "three"):  # two publishes without events
        write(tmp_path / "sales", name, 2)
        (done,) = advance_store(LocalRunner(), meta)
        steps.publish("shop", done.epoch)
    news = steps.view_news("shop", told(by_g=first.epoch, shops_by_g=done.epoch))
    assert [(v.name, v.since, v.changed_rows) for v in news.views] == [("by_g", first.epoch, 8)], (
        "two updates of two rows each"
    )
    assert (news.epoch, news.version) == (done.epoch, meta.read_latest().id)


def test_a_view_that_took_anothers_name_is_new_as_a_whole_and_one_that_is_paused_has_no_news(
    meta: MetaStore, tmp_path: Path
) -> None:
    write(tmp_path / "sales", "one", 3)
    (first,) = advance_store(LocalRunner(), meta)
    steps.publish("shop", first.epoch)
    abandon_barrier(meta, Detour(pause=("by_g",)), RUN)
    write(tmp_path / "sales", "two", 3)
    advance_store(LocalRunner(), meta)
    steps.publish("shop", meta.read_latest().epoch)
    assert [v.name for v in steps.view_news("shop", told(by_g=first.epoch, shops_by_g=first.epoch)).views] == [
        "shops_by_g"
    ]
    older = steps.view_news("shop", told(by_g=first.epoch - 1, shops_by_g=meta.read_latest().epoch))
    assert [(v.name, v.since) for v in older.views] == [("by_g", 0)], "an event of before the view was made"


def test_a_consumer_of_the_events_has_the_views_rows_even_if_runs_send_none(meta: MetaStore, tmp_path: Path) -> None:
    """Random epochs; some are published, and some publishes send events."""
    chance = random.Random(7)
    said: dict[str, int] = {}
    rows: Counter[tuple[int, int]] = Counter()
    with Session(str(tmp_path / "store"), create=False) as session:
        for number in range(25):
            write(tmp_path / "sales", f"f{number}", chance.randrange(1, 6))
            advance_store(LocalRunner(), meta)
            if chance.random() < 0.6:
                steps.publish("shop", meta.read_latest().epoch)
            if chance.random() < 0.4 or number == 24:
                if number == 24:
                    steps.publish("shop", meta.read_latest().epoch)
                news = steps.view_news("shop", told(**said))
                for event in news.views:
                    assert event.since == said.get(event.name, 0)
                    if event.name == "by_g":
                        if not event.since:
                            rows = Counter((r["c0"], r["n"]) for r in renamed(session.read("by_g", epoch=news.epoch)))
                        for row in renamed(session.changes("by_g", event.since, news.epoch)) if event.since else ():
                            rows[row["c0"], row["n"]] += (
                                1 if row["_change_type"] in ("insert", "update_postimage") else -1
                            )
                    said[event.name] = news.epoch
        assert +rows == Counter((r["c0"], r["n"]) for r in renamed(session.read("by_g")))


def renamed(table: pa.Table) -> list[dict[str, Any]]:
    """Rows whose first column is renamed to `c0`."""
    return table.rename_columns(["c0", *table.column_names[1:]]).to_pylist()


DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 10)]


def run(
    number: int,
    run_type: str = "backfill",
    state: str = "queued",
    owed: str | None = None,
    published: str | None = None,
) -> SimpleNamespace:
    return SimpleNamespace(
        dag_id="d",
        run_id=f"{run_type}{number}",
        run_type=run_type,
        logical_date=DAYS[number],
        state=state,
        owed_events=owed,
        publish_views=published,
    )


@pytest.mark.parametrize(
    ("me", "others", "waits_for"),
    [
        (run(1), [], None),
        (run(1), [run(2)], "backfill2"),
        (run(5), [run(2)], "backfill2"),
        (run(1), [run(3, state="running"), run(2, state="running")], "backfill3"),
        (run(1), [run(2, state="success"), run(3, state="failed")], None),
        (run(1), [run(2, state="running", owed="skipped")], None),
        (run(1), [run(2, state="running", owed="success")], None),
        (run(1), [run(2, state="running", owed="running")], None),
        (run(1), [run(2, state="running", owed="queued")], "backfill2"),
        (run(1), [run(2, state="running", owed="queued", published="failed")], "backfill2"),
        (run(1), [run(2, state="running", owed="queued", published="success")], None),
        (run(1), [run(2, "scheduled"), run(3, "manual", "running")], None),
        (run(1), [run(4, "scheduled", "running"), run(3, state="running"), run(2, "manual", "running")], "backfill3"),
        (run(1, "scheduled"), [run(2)], None),
        (run(1, "manual"), [run(2)], None),
    ],
)
def test_a_backfills_run_sends_no_event_while_another_will(
    me: SimpleNamespace, others: list[SimpleNamespace], waits_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [me, *others]
    me.state = "running"

    class Server:
        """Answers as Airflow's API server does to GetPreviousDagRun."""

        def send(self, asked: Any) -> SimpleNamespace:
            found = [r for r in runs if r.state == asked.state and r.logical_date < asked.logical_date]
            return SimpleNamespace(dag_run=max(found, key=lambda r: r.logical_date, default=None))

    def states(dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, str | None]]:
        return {r.run_id: {task: getattr(r, task) for task in task_ids} for r in runs if r.run_id in run_ids}

    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", Server(), raising=False)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(states))
    assert events.still_to_come({"dag_run": me}) == waits_for
