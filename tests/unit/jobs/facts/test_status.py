"""The status of a pipeline.

Each number is compared with an independent one, and the test causes each kind of trouble.
"""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.waiting import eventually
from tussock.jobs import cli
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.facts.store import store_shape, sum_cost, vacuum_facts
from tussock.jobs.facts.units import list_units
from tussock.jobs.facts.views import Quality, ViewFacts, ViewState
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.quality.record import Failure, QualityRecord, ViewQuality, write_record
from tussock.jobs.settings.prices import Prices
from tussock.jobs.sources.files import FileSource
from tussock.jobs.task.level import CellFunction
from tussock.jobs.texts.status import status_text
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.verify.record import Repair, Verdict, Verification, ViewCheck, write_last
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import BadStoreError
from tussock.statestore.objectstore.requests import Requests

FIELDS = (Field("k", "bigint"), Field("g", "int"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files with (k, g); the first file has ten rows."""
    (tmp_path / "files").mkdir()
    write(tmp_path / "files" / "1.parquet", range(10))
    return tmp_path / "files"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work counts as long after a hundredth of a second."""
    monkeypatch.setattr("tussock.statestore.meta.work.EVERY_S", 0.01)


@pytest.fixture
def shop(tmp_path: Path, files: Path) -> MetaStore:
    """A source, a view over it, a view over that, and a view over a table; one epoch, published."""
    meta = new_store(tmp_path / "store")
    source = CreateSource("s", "parquet", FIELDS, {"path": str(files)})
    append(
        meta,
        source,
        table("t"),
        view("per_g", counted(scan_of("s"), 1)),
        view("sizes", counted(scan_of("per_g", 2), 1)),
    )
    append(meta, view("per_t", counted(scan("t"), 1)))
    insert(meta, "t", (1, 7, 1))
    publish_epoch(meta, epoch(meta).epoch)
    return meta


def test_all_is_well_if_nothing_waits(shop: MetaStore) -> None:
    found = look(shop)
    assert (found.troubles, found.wrong, found.statements, found.open) == ((), False, 0, None)
    assert found.committed == found.published == epoch_moment(shop.read_latest().epoch)
    for name in ("per_g", "sizes", "t", "per_t"):
        one = named(found.views, name)
        assert (one.state, one.freshness_s, one.rows) == (ViewState.READY, 0.0, len(rows(shop, name)))
        assert one.published_epoch == one.committed_epoch == shop.read_latest().epoch
    assert {v.view: v.reads for v in found.views} == {"per_g": ("s",), "sizes": ("s",), "t": (), "per_t": ()}


def test_the_reason_why_a_source_cannot_be_listed_contains_no_credentials(
    shop: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BadStoreError("https://reader:hunter2@host/files", "it does not answer")

    monkeypatch.setattr(FileSource, "waiting", refuse)
    (found,) = list_sources(shop)
    assert "https://reader:***@host/files" in found.trouble
    assert "hunter2" not in found.trouble


def test_taken_and_waiting_files_of_a_source_are_those_of_its_folder(shop: MetaStore, files: Path) -> None:
    write(files / "2.parquet", range(10, 13))
    write(files / "3.parquet", range(13, 20))
    os.utime(files / "2.parquet", (NOW.timestamp() - 500, NOW.timestamp() - 500))
    os.utime(files / "3.parquet", (NOW.timestamp() - 100, NOW.timestamp() - 100))
    (found,) = list_sources(shop)
    sizes = {path.name: path.stat().st_size for path in files.iterdir()}
    assert (found.taken_files, found.taken_bytes) == (1, sizes["1.parquet"])
    assert (found.waiting_files, found.waiting_bytes) == (2, sizes["2.parquet"] + sizes["3.parquet"])
    assert found.oldest == NOW - timedelta(seconds=500)
    seen = look(shop).views
    assert {v.view: v.freshness_s for v in seen} == {"per_g": 500.0, "sizes": 500.0, "t": 0.0, "per_t": 0.0}, (
        "only readers of the source are behind"
    )
    epoch(shop)
    (found,) = list_sources(shop)
    assert (found.taken_files, found.waiting_files, found.oldest) == (3, 0, None)
    wait = (NOW - epoch_moment(shop.read_latest().epoch)).total_seconds()
    assert {v.freshness_s for v in look(shop).views} == {wait}, "it is committed, and not published"
    write(files / "4.parquet", range(20, 21))
    os.utime(files / "4.parquet", (NOW.timestamp() - 50, NOW.timestamp() - 50))
    assert {v.freshness_s for v in look(shop).views} == {wait}, "the age of the oldest invisible change"
    (files / "4.parquet").unlink()
    assert (
        named(look(shop).views, "per_g").rows
        == duckdb.sql(f"SELECT count(DISTINCT g) FROM '{files}/*.parquet'").fetchall()[0][0]
    )
    publish_epoch(shop, shop.read_latest().epoch)
    assert {v.freshness_s for v in look(shop).views} == {0.0}


def test_findings_of_the_last_verification_remain_until_the_views_are_rebuilt(shop: MetaStore) -> None:
    epoch_now, ms = shop.read_latest().epoch, int(NOW.timestamp() * 1000) - 60_000

    def compared(*checks: ViewCheck, repair: Repair | None = None) -> tuple[str, str, bool]:
        write_last(shop.objects, Verification(checks, repair), ())
        (trouble,) = look(shop).troubles
        assert (trouble.about, trouble.since) == ("verification", NOW - timedelta(seconds=60))
        return trouble.what, trouble.do, trouble.wrong

    equal = ViewCheck("sizes", Verdict.EQUAL, epoch=epoch_now, finished_ms=ms)
    wrong = ViewCheck("per_g", Verdict.DIFFERENT, epoch=epoch_now, finished_ms=ms)
    gone = ViewCheck("dropped", Verdict.DIFFERENT, epoch=epoch_now, finished_ms=ms)
    what, _, is_wrong = compared(equal, gone)
    assert ("1 equal" in what, is_wrong) == (True, False)
    what, do, is_wrong = compared(equal, wrong)
    assert (what.endswith(": per_g"), "verify --repair" in do, is_wrong) == (True, True, True)
    _, do, is_wrong = compared(equal, wrong, repair=Repair(("per_g",), shop.log_end()))
    assert ("next epoch" in do, "--repair" in do, is_wrong) == (True, False, True)
    _, _, is_wrong = compared(equal, msgspec.structs.replace(wrong, epoch=epoch_now - 1))
    assert not is_wrong, "the view is newer than the finding"


def test_a_views_freshness_is_unknown_if_its_source_cannot_be_listed(shop: MetaStore, files: Path) -> None:
    files.rename(files.with_name("elsewhere"))
    found = look(shop)
    assert {v.view: v.freshness_s for v in found.views} == {"per_g": None, "sizes": None, "t": 0.0, "per_t": 0.0}
    (trouble,) = found.troubles
    assert (trouble.about, trouble.wrong) == ("source s", True)
    assert "cannot be checked" in trouble.what


def test_a_held_source_is_reported_with_its_start(shop: MetaStore, files: Path) -> None:
    (files / "2.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    insert(shop, "t", (2, 7, 1))
    from tussock.jobs.driver.epoch import advance_store
    from tussock.jobs.driver.runner import LocalRunner

    done = advance_store(LocalRunner(), shop)
    publish_epoch(shop, shop.read_latest().epoch)
    found = look(shop)
    (hold,) = found.sources[0].held
    assert (hold.since, hold.at) == (done[-1].epoch, epoch_moment(done[-1].epoch))
    assert hold.file == str(files / "2.parquet")
    (trouble,) = found.troubles
    assert (trouble.about, trouble.since) == ("source s", hold.at)
    assert named(found.views, "per_g").freshness_s == pytest.approx(
        (NOW - modified(files / "2.parquet")).total_seconds(), abs=0.01
    )
    assert named(found.views, "per_t").freshness_s == 0.0


def test_a_paused_view_keeps_its_epoch_and_falls_behind(shop: MetaStore) -> None:
    before = shop.read_latest().epoch
    insert(shop, "t", (2, 8, 1))
    inject_barrier(shop)
    barrier = abandon_barrier(shop, Detour(pause=("per_t",)))
    publish_epoch(shop, epoch(shop).epoch)
    found = look(shop)
    paused = named(found.views, "per_t")
    assert (paused.state, paused.since) == (ViewState.PAUSED, epoch_moment(barrier.epoch))
    assert (paused.published_epoch, paused.committed_epoch) == (before, before)
    assert paused.rows == len(rows(shop, "per_t")) == 1
    assert paused.freshness_s == (NOW - epoch_moment(barrier.epoch)).total_seconds()
    assert [t.about for t in found.troubles if t.wrong] == ["view per_t"]
    assert named(found.views, "t").state is ViewState.READY


def test_a_view_that_its_suite_refuses_is_held_back_since_the_epoch_after_the_one_that_is_seen(shop: MetaStore) -> None:
    before = shop.read_latest().epoch
    insert(shop, "t", (2, 8, 1))
    epoch(shop)
    refused = shop.read_latest().epoch
    failure = Failure("expect_column_max(n)", "2")
    write_record(
        shop.objects,
        QualityRecord(
            refused, (ViewQuality("per_t", 2, 3, (failure,)), ViewQuality("per_g", 1, 1, warnings=(failure,)))
        ),
    )
    ids = {r.name: r.id for r in shop.read_latest().catalog.live_relations()}
    publish_epoch(shop, refused, [ids["per_t"]])
    found = look(shop)
    held = named(found.views, "per_t")
    assert (held.state, held.since, held.published_epoch, held.committed_epoch) == (
        ViewState.HELD_BACK,
        epoch_moment(refused),
        before,
        refused,
    )
    assert (held.quality.verdict, held.quality.epoch, held.quality.expectations) == (Quality.FAILED, refused, 3)
    assert named(found.views, "per_g").quality.verdict is Quality.WARNING
    assert named(found.views, "t").quality.verdict is Quality.NOT_CHECKED
    wrong, note = found.troubles
    assert (wrong.about, wrong.wrong, wrong.since) == ("view per_t", True, epoch_moment(refused))
    assert "expect_column_max(n): found 2" in wrong.what
    assert (note.about, note.wrong) == ("view per_g", False)


def test_rows_of_an_epoch_that_readers_do_not_see_are_not_counted_as_published(shop: MetaStore) -> None:
    seen = {v.view: v.rows for v in look(shop).views}
    for k in (2, 3):
        insert(shop, "t", (k, k, 1), (10 * k, k, 1))
        epoch(shop)
    found = look(shop)
    assert {v.view: v.published_rows for v in found.views} == seen
    assert (named(found.views, "t").rows, named(found.views, "per_t").rows) == (len(rows(shop, "t")), 3)
    line = next(line for line in status_text(found, 10).splitlines() if line.startswith("  per_t "))
    assert " 1 " in line
    assert " 3 " not in line, "the rows of readers"
    publish_epoch(shop, shop.read_latest().epoch)
    assert {v.view: v.published_rows for v in look(shop).views} == {v.view: v.rows for v in look(shop).views}


def test_an_epoch_that_a_suite_refuses_is_wrong_once(shop: MetaStore) -> None:
    insert(shop, "t", (2, 8, 1))
    epoch(shop)
    committed = shop.read_latest().epoch
    write_record(
        shop.objects, QualityRecord(committed, (ViewQuality("per_t", 2, 3, (Failure("expect_column_max(n)", "2"),)),))
    )
    (trouble,) = look(shop).troubles
    assert (trouble.about, trouble.since) == ("epoch", epoch_moment(committed))
    assert "per_t: expect_column_max(n): found 2" in trouble.what


def test_an_open_epoch_is_shown_and_is_wrong_if_it_makes_no_progress(shop: MetaStore) -> None:
    insert(shop, "t", (2, 8, 1))
    append(shop, view("later", counted(scan("t"), 2)))
    barrier = inject_barrier(shop)
    assert barrier is not None
    early = look(shop, epoch_moment(barrier.epoch) + timedelta(minutes=1))
    assert early.open is not None
    assert (early.open.epoch, early.troubles) == (barrier.epoch, ())
    later = named(early.views, "later")
    assert (later.state, later.committed_epoch, later.published_epoch) == (ViewState.BUILDING, None, None)
    (trouble,) = look(shop, epoch_moment(barrier.epoch) + timedelta(minutes=16)).troubles
    assert (trouble.about, trouble.since) == ("epoch", epoch_moment(barrier.epoch))


@pytest.mark.usefixtures("impatient")
def test_a_long_epoch_reports_its_progress(shop: MetaStore) -> None:
    """In its own log, and to readers of the status meanwhile."""
    seen, said = list[Status](), list[str]()

    class Slow(LocalRunner):
        def may_unite(self, task: EpochTask) -> bool:
            return False

        def run_unit(
            self, unit: int, function: CellFunction, arriving: Iterator[pa.RecordBatch]
        ) -> Iterator[pa.RecordBatch]:
            if unit == 1 and not seen:
                # the first reports may precede the first unit's end
                eventually("a unit is reported", lambda: any(work.done for work in look(shop, datetime.now(UTC)).work))
                seen.append(look(shop, datetime.now(UTC)))
            return super().run_unit(unit, function, arriving)

    insert(shop, "t", (2, 8, 1))
    barrier = inject_barrier(shop)
    assert barrier is not None
    run_epoch(Slow(), shop, barrier, said.append)
    (work,) = seen[0].work
    assert (work.what, work.done) == (f"epoch {barrier.epoch}", 1), "the first of two units of the first level"
    assert work.total >= 2
    assert f"epoch {barrier.epoch}: 1 of {work.total} tasks done" in status_text(seen[0], 10)
    assert any(line.startswith(f"epoch {barrier.epoch}: 1 of {work.total} tasks done after ") for line in said)
    assert look(shop, datetime.now(UTC)).work == ()


def test_pages_of_epochs_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    """Epochs below the readable floor have pages too, as long as their manifests exist. Each manifest is read once."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"))
    made = []
    for k in range(9):
        insert(meta, "t", (k, 1, 1))
        made.append(epoch(meta).epoch)
    publish_epoch(meta, made[-1])
    meta.apply_retention(keep_epochs=3)
    assert len(meta.read_latest().epochs) == 3
    seen: list[int] = []
    before = None
    while page := list_epochs(open_store(tmp_path / "store"), 4, before):
        assert [e.epoch for e in page] == sorted(e.epoch for e in page)
        seen, before = [e.epoch for e in page] + seen, page[0].epoch
    assert seen == made


def test_units_hold_the_same_rows_as_the_ssts(shop: MetaStore) -> None:
    found = list_units(shop.read_latest(), list_epochs(shop, 5), shop)
    ssts = [sst for level in shop.read_latest().levels for sst in level]
    assert [u.vnodes for u in found] == [shop.read_latest().mapping.unit_of_vnode.count(unit) for unit in range(2)]
    assert sum(u.rows_stored or 0 for u in found) == pytest.approx(sum(sst.rows for sst in ssts), abs=1)
    assert sum(u.busy_share for u in found) == pytest.approx(1.0)
    assert sum(u.rows_in for u in found) == sum(r.rows_in for e in list_epochs(shop, 5) for r in e.rows)


def test_dollars_are_requests_times_prices(shop: MetaStore) -> None:
    done = list_epochs(shop, 1)
    asked = done[0].requests
    assert asked is not None
    prices = Prices(put=5.0, get=0.4, list=1.0, delete=2.0, gb_month=23.0, unit_hour=36.0)
    found = sum_cost(shop.read_latest(), done, prices)
    busy = sum(unit.seconds for unit in done[0].units)
    dollars = (asked.put * 5 + asked.get * 0.4 + asked.list + asked.delete * 2) / 1000
    assert (found.requests, found.rows_in) == (asked, 11)
    assert found.requests_dollars == pytest.approx(dollars)
    assert found.units_dollars == pytest.approx(busy * 0.01, abs=1e-6)
    assert found.dollars_per_million_rows == pytest.approx((dollars + busy * 0.01) / 11 * 1e6)
    stored = sum(path.stat().st_size for path in data_files(shop))
    assert found.storage_dollars_per_month == pytest.approx(stored * 23e-9)
    uncounted = msgspec.structs.replace(done[0], requests=None)
    assert sum_cost(shop.read_latest(), [uncounted], prices).requests == Requests(), "it counted none"


def test_the_shape_of_the_store_and_its_removable_objects_match_its_folder(shop: MetaStore) -> None:
    shape = store_shape(shop.read_latest())
    assert (shape.bytes, sum(level.ssts for level in shape.levels)) == (
        sum(p.stat().st_size for p in data_files(shop)),
        len(data_files(shop)),
    )
    stray = Path(shop.objects.uri.removeprefix("file://")) / "data" / f"{shop.read_latest().epoch:016x}" / "stray.sst"
    stray.write_bytes(bytes(1234))
    found = vacuum_facts(shop)
    assert (found.objects, found.bytes) == (1, 1234)
    assert stray.exists(), "nobody removed it"


def test_a_status_of_many_views_and_epochs_reads_as_much_as_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number, (many_views, many_epochs) in enumerate([(2, 6), (24, 12)]):
        meta = new_store(tmp_path / f"store{number}")
        append(meta, table("t"), *(view(f"v{n}", counted(scan("t"), 1)) for n in range(many_views)))
        for k in range(many_epochs):
            insert(meta, "t", (k, k, 1))
            publish_epoch(meta, epoch(meta).epoch)
        reader = open_store(tmp_path / f"store{number}", "reader")
        assert len(reader.read_latest().catalog.live_relations()) == many_views + 1
        before = reader.objects.requests.so_far()  # type: ignore[attr-defined]
        look(reader)
        counts.append(reader.objects.requests.so_far() - before)  # type: ignore[attr-defined]
    assert counts[0].get == counts[1].get
    assert counts[1] == Requests(counts[1].get, list=2, bytes_in=counts[1].bytes_in), (
        "it only reads, and lists only long work and the pins of readers"
    )


def test_the_command_prints_problems_first_and_has_a_matching_exit_code(
    shop: MetaStore, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", shop.objects.uri]
    assert cli.main(["status", *where]) == 0
    text = capsys.readouterr().out
    assert text.startswith("store: all is well\n")
    assert "per_g" in text
    files.rename(files.with_name("elsewhere"))
    assert cli.main(["status", *where]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "store: 1 thing is wrong"
    assert lines[3].startswith("WRONG  source s cannot be checked: ")
    assert cli.main(["status", *where, "--json", "--everything", "--last", "1"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert [t["about"] for t in found["troubles"]] == ["source s"]
    assert (len(found["epochs"]), found["vacuum"]["objects"]) == (1, 0)
    assert cli.main(["status", *where, "--most", "1"]) == 4
    assert "… 3 more views and tables" in capsys.readouterr().out


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def look(meta: MetaStore, now: datetime = NOW) -> Status:
    return read_status(meta, now)


def named(found: Sequence[ViewFacts], name: str) -> ViewFacts:
    (one,) = [v for v in found if v.view == name]
    return one


def scan_of(relation: str, width: int = 2):  # type: ignore[no-untyped-def]
    from tussock.jobs.logical.nodes import Scan

    fields = FIELDS if relation == "s" else (Field("g", "int"), Field("n", "bigint"))
    return Scan(relation, tuple(range(width)), fields)


def write(path: Path, keys: range) -> None:
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64()), "g": pa.array([k % 4 for k in keys], pa.int32())}), path)


def modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def data_files(meta: MetaStore) -> list[Path]:
    return [p for p in (Path(meta.objects.uri.removeprefix("file://")) / "data").rglob("*.sst") if p.is_file()]
