"""Comparing a branch with its parent at equal input. No Spark."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append
from tussock.jobs.compare.compare import ComparisonOptions
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.operations.differences import compare_with_branch
from tussock.jobs.operations.store import open_branch, open_store
from tussock.jobs.session import Session
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.progress import no_progress


def test_a_branch_that_is_behind_is_compared_at_its_input_or_not_at_all(tmp_path: Path) -> None:
    with Session(str(tmp_path), runner="local", workers=1) as session:
        append(session.meta, CreateTable("t", (Field("k", "int"),), (0,)))

        def insert(key: int) -> int:
            session.insert("t", pa.table([pa.array([key], pa.int32())], names=["k"]))
            return session.flush().epoch

        before = insert(1)
        session.branch("b")
        parent = open_store(str(tmp_path))
        branch = open_branch(parent, "b")
        insert(2)
        advance_store(LocalRunner(), branch.meta)
        branch.meta.publish(branch.meta.read_latest().epoch)
        last = insert(3)

        def differs(until: int | None = None) -> bool:
            wanted = ComparisonOptions()
            return compare_with_branch(parent, branch, wanted, until, progress=no_progress).differs

        assert not differs()
        assert not differs(before)
        parent.meta.raise_floor(last)
        with pytest.raises(EpochExpiredError) as caught:
            differs()
        assert "tussock epoch --branch b" in str(caught.value.__notes__)
        advance_store(LocalRunner(), branch.meta)
        branch.meta.publish(branch.meta.read_latest().epoch)
        assert not differs()
