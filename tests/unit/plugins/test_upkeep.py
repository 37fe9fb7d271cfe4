"""The steps of an upkeep DAG that need no Spark, against a real store."""

from pathlib import Path

import pytest

from tests.support.plugins import by_name as steps
from tests.support.statestore.hummock.living_store import LivingStore, living_store, named_by
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.objectstore.local import LocalObjectStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LivingStore:
    """The store of a pipeline `shop` that keeps two epochs, after five epochs that each write every row."""
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    toml = f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["a.sql"]\n[upkeep]\nkeep = "0s"\nkeep_epochs = 2\n'
    (folder / "pipeline.toml").write_text(toml)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    return living_store(LocalObjectStore(tmp_path / "store"), epochs=5, rows=50)


def test_one_round_of_upkeep_keeps_retained_epochs_and_the_next_has_nothing_to_do(store: LivingStore) -> None:
    epochs = store.meta.read_latest().epochs
    floor = steps.retain("shop")
    assert (floor.min_readable_epoch, floor.id) == (epochs[-2], store.meta.read_latest().id)
    assert steps.compaction_due("shop") == ("5 runs of L0 into level 7",)
    compact_store(store.open("compactor"))
    before = len(list(store.objects.list("")))
    done = steps.vacuum("shop")
    version = store.meta.read_latest()
    assert len(done.vacuumed.garbage) + len(done.copies) == before - len(list(store.objects.list(""))) >= 5
    assert done.vacuumed.kept_bytes == sum(len(store.objects.get(name)) for name in named_by(version))
    assert store.data() == named_by(version)
    assert version.epochs == epochs[-2:]
    for epoch in epochs[-2:]:
        store.check(version, epoch)

    assert steps.retain("shop") == version, "without effect: no delta"
    assert version.min_readable_epoch == floor.min_readable_epoch
    assert steps.compaction_due("shop") == ()
    assert steps.vacuum("shop").vacuumed.garbage == ()


def test_an_epoch_that_runs_meanwhile_loses_nothing_to_any_step(store: LivingStore) -> None:
    barrier = store.inject()
    early = store.upload(barrier, {1: 111})
    steps.retain("shop")
    compact_store(store.open("compactor"))
    steps.vacuum("shop")
    store.meta.commit_epoch(store.meta.seal_epoch(early))
    store.committed(early, {1: 111})
    store.check(store.meta.read_latest(), barrier.epoch)


def test_upkeep_of_a_missing_store_is_an_error(store: LivingStore, tmp_path: Path) -> None:
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace("/store", "/elsewhere"))
    for step in (steps.retain, steps.compaction_due, steps.vacuum):
        with pytest.raises(NotInitialisedError, match="elsewhere contains no store"):
            step("shop")
