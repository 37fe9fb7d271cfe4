"""Each statement gets an entry of the log: its client id belongs to no other statement."""

import copy
from pathlib import Path

from tests.support.jobs.driver.embedded import open_store
from tests.support.jobs.plan.catalogs import table
from tests.support.zone_rules import rules_of_python
from tussock.jobs.catalog.checks import admit_statement
from tussock.jobs.logical.statements import Insert, RecordZone, Transaction
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


def test_rows_beside_a_zone_that_is_recorded_already_are_logged(tmp_path: Path) -> None:
    MetaStore.init(open_object_store(str(tmp_path)), units=1)
    meta = open_store(tmp_path, "one process")
    writer = StatementWriter(meta)
    zone = RecordZone(rules_of_python("Europe/Berlin"))
    created = Transaction((table("t"), zone))
    writer.check_and_append(empty := meta.read_latest().catalog, "CREATE TABLE t", created)
    catalog = admit_statement(empty, created, 1)
    insert = Insert("t", 1, "payload")
    answer = writer.check_and_append(catalog, "INSERT INTO t", Transaction((insert, zone)))
    assert answer.message.startswith("log entry 1: ")
    assert writer.check_and_append(catalog, "", zone).message.startswith("nothing to do: ")
