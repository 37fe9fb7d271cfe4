"""Names and constants as SQL text, without Spark."""

import re

PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def quote_name(name: str) -> str:
    """A name in backquotes. It may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def quote_if_needed(name: str) -> str:
    """A name as SQL, in backquotes unless it consists of lower-case letters, digits and _."""
    return name if PLAIN_NAME.fullmatch(name) else quote_name(name)


def quote_identifier(name: str) -> str:
    """A name as standard SQL quotes it: DuckDB, DataFusion and Postgres read it."""
    return '"' + name.replace('"', '""') + '"'


def string_text(text: str) -> str:
    """A string constant. Backquotes are escaped, so that a backquote in a text for Spark always belongs to a name."""
    plain = {"'": "\\'", "\\": "\\\\", "`": "\\u0060", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"}
    return "'" + "".join(plain.get(c, c) for c in text) + "'"


def within_string(text: str) -> str:
    """A text escaped for use inside a string constant with quotes of either kind."""
    return string_text(text)[1:-1].replace('"', '\\"')
