"""Copies of source files that branches need. No Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, new_store, restate, rows
from tussock.jobs.driver.epoch import advance_store, epochs_of_branch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.upkeep.vacuum import sweep_store
from tussock.statestore.meta.names import SOURCES
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("k", "int"),)


def write(path: Path, *keys: int) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": pa.array(keys, pa.int32())}), path)


def correct(parent: MetaStore, path: Path, *keys: int) -> None:
    """Restate a file, and vacuum the store as far as readers allow."""
    write(path, *keys)
    restate(parent, "s", path)
    newest = parent.read_latest().epoch
    parent.publish(newest)
    parent.raise_floor(newest)
    sweep_store(parent)


def view(name: str) -> CreateView:
    return CreateView(name, f"SELECT * /* {name} */", Scan("s", (0,), FIELDS))


@pytest.mark.parametrize("follows", [False, True])
def test_a_branch_reads_the_content_that_its_parent_has_restated_since(tmp_path: Path, follows: bool) -> None:
    path = tmp_path / "in/a.parquet"
    write(path, 1, 2)
    parent = new_store(tmp_path / "store")
    append(parent, CreateSource("s", "parquet", FIELDS, {"path": str(path.parent), "retain": "files"}), view("v"))
    advance_store(LocalRunner(), parent)
    branch = parent.open_branch("b", follows=follows)
    correct(parent, path, 7)
    append(branch, view("before"))
    if follows:
        next(iter(epochs_of_branch(LocalRunner(), branch)))
    else:
        advance_store(LocalRunner(), branch)
    assert rows(branch, "before") == [(1,), (2,)]
    parent.end_branch("b")
    assert len(list(parent.objects.list(SOURCES))) > 1
    sweep_store(parent)
    assert len(list(parent.objects.list(SOURCES))) <= 2
    assert rows(parent, "v") == [(7,)]
