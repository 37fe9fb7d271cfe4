"""Rules about the arrival of files: missing days, rejects over a limit, too few rows. Needs no Spark.

The expected numbers follow from the values that the tests write into the files.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append
from tests.support.printed_commands import commands_in
from tests.unit.jobs.driver.test_rejects import FIELDS, Record, source, view, write
from tests.unit.jobs.shell.test_quality_commands import Shop, shop
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.run_record import recorded_run
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.runs import RunFacts, RunState
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.facts.status_reader import _has_ended
from tussock.jobs.logical.nodes import Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.operations.quality import check_here, verdict
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.quality.arrival import MissingFiles, judge_arrivals, past_intervals
from tussock.jobs.quality.record import Failure, QualityVerdict, ViewQuality, remedies
from tussock.jobs.reading.intake import read_intakes
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.schedule import RunSchedule
from tussock.jobs.sources.base import Item, Restated
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import Restating

__all__ = ["shop"]

GOOD: Record = (1, 10, b"one")
BAD: Record = (2, 40_000, b"too large for smallint")


@pytest.fixture
def data(shop: Shop) -> Path:
    """The folder of the source `events`, one file per day, with a view over it."""
    folder = shop.folder / "data"
    folder.mkdir()
    append(shop.meta, source(folder / "{start:%Y-%m-%d}.parquet", retain="files"), view("ids", 0))
    return folder


def day(shop: Shop, number: int, *more: str) -> tuple[int, str]:
    return shop.run("epoch", "--pipeline", "shop", "--interval", f"2026-01-0{number}", f"2026-01-0{number + 1}", *more)


def files(folder: Path, *numbers: int, records: tuple[Record, ...] = (GOOD,)) -> None:
    for number in numbers:
        write(folder / f"2026-01-0{number}.parquet", [(i, v, s) for i, (_, v, s) in enumerate(records)])


def test_a_day_without_its_file_fails_after_its_deadline_and_is_healed_by_the_file(shop: Shop, data: Path) -> None:
    shop.configure("[arrival.events]\nexpect_files = 1\n")
    files(data, 1)
    assert day(shop, 1)[0] == 0
    code, printed = day(shop, 2)
    assert code == 1
    found = "has 0 files for the interval from 2026-01-02 00:00 to 2026-01-03 00:00, expected 1 by 2026-01-03 00:00 UTC"
    assert f"source events {found}." in printed, printed
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-02\n')
    code, printed = shop.run("status", "--pipeline", "shop")
    assert code == 4
    assert found in " ".join(printed.split()), printed
    files(data, 2)
    assert day(shop, 2)[0] == 0
    assert "files for the interval" not in shop.run("status", "--pipeline", "shop")[1]


def test_late_files_are_named_until_the_printed_command_takes_them(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\n')
    files(data, 1, 4, 5)
    assert all(day(shop, number)[0] == 0 for number in (1, 2, 3, 4))
    assert "no scheduled run takes" not in shown_status(shop), "the run of the fifth day will take its file"
    files(data, 2, 3)
    shown = shown_status(shop)
    assert "source events has a file that no scheduled run takes" in shown, shown
    interval = "the interval from 2026-01-02 00:00 to 2026-01-03 00:00, which has run or was left out"
    assert f"/2026-01-02.parquet, for {interval}" in shown
    assert "Later intervals with such files: 2026-01-03 00:00" in shown
    for _ in range(2):
        shown = shown_status(shop)
        (command,) = [c for c in commands_in(shown) if c[0] == "epoch"] or pytest.fail(shown)
        assert shop.run(*command)[0] == 0
    assert "no scheduled run takes" not in shown_status(shop)
    assert sum(source.taken_files for source in list_sources(open_meta(f"{shop.folder}/store"))) == 4


def test_a_day_without_input_stays_known_as_run_when_an_older_day_runs_again(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\n')
    files(data, 1)
    assert all(day(shop, number)[0] == 0 for number in (1, 2, 1))
    files(data, 2)
    assert "/2026-01-02.parquet, for the interval from 2026-01-02 00:00" in shown_status(shop)


def test_a_file_of_a_day_whose_run_has_failed_is_not_late(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\n')
    files(data, 1, 3)
    assert all(day(shop, number)[0] == 0 for number in (1, 2, 3))
    files(data, 2)
    meta = open_meta(f"{shop.folder}/store")
    assert "no scheduled run takes" in shown_status(shop)
    second = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    with pytest.raises(OSError, match="lost"), recorded_run(meta, "epoch", {}, second):
        raise OSError("lost")
    assert "no scheduled run takes" not in shown_status(shop), "the repetition of its run takes it"


@pytest.mark.parametrize("end", [datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (0, 1, 2)])
def test_a_failed_run_is_found_in_an_hour_that_clocks_repeat(end: datetime) -> None:
    berlin, day = ZoneInfo("Europe/Berlin"), timedelta(days=1)
    interval = Interval((end - day).astimezone(berlin), end.astimezone(berlin))
    failed = RunFacts(
        state=RunState.FAILED,
        what="epoch",
        began=end,
        at=end,
        writer="",
        run={},
        interval=(interval.start.isoformat(), interval.end.isoformat()),
        kind="",
        error="",
    )
    assert not _has_ended(interval, end + day, failed)
    assert _has_ended(interval, end + day, msgspec.structs.replace(failed, state=RunState.SUCCEEDED))


def test_a_source_is_listed_once_for_the_status(shop: Shop, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\n')
    files(data, 1, 3)
    assert all(day(shop, number)[0] == 0 for number in (1, 2, 3))
    files(data, 2)
    listings: list[Any] = []
    list_waiting = FileSource.waiting

    def count(*arguments: Any) -> tuple[Item, ...]:
        listings.append(arguments)
        return list_waiting(*arguments)

    monkeypatch.setattr(FileSource, "waiting", count)
    assert "no scheduled run takes" in shown_status(shop)
    assert len(listings) == 1


def shown_status(shop: Shop) -> str:
    return " ".join(shop.run("status", "--pipeline", "shop")[1].split())


def test_a_deadline_is_shown_in_the_zone_of_its_interval() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    days = Interval(datetime(2026, 10, 24, tzinfo=berlin), datetime(2026, 10, 25, tzinfo=berlin))
    due = days.end.astimezone(UTC) + timedelta(hours=3)  # within the hour that repeats
    text = MissingFiles("events", days, (), 1, 1, due).what
    assert text.endswith("from 2026-10-24 00:00 to 2026-10-25 00:00, expected 1 by 2026-10-25 02:00 CET"), text


def test_a_missing_day_is_reported_until_it_arrives_however_many_days_follow(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\n')
    shop.configure("[arrival.events]\nexpect_files = 1\n")
    files(data, 2, 5, 6, 7, 8, 9)
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0
    code, printed = shop.run("status", "--pipeline", "shop")
    shown = " ".join(printed.split())
    assert code == 4
    assert "source events (since 2026-01-04" in shown, printed
    assert "has 0 files for the interval from 2026-01-03 00:00 to 2026-01-04 00:00" in shown
    assert "Later intervals with another number of files than expected: 2026-01-04 00:00 has 0 -> Deliver" in shown
    assert printed.count("WRONG") == 1, "one trouble for both days, and none for a day before the first file"
    files(data, 3, 4)
    assert "files for the interval" not in shop.run("status", "--pipeline", "shop")[1]


def test_days_of_a_backfill_that_have_not_run_are_not_missing(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-09\ncatchup = true\n')
    shop.configure("[arrival.events]\nexpect_files = 1\n")

    def missing() -> str:
        printed = " ".join(shop.run("status", "--pipeline", "shop")[1].split())
        return printed.partition("has 0 files for the interval from ")[2][:10]

    files(data, 1, 2, 3)
    for number in (1, 2, 3):
        assert day(shop, number)[0] == 0
        assert missing() == "", "the files of later days come in time for their runs"
    assert day(shop, 4)[0] == 1
    assert missing() == "2026-01-04"
    assert "Later intervals" not in shop.run("status", "--pipeline", "shop")[1]
    files(data, 4)
    assert day(shop, 4)[0] == 0
    assert missing() == ""


def test_an_outage_longer_than_all_judged_intervals_is_reported_in_full(shop: Shop, data: Path) -> None:
    """The schedule ends on February 15, and the newest 31 days are judged: those from January 16 on."""
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-02-15\n')
    shop.configure("[arrival.events]\nexpect_files = 1\n")

    def since() -> str:
        assert shop.run("epoch", "--pipeline", "shop")[0] == 0
        printed = " ".join(shop.run("status", "--pipeline", "shop")[1].split())
        return printed.partition("source events (since ")[2][:10]

    write(data / "2026-02-16.parquet", [GOOD])
    assert since() == "2026-02-14", "a source that began with the next interval: the newest three days"
    files(data, 1)
    assert since() == "2026-01-17", "the source had begun, and nothing came in the 31 days"
    write(data / "2026-02-13.parquet", [GOOD])
    assert since() == "2026-01-17", "a file of a later day heals no earlier one"


def test_a_rule_that_only_warns_fails_no_run_and_is_a_note(shop: Shop, data: Path) -> None:
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-01\n')
    shop.configure('[arrival.events]\nexpect_files = 1\nseverity = "warning"\n')
    assert day(shop, 1)[0] == 0
    code, printed = shop.run("status", "--pipeline", "shop")
    assert (code, "note" in printed, "has 0 files for the interval" in " ".join(printed.split())) == (0, True, True)


def test_too_many_files_are_named_and_the_printed_command_removes_the_rows_of_the_additional_one(
    shop: Shop, data: Path
) -> None:
    options = {"path": f"{data}/{{start:%Y-%m-%d}}*.parquet", "retain": "files", "on_error": "quarantine"}
    append(shop.meta, CreateSource("sent", "parquet", FIELDS, options))
    append(shop.meta, CreateView("sent_ids", "SELECT …", Scan("sent", (0,), FIELDS[:1])))
    shop.configure('[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-01\n')
    shop.configure("[arrival.sent]\nexpect_files = 1\n")

    def ids() -> int:
        return len(shop.run("read", "--pipeline", "shop", "sent_ids", "--csv")[1].splitlines()) - 1

    files(data, 1)
    assert day(shop, 1)[0] == 0
    files(data, 1, records=(GOOD, GOOD))
    assert "files for the interval" not in shop.run("status", "--pipeline", "shop")[1], "a corrected file is one file"
    first, again = data / "2026-01-01.parquet", data / "2026-01-01 again.parquet"
    again.write_bytes(first.read_bytes())
    code, printed = day(shop, 1)
    assert code == 1
    span = "has 2 files for the interval from 2026-01-01 00:00 to 2026-01-02 00:00"
    assert f"source sent {span}, expected 1 by 2026-01-02 00:00 UTC: {again}, {first}." in printed, printed
    assert ids() == 4
    again.unlink()
    (command,) = (c for c in commands_in(printed) if c[0] == "restate")
    code, printed = shop.run(*command)
    assert code == 0, printed
    assert ids() == 2
    assert "files for the interval" not in shop.run("status", "--pipeline", "shop")[1]


def test_a_file_is_awaited_until_the_deadline_and_a_range_has_two_ends(shop: Shop, data: Path) -> None:
    shop.configure('[arrival.events]\nexpect_files = [2, 3]\ndeadline = "9999d"\n')
    files(data, 1)
    assert day(shop, 1)[0] == 0, "the deadline has not passed"
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace("9999d", "2h"))
    code, printed = day(shop, 1)
    assert (code, "has 1 file for" in printed, "expected 2 to 3 by 2026-01-02 02:00 UTC" in printed) == (1, True, True)


def test_a_file_whose_every_record_is_unreadable_is_not_published_even_without_a_rule(shop: Shop, data: Path) -> None:
    shop.suite("ids", {"type": "expect_column_to_exist", "kwargs": {"column": "id"}})
    shop.apply()
    files(data, 1)
    files(data, 2, records=(BAD, BAD))
    assert day(shop, 1)[0] == 0
    before = shop.published
    code, printed = day(shop, 2)
    assert (code, shop.published) == (1, before)
    assert "no file whose every record is unreadable: 2 unreadable records and no readable one" in printed, printed
    assert f"file={data}/2026-01-02.parquet, rejects=2" in printed


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("0.5", None),
        ("0.3", "reject_limit = 0.3: 2 of 5 records (40.0%) are unreadable"),
        ("2", None),
        ("1", "reject_limit = 1: 2 unreadable records"),
        ("0", "reject_limit = 0: 2 unreadable records"),
    ],
)
def test_rejects_over_the_limit_keep_an_epoch_from_readers(
    shop: Shop, data: Path, limit: str, found: str | None
) -> None:
    shop.configure(f"[arrival.events]\nreject_limit = {limit}\n")
    files(data, 1, records=(GOOD, BAD, GOOD, BAD, GOOD))
    code, printed = day(shop, 1)
    assert code == (0 if found is None else 1), printed
    assert (shop.published == 0) is (found is not None)
    if found is not None:
        assert f"source events: {found}" in printed
        assert "rejects=2" in printed
        shop.configure('severity = "warning"\n')
        code, printed = day(shop, 1)
        assert (code, found in printed, shop.published > 0) == (0, True, True), printed


def test_too_few_rows_fail_and_a_changed_rule_is_judged_again(shop: Shop, data: Path) -> None:
    shop.configure("[arrival.events]\nmin_rows = 3\n")
    files(data, 1, records=(GOOD, GOOD))
    code, printed = day(shop, 1)
    assert (code, "source events: min_rows = 3: 2 rows" in printed, shop.published) == (1, True, 0), printed
    assert "min_rows = 3: 2 rows" in shop.run("check", "shop")[1]
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace("min_rows = 3", "min_rows = 2"))
    assert day(shop, 1)[0] == 0
    assert shop.published > 0


@pytest.mark.parametrize("rule", ["min_rows = 2", "reject_limit = 0"])
@pytest.mark.parametrize("scope", ["pipeline", "view"])
def test_the_printed_command_reads_the_corrected_file_and_its_rows_are_published(
    shop: Shop, tmp_path: Path, rule: str, scope: str
) -> None:
    folder = tmp_path / "it's new"
    folder.mkdir()
    append(shop.meta, source(folder / "{start:%Y-%m-%d}.parquet", retain="files"), view("ids", 0))
    shop.configure(f'scope = "{scope}"\n[schedule]\ncron = "@daily"\nstart = 2026-01-01\nend = 2026-01-01\n')
    shop.configure(f"[arrival.events]\n{rule}\n")
    files(folder, 1, records=(GOOD, BAD))
    code, printed = day(shop, 1)
    assert code == 1
    assert "Or change [arrival.events] in pipeline.toml, and run again." in printed
    assert "suite, and run again" not in printed
    (command,) = commands_in(printed)
    assert command == ("restate", "events", "--file", f"{folder}/2026-01-01.parquet", "--pipeline", "shop")
    assert command in commands_in(" ".join(shop.run("status", "--pipeline", "shop")[1].split()))
    files(folder, 1, records=(GOOD, GOOD))
    code, printed = shop.run(*command)
    assert (code, shop.published, shop.meta.read_latest().held) == (0, shop.meta.read_latest().epoch, ()), printed
    assert shop.run("status", "--pipeline", "shop")[0] == 0


def test_records_of_a_topic_are_corrected_by_further_records() -> None:
    failed = Failure("reject_limit = 0", "1 unreadable records", ({"file": "orders-0", "rejects": "1"},))
    (remedy,) = remedies([ViewQuality("source s", 1, 1, failures=(failed,), holds=())])
    assert remedy == "Correct the rows with another epoch, or change [arrival.s] in pipeline.toml, and run again."


def test_a_removed_rule_is_judged_again(shop: Shop, data: Path) -> None:
    shop.suite("ids", {"type": "expect_column_to_exist", "kwargs": {"column": "id"}})
    shop.apply()
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    before = toml.read_text()
    shop.configure("[arrival.events]\nmin_rows = 3\n")
    files(data, 1)
    assert day(shop, 1)[0] == 1
    toml.write_text(before)
    code, printed = day(shop, 1)
    assert (code, shop.published) == (0, shop.meta.read_latest().epoch), printed


def test_a_first_rule_of_a_source_judges_an_epoch_that_was_judged_without_it(shop: Shop) -> None:
    folder = shop.folder / "data"
    folder.mkdir()
    append(shop.meta, source(folder / "{start:%Y-%m-%d}.parquet", on_error="fail"), view("ids", 0))
    shop.suite("ids", {"type": "expect_column_to_exist", "kwargs": {"column": "id"}})
    shop.apply()
    types = {"id": pa.int32(), "v": pa.int16(), "s": pa.string()}
    row = pa.table({name: pa.array([None], kind) for name, kind in types.items()})
    pq.write_table(row, folder / "2026-01-01.parquet")
    assert day(shop, 1)[0] == 0
    verdicts = [verdict(PipelineStore(load_pipeline(shop.folder / "pipelines/shop"), shop.meta), shop.published)]
    shop.configure("[arrival.events]\nmin_rows = 3\n")
    at = PipelineStore(load_pipeline(shop.folder / "pipelines/shop"), shop.meta)
    verdicts += [verdict(at, shop.published), check_here(at, shop.published).verdict, verdict(at, shop.published)]
    assert verdicts == [QualityVerdict.PASSED, QualityVerdict.NONE, QualityVerdict.FAILED, QualityVerdict.FAILED]


def restate(shop: Shop, folder: Path, number: int, *records: Record) -> tuple[int, str]:
    """Replace a day's file, and restate it."""
    files(folder, number, records=records)
    return shop.run("restate", "--pipeline", "shop", "events", "--file", f"{folder}/2026-01-0{number}.parquet")


def test_a_restatement_of_a_published_file_is_not_judged_by_its_growth(shop: Shop, data: Path) -> None:
    shop.configure("[arrival.events]\nmin_rows = 3\nreject_limit = 0.3\n")
    files(data, 1, records=(GOOD,) * 4)
    assert day(shop, 1)[0] == 0
    good = shop.published
    for records in ((GOOD,) * 5, (GOOD,) * 2, (*(GOOD,) * 5, BAD)):
        code, printed = restate(shop, data, 1, *records)
        assert (code, shop.published) == (0, shop.meta.read_latest().epoch), printed
    before = shop.published
    code, printed = restate(shop, data, 1, *(GOOD,) * 6, BAD, BAD, BAD)
    assert (code, shop.published) == (1, before), printed
    assert "reject_limit = 0.3: 3 of 9 records (33.3%) are unreadable" in printed
    assert "no file whose every record is unreadable: 1 " in restate(shop, data, 1, BAD)[1]
    assert shop.run("check", "shop", "--epoch", str(good))[0] == 0, "its file had no reject then"


def test_a_repaired_file_heals_the_run_that_took_it(shop: Shop, data: Path) -> None:
    """The scheduler's runs have names, so that a restatement is a run of its own."""

    def took(run: str) -> tuple[str, ...]:
        advance_store(LocalRunner(), shop.meta, InputRequest(run={"run": run}))
        return found()

    def restated(run: str, *records: Record) -> tuple[str, ...]:
        files(data, 1, records=records)
        path = f"{data}/2026-01-01.parquet"
        assert Restating(shop.meta, "events", Restated(path), {"run": run}).begin_restating() is not None
        return took(run)

    def found() -> tuple[str, ...]:
        version = shop.meta.read_latest()
        (one,) = judge_arrivals(shop.meta, version, pipeline, 0, version.epoch)
        return tuple(f"{failure.expectation}: {failure.observed}" for failure in one.failures)

    shop.configure("[arrival.events]\nmin_rows = 10\nreject_limit = 0.3\n")
    pipeline = load_pipeline(shop.folder / "pipelines/shop")
    files(data, 1, records=(BAD,) * 4)
    assert took("first") == (
        "no file whose every record is unreadable: 4 unreadable records and no readable one",
        "reject_limit = 0.3: 4 of 4 records (100.0%) are unreadable",
        "min_rows = 10: 0 rows of run first",
    )
    assert restated("second", *(GOOD,) * 4, BAD) == ("min_rows = 10: 4 rows of run first",)
    files(data, 2, records=(GOOD,) * 9)
    assert took("next") == ("min_rows = 10: 4 rows of run first", "min_rows = 10: 9 rows of run next")
    assert restated("third", *(GOOD,) * 12) == ("min_rows = 10: 9 rows of run next",)


def test_in_view_scope_a_refused_intake_is_not_released_by_the_next_good_file(shop: Shop, data: Path) -> None:
    shop.configure('scope = "view"\n[arrival.events]\nreject_limit = 0\n')
    files(data, 1)
    assert day(shop, 1)[0] == 0
    good = shop.published
    for number, records in ((2, (GOOD, BAD)), (3, (GOOD,))):
        files(data, number, records=records)
        code, printed = day(shop, number)
        assert (code, shop.published) == (1, shop.meta.read_latest().epoch), printed
        assert "reject_limit = 0: 1 unreadable records" in printed
        assert {held.epoch for held in shop.meta.read_latest().held} == {good}
    shop.suite("ids", {"type": "expect_column_to_exist", "kwargs": {"column": "id"}})
    shop.apply()
    assert day(shop, 3)[0] == 1, "another suite judges the published epoch again"
    code, printed = restate(shop, data, 2, GOOD, GOOD)
    assert (code, shop.meta.read_latest().held) == (0, ()), printed


def test_epochs_that_are_no_longer_searched_are_reported(
    shop: Shop, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.configure("[arrival.events]\nmin_rows = 3\n")
    for number in (1, 2):
        files(data, number)
        advance_store(LocalRunner(), shop.meta)
    monkeypatch.setattr("tussock.jobs.quality.arrival.read_intakes", partial(read_intakes, most=1))
    version, pipeline = shop.meta.read_latest(), load_pipeline(shop.folder / "pipelines/shop")
    (one,) = judge_arrivals(shop.meta, version, pipeline, 0, version.epoch)
    assert (one.failures, one.rows) == ((), 1), "the other epoch may have brought enough rows"
    (warning,) = one.warnings
    assert "older epochs are no longer recorded" in warning.observed


def test_a_rule_about_no_source_is_named(shop: Shop, data: Path) -> None:
    shop.configure("[arrival.evens]\nmin_rows = 3\n")
    assert day(shop, 1)[0] == 1
    code, printed = shop.run("plan", "shop")
    assert (code, "[arrival.evens] names no source. Sources: events. Did you mean 'events'?" in printed) == (1, True)


def test_the_last_intervals_of_a_schedule() -> None:
    def starts(schedule: RunSchedule, now: datetime) -> list[str]:
        found = past_intervals(schedule, "UTC", now, 3)
        assert all(one.end - one.start == timedelta(days=1) for one in found)
        return [f"{one.start:%d}" for one in found]

    first = datetime(2026, 1, 5, tzinfo=UTC)
    daily = RunSchedule("@daily", first)
    assert starts(daily, datetime(2026, 1, 9, 7, tzinfo=UTC)) == ["08", "07", "06"]
    assert starts(daily, datetime(2026, 1, 6, 7, tzinfo=UTC)) == ["05"]
    assert starts(daily, datetime(2026, 1, 5, 7, tzinfo=UTC)) == []
    ended = RunSchedule("@daily", first, datetime(2026, 1, 7, tzinfo=UTC))
    assert starts(ended, datetime(2026, 3, 1, tzinfo=UTC)) == ["07", "06", "05"]
