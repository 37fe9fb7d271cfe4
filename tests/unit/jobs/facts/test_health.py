"""The health of a pipeline: every condition with its texts, and the record of runs that it needs."""

import json
import re
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.facts.conditions import EPOCH, change_facts, conditions, healthy
from tests.support.jobs.plan.catalogs import table
from tests.unit.jobs.driver.test_pauses import BAD, RAISED, sums
from tests.unit.jobs.facts.test_status import NOW, files, look, shop
from tussock.jobs import cli
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver import run_record
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.run_record import record_end, record_failure, recorded_elsewhere, recorded_run
from tussock.jobs.facts.health import find_troubles
from tussock.jobs.facts.metrics import health_metrics
from tussock.jobs.facts.runs import GRACE, SILENT, RunState, last_run, overdue_repetition, overdue_run
from tussock.jobs.facts.trouble import HealthVerdict, Trouble, TroubleKind, health_verdict
from tussock.jobs.facts.unopened import trouble_of_unopened, with_scheduler
from tussock.jobs.facts.views import ViewState
from tussock.jobs.operations.epochs import recorded_to_its_end
from tussock.jobs.operations.health import health_after_run
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.record import CORRECT_ROWS, Failure, QualityRecord, ViewQuality, write_record
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import clock_ms, open_meta
from tussock.jobs.settings.schedule import NO_TRIGGERS, RunSchedule, RunTriggers
from tussock.jobs.sources.listing import Interval
from tussock.jobs.texts.status import health_line, health_text, status_text
from tussock.statestore.errors import InputError
from tussock.statestore.meta.errors import LostRaceError, NotInitialisedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ExpiredCredentialsError
from tussock.statestore.objectstore.local import LocalObjectStore

__all__ = ["files", "shop"]
CASES = Path(__file__).parent / "cases/health.txt"


def test_each_condition_has_a_text_in_the_command_a_metric_and_a_line_of_the_dag(
    shop: MetaStore, request: pytest.FixtureRequest
) -> None:
    """tests/airflow/pages/test_health.py does so for the page. Review a changed text as a changed case."""
    parts = []
    folder = shop.objects.uri.removeprefix("file://")
    for kind, found in conditions(healthy(shop)).items():
        assert [trouble.kind for trouble in found] == [kind], kind
        metrics = {metric.name: metric.value for metric in health_metrics(found)}
        assert metrics[f"trouble.{kind}"] == 1
        assert sum(value for name, value in metrics.items() if name.startswith("trouble.")) == 1
        (trouble,) = found
        text, line = health_text("shop", found, NOW), health_line(trouble)
        for place in (" ".join(text.split()), " ".join(line.split())):
            for part in (trouble.about, trouble.what, trouble.do):
                assert " ".join(part.split()) in place, "each place has the whole text"
        title = f"== {kind}: {health_verdict(found)}, health={metrics['health']:g}"
        parts.append(f"{title}\n-- tussock status\n{text}\n-- task health\n{line}")
    shown = "\n\n".join(parts).replace(folder, "STORE") + "\n"
    if request.config.getoption("--update-cases"):
        CASES.write_text(shown)
    assert shown == CASES.read_text()


def test_the_verdict_is_that_of_the_worst_condition_and_notes_of_a_healthy_pipeline_do_not_count() -> None:
    quiet = Trouble(TroubleKind.COMPACTION_DUE, "store", "should be compacted", "", wrong=False)
    rejects = Trouble(TroubleKind.REJECTS, "source s", "has 3 unreadable records", "", wrong=False)
    wrong = Trouble(TroubleKind.VIEW_PAUSED, "view v", "is paused", "")
    assert [health_verdict(found) for found in ((), (quiet,), (quiet, rejects), (rejects, wrong))] == [
        HealthVerdict.HEALTHY,
        HealthVerdict.HEALTHY,
        HealthVerdict.ATTENTION,
        HealthVerdict.WRONG,
    ]


def test_a_job_that_could_not_start_is_the_failure_of_its_run_unless_it_has_recorded_it(shop: MetaStore) -> None:
    def last() -> tuple[RunState, str, str]:
        found = last_run(shop, datetime.now(UTC))
        assert found is not None
        return found.state, found.name, found.error

    mine = {"dag": "d", "run": "mine"}
    with recorded_run(shop, "epoch", {"run": "before"}):
        pass
    with recorded_elsewhere(shop, "epoch", mine):
        assert last()[:2] == (RunState.SUCCEEDED, "before")
    assert last()[:2] == (RunState.SUCCEEDED, "before"), "the job records its own success"
    with pytest.raises(RuntimeError), recorded_elsewhere(shop, "epoch", mine):
        raise RuntimeError("Cannot execute: spark-submit --conf spark.hadoop.fs.s3a.session.token=of-mine")
    assert last() == (RunState.FAILED, "mine", run_record.JOB_FAILED)
    assert b"of-mine" not in shop.objects.get("runs/last.json"), "the store and each page would show it"

    def job() -> None:
        with suppress(InputError), recorded_run(shop, "epoch", mine):
            raise InputError("the job's own error")
        raise RuntimeError("spark-submit returned 1")

    with pytest.raises(RuntimeError), recorded_elsewhere(shop, "epoch", mine):
        job()
    assert last() == (RunState.FAILED, "mine", "the job's own error")


def test_a_run_that_could_not_record_its_failure_is_recorded_later_by_its_last_task(shop: MetaStore) -> None:
    def failed(run: str, began: int) -> str | None:
        record_failure(shop, "epoch", {"run": run}, began, "the task's log has the reason")
        return next((t.about for t in now(shop).troubles if t.kind is TroubleKind.RUN_FAILED), None)

    with recorded_run(shop, "epoch", {"run": "before"}):
        pass
    at = clock_ms()
    assert failed("older", at - 60_000) is None, "another run has ended since"
    assert failed("mine", at + 1) == "run mine", "its process did not reach the store"
    with recorded_run(shop, "epoch", {"run": "next"}):
        pass
    assert now(shop).troubles == ()
    assert failed("next", at) == "run next", "its epoch was committed, and a later task failed"
    (trouble,) = now(shop).troubles
    assert "barrier show" not in trouble.do, "no epoch is open"
    record_end(shop, "epoch", {"run": "another"}, at - 60_000, ())
    assert now(shop).troubles == (trouble,)
    record_end(shop, "epoch", {"run": "next"}, at, ())
    assert now(shop).troubles == (), "its failed task was cleared, and succeeded"
    with suppress(InputError), recorded_run(shop, "epoch", {"run": "next"}):
        raise InputError("its own error")
    record_end(shop, "epoch", {"run": "next"}, at, ())
    assert [t.kind for t in now(shop).troubles] == [TroubleKind.RUN_FAILED]


def test_a_failure_that_a_later_task_records_keeps_the_interval_of_its_run(shop: MetaStore) -> None:
    day = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    with recorded_run(shop, "epoch", {"run": "mine"}, day):
        pass
    for run, interval in ("mine", ("2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00")), ("other", None):
        record_failure(shop, "epoch", {"run": run}, clock_ms() + 1, "the task's log has the reason")
        found = run_record.last_run(shop.objects)
        assert found is not None
        assert found.interval == interval


def test_a_failed_task_counts_until_it_is_cleared_and_an_error_of_the_run_until_it_has_run_again(
    shop: MetaStore,
) -> None:
    store, mine, other = of_pipeline(shop), {"run": "mine"}, {"run": "other"}

    def failed(run: dict[str, str], task: str = "") -> list[str]:
        return [t.what for t in health_after_run(store, run, began, task, None, ()).troubles]

    began = datetime.now(UTC) - timedelta(minutes=1)
    with recorded_run(shop, "epoch", mine):
        pass
    assert failed(mine, "see publish_views") == ["failed (epoch): see publish_views"]
    assert failed(mine, "see publish_tables") == ["failed (epoch): see publish_tables"], "the first one was cleared"
    earlier = began - timedelta(hours=1)
    assert health_after_run(store, other, earlier, "", None, ()).troubles, (
        "an earlier run ends no failure of a later one"
    )
    assert failed(mine) == []
    with pytest.raises(InputError), recorded_run(shop, "epoch", mine):
        raise InputError("its own error")
    assert failed(mine) == failed(mine, "see run_actors") == ["failed (epoch): its own error"]


def test_a_run_whose_epoch_was_refused_is_one_trouble_and_one_that_failed_before_its_commit_another(
    shop: MetaStore,
) -> None:
    insert(shop, "t", (2, 8, 1))
    refused = epoch(shop).epoch
    write_record(shop.objects, QualityRecord(refused, (ViewQuality("per_t", 2, 1, (Failure("e", "found 2"),)),)))

    def kinds(run: str, committed: int | None) -> list[TroubleKind]:
        began = datetime.now(UTC) + timedelta(seconds=1)
        found = health_after_run(of_pipeline(shop), {"run": run}, began, "see the task", committed, ())
        assert not any("barrier show" in trouble.do for trouble in found.troubles), "no barrier is open"
        return [trouble.kind for trouble in found.troubles]

    assert kinds("refused", refused) == [TroubleKind.EPOCH_REFUSED]
    run = last_run(shop, datetime.now(UTC))
    assert run is not None
    assert (run.state, run.undone) == (
        RunState.INCOMPLETE,
        (f"epoch {refused} is not published, because suites failed",),
    )
    assert kinds("next", None) == [TroubleKind.RUN_FAILED, TroubleKind.EPOCH_REFUSED]


def test_a_run_that_only_its_last_task_failed_is_incomplete_and_never_succeeded(shop: MetaStore) -> None:
    """Its outcome and the health of the pipeline are two facts: a later run may have done what it left undone."""
    store, mine, began = of_pipeline(shop), {"dag": "epoch_shop", "run": "mine"}, datetime.now(UTC)

    def last() -> str:
        found = now(shop)
        (line,) = [part for part in status_text(found, 10).split("\n\n") if part.startswith("last run")]
        return re.sub(r"\d[\d: -]+, .* ago", "T", line)

    with recorded_run(shop, "epoch", mine):
        pass
    assert last() == "last run: mine (epoch) committed its input at T; its last task has not ended yet"
    found = health_after_run(store, mine, began, "", None, ["source 'orders' is held: no such file\n  more", "view"])
    (note,) = found.troubles
    assert (note.kind, note.wrong) == (TroubleKind.RUN_INCOMPLETE, False), "the pipeline may be healthy by now"
    assert note.what == "ended, and left something undone:\nsource 'orders' is held: no such file\nview"
    assert last().splitlines() == [
        "last run: mine (epoch) ended at T, and left something undone:",
        "  source 'orders' is held: no such file",
        "  view",
    ]
    red = ("mine", "failed", datetime.now(UTC) + timedelta(seconds=1))
    assert with_scheduler((), *red, found.run) == (), "the store shows why it is red"
    assert with_scheduler((), *red, None) != ()
    health_after_run(store, mine, began, "", None, ())
    assert last() == "last run: mine (epoch) succeeded at T", "it was cleared, and did it"
    last_one = last_run(shop, datetime.now(UTC))
    assert last_one is not None
    assert with_scheduler((), "earlier", "failed", began, last_one) == (), "its input was taken since"
    day = msgspec.structs.replace(last_one, interval=("2026-01-02", "2026-01-03"))
    assert with_scheduler((), "earlier", "failed", began, day) != (), "a run of an interval took only its files"
    assert with_scheduler((), *red, msgspec.structs.replace(found.run, state=RunState.FAILED)) != ()


def test_a_command_that_fails_after_its_epochs_is_incomplete_until_another_leaves_nothing_undone(
    shop: MetaStore,
) -> None:
    store = of_pipeline(shop)

    def state() -> tuple[RunState, tuple[str, ...]] | None:
        found = last_run(shop, datetime.now(UTC))
        return None if found is None else (found.state, found.undone)

    def held() -> None:
        with recorded_to_its_end(store, "epoch"):
            with recorded_run(shop, "epoch"):
                pass
            raise InputError("source 'orders' is held")

    for _ in range(2):  # the first time, the epochs leave no record, since the last one shows no failure
        with pytest.raises(InputError):
            held()
        assert state() == (RunState.INCOMPLETE, ("source 'orders' is held",))
    with pytest.raises(InputError), recorded_to_its_end(store, "epoch"), recorded_run(shop, "epoch"):
        raise InputError("division by zero")
    assert state() == (RunState.FAILED, ()), "the error of its epochs stays"
    with recorded_to_its_end(store, "epoch"), recorded_run(shop, "epoch"):
        pass
    assert state() == (RunState.SUCCEEDED, ())


def test_a_published_epoch_whose_assertion_or_arrival_failed_is_wrong(shop: MetaStore) -> None:
    """With the scope "view" and nothing to hold back, or with --no-check."""
    failed = tuple(
        ViewQuality(name, 3, 1, failures=(Failure(rule, "3 wrong rows", ({"file": "/a b.csv"},)),), holds=())
        for name, rule in (("paid.sql", "paid.sql"), ("source orders", "min_rows = 4"))
    )
    facts = healthy(shop)
    found = find_troubles(change_facts(facts, record=QualityRecord(EPOCH, failed)))
    assert [(one.about, one.what) for one in found] == [
        ("assertion paid.sql", "did not hold: 3 wrong rows"),
        ("source orders", "did not hold: min_rows = 4: 3 wrong rows"),
    ]
    assert ["suite" in one.do for one in found] == [True, False]
    assert found[1].do.startswith("Correct the file, and run `tussock restate orders --file '/a b.csv'`. Or change")
    assert health_verdict(found) is HealthVerdict.WRONG
    warned = tuple(msgspec.structs.replace(one, failures=(), warnings=one.failures) for one in failed)
    found = find_troubles(change_facts(facts, record=QualityRecord(EPOCH, warned)))
    assert [one.about for one in found] == ["assertion paid.sql", "source orders"]
    assert ["`tussock check shop paid.sql`" in found[0].do, "`tussock check shop`" in found[1].do] == [True, True]


def test_views_that_are_held_back_for_another_are_one_trouble_after_its_cause(shop: MetaStore) -> None:
    facts = healthy(shop)
    (one, *_) = [view for view in facts.status.views if view.kind == "view"]
    held = [
        msgspec.structs.replace(one, view=f"v{n}", state=ViewState.HELD_BACK, reason="r", since=NOW) for n in "123456"
    ]
    failed = ViewQuality("source orders", 3, 1, failures=(Failure("min_rows = 4", "3 rows"),), holds=("v1",))
    record = QualityRecord(EPOCH, (failed,))
    cause, followers = find_troubles(change_facts(facts, views=held, record=record))
    assert cause.about == "source orders"
    assert (followers.about, followers.views) == ("6 views", tuple(f"v{n}" for n in "123456"))
    assert followers.what == "are held back, because source orders failed: v1, v2, v3, v4, v5 and 1 more"
    _, single = find_troubles(change_facts(facts, views=held[:1], record=record))
    assert (single.about, single.what) == ("view v1", "is held back, because source orders failed")
    (unknown,) = find_troubles(change_facts(facts, views=held[:1]))
    assert unknown.what == "is held back: r", "an earlier release wrote the record"


def test_a_view_that_is_held_back_for_others_names_only_the_failures_that_reach_it(shop: MetaStore) -> None:
    """The view `sizes` reads per_g."""

    def followers(view: str, *holds: str) -> list[tuple[str, str]]:
        """Of an epoch in which the suite of a view fails, and an assertion that holds back others."""
        insert(shop, "t", (2, 8, 1))
        done, failed = epoch(shop).epoch, (Failure("e", "found 2"),)
        suites = [ViewQuality(name, 1, 1, failed if name == view else ()) for name in ("per_g", "sizes")]
        record = QualityRecord(done, (*suites, ViewQuality("paid.sql", 1, 1, failed, holds=holds)))
        write_record(shop.objects, record)
        publish_epoch(
            shop, done, [r.id for r in shop.read_latest().catalog.live_relations() if r.name in record.refused]
        )
        found = [t for t in now(shop).troubles if t.kind is TroubleKind.VIEW_HELD_BACK]
        return [(t.about, t.what) for t in found if t.about != f"view {view}"]

    assert followers("sizes", "per_t") == [("view per_t", "is held back, because assertion paid.sql failed")]
    assert followers("per_g") == [("view sizes", "is held back, because view per_g failed")]
    assert followers("per_g", "per_g") == [
        ("view sizes", "is held back, because view per_g, assertion paid.sql failed")
    ]


def test_a_run_that_failed_is_wrong_until_another_run_succeeds(shop: MetaStore) -> None:
    with pytest.raises(InputError), recorded_run(shop, "epoch", {"dag": "d", "run": "manual_1"}, DAY):
        raise InputError("division by zero in row k=1 of view per_g")
    (trouble,) = now(shop).troubles
    assert (trouble.kind, trouble.about, trouble.wrong) == (TroubleKind.RUN_FAILED, "run manual_1", True)
    assert "division by zero in row k=1 of view per_g" in trouble.what
    run = last_run(shop, datetime.now(UTC))
    assert run is not None
    assert (run.state, run.interval) == (RunState.FAILED, (DAY.start.isoformat(), DAY.end.isoformat()))
    with recorded_run(shop, "epoch"):
        pass
    assert now(shop).troubles == ()


def test_an_epoch_that_begins_after_a_failure_ends_it_even_without_a_record(shop: MetaStore) -> None:
    """Releases that record no runs may run epochs of the same store."""
    with pytest.raises(InputError), recorded_run(shop, "epoch"):
        raise InputError("no")
    record = run_record.last_run(shop.objects)
    assert record is not None
    old = json.loads(shop.objects.get("runs/last.json")) | {"at": 1_600_000_000_000}
    shop.objects.put("runs/last.json", json.dumps(old).encode())
    assert now(shop).troubles == ()


def test_a_run_at_work_is_shown_and_one_without_a_sign_for_a_minute_is_wrong(
    shop: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "EVERY_S", 0.01)
    written = threading.Event()
    put = shop.objects.put
    monkeypatch.setattr(shop.objects, "put", lambda name, data: (put(name, data), written.set()))
    with recorded_run(shop, "epoch"):
        assert written.wait(30)
        moment = datetime.now(UTC)
        run = last_run(shop, moment)
        assert run is not None
        assert run.state is RunState.RUNNING
        assert now(shop).troubles == ()
        killed = shop.objects.get("runs/last.json")
    put("runs/last.json", killed)
    (trouble,) = [t for t in look(shop, moment + SILENT * 2).troubles if t.kind is not TroubleKind.EPOCH_STUCK]
    assert trouble.kind is TroubleKind.RUN_INTERRUPTED


def test_a_run_killed_in_its_first_seconds_is_shown_by_its_barrier(shop: MetaStore) -> None:
    insert(shop, "t", (2, 8, 1))
    barrier = inject_barrier(shop, InputRequest(run={"dag": "epoch_shop", "run": "scheduled__2030-01-01"}))
    assert barrier is not None
    begun = datetime.fromtimestamp((barrier.epoch >> 16) / 1000, UTC)
    early, late = (look(shop, begun + after) for after in (timedelta(seconds=5), SILENT * 2))
    by = f"by process {shop.writer} (run scheduled__2030-01-01)"
    for status, stands in (
        (early, "running or interrupted"),
        (late, f"no process has given a sign since {begun:%Y-%m-%d %H:%M:%S}; the next run continues it"),
    ):
        (line,) = [line for line in status_text(status, 5).splitlines() if line.startswith("open epoch: ")]
        assert f"since {begun:%Y-%m-%d %H:%M:%S}" in line
        assert by in line
        assert line.endswith(stands)
    with recorded_run(shop, "epoch"):  # another one, which ends well
        pass
    with suppress(InputError), recorded_run(shop, "epoch"):
        raise InputError("no")
    assert look(shop, datetime.now(UTC) + SILENT * 2).silent_since is None, "the record has the reason"


def test_a_failed_run_is_the_reason_of_its_open_epoch_which_is_no_second_trouble(shop: MetaStore) -> None:
    insert(shop, "t", (2, 8, 1))
    inject_barrier(shop)
    with pytest.raises(InputError), recorded_run(shop, "epoch"):
        raise InputError("no")
    assert [t.kind for t in look(shop, datetime.now(UTC) + timedelta(days=1)).troubles] == [TroubleKind.RUN_FAILED]


@pytest.mark.parametrize("refuses", [OSError("disk full"), InputError("denied"), RuntimeError("anything")])
def test_a_store_that_refuses_the_record_does_not_reach_the_run(
    shop: MetaStore, monkeypatch: pytest.MonkeyPatch, refuses: Exception
) -> None:
    def put(name: str, data: bytes) -> None:
        raise refuses

    monkeypatch.setattr(shop.objects, "put", put)
    with recorded_run(shop, "epoch"):
        pass
    with pytest.raises(InputError, match="its own error"), recorded_run(shop, "epoch"):
        raise InputError("its own error")


def test_a_store_that_does_not_answer_does_not_keep_the_run(shop: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    released, answered = threading.Event(), threading.Event()

    def put(name: str, data: bytes) -> None:
        released.wait(10)
        answered.set()

    monkeypatch.setattr(run_record, "PATIENCE_S", 0.05)
    monkeypatch.setattr(shop.objects, "put", put)
    with recorded_run(shop, "epoch"):
        pass
    assert not answered.is_set(), "the run waited for the store"
    released.set()


def test_a_run_that_lost_to_another_one_leaves_its_record_alone(shop: MetaStore) -> None:
    with recorded_run(shop, "epoch", {"run": "winner"}):
        pass
    with pytest.raises(LostRaceError), recorded_run(shop, "epoch", {"run": "loser"}):
        raise LostRaceError("epoch 1", "epoch 2")
    run = last_run(shop, datetime.now(UTC))
    assert run is not None
    assert (run.name, run.state) == ("winner", RunState.SUCCEEDED)


def test_a_scheduled_run_is_overdue_if_no_run_gave_a_sign_since_its_time() -> None:
    day = timedelta(days=1)
    schedule = RunSchedule("@daily", datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 3, tzinfo=UTC))
    at = datetime(2030, 1, 3, tzinfo=UTC)  # the interval of 2 January has ended

    def missed(now: datetime, seen: datetime | None, zone: str = "UTC") -> datetime | None:
        return overdue_run(schedule, zone, seen, now)

    assert missed(at + GRACE / 2, at - day + GRACE) is None, "it may still begin"
    assert missed(at + GRACE * 2, at - day + GRACE) == at
    assert missed(at + GRACE * 2, at + GRACE) is None
    assert missed(at + 60 * day, at - day) == at + day, "the last interval begins at the end of the schedule"
    assert missed(at + 60 * day, at + day) is None
    assert missed(at + GRACE * 2, None) is None, "the DAG was never switched on"
    assert missed(datetime(2030, 1, 1, 12, tzinfo=UTC), at - 9 * day) is None, "the first interval has not ended"
    assert missed(at + GRACE * 2, at - day, "America/New_York") == at - day + timedelta(hours=5)


def test_a_run_of_a_repetition_is_overdue_if_no_run_gave_a_sign_for_its_time_span() -> None:
    seen, every = datetime(2030, 1, 3, tzinfo=UTC), timedelta(hours=1)
    triggers = RunTriggers(int(every.total_seconds() * 1000), end=seen + 3 * every)
    assert overdue_repetition(triggers, seen, seen + every + GRACE / 2) is None, "it may still begin"
    assert overdue_repetition(triggers, seen, seen + every + GRACE * 2) == seen + every
    assert overdue_repetition(triggers, seen + 3 * every, seen + 9 * every) is None, "after the end"
    assert overdue_repetition(triggers, None, seen + 9 * every) is None, "the DAG was never switched on"
    assert overdue_repetition(NO_TRIGGERS, seen, seen + 9 * every) is None


def test_the_command_lists_all_pipelines_also_those_that_cannot_be_read(
    shop: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pipelines"
    for name, text in (
        ("absent", f'store = "{tmp_path}/absent"'),
        ("broken", f'store = "{tmp_path}/broken"'),
        ("typing", f'store = "{tmp_path}/store"\ncolour = 1'),
        ("well", f'store = "{shop.objects.uri.removeprefix("file://")}"'),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "pipeline.toml").write_text(f'name = "{name}"\nsql = ["views.sql"]\n{text}\n')
    (tmp_path / "broken/meta").mkdir(parents=True)
    (tmp_path / "broken/meta/store.json").write_text("{")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder))
    monkeypatch.delenv("TUSSOCK_STORE", raising=False)
    assert cli.main(["status"]) == 4
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert "needs attention" in lines["absent"]
    assert "does not exist" in lines["absent"]
    assert "cannot be read: " in lines["broken"]  # a long path shortens the rest
    assert "pipeline.toml cannot be loaded" in lines["typing"]
    assert lines["well"].split()[1] == "healthy"
    assert cli.main(["status", "--json"]) == 4
    assert [one["health"] for one in json.loads(capsys.readouterr().out)] == [
        "needs attention",
        "wrong",
        "wrong",
        "healthy",
    ]

    def expired(*_: object) -> bytes:
        raise ExpiredCredentialsError("s3://b", "get 'meta/store.json'", "ExpiredToken")

    for name, said in (
        ("typing", "pipeline.toml cannot be loaded"),
        ("broken", "cannot be read: Damaged"),
        ("well", "cannot be read: ExpiredCredentialsError"),
    ):
        if name == "well":
            monkeypatch.setattr(LocalObjectStore, "get", expired)
        assert cli.main(["status", name]) == 4
        text = capsys.readouterr().out
        assert text.startswith(f"pipeline {name}: 1 thing is wrong\n")
        assert said in " ".join(text.split())
    assert cli.main(["status", "nope"]) == 1, "a mistyped name is an error of the command"


def test_a_store_that_a_successful_run_used_is_lost_and_not_new() -> None:
    """A command sees only that it does not exist; the pages know the scheduler's runs."""
    pipeline = Pipeline("shop", Path(), "s3://bucket/shop", ())
    missing = (trouble_of_unopened(NotInitialisedError("s3://bucket/shop"), pipeline),)
    (lost,) = with_scheduler(missing, "scheduled__1", "success", NOW, None)
    assert (lost.kind, lost.wrong, lost.since) == (TroubleKind.STORE_MISSING, True, NOW)
    assert lost.what == "does not exist any more: run scheduled__1 succeeded with it"
    assert with_scheduler(missing, "scheduled__1", "running", None, None) == missing
    assert [t.kind for t in with_scheduler(missing, "scheduled__1", "failed", NOW, None)] == [
        TroubleKind.RUN_FAILED,
        TroubleKind.STORE_MISSING,
    ]


def test_the_next_step_of_a_missing_store_names_the_pipeline_and_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`init` would create a store without the settings of the file, such as its time zone, which is permanent."""
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        'name = "shop"\nstore = "dev"\nsql = ["views.sql"]\ntime_zone = "Asia/Kolkata"\n[epoch]\nvnodes = 16\n'
        f'units = 3\n[env.prod]\nstore = "{tmp_path}/prod"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    for command in (["status"], ["status", "shop"]):
        assert cli.main([*command, "--env", "prod"]) == 0, "a note, whichever way it is asked"
        assert "prod does not exist" in capsys.readouterr().out
    assert cli.main(["status", "shop", "--env", "prod"]) == 0
    assert "`tussock apply shop --env prod` or its deploy DAG creates it" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["show", "relations", "--pipeline", "shop", "--env", "prod"]) == 1
    assert "Create it with `tussock apply shop --env prod`" in capsys.readouterr().err
    assert cli.main(["init", "--pipeline", "shop", "--env", "prod"]) == 0
    made = open_meta(str(tmp_path / "prod"))
    assert (made.settings.time_zone, made.settings.vnode_count) == ("Asia/Kolkata", 16)
    assert made.read_latest().mapping.unit_count == 3


def test_a_run_that_fails_on_a_row_is_what_the_next_status_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), sums())
    epoch(meta)
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    assert cli.main(["epoch", "--pipeline", "shop"]) == 0
    capsys.readouterr()
    assert cli.main(["status", "shop"]) == 0
    insert(meta, "t", BAD)
    assert cli.main(["epoch", "--pipeline", "shop"]) == 1
    capsys.readouterr()
    assert cli.main(["status", "shop"]) == 4
    text = " ".join(capsys.readouterr().out.split())
    assert "WRONG run of " in text
    assert re.search(f"failed \\(epoch\\): .*{RAISED}", text)
    assert "`tussock barrier show --pipeline shop` lists it" in text
    assert "open epoch: since" in text
    assert cli.main(["barrier", "show", "--pipeline", "shop"]) == 0, "the next step works as printed"
    assert cli.main(["barrier", "abandon", "--pipeline", "shop", "--drop", "sums"]) == 0
    assert cli.main(["epoch", "--pipeline", "shop"]) == 0
    capsys.readouterr()
    assert cli.main(["status", "shop"]) == 0, "another run has succeeded"


def of_pipeline(meta: MetaStore) -> PipelineStore:
    return PipelineStore(Pipeline("shop", Path(), meta.objects.uri, ()), meta)


DAY = Interval(datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC))


def now(meta: MetaStore):  # type: ignore[no-untyped-def]
    """The status at this moment, of a store whose epochs began long ago."""
    return look(meta, datetime.now(UTC))


def test_a_view_whose_statement_waits_in_the_log_is_not_unknown(shop: MetaStore) -> None:
    facts = change_facts(healthy(shop), freshness={"per_gg": 3_600_000})
    assert [trouble.kind for trouble in find_troubles(facts)] == [TroubleKind.VIEW_UNKNOWN]
    assert find_troubles(change_facts(facts, statements=1)) == ()


def test_problems_with_one_reason_or_one_next_step_print_it_once() -> None:
    held = "is held back: its suite, or that of a view that it reads, failed"
    views = [
        Trouble(TroubleKind.VIEW_HELD_BACK, f"view {name}", held, CORRECT_ROWS, since=NOW - timedelta(days=days))
        for name, days in (("a", 0), ("b", 0), ("c", 9))
    ]
    wait = "Its new input waits; all other work continues."
    sources = [Trouble(TroubleKind.SOURCE_HELD, f"source {n}", f"is held: no file at '{n}'", wait) for n in "st"]
    assert health_text("shop", [*sources, *views], NOW).splitlines() == [
        "pipeline shop: 5 things are wrong",
        "",
        "WRONG  source s is held: no file at 's'",
        "WRONG  source t is held: no file at 't'",
        f"       -> {wait}",
        "",
        f"WRONG  view a (since {NOW:%Y-%m-%d %H:%M:%S}, 0 s ago) is held back: its suite, or that of a view that it "
        "reads, failed",
        f"       Likewise: view b, view c (since {NOW - timedelta(days=9):%Y-%m-%d %H:%M:%S}, 9 d ago)",
        f"       -> {CORRECT_ROWS}",
    ]
