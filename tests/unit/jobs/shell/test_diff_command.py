"""`tussock diff`: exit codes, forms of the result, and the sides that a command line names."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append
from tests.support.zone_rules import rules_of_python
from tussock.jobs.cli import main
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable, RecordZone
from tussock.jobs.session import Session

FIELDS = Field("id", "int"), Field("note", "string"), Field("day", "date")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int, int]:
    """A store, and two epochs between which a row changed and one was added."""
    monkeypatch.chdir(tmp_path)
    with Session("./store", runner="local", workers=1) as session:
        append(session.meta, CreateTable("sales", FIELDS, (0,)))
        epochs = []
        for notes in ({1: "old|\n", 2: "same"}, {1: "<new>", 3: "x"}):
            rows = [list(notes), list(notes.values()), [0] * len(notes)]
            kinds = pa.int32(), pa.string(), pa.int32()
            arrays = [pa.array(values, kind) for values, kind in zip(rows, kinds, strict=True)]
            session.insert("sales", pa.table([*arrays[:2], arrays[2].cast(pa.date32())], names=["id", "note", "day"]))
            session.flush()
            epochs.append(session.meta.read_latest().epoch)
    return "./store", epochs[0], epochs[1]


def test_the_exit_code_and_the_text_show_the_difference(
    store: tuple[str, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    address, before, after = store
    assert main(["diff", address, "--from", str(before), "--to", str(after)]) == 1
    printed = capsys.readouterr().out
    assert "sales: 1 row added, 1 row changed (2 rows before, 3 after)" in printed
    assert "note  1 row  50.0 %" in printed
    assert main(["diff", address, "--from", str(after)]) == 0
    assert "no differences" in capsys.readouterr().out
    assert main(["diff", address, address, "sales"]) == 0


def test_errors_have_exit_code_2(store: tuple[str, int, int], capsys: pytest.CaptureFixture[str]) -> None:
    address, before, _ = store
    assert main(["diff", address, "--from", "1"]) == 2
    assert f"`tussock inspect epochs --store {address}`" in capsys.readouterr().err
    assert main(["diff", address, "nothing", "--from", str(before)]) == 2
    assert main(["diff", address]) == 2
    assert main(["diff", "unknown", address]) == 2
    assert main(["diff", address, "sales"]) == 2
    printed = capsys.readouterr().err
    assert "'sales' is no open branch, no pipeline and no address of a store" in printed
    assert f"`tussock diff {address} --from E --to E` (`tussock inspect epochs --store {address}` lists" in printed
    with pytest.raises(SystemExit) as stopped:
        main(["diff", address, "--from", str(before), "--tolerance", "-1"])
    assert stopped.value.code == 2


def test_a_branch_is_compared_without_reading_what_it_shares(
    store: tuple[str, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    address, _, after = store
    assert main(["branch", "create", "pr-142", "--store", address]) == 0
    assert main(["diff", address, "pr-142"]) == 0
    assert f"to pr-142 at epoch {after}: no differences" in capsys.readouterr().out
    assert main(["diff", address, "pr-142", "sales", "--samples", "0"]) == 0


def test_json_has_counts_and_samples_as_text(store: tuple[str, int, int], capsys: pytest.CaptureFixture[str]) -> None:
    address, before, after = store
    assert main(["diff", address, "--from", str(before), "--to", str(after), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (view,) = found["views"]
    assert found["differs"]
    assert (view["missing"], view["added"], view["changed"]) == (0, 1, 1)
    assert view["days"] == [{"day": "1970-01-01", "missing": 0, "added": 1, "changed": 1}]
    assert [(row["_difference"], row["_side"], row["id"]) for row in view["samples"]] == [
        ("added", "to", "3"),
        ("changed", "from", "1"),
        ("changed", "to", "1"),
    ]


def test_markdown_and_the_page_escape_values_and_omit_samples_on_request(
    store: tuple[str, int, int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address, before, after = store
    command = ["diff", address, "--from", str(before), "--to", str(after), "--markdown", "--html", "page.html"]
    assert main(command) == 1
    printed, page = capsys.readouterr().out, Path("page.html").read_text()
    assert "| `sales` | 0 | 1 | 1 | 3 | `note` 1 |" in printed
    assert "old\\|" in printed
    assert "&lt;new&gt;" in printed
    assert "&lt;new&gt;" in page
    assert 'class="changed"' in page
    assert "<title>1970-01-01: 1 changed</title>" in page
    assert main([*command, "--samples", "0"]) == 1
    assert "new" not in capsys.readouterr().out + Path("page.html").read_text()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_are_counted_by_the_days_of_the_stores_zone(
    zone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Session(str(tmp_path / "store"), runner="local", workers=1, time_zone=zone) as session:
        if zone != "UTC":
            append(session.meta, RecordZone(rules_of_python(zone)))
        append(session.meta, CreateTable("t", (Field("id", "int"), Field("at", "timestamp")), (0,)))
        session.flush()
        before = session.meta.read_latest().epoch
        late = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
        session.insert(
            "t", pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([late], pa.timestamp("us", "UTC"))})
        )
        session.flush()
    assert main(["diff", str(tmp_path / "store"), "--from", str(before), "--json"]) == 1
    (view,) = json.loads(capsys.readouterr().out)["views"]
    assert [day["day"] for day in view["days"]] == ["2026-01-01" if zone == "UTC" else "2026-01-02"]
