"""IF NOT EXISTS and existing names.

Equal definitions are recognized, differences are described, and the remedy in the message works.
"""

import re
from dataclasses import dataclass

import msgspec
import pytest

from tests.support.jobs.plan.catalogs import catalog_of, counted, scan, source, table, view
from tussock.jobs.catalog.apply import RelationExistsError, apply_log, apply_statement
from tussock.jobs.catalog.definition import created_by, find_relation
from tussock.jobs.catalog.difference import list_differences
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Place
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Drop, SetSourceOptions, Transaction
from tussock.statestore.meta.catalog import RelationKind

Create = CreateSource | CreateTable | CreateView


def if_not_exists(statement: Create, **changes: object) -> Create:
    return msgspec.structs.replace(statement, if_not_exists=True, **changes)


def positive(place: Place | None) -> Filter:
    return Filter(scan("t"), Call("GreaterThan", "boolean", (Column(1, "int"), Literal(0, "int")), place=place))


@dataclass(frozen=True)
class Again:
    """A statement, and another with the same name."""

    first: Create
    second: Create
    says: tuple[str, ...] = ()  # the lines of the difference; none: the definitions are equal


VIEW = CreateView("v", "SELECT k, g, a FROM t WHERE g > 0", positive(Place(1, 30)))
CASES = {
    "the same table": Again(table("t"), table("t")),
    "the same source": Again(source("s"), source("s")),
    "a source that leaves its columns to the files": Again(
        source("s"), msgspec.structs.replace(source("s"), fields=())
    ),
    "the same source, its option in other letters": Again(
        msgspec.structs.replace(source("s"), options={"path": "/data/s", "header": "true"}),
        msgspec.structs.replace(source("s"), options={"path": "/data/s", "Header": "true"}),
    ),
    "the same SELECT": Again(VIEW, VIEW),
    "the same SELECT on other lines and with a comment": Again(
        VIEW,
        CreateView("v", "SELECT k, g, a -- all of it\n  FROM t\n  WHERE g > 0", positive(Place(3, 9))),
    ),
    "the same SELECT, which another release binds to another plan": Again(
        VIEW, msgspec.structs.replace(VIEW, plan=scan("t"))
    ),
    "another SELECT that means the same": Again(
        VIEW, CreateView("v", "select K, g, a from t where 0 < g", positive(None))
    ),
    "columns of a table": Again(
        table("t"),
        CreateTable("t", (Field("k", "int"), Field("g", "bigint"), Field("b", "int")), (0,)),
        (
            "column 'g': int in the store, bigint in the statement",
            "column 'a': int in the store, none in the statement",
            "column 'b': none in the store, int in the statement",
        ),
    ),
    "the order of a table's columns": Again(
        table("t"),
        CreateTable("t", (Field("k", "int"), Field("a", "int"), Field("g", "int")), (0,)),
        ("order of the columns: k, g, a in the store, k, a, g in the statement",),
    ),
    "the key of a table": Again(
        table("t"),
        CreateTable("t", table("t").fields, (0, 1)),
        ("primary key: (k) in the store, (k, g) in the statement",),
    ),
    "a source of another format, path and option": Again(
        source("s"),
        CreateSource("s", "csv", source("s").fields, {"path": "/other", "header": "true"}),
        (
            "format: parquet in the store, csv in the statement",
            "option path: '/data/s' in the store, '/other' in the statement",
            "option header: none in the store, 'true' in the statement",
        ),
    ),
    "another query": Again(
        VIEW,
        CreateView("v", "SELECT k, g, a FROM t\nWHERE a > 0", scan("t")),
        (
            "query (- store, + statement):",
            "- SELECT k, g, a FROM t WHERE g > 0",
            "+ SELECT k, g, a FROM t",
            "+ WHERE a > 0",
        ),
    ),
    "another query of other columns": Again(
        VIEW,
        view("v", scan("t", 1)),
        ("column 'c1': int in the store, none in the statement", "query (- store, + statement):", "+ SELECT of v"),
    ),
    "another kind": Again(table("v"), VIEW, ("it is a table, this statement creates a view",)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_if_not_exists_leaves_the_same_alone_and_shows_how_another_differs(case: Again) -> None:
    catalog = catalog_of(*([] if case.first.name == "t" else [table("t")]), case.first)
    if not case.says:
        assert apply_statement(catalog, if_not_exists(case.second), 2) == catalog
        return
    with pytest.raises(RelationExistsError) as caught:
        apply_statement(catalog, if_not_exists(case.second), 2)
    assert [line for line in case.says if line not in caught.value.differences] == []
    assert all(f"\n    {line}" in str(caught.value) for line in caught.value.differences)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_remedy_in_the_message_about_an_existing_name_works(case: Again) -> None:
    catalog = catalog_of(
        *([] if case.first.name == "t" else [table("t")]), case.first, view("reader", counted(scan(case.first.name), 1))
    )
    with pytest.raises(RelationExistsError) as caught:
        apply_statement(catalog, case.second, 2)
    message = str(caught.value)
    if "IF NOT EXISTS" in message:
        assert apply_statement(catalog, if_not_exists(case.second), 2) == catalog
        return
    if "CREATE OR REPLACE MATERIALIZED VIEW" in message:
        anew = Transaction((Drop(RelationKind.VIEW, "reader"), msgspec.structs.replace(case.second, or_replace=True)))
        replaced = apply_statement(catalog, anew, 2)
        assert not list_differences(created_by(find_relation(replaced, case.first.name)), case.second)
        return
    if "SET OPTIONS" in message:
        assert isinstance(case.second, CreateSource)
        known = created_by(find_relation(catalog, case.first.name)).options  # type: ignore[union-attr]
        altered = apply_statement(catalog, SetSourceOptions(case.first.name, known, case.second.options), 2)
        assert not list_differences(created_by(find_relation(altered, case.first.name)), case.second)
        return
    drop = re.search(
        r"\(DROP (SOURCE|TABLE|MATERIALIZED VIEW) (\w+)( CASCADE, which drops reader too, with all rows)\)", message
    )
    assert drop is not None, message
    kind = drop[1].split()[-1].lower()
    dropped = apply_statement(catalog, Drop(kind, drop[2], cascade=True), 2)
    assert apply_statement(dropped, case.second, 2) != dropped


def test_a_statement_of_the_log_that_another_session_was_first_with_is_rejected_with_the_difference() -> None:
    (rejected,) = apply_log(
        catalog_of(table("t")), [if_not_exists(table("t")), if_not_exists(CreateTable("t", table("t").fields, (1,)))], 2
    ).rejected
    assert rejected[0] == 1
    assert "primary key: (k) in the store, (g) in the statement" in rejected[1]
