"""Views that filter one table, compared with plain Python at each epoch. An epoch skips views that its rows do not
reach.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.logical.nodes import Call, Column, Expr, Filter, Join, JoinKind, Literal
from tussock.jobs.logical.statements import Delete

VIEWS = 8
Row = tuple[int, int | None, int | None]  # k, g, a


def condition(draw: random.Random, depth: int = 2) -> Expr:
    if depth and draw.random() < 0.5:
        node = draw.choice(["And", "Or", "Not"])
        return Call(node, "boolean", tuple(condition(draw, depth - 1) for _ in range(1 if node == "Not" else 2)))
    column = Column(draw.choice([1, 2]), "int")
    value: Expr = draw.choice([column, Call("Remainder", "int", (column, Literal(3, "int")), mode="ANSI")])
    constants = tuple(Literal(draw.choice([0, 1, 2, 5, None]), "int") for _ in range(2))
    match draw.randrange(4):
        case 0:
            return Call("In", "boolean", (value, *constants))
        case 1:
            return Call(draw.choice(["IsNull", "IsNotNull"]), "boolean", (value,))
        case 2:
            return Call("LessThan", "boolean", (value, constants[0]))
    return Call("EqualTo", "boolean", (value, constants[0]))


def value_of(expr: Expr, row: Row) -> int | bool | None:
    """Plain Python's answer, with None as NULL."""
    match expr:
        case Column(index=index):
            return row[index]
        case Literal(value=value):
            return value if isinstance(value, int) else None
    values = [value_of(arg, row) for arg in expr.args]
    match expr.node:
        case "And":
            return False if False in values else None if None in values else True
        case "Or":
            return True if True in values else None if None in values else False
        case "IsNull" | "IsNotNull":
            return (values[0] is None) == (expr.node == "IsNull")
        case "In":
            found = [None if None in (values[0], item) else values[0] == item for item in values[1:]]
            return True if True in found else None if None in found else False
    if None in values:
        return None
    match expr.node:
        case "Not":
            return not values[0]
        case "Remainder":
            return values[0] % values[1]  # type: ignore[operator]
        case "LessThan":
            return values[0] < values[1]  # type: ignore[operator]
    return values[0] == values[1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 6))])
def test_views_of_conditions_agree_with_plain_python(seed: int, tmp_path: Path) -> None:
    draw, meta = random.Random(seed), new_store(tmp_path / "store")
    conditions = [condition(draw) for _ in range(VIEWS)]
    both = Join(
        Filter(scan("t"), conditions[0]),
        Filter(scan("t"), conditions[1]),
        JoinKind.INNER,
        *[(Column(0, "int"),)] * 2,
        (False,),
    )
    append(
        meta,
        table("t"),
        *(view(f"v{i}", counted(Filter(scan("t"), c), 1)) for i, c in enumerate(conditions)),
        view("j", both),
    )
    known: dict[int, Row] = {}
    for _ in range(5):
        for key in draw.sample(range(6), draw.choice([1, 1, 3])):
            if key in known and draw.random() < 0.4:
                append(meta, Delete("t", Call("EqualTo", "boolean", (Column(0, "int"), Literal(key, "int")))))
                del known[key]
            else:
                known[key] = (key, draw.choice([0, 1, 2, 4, None]), draw.choice([0, 1, 5, None]))
                insert(meta, "t", known[key])
        epoch(meta)
        for i, one in enumerate(conditions):
            groups = Counter(row[1] for row in known.values() if value_of(one, row) is True)
            assert rows(meta, f"v{i}") == sorted(groups.items(), key=repr), one
        joined = [row for row in known.values() if all(value_of(c, row) is True for c in conditions[:2])]
        assert rows(meta, "j") == sorted(((*row, *row) for row in joined), key=repr)
