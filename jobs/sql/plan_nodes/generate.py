"""Generate: EXPLODE and other functions that return several rows, and the copies of INTERSECT ALL and EXCEPT ALL.

The functions are EXPLODE, POSEXPLODE, INLINE, STACK, JSON_TUPLE and VARIANT_EXPLODE, also in a LATERAL VIEW.

If the query lists the rows (STACK, or an array(…) in EXPLODE), they are projections of the row: an Expand. JSON_TUPLE
makes one row from each, so it is a projection too, of a struct that Spark computes. VARIANT_EXPLODE is an INLINE of
structs that Spark computes.
"""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import needs_spark
from tussock.jobs.logical.nodes import (
    BY_SPARK,
    Call,
    Column,
    Expand,
    Expr,
    Field,
    Generate,
    Generator,
    Literal,
    Place,
    Plan,
    Project,
)
from tussock.jobs.logical.quoting import string_text
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items
from tussock.jobs.sql.spark_text import JSON_TUPLE

_GENERATORS = {"Explode": Generator.EXPLODE, "PosExplode": Generator.POSEXPLODE, "Inline": Generator.INLINE}
_NO_GENERATOR = "the supported generators are explode, posexplode, inline, stack, json_tuple and variant_explode"
_OF_THIS_SPARK = "its rows depend on the release of Spark, but a view outlives a release; write the rows as VALUES"
#: The parts of a variant `a0` for variant_explode: a row per array element or object field.
_PARTS_OF_VARIANT = (
    "coalesce(transform(try_cast(`a0` AS array<variant>), (v, i) -> named_struct('pos', i, 'key', cast(null AS "
    "string), 'value', v)), transform(map_entries(try_cast(`a0` AS map<string, variant>)), (e, i) -> "
    "named_struct('pos', i, 'key', e.key, 'value', e.value)))"
)


@binds_nodes("Generate")
def bind_generate(walk: PlanWalk, node: JavaObject) -> BoundNode:
    plan: Plan
    below, generator = walk.bind(node.child()), node.generator()
    name = generator.productPrefix()
    dropped = set(items(node.unrequiredChildIndex()))
    kept_columns = tuple(i for i in range(len(below.ids)) if i not in dropped)
    columns = tuple(Column(i, below.plan.fields[i].type) for i in kept_columns)
    output = list(items(node.generatorOutput()))
    ids = (*(below.ids[i] for i in kept_columns), *(a.exprId().id() for a in output))
    new_fields = tuple(walk.output_field(node, a.name(), name_of_type(a.dataType())) for a in output)
    fields = (*(below.plan.fields[i] for i in kept_columns), *new_fields)
    args = [walk.expressions.expression(child, below.scope()) for child in items(generator.children())]
    if name == "ReplicateRows":
        copies = Generate(below.plan, Generator.REPLICATE, args[0], False, ())
        return BoundNode(Project(copies, (*columns, *args[1:]), fields), ids)
    if (listed := _listed_rows(name, args, new_fields)) is not None:
        return BoundNode(Expand(below.plan, tuple((*columns, *row) for row in listed), fields), ids)
    if name in ("VariantExplode", "JsonTuple") and walk.expressions.has_kernel is not None:
        plan, args = _after_spark(below.plan, args)
        place = walk.expressions.place_of(node)
        if name == "JsonTuple":
            return BoundNode(Project(plan, (*columns, *_fields_of_json(args, len(new_fields), place)), fields), ids)
        kind = f"array<struct<{','.join(f'{f.name}:{f.type}' for f in new_fields)}>>"
        parts = Call(BY_SPARK, kind, tuple(args), params=(("sql", _PARTS_OF_VARIANT),), place=place)
        return BoundNode(Generate(plan, Generator.INLINE, parts, node.outer(), new_fields, kept_columns), ids)
    if name not in _GENERATORS:
        raise walk.refusal_of(node, name.lower(), _NO_GENERATOR if args else _OF_THIS_SPARK)
    return BoundNode(
        Generate(below.plan, _GENERATORS[name], args[0], node.outer(), new_fields, kept_columns if dropped else None),
        ids,
    )


def _after_spark(plan: Plan, args: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
    """The plan with the arguments that Spark computes as further columns, and the arguments over these columns.

    A call of Spark over a call of Spark takes two steps.
    """
    input_columns = tuple(Column(i, f.type) for i, f in enumerate(plan.fields))
    first = [a for a in args if needs_spark(a)]
    if not first:
        return plan, list(args)
    new_fields = (Field(f"_{i}", a.type) for i, a in enumerate(first))
    return Project(plan, (*input_columns, *first), (*plan.fields, *new_fields)), [
        Column(len(input_columns) + first.index(a), a.type) if a in first else a for a in args
    ]


def _fields_of_json(args: Sequence[Expr], fields: int, place: Place | None) -> list[Expr]:
    """The expressions for the names of json_tuple(text, name, …)."""
    read: list[Expr] = []
    shown = []
    for arg in args:
        if isinstance(arg, Literal):
            shown.append("CAST(NULL AS string)" if arg.value is None else string_text(str(arg.value)))
        else:
            shown.append(f"`a{len(read)}`")
            read.append(arg)
    kind = f"struct<{','.join(f'c{i}:string' for i in range(fields))}>"
    whole = Call(BY_SPARK, kind, tuple(read), params=(("sql", f"{JSON_TUPLE}{', '.join(shown)})"),), place=place)
    return [Call("GetStructField", "string", (whole,), params=(("ordinal", str(i)),)) for i in range(fields)]


def _listed_rows(name: str, args: Sequence[Expr], new_fields: Sequence[Field]) -> list[tuple[Expr, ...]] | None:
    """The rows that a generator makes of each row, if the query lists at least one."""
    match name, args:
        case "Stack", (Literal(value=int(rows)), *values):
            width = len(new_fields)
            padded = [*values, *(Literal(None, new_fields[i % width].type) for i in range(len(values), rows * width))]
            return [tuple(padded[i * width : (i + 1) * width]) for i in range(rows)]
        case "Explode", (Call(node="CreateArray", args=elements),) if elements:
            return [(e,) for e in elements]
        case "PosExplode", (Call(node="CreateArray", args=elements),) if elements:
            return [(Literal(i, "int"), e) for i, e in enumerate(elements)]
        case "Inline", (Call(node="CreateArray", args=elements),) if elements and all(map(_struct_values, elements)):
            return [_struct_values(e) for e in elements]
        case _:
            return None


def _struct_values(expr: Expr) -> tuple[Expr, ...]:
    """The field values of a struct that the query constructs. Empty for other expressions."""
    return expr.args[1::2] if isinstance(expr, Call) and expr.node == "CreateNamedStruct" else ()
