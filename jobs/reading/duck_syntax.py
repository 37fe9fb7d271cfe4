"""The parser of DuckDB, to find the place of a syntax error."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import msgspec

from tussock.jobs.logical.misspelt import Fails


@contextmanager
def duck_parser() -> Iterator[tuple[Fails, frozenset[str]]]:
    """Yield DuckDB's parser and its keywords, in upper case.

    Its connection reports errors as JSON. In the usual texts, a long line is shortened and the place is lost. Cost:
    20 ms.
    """
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET errors_as_json = true")
        words = connection.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()

        def fails(text: str) -> int | None:
            try:
                connection.extract_statements(text)
            except duckdb.ParserException as err:
                at = int(msgspec.json.decode(str(err).partition(": ")[2]).get("position", 0))  # in bytes
                return len(text.encode()[:at].decode(errors="ignore"))
            return None

        yield fails, frozenset(word.upper() for (word,) in words)
