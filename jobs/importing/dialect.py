"""Translation of SQL of another dialect into Spark's, by sqlglot. Only used if `--dialect` names the dialect."""

from tussock.jobs.importing.errors import ProjectError


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
        translated = sqlglot.transpile(
            sql, read=dialect, write="spark", pretty=True, unsupported_level=ErrorLevel.RAISE
        )
    except SqlglotError as err:
        reason = " ".join(str(err).partition("\n")[0].split())
        return "", f"sqlglot cannot translate it from {dialect}: {reason}. Rewrite this part of the model"
    if len(translated) != 1:
        return "", f"it has {len(translated)} statements, and a model is one SELECT"
    return translated[0], ""


def describe_translation(dialect: str) -> str:
    """The mark of a translated model."""
    from importlib.metadata import version

    return f"translated from {dialect} by sqlglot {version('sqlglot')}: compare its rows with the original once"
