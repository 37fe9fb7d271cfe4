"""Catalogs for planner tests, from statements with handwritten plans. No JVM."""

from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Join, JoinKind, Plan, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Statement
from tussock.statestore.meta.catalog import Catalog

_FIELDS = tuple(Field(name, "int") for name in ("k", "g", "a"))


def source(name: str) -> CreateSource:
    """A source (k int, g int, a int)."""
    return CreateSource(name, "parquet", _FIELDS, {"path": f"/data/{name}"})


def table(name: str) -> CreateTable:
    """A table (k int, g int, a int, PRIMARY KEY (k))."""
    return CreateTable(name, _FIELDS, (0,))


def view(name: str, plan: Plan) -> CreateView:
    """A view of a plan."""
    return CreateView(name, f"SELECT of {name}", plan)


def scan(relation: str, width: int = 3) -> Scan:
    """The first `width` columns of a relation."""
    return Scan(relation, tuple(range(width)), tuple(Field(f"c{i}", "int") for i in range(width)))


def counted(plan: Plan, *keys: int) -> Aggregate:
    """SELECT keys, count(*) GROUP BY keys."""
    columns = tuple(Column(k, plan.fields[k].type) for k in keys)
    fields = (*(plan.fields[k] for k in keys), Field("n", "bigint"))
    return Aggregate(plan, columns, (AggCall(AggFunction.COUNT, "bigint", ()),), fields)


def joined(left: Plan, right: Plan, left_key: int, right_key: int) -> Join:
    """An inner join on one column of each side."""
    keys = Column(left_key, left.fields[left_key].type), Column(right_key, right.fields[right_key].type)
    return Join(left, right, JoinKind.INNER, keys[:1], keys[1:], (False,))


def catalog_of(*statements: Statement, epoch: int = 1, before: Catalog | None = None) -> Catalog:
    """The catalog after these statements, all of one epoch."""
    catalog = Catalog() if before is None else before
    for statement in statements:
        catalog = apply_statement(catalog, statement, epoch)
    return catalog
