"""Expressions as EXPLAIN prints them."""

import pytest

from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal

A, B = Column(0, "int"), Column(1, "int")
ONE = Literal(1, "int")


def call(node: str, *args: Expr, mode: str | None = None) -> Call:
    return Call(node, "int", args, mode)


CASES: dict[str, Expr] = {
    "c0": A,
    "c0 + 1": call("Add", A, ONE, mode="ANSI"),
    "try_Add(c0, 1)": call("Add", A, ONE, mode="TRY"),
    "(c0 + 1) * c1": call("Multiply", call("Add", A, ONE), B),
    "(c0 = 1) AND (c1 > c0)": call("And", call("EqualTo", A, ONE), call("GreaterThan", B, A)),
    "NOT (c0 IS NULL)": call("Not", call("IsNull", A)),
    "c0 IN (1, c1 + 1)": call("In", A, ONE, call("Add", B, ONE)),
    "CAST(c0 + 1 AS int)": call("Cast", call("Add", A, ONE), mode="ANSI"),
    "TRY_CAST(c0 AS int)": call("Cast", A, mode="TRY"),
    "CASE WHEN c0 < 1 THEN c1 ELSE 1 END": call("CaseWhen", call("LessThan", A, ONE), B, ONE),
    "CASE WHEN c0 < 1 THEN c1 END": call("CaseWhen", call("LessThan", A, ONE), B),
    "Concat('it''s', NULL)": call("Concat", Literal("it's", "string"), Literal(None, "string")),
    "DATE '2013-01-02'": Literal(15707, "date"),
    "TIMESTAMP '1970-01-01 00:00:00.000001'": Literal(1, "timestamp"),
    "date(10000000 days since 1970)": Literal(10_000_000, "date"),
    "TRUE": Literal(True, "boolean"),
}


@pytest.mark.parametrize(("text", "expr"), CASES.items(), ids=CASES)
def test_an_expression_prints_as_a_person_would_write_it(text: str, expr: Expr) -> None:
    assert expression_text(expr) == text
