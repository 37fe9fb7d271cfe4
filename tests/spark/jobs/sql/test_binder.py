"""Bound statements, and the errors of unbindable ones."""

from typing import Any

import msgspec
import pytest

from tests.support.jobs.sql.fixtures import ACCOUNTS, FORMATS, Case, load_cases
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import Bound, CreateView, Delete, Explain, Statement, Update
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.show import show_expr, show_plan

pytestmark = pytest.mark.spark


def _show(bound: Bound) -> str:
    """A bound statement as text; plans and expressions as trees."""
    names = [f.name for f in ACCOUNTS.fields]
    match bound:
        case CreateView() | Explain():
            return f"{type(bound).__name__} {bound.name}: {bound.sql}\n{show_plan(bound.plan)}"
        case Update():
            sets = ", ".join(f"{names[i]} = {show_expr(e, names)}" for i, e in bound.assignments)
            return f"Update {bound.table} set {sets} where {bound.where and show_expr(bound.where, names)}"
        case Delete():
            return f"Delete {bound.table} where {bound.where and show_expr(bound.where, names)}"
        case _:
            return str(bound)


@pytest.mark.parametrize("case", load_cases("statements.yaml", "bound"))
def test_a_statement_is_bound_as_in_its_case(case: Case, binder: Binder, expect: Any) -> None:
    expect(case, "bound", _show(binder.bind(case.sql)))


@pytest.mark.parametrize("case", load_cases("statement_errors.yaml", "error"))
def test_a_wrong_statement_has_an_error_with_place_and_remedy(case: Case, binder: Binder, expect: Any) -> None:
    with pytest.raises(SqlError) as caught:
        binder.bind(case.sql)
    expect(case, "error", f"{type(caught.value).__name__}: {caught.value}")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE accounts SET balance = balance * 2 WHERE rate > 0.5",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM shops",
        "DELETE FROM accounts",
    ],
)
def test_a_logged_statement_survives_json(sql: str, binder: Binder) -> None:
    bound = binder.bind(sql)
    assert msgspec.json.decode(msgspec.json.encode(bound), type=Statement) == bound


def test_errors_of_a_statement_in_a_script_point_into_the_script(binder: Binder) -> None:
    with pytest.raises(SqlError) as caught:
        binder.bind(SourceText("CREATE MATERIALIZED VIEW v AS\nSELECT nope FROM shops", Place(7, 3)))
    assert caught.value.place == Place(8, 8)
    with pytest.raises(SqlError) as caught:
        binder.bind(SourceText("DROP NOTHING", Place(7, 3)))
    assert caught.value.place == Place(7, 8)


def test_errors_survive_pickling(binder: Binder) -> None:
    import pickle

    for sql in ("SELECT nope FROM shops", "EXPLAIN SELECT now() AS n FROM shops"):
        with pytest.raises(SqlError) as caught:
            binder.bind(sql)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_binder_follows_its_relations(spark: Any) -> None:
    from tussock.jobs.sql.catalyst import relation_of_ddl

    binder = Binder(spark, [relation_of_ddl(1, "r (a INT)")], "UTC", FORMATS)
    assert binder.bind("SELECT * FROM r").fields[0].name == "a"  # type: ignore[union-attr]
    binder.set_relations([relation_of_ddl(2, "r (b STRING)")])
    assert binder.bind("SELECT * FROM r").fields[0].name == "b"  # type: ignore[union-attr]
    binder.set_relations([])
    with pytest.raises(SqlError, match="there is no relation `r`; those that exist: none yet"):
        binder.bind("SELECT * FROM r")


def test_the_users_session_neither_sees_nor_lends_views(spark: Any, binder: Binder) -> None:
    for name in ("cities", "mine"):
        spark.catalog.dropTempView(name)
    spark.range(1).createOrReplaceTempView("mine")
    try:
        with pytest.raises(SqlError, match="there is no relation `mine`"):
            binder.bind("SELECT * FROM mine")
        binder.bind("SELECT * FROM cities")
        assert "cities" not in [t.name for t in spark.catalog.listTables()]
    finally:
        spark.catalog.dropTempView("mine")
