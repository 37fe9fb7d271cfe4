"""The content of the pages, compared with independent reads of the store."""

import gc
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from threading import Event
from unittest.mock import Mock
from urllib.parse import unquote

import msgspec
import pytest
from tussock_pages import epochs, guard, health, stores

from tests.support.jobs.driver.embedded import append, epoch, new_store, rows
from tests.support.jobs.plan.catalogs import table
from tests.support.pages.serving import FAILED, Shop, Visitor
from tests.support.waiting import eventually
from tests.unit.jobs.facts.test_status import FIELDS, write
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.run_record import record_end
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.history import epoch_page, epochs_of_run, one_epoch, taken_by
from tussock.jobs.facts.status import Status
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.quality.record import QualityRecord, ViewQuality, read_record, write_record
from tussock.jobs.settings.process import clock_ms, open_meta
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.work import Work

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
DAG = "/tussock/dags/epoch_shop"
ERRORS = {"epoch_damaged": True, "epoch_absent": True, "other": False}  # whether they may pass
HERE = {"Sec-Fetch-Site": "same-origin"}


def read(visitor: Visitor, address: str, status: int = 200) -> str:
    """A page as its reader sees it: words, one space apart."""
    answer = visitor.get(address)
    assert answer.status_code == status, answer.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_the_overview_lists_pipelines_with_their_problems_and_the_error_of_a_broken_one(
    admin: Visitor, shop: Shop
) -> None:
    text = read(admin, "/tussock/pipelines")
    assert "Orders of a <b>shop</b>" in text, "a user's markup is shown as text"
    assert "shop Orders of a <b>shop</b> 2 problems view per_g is too old" in text
    assert re.search(r"epoch \d+ is not published, because suites failed", text)
    assert re.search(r"absent needs attention store \S+ does not exist", text)
    assert re.search(r"damaged 1 problem store \S+ cannot be read: DamagedDocumentError", text)
    assert re.search(r"typing 1 problem pipeline.toml cannot be loaded: .*colour", text), "it does not vanish"
    stored = sum(s.size for level in shop.meta.read_latest().levels for s in level)
    assert f"{stored / 1000:.3g} kB" in text


def test_views_show_state_and_the_rows_that_epochs_changed(admin: Visitor, shop: Shop) -> None:
    answer = admin.get(DAG).text
    assert answer.count('class="spark"') == 1 + 2, "seconds of epochs, and rows changed of a view and a table"
    text = read(admin, DAG)
    sealed = shop.meta.read_manifest(shop.epochs[-1])
    assert sealed is not None
    assert sealed.rows is not None
    shown = re.search(
        r"last epoch took (\S+) s .*? per_g view ready failed .*? rows changed in .*? at most 2 (\S+) ",
        text,
    )
    assert shown is not None
    assert int(shown[2]) == sealed.rows["per_g"].rows_out
    assert sealed.seconds is not None
    assert float(shown[1]) == pytest.approx(sealed.seconds.run, rel=0.01)
    assert "t table" not in read(admin, f"{DAG}?named=per"), "found by a part of its name"


def test_a_view_that_is_older_than_its_pipeline_wants_is_marked_and_counted_as_trouble(admin: Visitor) -> None:
    assert 'title="limit of [freshness]: 2\u00a0h"' in admin.get(DAG).text
    assert "view per_g is too old" in read(admin, DAG)


def test_long_work_shows_its_progress(admin: Visitor, shop: Shop) -> None:
    now = int(time.time() * 1000)
    shop.meta.objects.put("work/epoch.json", msgspec.json.encode(Work("epoch 7", now - 60_000, now, 1_250, 5_000)))
    try:
        eventually("the status is looked up again", lambda: "has been running" in read(admin, DAG), every_s=0.5)
        text = read(admin, DAG)
        assert re.search(r"Epoch 7 has been running since \S+ \S+ UTC: 1,250 of 5,000 tasks done", text), text
    finally:
        shop.meta.objects.delete(["work/epoch.json"])


def test_an_epoch_shows_rows_seconds_and_failing_rows(admin: Visitor, shop: Shop) -> None:
    first, _, last = shop.epochs
    text = read(admin, f"{DAG}/epochs/{first}")
    assert "t table 0 3" in text
    sealed = shop.meta.read_manifest(first)
    assert sealed is not None
    assert sealed.rows is not None
    assert f"per_g view {sealed.rows['per_g'].rows_in} 2" in text
    assert len(rows(shop.meta, "per_g")) == 2
    text = read(admin, f"{DAG}/epochs/{last}")
    assert "committed, not published" in text
    assert "found 1 of 2 rows, e.g. 0" in text
    assert "g n 8 0" in text, "the failing row, by column"
    assert "has no committed epoch 12345" in read(admin, f"{DAG}/epochs/12345", 404)


def test_epochs_are_paged_from_the_newest_back(shop: Shop) -> None:
    first = epoch_page(shop.meta, None, 2)
    assert [e.epoch for e in first.epochs] == shop.epochs[:0:-1]
    assert first.older == shop.epochs[1]
    assert [e.epoch for e in epoch_page(shop.meta, first.older, 2).epochs] == shop.epochs[:1]
    assert epoch_page(shop.meta, first.older, 2).older is None
    assert epoch_page(shop.meta, 5, 2).epochs == ()


def test_the_graph_has_a_box_for_each_node_and_a_line_for_each_that_reads_another(admin: Visitor) -> None:
    svg = admin.get(f"{DAG}/graph").text
    assert svg.count("<rect") == 3, "t, per_g, and the tables that the pipeline publishes to"
    assert svg.count("<path") == 2
    text = read(admin, f"{DAG}/relations/per_g")
    assert "HashAgg" in text
    assert "level 1" in text
    assert "has no relation" in read(admin, f"{DAG}/relations/nope", 404)
    assert "No node has nope in its name" in read(admin, f"{DAG}/graph?focus=nope")


def test_a_graph_that_is_too_large_to_draw_is_a_list_whose_nodes_lead_to_drawings(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tussock_pages.dag.MOST_BOXES", 2)
    listed = read(admin, f"{DAG}/graph")
    assert "The graph has 3 nodes. Drawings have at most 2." in listed
    rows = r" t table active – 1 \S+ kB per_g view active t 1 \S+ kB delta tables sink active per_g 0 –"
    assert re.search(rows, listed), listed
    assert " 1 of 3 nodes have ELTA in their names. " in read(admin, f"{DAG}/graph?focus=ELTA")
    drawn = admin.get(f"{DAG}/graph?focus=delta%20tables").text
    assert (drawn.count("<rect"), drawn.count("<path")) == (2, 1), "the node itself and the nearest one"
    assert "; 1 more are farther away" in drawn
    assert "<title>delta tables</title>" in drawn


def test_the_table_of_views_has_a_chosen_order(admin: Visitor) -> None:
    for order, first in (("name", "per_g"), ("rows", "t"), ("bytes", ""), ("freshness", ""), ("", "per_g")):
        names = re.findall(r'<td><a class="name" href="[^"]*">(\w+)</a> <span', admin.get(f"{DAG}?order={order}").text)
        assert sorted(names) == ["per_g", "t"], order
        assert not first or names[0] == first, order
    assert admin.get_once(f"{DAG}?order=nope").status_code == 422


def test_every_page_shows_the_failed_run_that_only_the_scheduler_has(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker never read the store. The health is one answer, whatever page and whatever DAG of the pipeline."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    calm = "/tussock/dags/epoch_calm"
    assert "calm healthy" in read(admin, "/tussock/pipelines")
    begun = admin.post(f"{calm}/actions/epoch", headers=HERE)
    run = begun.headers["location"].partition("run=")[2].replace("%3A", ":").replace("%2B", "+")
    with create_session() as session:
        found = session.scalar(select(DagRun).where(DagRun.dag_id == "epoch_calm", DagRun.run_id == run))
        assert found is not None
        found.state = "failed"
    for dag in (calm, "/tussock/dags/upkeep_calm"):
        for path in (
            "",
            "/graph",
            "/epochs",
            "/quality",
            "/verified",
            "/branches",
            "/actions",
            "/relations/t",
            f"/runs/{run}/report",
        ):
            assert "calm 1 problem" in read(admin, f"{dag}{path}"), (dag, path)
    for address in ("/tussock/pipelines", calm):
        assert re.search(f"run {re.escape(run)} (since .* UTC )?failed in Airflow", read(admin, address)), address
    with monkeypatch.context() as patch:
        patch.setattr(guard, "_allows", lambda user, dag, *_: dag.id != "epoch_calm")
        assert run not in read(admin, "/tussock/dags/upkeep_calm"), "its reader may not read the DAG of the run"
        assert run in read(admin, calm)
    with create_session() as session:
        tasks = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run)).all()
        for task in tasks:
            task.state = "failed" if task.task_id == "health" else "success"
    meta = open_meta(stores.pipeline_of("calm").store)
    record_end(meta, "epoch", {"dag": "epoch_calm", "run": run}, clock_ms(), ["source 'orders' is held"])
    monkeypatch.setattr(stores, "FRESH_S", 0.0)
    for address, *texts in (
        (f"{calm}/runs/{run}", "Failed task health All other tasks succeeded.", "source 'orders' is held"),
        ("/tussock/pipelines", "failed in health", "calm needs attention"),
    ):
        eventually(address, lambda at=address, parts=texts: all(part in read(admin, at) for part in parts), 20.0)


def test_looks_that_no_page_shows_any_more_are_released(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FRESH_S", 0.0)  # each page looks again

    def alive() -> int:
        gc.collect()
        return sum(type(one) is Status for one in gc.get_objects())

    before = alive()
    for number in range(3 * stores.LOOKS_REMEMBERED):
        assert admin.get_once(f"/tussock/dags/epoch_calm?named={number}").status_code == 200
    assert alive() - before <= stores.LOOKS_REMEMBERED + 2


def test_a_file_that_could_not_be_read_is_read_again_although_it_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late/pipeline.toml").write_text('name = "late"\nstore = "store"\nsql = ["views.sql"]\n')
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", Mock(side_effect=OSError(24, "Too many open files")))
        (found,) = stores.pipelines()
    assert "Too many open files" in str(found.error)
    (found,) = stores.pipelines()
    assert found.error is None


def test_runs_of_two_dags_with_one_name_have_two_pages(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(return_value=((), ()))
    monkeypatch.setattr(epochs, "_of_run", asked)
    dags = ["upkeep_calm", "verify_calm"]
    for dag in dags:
        begun = admin.post(f"/api/v2/dags/{dag}/dagRuns", json={"dag_run_id": "same", "logical_date": None})
        assert begun.status_code == 200, begun.text
        read(admin, f"/tussock/dags/{dag}/runs/same")
    assert [call.args[1]["dag"] for call in asked.call_args_list] == dags


def test_a_page_that_did_not_change_is_not_sent_again(admin: Visitor, shop: Shop) -> None:
    first = admin.get(f"{DAG}/epochs")
    again = admin.get_once(f"{DAG}/epochs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["tussock-as-of"] >= first.headers["tussock-as-of"][:10]
    assert float(again.headers["tussock-age"]) >= 0
    assert f'data-etag="{first.headers["etag"]}"' in unescape(first.text)
    record = read_record(shop.meta.objects, shop.epochs[0])
    assert record is not None
    try:
        write_record(shop.meta.objects, QualityRecord(shop.epochs[0], (ViewQuality("per_g", 2, 2, (FAILED,)),)))
        other = admin.get_once(f"{DAG}/epochs", headers={"If-None-Match": first.headers["etag"]})
        assert other.status_code == 200, "a suite has run again"
        assert other.headers["etag"] != first.headers["etag"]
    finally:
        write_record(shop.meta.objects, record)
    assert admin.get(f"{DAG}/epochs").headers["etag"] == first.headers["etag"]


def test_quality_shows_each_expectation_over_time_with_the_rows_that_failed_last(admin: Visitor) -> None:
    answer = admin.get(f"{DAG}/quality").text
    assert (answer.count('cell good"'), answer.count('cell bad"')) == (2, 1)
    answer = admin.get(f"{DAG}/quality/per_g").text
    assert (answer.count('cell good"'), answer.count('cell bad"')) == (2 + 3, 1)
    text = read(admin, f"{DAG}/quality/per_g")
    assert "expect_column_values_to_not_be_null(column='g') warning" in text
    assert "g n 8 0" in text
    assert "observed value, or number of failing rows: from" in answer
    assert "no suite has run on it" in read(admin, f"{DAG}/quality/nope", 404)


def test_an_action_shows_a_preview_and_starts_a_run_with_params_as_its_user(
    admin: Visitor, visitors: dict[str, Visitor]
) -> None:
    text = read(admin, f"{DAG}/actions/pause")
    assert "The DAG is paused" in text
    begun = visitors["user"].post(f"{DAG}/actions/pause", data={"view": "per_g"}, headers=HERE)
    run = begun.headers["location"].partition("run=")[2]
    answer = admin.get(begun.headers["location"].removeprefix("http://localhost:8080")).text
    assert f'href="{DAG}/runs/{run}"' in answer
    assert f"/dags/epoch_shop/runs/{run}</code>" in answer
    found = admin.get(f"/api/v2/dags/epoch_shop/dagRuns/{run}").json()
    assert (found["conf"], found["triggering_user_name"]) == ({"pause": ["per_g"]}, "user")
    text = read(admin, f"{DAG}/runs/{run}")
    assert "has not created an epoch yet" in text
    assert "Interval none: all waiting files" in text
    assert "Choose a view" in unescape(admin.post(f"{DAG}/actions/pause", headers=HERE).text)
    half = admin.post(f"{DAG}/actions/epoch", data={"start": "2013-01-01T00:00"}, headers=HERE)
    assert (half.status_code, "both ends" in half.text) == (422, True)
    day = {"start": "2013-01-01T00:00", "end": "2013-01-02T00:00"}
    begun = admin.post(f"{DAG}/actions/restate", data={"source": "s", **day}, headers=HERE)
    found = admin.get(f"/api/v2/dags/epoch_shop/dagRuns/{begun.headers['location'].partition('run=')[2]}").json()
    run = begun.headers["location"].partition("run=")[2]
    assert "Interval 2013-01-01 00:00:00 to 2013-01-02 00:00:00 UTC" in read(admin, f"{DAG}/runs/{run}")
    assert found["conf"] == {"restate": "s", "start": "2013-01-01T00:00:00+00:00", "end": "2013-01-02T00:00:00+00:00"}


def test_a_run_and_its_epoch_show_the_intervals_that_now_passed_over(
    admin: Visitor, visitors: dict[str, Visitor], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = visitors["user"].post(f"{DAG}/actions/pause", data={"view": "per_g"}, headers=HERE)
    run = begun.headers["location"].partition("run=")[2]
    of_store = one_epoch(shop.meta, shop.epochs[0])
    assert of_store is not None
    days = [datetime(2026, 3, number, tzinfo=UTC) for number in (3, 6, 7)]
    found = msgspec.structs.replace(of_store, now=days[2], passed_over=(days[0], days[1]))
    monkeypatch.setattr(epochs, "one_epoch", lambda *_: found)
    monkeypatch.setattr(epochs, "epochs_of_run", lambda *_: (found,))
    stores._stores["shop"][1]._answers.forget()
    text = read(admin, f"{DAG}/epochs/{found.epoch}")
    assert "now() in views 2026-03-07 00:00:00 UTC" in text
    assert "Passed over the intervals from 2026-03-03 00:00:00 to 2026-03-06 00:00:00 UTC, which had not run" in text
    text = read(admin, f"{DAG}/runs/{run}")
    assert "now() in views 2026-03-07 00:00:00 UTC" in text
    assert "moved to 2026-03-07 00:00:00 UTC, over the intervals from 2026-03-03 00:00:00" in text
    stores._stores["shop"][1]._answers.forget()


def test_the_page_of_a_run_on_a_branch_shows_no_epochs_of_the_pipeline(
    admin: Visitor, visitors: dict[str, Visitor]
) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    begun = visitors["user"].post(f"{DAG}/actions/pause", data={"view": "per_g"}, headers=HERE)
    run = begun.headers["location"].partition("run=")[2]
    with create_session() as session:
        row = session.query(DagRun).filter_by(run_id=unquote(run)).one()
        row.conf = {"branch": "pr-1"}
    for place in ("", "/report"):
        text = read(admin, f"{DAG}/runs/{run}{place}")
        assert "This run worked on the branch pr-1" in text
        assert "tussock inspect epochs --pipeline shop --branch pr-1" in text
        assert "Quality report" not in text


def test_the_tab_of_a_run_shows_the_files_of_its_epochs_and_its_open_epoch(tmp_path: Path) -> None:
    """Without Airflow: the facts that the page shows."""
    (tmp_path / "files").mkdir()
    write(tmp_path / "files/1.parquet", range(10))
    meta = new_store(tmp_path / "store")
    append(meta, CreateSource("s", "parquet", FIELDS, {"path": str(tmp_path / "files")}))
    mine, other = {"dag": "epoch_shop", "run": "a"}, {"dag": "epoch_shop", "run": "b"}
    advance_store(LocalRunner(), meta, InputRequest(run=mine))
    write(tmp_path / "files/2.parquet", range(3))
    advance_store(LocalRunner(), meta, InputRequest(run=other))
    files = {path.name: path.stat().st_size for path in (tmp_path / "files").iterdir()}
    for run, name in ((mine, "1.parquet"), (other, "2.parquet")):
        (file,) = taken_by(meta, epochs_of_run(meta, run, None, 10))
        assert (file.source, Path(file.path).name, file.bytes) == ("s", name, files[name])


def test_the_preview_of_upkeep_changes_nothing(admin: Visitor, shop: Shop) -> None:
    before = shop.meta.read_latest()
    text = read(admin, "/tussock/dags/upkeep_shop/actions/upkeep")
    assert "Vacuum can remove 0 objects" in text
    assert "Retention expires" in text
    assert shop.meta.read_latest() == before


def test_a_page_does_not_wait_for_slow_facts_and_reloads_until_they_exist(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tussock_pages import actions, stores

    page, known, look = "/tussock/dags/upkeep_shop/actions/upkeep", Event(), actions.find_due_work
    admin.get(page)
    stores._stores["shop"][1]._looks.clear()
    monkeypatch.setattr(actions, "find_due_work", lambda *asked: known.wait(60) and look(*asked))
    answer = admin.get_once(page)
    assert (answer.headers["refresh"], "Loading the due upkeep" in answer.text) == ("1", True)
    known.set()
    assert "Vacuum can remove" in read(admin, page)


def test_a_store_that_does_not_answer_keeps_no_page(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart of the API server while S3 hangs: nothing is known of the store yet."""
    from tussock_pages import stores

    answers, look, text = Event(), stores.mark_of, "the page's request failed at"
    monkeypatch.setattr(stores, "ANSWER_S", 0.2)
    monkeypatch.setattr(stores, "mark_of", lambda objects: answers.wait(60) and look(objects))
    known = stores._stores.pop("shop")
    try:
        for _ in range(2):
            assert "no answer for 0.2 s" in read(admin, DAG, 503)
        overview = read(admin, "/tussock/pipelines")
        assert re.search(rf"shop Orders of a <b>shop</b> \d problems? store \S+ cannot be read: .*{text}", overview)
    finally:
        answers.set()
    stores._silent["shop"].result(60)
    assert text not in read(admin, DAG)
    stores._stores["shop"] = known


def test_looks_at_silent_stores_keep_no_look_at_another_store(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "ANSWER_S", 0.2)
    monkeypatch.setattr(stores, "FRESH_S", 0.0)
    for dag in (DAG, "/tussock/dags/epoch_calm"):
        admin.get(dag)
    answers, known = Event(), stores._stores["shop"][1].seen(stores.pipeline_of("shop"))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(stores, "OLD_PATIENCE_S", 0.0)
            for silent in range(3 * stores._TURNS._most):
                known.look(f"silent {silent}", lambda _: answers.wait(60))
        stores._stores["calm"][1]._looks.clear()
        assert re.search("calm (healthy|needs attention)", read(admin, "/tussock/dags/epoch_calm")), "it was looked at"
    finally:
        answers.set()


def test_a_rebalance_shows_the_load_of_the_units_and_the_vnodes_that_would_move(admin: Visitor, shop: Shop) -> None:
    page = "/tussock/dags/rebalance_shop/actions/rebalance"
    before = shop.meta.read_latest()
    answer = read(admin, page)
    assert "unit vnodes rows bytes load" in answer
    assert shop.meta.read_latest() == before
    three = read(admin, f"{page}?units=3")
    assert "move, to 3 units" in three
    digest = three.partition("digest ")[2][:64]
    assert f'name="approved" value="{digest}"' in admin.get(f"{page}?units=3").text
    begun = admin.post(page, data={"units": "3", "approved": digest}, headers=HERE)
    found = admin.get(f"/api/v2/dags/rebalance_shop/dagRuns/{begun.headers['location'].partition('run=')[2]}").json()
    assert found["conf"] == {"units": 3, "approved": digest}, "the shown moves are the executed ones"
    wrong = admin.post(page, data={"units": "-1"}, headers=HERE)
    assert (wrong.status_code, "not a number of units" in wrong.text) == (422, True)


def test_an_unreadable_store_is_a_page_with_the_error_and_no_trace(admin: Visitor) -> None:
    text = read(admin, "/tussock/dags/epoch_damaged", 503)
    assert "The store cannot be read" in text
    assert "Traceback" not in text
    refreshes = {address: "data-refresh" in admin.get(f"/tussock/dags/{address}").text for address in ERRORS}
    assert refreshes == ERRORS, "a page shows the store as soon as it can be read"
    assert "has no store" in read(admin, "/tussock/dags/epoch_absent", 404)
    assert "other is not a Tussock DAG" in read(admin, "/tussock/dags/other", 404)
    unknown = read(admin, "/tussock/dags/epoch_nope", 404)
    assert "There is no pipeline 'nope'" in unknown
    assert "damaged" not in unknown, "a user who may see one pipeline learns no other's name"


def test_a_store_that_is_gone_or_replaced_is_noticed_although_no_new_version_appears(
    admin: Visitor, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FRESH_S", 0.0)  # each page looks again
    folder, page = shop.folder / "moving", "/tussock/dags/epoch_moving"
    (shop.folder / "pipelines/moving").mkdir()
    (shop.folder / "pipelines/moving/pipeline.toml").write_text(
        f'name = "moving"\nstore = "{folder}"\nsql = ["views.sql"]\n'
    )
    append(meta := new_store(folder), table("first"))
    epoch(meta)
    assert " first table " in read(admin, page)
    folder.rename(shop.folder / "moved")
    eventually("the store is missed", lambda: admin.get(page).status_code == 404, 10, every_s=0.1)
    assert "has no store" in read(admin, page, 404)
    (shop.folder / "moved").rename(folder)
    assert " first table " in read(admin, page), "it is back"
    folder.rename(shop.folder / "moved")
    append(meta := new_store(folder), table("second"))
    epoch(meta)
    eventually("the new store is seen", lambda: " second table " in read(admin, page), 10, every_s=0.1)


def test_pages_of_an_environment_that_is_a_branch_show_its_branch(
    admin: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[publish]\nto = "{tmp_path}/tables"\n'
        '[env.prod]\n[env.dev]\nstore = "branch:prod"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("TUSSOCK_ENV", "dev")
    append(meta := new_store(tmp_path / "store"), table("of_parent"))
    epoch(meta)
    absent = "shop dev needs attention store branch:prod does not exist"
    assert absent in read(admin, "/tussock/pipelines"), "a page writes nothing, so it begins no branch"
    for name in ("first", "second"):  # a branch that ends, and another one of its name
        meta.open_branch("dev", follows=False)
        append(branch := meta.branch("dev"), table(name))
        epoch(branch)
        assert f" {name} table " in read(admin, DAG)
        for page in ("graph", "epochs", "quality", "actions", "branches", "verified", f"relations/{name}"):
            read(admin, f"{DAG}/{page}")
        meta.end_branch("dev")
    assert absent in read(admin, "/tussock/pipelines")


def test_an_unexpected_error_is_a_page_without_a_trace(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tussock_pages.epochs.one_epoch", lambda *_: 1 / 0)
    text = read(admin, f"{DAG}/epochs/1", 500)
    assert "This page failed" in text
    assert "ZeroDivision" not in text


def test_epochs_of_a_run_are_those_whose_barriers_it_injected(shop: Shop) -> None:
    assert epochs_of_run(shop.meta, {"run": "none"}, None, 10) == ()
    assert [e.epoch for e in epochs_of_run(shop.meta, {}, None, 10)] == shop.epochs[::-1]


def test_links_of_tasks_lead_to_existing_pages(admin: Visitor) -> None:
    from types import SimpleNamespace

    from tussock_links import LINKS

    key = SimpleNamespace(dag_id="epoch_shop", run_id="manual__2026-01-01T00:00:00+00:00")
    addresses = [link.get_link(object(), ti_key=key) for link in LINKS]
    assert [a.partition("/plugin/tussock")[2] for a in addresses] == [
        f"{DAG}/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00",
        f"{DAG}/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/report",
    ]
    assert "has no run" in read(admin, addresses[0].partition("/plugin/tussock")[2], 404)
    assert "not committed an epoch yet" in read(admin, addresses[1].partition("/plugin/tussock")[2])


def test_airflow_finds_each_view_by_a_separate_route() -> None:
    from tussock_pages import TussockPages

    routes = [view["url_route"] for view in TussockPages.external_views]
    assert len(set(routes)) == len(routes) == 3
    assert routes[0] == "tussock", "links of tasks lead there"


@pytest.fixture
def busy_shop(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The store of the pipeline shop stops answering after its pages were shown. The event lets it answer again."""
    monkeypatch.setattr(stores, "ANSWER_S", 0.2)
    for page in (DAG, "/tussock/pipelines"):
        read(admin, page)
    answers, latest = Event(), stores.PagesMeta.read_latest
    found = stores._stores["shop"][1]

    def slow(meta: stores.PagesMeta) -> HummockVersion:
        if meta.objects is found.meta.objects:
            answers.wait(60)
        return latest(meta)

    monkeypatch.setattr(stores.PagesMeta, "read_latest", slow)
    monkeypatch.setattr(stores, "OLD_S", -1.0)  # its facts are old at once
    yield answers
    answers.set()


@pytest.mark.parametrize("address", ["/tussock/pipelines", DAG, f"{DAG}?order=name", f"{DAG}/epochs", f"{DAG}/graph"])
def test_a_page_of_a_busy_store_shows_the_last_facts_with_their_time_and_says_that_it_waits(
    admin: Visitor, busy_shop: Event, address: str
) -> None:
    text = ""
    for _ in range(2):  # the second one does not wait again
        text = read(admin, address)
    assert re.search(r"Waiting for the store, which is busy or does not answer. The facts are of 20\d\d-", text)
    assert "no answer" not in text
    if address.startswith(DAG) and "epochs" not in address:
        assert "per_g" in text, "the last facts"
    answer = admin.get_once(address)
    assert answer.headers["tussock-waits"] == "waiting for the store"
    assert 'data-why="waiting for the store"' in answer.text
    busy_shop.set()
    stores._silent["shop"].result(60)
    assert "Waiting for the store" not in read(admin, address)


def test_a_page_whose_status_takes_long_says_that_it_waits(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    known, read_status = Event(), health.read_status
    monkeypatch.setattr(health, "read_status", lambda *given, **more: known.wait(60) and read_status(*given, **more))
    monkeypatch.setattr(stores, "FRESH_S", 0.0)
    monkeypatch.setattr(stores, "OLD_PATIENCE_S", 0.05)
    monkeypatch.setattr(stores, "OLD_S", -1.0)
    try:
        assert "Waiting for the store, which is busy or does not answer" in read(admin, DAG)
        stores._stores["shop"][1]._looks.clear()
        text = admin.get_once(DAG).text
        assert "Waiting for the store, which is busy: it has not answered yet." in text
    finally:
        known.set()
