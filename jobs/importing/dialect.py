"""Translation of SQL of another dialect into Spark's, by sqlglot. Only used if `--dialect` names the dialect."""

from typing import TYPE_CHECKING

from tussock.jobs.importing.errors import ProjectError

if TYPE_CHECKING:
    from sqlglot.expressions import Expression


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
        trees = sqlglot.parse(sql, read=dialect)
        translated = [
            tree.transform(_explode_series)
            .transform(_exclude_end)
            .sql("spark", pretty=True, unsupported_level=ErrorLevel.RAISE)
            for tree in trees
            if tree is not None
        ]
    except SqlglotError as err:
        reason = " ".join(str(err).partition("\n")[0].split())
        return "", f"sqlglot cannot translate it from {dialect}: {reason}. Rewrite this part of the model"
    if len(translated) != 1:
        return "", f"it has {len(translated)} statements, and a model is one SELECT"
    return translated[0], ""


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
