"""Names of tables and columns as Postgres writes them."""

import re

from tussock.jobs.logical.quoting import quote_identifier

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_QUOTED = r'"(?:[^"]|"")+"'
_TABLE = re.compile(rf'(?:(?P<schema>{_QUOTED}|[^".]+)\.)?(?P<name>{_QUOTED}|[^"]+)')


def parse_table(text: str) -> tuple[str, str] | None:
    """Return the schema and the name of a table; None if the text is no name.

    Args:
        text: `name` or `schema.name`, without folding of letters. A name with a dot or a quote is quoted as in SQL,
            such as `public."a.b"`.
    """
    if '"' not in text:
        schema, _, name = text.rpartition(".")
        return (schema or "public", name) if name else None
    if (match := _TABLE.fullmatch(text)) is None:
        return None
    return _unquote_name(match["schema"] or "public"), _unquote_name(match["name"])


def table_text(schema: str, name: str) -> str:
    """Return a table as SQL. It is quoted only if a plain name would be another one."""
    shown = name if _PLAIN.fullmatch(name) else quote_identifier(name)  # after a dot, a keyword is a name
    return f"public.{shown}" if schema == "public" else f"{quote_identifier(schema)}.{shown}"


def _unquote_name(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
