"""now() in a pipeline with a schedule: no command between two intervals moves it, and each prints it. No Spark."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, new_store, open_store
from tussock.jobs import cli
from tussock.jobs.catalog.statement_log import statements_of
from tussock.jobs.logical.nodes import Call, Column, Comparison, Field, Scan, TemporalFilter
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("id", "int"),)
TOML = """
name = "shop"
store = "{store}"
sql = ["views.sql"]
[schedule]
cron = "0 6 * * *"
start = 2026-03-01
catchup = {catchup}
[epoch]
runner = "auto"
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture(params=[True, False], ids=["catchup", "no catchup"])
def catchup(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catchup: bool) -> MetaStore:
    """The store of a pipeline with a source, and a view of its rows up to now()."""
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    text = TOML.format(store=tmp_path / "store", catchup=str(catchup).lower())
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(text)
    (tmp_path / "pipelines/shop/views.sql").write_text("")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    meta = new_store(tmp_path / "store")
    (tmp_path / "in").mkdir()
    for day in range(1, 5):
        (tmp_path / f"in/2026-03-0{day}.csv").write_text(f"{day}\n")
    path = {"path": f"{tmp_path}/in/{{start:%Y-%m-%d}}.csv", "retain": "files"}
    rows = TemporalFilter(
        Scan("s", (0,), FIELDS),
        Call("SecondsToTimestamp", "timestamp", (Column(0, "int"),)),
        Comparison.LESS_OR_EQUAL,
        Column(0, "timestamp"),
        True,
    )
    append(meta, CreateSource("s", "csv", FIELDS, path), CreateView("v", "SELECT …", rows))
    return meta


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command of the pipeline: its exit code, and its output with one space between words."""

    def command(*words: str) -> tuple[int, str]:
        code = cli.main([*words, "--pipeline", "shop"])
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return command


def at(meta: MetaStore) -> datetime:
    return datetime.fromtimestamp(meta.read_latest().moment / 1_000_000, UTC)


def six(day: int) -> datetime:
    return datetime(2026, 3, day, 6, tzinfo=UTC)


def interval(day: int) -> Sequence[str]:
    return "epoch", "--interval", six(day).isoformat(), six(day + 1).isoformat()


def test_no_command_between_two_intervals_of_a_backfill_moves_now(meta: MetaStore, run: Run, tmp_path: Path) -> None:
    pausing = "barrier", "abandon", "--skip-file", str(tmp_path / "in/2026-03-04.csv")
    assert run(*interval(1))[0] == 0
    assert at(meta) == six(2)
    (tmp_path / "in/2026-03-01.csv").write_text("7\n")
    code, said = run("restate", "s", "--file", str(tmp_path / "in/2026-03-01.csv"))
    assert (code, "now() in views is 2026-03-02 06:00:00 UTC" in said) == (0, True), said
    assert at(meta) == six(2), "after a restatement"
    append(open_store(tmp_path / "store", "apply"), CreateView("w", "SELECT …", Scan("s", (0,), FIELDS)))
    assert [*statements_of(meta, meta.read_latest().log_end, meta.log_end())], "as `apply` logs it"
    code, said = run("epoch")
    assert (code, "now() in views is 2026-03-02 06:00:00 UTC" in said) == (0, True), said
    assert at(meta) == six(2), "after a statement, and files without an interval"
    assert run(*pausing)[0] in (0, 1)
    run("epoch")
    assert at(meta) == six(2)
    assert run(*interval(2))[0] == 0
    assert at(meta) == six(3)


def test_the_first_epoch_of_a_scheduled_pipeline_is_at_the_start_of_its_schedule(
    meta: MetaStore, run: Run, catchup: bool
) -> None:
    assert run("epoch")[0] == 0
    assert at(meta) == six(1), "the first tick"
    code, said = run(*interval(3))
    assert code == int(catchup), "a user chooses the first interval of a pipeline without catchup"
    assert ("over the intervals from 2026-03-01 06:00:00 UTC to 2026-03-03 06:00:00 UTC" in said) is True
    assert at(meta) == (six(1) if catchup else six(4))
    code, said = run(*interval(3), "--moment", six(4).isoformat())
    assert (code, at(meta)) == (0, six(4)), said


def test_a_user_asks_for_the_clock(meta: MetaStore, run: Run) -> None:
    assert run(*interval(1))[0] == 0
    assert run("epoch", "--moment", "now")[0] == 0
    assert datetime.now(UTC).timestamp() - at(meta).timestamp() < 3600
    code, said = run("epoch", "--moment", "tomorrow")
    assert (code, "time tomorrow" in said) == (1, True)
