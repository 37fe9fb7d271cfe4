"""Append-only tables: the small states of views over them, and statements that another session bound to another
table.
"""

import pytest

from tussock.jobs.catalog.apply import apply_log, apply_statement
from tussock.jobs.catalog.definition import ViewDefinition, definition_of
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView, Delete, Insert, Statement, Update
from tussock.statestore.meta.catalog import Catalog

FIELDS = (Field("k", "int"), Field("v", "int"))
HIGHEST = Aggregate(
    Scan("t", (0, 1), FIELDS),
    (Column(0, "int"),),
    (AggCall(AggFunction.MAX, "int", (Column(1, "int"),)),),
    (Field("k", "int"), Field("m", "int")),
)


def catalog_of(*statements: Statement) -> Catalog:
    catalog = Catalog()
    for epoch, statement in enumerate(statements, 1):
        catalog = apply_statement(catalog, statement, epoch)
    return catalog


@pytest.mark.parametrize("key", [(), (0,)], ids=["without a key", "with a key"])
@pytest.mark.parametrize("append_only", [False, True])
def test_a_maximum_over_an_append_only_table_is_one_value(key: tuple[int, ...], append_only: bool) -> None:
    catalog = catalog_of(CreateTable("t", FIELDS, key, append_only=append_only), CreateView("m", "SELECT …", HIGHEST))
    (view,) = (r for r in catalog.live_relations() if r.name == "m")
    definition = definition_of(view)
    assert isinstance(definition, ViewDefinition)
    texts = [operator.node.explain_text() for fragment in definition.fragments for operator in fragment.operators]
    assert any("append-only" in text for text in texts) is (append_only is True)
    assert len(view.state_tables) == (
        2 if append_only is True else 3
    )  # the values and the rows of the view; otherwise the values of all rows


def test_statements_that_change_rows_are_rejected_when_they_meet_an_append_only_table_in_the_log() -> None:
    table = CreateTable("t", FIELDS, (), append_only=True)
    changes: list[Statement] = [
        Update("t", ((1, Literal(1, "int")),), None),
        Delete("t", None),
        Insert("t", 1, "payload"),
    ]
    replayed = apply_log(Catalog(), [table, *changes], 1)
    assert [index for index, _ in replayed.rejected] == [1, 2]
    assert all("is APPEND ONLY and takes only INSERT" in reason for _, reason in replayed.rejected)
