"""Names and constants as SQL writes them. No Spark."""


def quoted(name: str) -> str:
    """A name, whatever its characters."""
    return "`" + name.replace("`", "``") + "`"


def string_text(text: str) -> str:
    """A string constant. A backtick is written as an escape, so that one in a text of Spark is always a name's."""
    plain = {"'": "\\'", "\\": "\\\\", "`": "\\u0060", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"}
    return "'" + "".join(plain.get(c, c) for c in text) + "'"


def within_string(text: str) -> str:
    """A text as a part of a string constant, between quotes of either kind."""
    return string_text(text)[1:-1].replace('"', '\\"')
