"""Each statement gets an entry of the log: its client id belongs to no other statement."""

import copy
from pathlib import Path

from tests.support.jobs.driver.embedded import open_store
from tests.support.jobs.plan.catalogs import table
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store


def test_writers_of_one_process_and_of_its_forked_children_share_no_client_id(tmp_path: Path) -> None:
    MetaStore.init(open_object_store(str(tmp_path)), units=1)
    meta = open_store(tmp_path, "one process")
    writers = [StatementWriter(meta), StatementWriter(meta)]
    assert [writer.log_statement(table(f"t{n}")) for n, writer in enumerate(writers)] == [0, 1]
    children = [copy.copy(writers[0]), copy.copy(writers[0])]  # as two forks leave them
    for n, child in enumerate(children, 2):
        assert child.log_statement(table(f"t{n}")) == n
    ids = [entry.client_id for entry in meta.read_log(0, 4)]
    assert len({*ids}) == 4
    repeated = writers[1].new_client_id()
    assert [writers[1].log_statement(table("t4"), client_id=repeated) for _ in range(2)] == [4, 4]
