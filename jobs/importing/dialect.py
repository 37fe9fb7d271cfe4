"""Translation of SQL of another dialect into Spark's, by sqlglot. Only used if `--dialect` names the dialect."""

from typing import TYPE_CHECKING

from tussock.jobs.importing.dialect_rules import correct_nodes, refusal_of
from tussock.jobs.importing.errors import ProjectError

if TYPE_CHECKING:
    from sqlglot.errors import ErrorLevel
    from sqlglot.expressions import Expr, Expression
    from sqlglot.generator import Generator


def require_dialect(dialect: str) -> None:
    """Raise ProjectError if sqlglot has no such dialect."""
    from sqlglot.dialects.dialect import Dialect

    known = sorted(name for name in Dialect.classes if name)
    if dialect not in known:
        raise ProjectError(f"--dialect {dialect}", "an unknown dialect", f"one of {', '.join(known)}")


def translate_sql(sql: str, dialect: str) -> tuple[str, str]:
    """Return the statement in Spark's SQL, and an empty text; or an empty text and why it cannot be translated."""
    import sqlglot
    from sqlglot.errors import ErrorLevel, SqlglotError

    try:
        trees = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
        for tree in trees:
            if refusal := refusal_of(tree, dialect):
                return "", refusal
        generator = _generator(pretty=True, unsupported_level=ErrorLevel.RAISE)
        translated = [
            generator.generate(
                correct_nodes(tree, dialect)
                .transform(_explode_series)
                .transform(_exclude_end)
                .transform(_qualify_first)
            )
            for tree in trees
        ]
    except SqlglotError as err:
        reason = " ".join(str(err).partition("\n")[0].split())
        return "", f"sqlglot cannot translate it from {dialect}: {reason}. Rewrite this part of the model"
    if len(translated) != 1:
        return "", f"it has {len(translated)} statements, and a model is one SELECT"
    return translated[0], ""


def _generator(*, pretty: bool, unsupported_level: "ErrorLevel") -> "Generator":
    """The writer of Spark's SQL, which keeps QUALIFY beside `*`: the number in sqlglot's subquery would be a column."""
    from sqlglot import exp, transforms
    from sqlglot.dialects.spark import Spark

    def without_qualify(select: "Expr") -> "Expr":
        return select if select.is_star else transforms.eliminate_qualify(select)

    select = transforms.preprocess([without_qualify, transforms.unnest_to_explode, transforms.any_to_exists])
    own = {"TRANSFORMS": {**Spark.Generator.TRANSFORMS, exp.Select: select}}
    generator: Generator = type("KeepingQualify", (Spark.Generator,), own)(
        dialect="spark", pretty=pretty, unsupported_level=unsupported_level
    )
    return generator


def _qualify_first(node: "Expression") -> "Expression":
    """SELECT DISTINCT ON (key) … ORDER BY key, at: the first row of each key, by QUALIFY."""
    from sqlglot import exp

    distinct = node.args.get("distinct") if isinstance(node, exp.Select) else None
    if distinct is None or (on := distinct.args.get("on")) is None:
        return node
    keys = on.expressions if isinstance(on, exp.Tuple) else [on]
    order = node.args.get("order") or exp.Order(expressions=[key.copy() for key in keys])
    number = exp.Window(this=exp.RowNumber(), partition_by=[key.copy() for key in keys], order=order.copy())
    node.set("distinct", None)
    node.set("qualify", exp.Qualify(this=exp.EQ(this=number, expression=exp.Literal.number(1))))
    return node


def _explode_series(node: "Expression") -> "Expression":
    """generate_series(…) and range(…) in FROM as rows: Spark's sequence is an array."""
    from sqlglot import exp

    if not (isinstance(node, exp.Table | exp.Lateral) and isinstance(series := node.this, exp.GenerateSeries)):
        return node
    column = "range" if series.args.get("is_end_exclusive") else "generate_series"  # DuckDB's name of its column
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(column))
    if not alias.args.get("columns"):
        alias.set("columns", [exp.to_identifier(column)])
    node.set("this", exp.Explode(this=series))
    node.set("alias", alias)
    return node


def _exclude_end(node: "Expression") -> "Expression":
    """range(start, end, step) without its end: sqlglot shortens it by a step, which loses a row of range(1, 10, 2)."""
    from sqlglot import exp

    if not (isinstance(node, exp.GenerateSeries) and node.args.get("is_end_exclusive") and node.args.get("step")):
        return node
    end, place = node.args["end"], exp.to_identifier("n")
    node.set("is_end_exclusive", False)
    is_before = exp.Lambda(this=exp.LT(this=exp.Column(this=place), expression=end.copy()), expressions=[place])
    return exp.ArrayFilter(this=node, expression=is_before)


def describe_translation(dialect: str) -> str:
    """The mark of a translated model."""
    from importlib.metadata import version

    return f"translated from {dialect} by sqlglot {version('sqlglot')}: compare its rows with the original once"
