"""Upkeep of a store from the command line: removed and kept objects, reports of damage, and exit codes."""

from pathlib import Path

import pytest

from tests.support.statestore.hummock.living_store import LivingStore, named_by
from tussock.jobs.cli import main
from tussock.jobs.settings.retention import BadDurationError, duration_ms
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.objectstore.local import LocalObjectStore


@pytest.fixture
def store(tmp_path: Path) -> LivingStore:
    """Three epochs, compacted into one SST; then a fourth."""
    living = LivingStore(LocalObjectStore(tmp_path / "store"))
    for i in range(3):
        living.run({i: i})
    living.compact()
    living.run({7: 7})
    return living


def tussock(store: LivingStore, *words: str) -> int:
    return main([*words, "--store", store.objects.uri])


def test_a_dry_run_lists_removable_objects_and_a_vacuum_removes_them(
    store: LivingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = store.data()
    gone = before - named_by(store.meta.read_latest())
    assert tussock(store, "vacuum", "--dry-run") == 0
    told = capsys.readouterr().out
    assert all(name in told for name in gone)
    assert "could remove 3 objects" in told
    assert store.data() == before

    assert tussock(store, "vacuum", "--keep", "0s") == 0
    told = capsys.readouterr().out
    assert "removed " in told
    assert f"the oldest readable epoch is {store.meta.read_latest().published}" in told
    assert store.data() == named_by(store.meta.read_latest())
    assert tussock(store, "vacuum") == 0
    assert "removed 0 objects, 0 bytes" in capsys.readouterr().out


def test_a_pin_keeps_objects_from_vacuum_until_it_is_removed(
    store: LivingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch = store.meta.read_latest().epochs[-2]
    assert tussock(store, "pin", "add", "--epoch", str(epoch), "--for", "7d") == 0
    line = capsys.readouterr().out
    assert f"epoch {epoch} of " in line
    holder = line.rpartition("held by ")[2].strip()
    assert tussock(store, "pin", "list") == 0
    assert capsys.readouterr().out == line
    assert tussock(store, "vacuum", "--keep", "0s", "--keep-epochs", "1") == 0
    (pin,) = store.meta.all_pins()
    store.check(store.meta.pinned_version(pin), epoch)
    store.run({8: 8})
    store.compact()
    assert tussock(store, "vacuum", "--keep", "0s", "--keep-epochs", "1") == 0
    assert store.meta.read_latest().min_readable_epoch > epoch
    with store.meta.open_for_reading(epoch) as version:  # below the floor, with a second pin on the first one's version
        assert len(store.meta.all_pins()) == 2
        store.check(version, epoch)
    later = store.meta.pin_epoch(epoch, lease_ms=10**13)  # this store's clock differs from the command's
    assert tussock(store, "pin", "remove", holder) == 0
    assert tussock(store, "vacuum", "--keep", "0s", "--keep-epochs", "1") == 0
    store.check(store.meta.version_at(epoch), epoch)
    store.meta.unpin(later)
    with pytest.raises(EpochExpiredError):
        store.meta.pin_epoch(epoch)
    assert store.meta.all_pins() == ()
    capsys.readouterr()
    assert tussock(store, "pin", "remove", holder) == 1
    told = capsys.readouterr()
    assert "no pin is held by" in told.err
    assert tussock(store, "pin", "list") == 0
    assert capsys.readouterr().out == "no pins\n"


def test_a_scrub_reports_damage_and_its_cost_and_exits_with_1(
    store: LivingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tussock(store, "scrub") == 0
    assert "no damage" in capsys.readouterr().out
    (sst,) = store.meta.read_latest().levels[0]
    data = store.objects.get(sst.name)
    store.objects.put(sst.name, data[:300] + bytes([data[300] ^ 1]) + data[301:])
    (older,) = store.meta.read_latest().levels[1]
    store.objects.delete([older.name])
    assert tussock(store, "scrub") == 1
    told = capsys.readouterr()
    assert f"damaged: {sst.name} (level 0)" in told.out
    assert f"missing: {older.name} (level 1)" in told.out
    assert "table 7, of no relation: 2 ranges of keys cannot be read" in told.out
    assert "2 objects are damaged or missing" in told.err


def test_vacuum_follows_the_pipelines_retention_by_default(
    store: LivingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    toml = f'name = "shop"\nstore = "{store.objects.uri}"\nsql = ["a.sql"]\n[upkeep]\nkeep = "0s"\nkeep_epochs = 3\n'
    (folder / "pipeline.toml").write_text(toml)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    epochs = store.meta.read_latest().epochs
    assert main(["vacuum", "--pipeline", "shop"]) == 0
    assert f"the oldest readable epoch is {epochs[-3]}" in capsys.readouterr().out
    assert main(["vacuum", "--pipeline", "shop", "--keep-epochs", "2"]) == 0
    assert f"the oldest readable epoch is {epochs[-2]}" in capsys.readouterr().out


def test_retention_that_is_not_understood_is_refused(store: LivingStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert [duration_ms(text) for text in ("90s", "15m", "36h", "7d", " 2 d ")] == [
        90_000,
        900_000,
        129_600_000,
        604_800_000,
        172_800_000,
    ]
    for text in ("", "7", "d", "7w", "-1d", "1.5h"):
        with pytest.raises(BadDurationError, match="number and a unit"):
            duration_ms(text)
    with pytest.raises(SystemExit, match="2"):
        tussock(store, "vacuum", "--keep-epochs", "0")
    assert "expected 1 or more" in capsys.readouterr().err
    assert any(name.startswith(data_prefix(store.meta.read_latest().epoch)) for name in store.data())
