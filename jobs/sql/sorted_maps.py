"""Maps in keys. Catalyst sorts the entries of each map in a key of GROUP BY, so that equal maps have equal bytes.

Its rule InsertMapSortInGroupingExpressions writes this out level by level, with lambdas for maps in arrays and in the
values of maps. A kernel sorts the maps of a value at every depth, so the whole tree is one call over the value:

    map<k,v>                     MapSort(x)
    map<k,v>, with maps in v     MapSort(MapFromArrays(MapKeys(x), sorted MapValues(x)))
    array<e>                     ArrayTransform(x, e -> sorted e)
    struct<…>                    [If(IsNull(x), NULL,)] CreateNamedStruct(name, sorted GetStructField(x, i), …)
"""

from py4j.java_gateway import JavaObject

from tussock.jobs.sql.sandbox import items

SORTING = frozenset({"MapSort", "ArrayTransform", "If", "CreateNamedStruct"})


def sorted_value(node: JavaObject) -> JavaObject | None:
    """The value whose maps an expression sorts, at every depth. None if the expression does anything else."""
    match node.productPrefix():
        case "MapSort":
            return _of_map(node.child())
        case "ArrayTransform":
            function = node.function()
            arguments = list(items(function.arguments()))
            inner = sorted_value(function.function())
            return (
                node.argument() if inner is not None and len(arguments) == 1 and _is_same(inner, arguments[0]) else None
            )
        case "If":
            value = node.predicate().child() if node.predicate().productPrefix() == "IsNull" else None
            if value is None or node.trueValue().productPrefix() != "Literal" or node.trueValue().value() is not None:
                return None
            sorted_map = node.falseValue()
            inner = (
                _of_struct(sorted_map)
                if sorted_map.productPrefix() == "CreateNamedStruct"
                else sorted_value(sorted_map)
            )
            return value if inner is not None and _is_same(inner, value) else None
        case "CreateNamedStruct":
            whole = _of_struct(node)  # a struct of the fields of a NULL is not NULL
            return None if whole is None or whole.nullable() else whole
    return None


def holds_sorted_fields(node: JavaObject) -> bool:
    """Whether an expression makes a struct with some sorted fields."""
    if node.productPrefix() != "CreateNamedStruct":
        return False
    return any(sorted_value(part) is not None for part in list(items(node.children()))[1::2])


def _of_map(child: JavaObject) -> JavaObject:
    """The map that a MapSort sorts, whose values may be sorted before."""
    if child.productPrefix() == "MapFromArrays" and child.left().productPrefix() == "MapKeys":
        values, whole = sorted_value(child.right()), child.left().child()
        if values is not None and values.productPrefix() == "MapValues" and _is_same(values.child(), whole):
            return whole
    return child


def _of_struct(node: JavaObject) -> JavaObject | None:
    """The struct that this node rebuilds to sort its maps; None otherwise."""
    taken, sorts = [], False
    for part in list(items(node.children()))[1::2]:
        if part.productPrefix() != "GetStructField":
            if (value := sorted_value(part)) is None or value.productPrefix() != "GetStructField":
                return None
            part, sorts = value, True
        taken.append(part)
    if not sorts or [part.ordinal() for part in taken] != list(range(taken[0].child().dataType().size())):
        return None
    whole = taken[0].child()
    same_names = list(whole.dataType().fieldNames()) == list(node.dataType().fieldNames())
    return whole if same_names and all(_is_same(part.child(), whole) for part in taken) else None


def _is_same(left: JavaObject, right: JavaObject) -> bool:
    return bool(left.semanticEquals(right))
