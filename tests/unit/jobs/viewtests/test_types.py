"""Rows of every type go from the text of a test into a relation, through a view, and back. No Spark."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, new_store
from tests.unit.jobs.viewtests.test_document import VALUES
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView
from tussock.jobs.viewtests.document import read_tests
from tussock.jobs.viewtests.trial import TrialVerdict, try_test
from tussock.statestore.meta.catalog import Catalog

TYPES = (*dict.fromkeys(kind for _, kind, _ in VALUES), "array<interval year to month>", "interval month")
TEXTS = {
    **{kind: text for text, kind, _ in reversed(VALUES)},
    "int": "7",
    "array<interval year to month>": "[1-06, null]",
    "interval month": "0-07",
}


def catalog_of(folder: Path, kind: str) -> Catalog:
    """A table with a key and a value of the type, and a view of both."""
    meta, fields = new_store(folder), (Field("id", "int"), Field("c", kind))
    append(meta, CreateTable("t", fields, (0,)), CreateView("v", "SELECT …", Scan("t", (0, 1), fields)))
    advance_store(LocalRunner(), meta)
    return meta.read_latest().catalog


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_a_type_are_inserted_updated_deleted_and_expected(tmp_path: Path, kind: str) -> None:
    value = TEXTS[kind]
    path = tmp_path / "a.yaml"
    path.write_text(f"""
- name: {kind}
  view: v
  rows:
    t: [{{id: 1, c: {value}}}, {{id: 2, c: null}}, {{id: 3, c: {value}}}]
  expect: [{{id: 1, c: {value}}}, {{id: 2, c: null}}, {{id: 3, c: {value}}}]
  steps:
    - update:
        t: [{{where: {{id: 2}}, set: {{c: {value}}}}}]
      changes: {{delete: [{{id: 2, c: null}}], insert: [{{id: 2, c: {value}}}]}}
    - delete:
        t: [{{c: {value}}}]
      expect: []
""")
    (test,) = read_tests(path)
    found = try_test(test, catalog_of(tmp_path / "store", kind), "Europe/Berlin", LocalRunner())
    assert found.verdict is TrialVerdict.PASSED, found.text
