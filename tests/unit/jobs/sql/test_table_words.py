"""The parts of CREATE TABLE that the engine reads itself. Spark's parser sees blanks in their places."""

import pytest

from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.sql.grammar import Cursor
from tussock.jobs.sql.table_words import TableWords, read_table_words


def words(text: str) -> TableWords:
    return read_table_words(Cursor(SourceText(f"CREATE TABLE t {text}"), 3))


@pytest.mark.parametrize(
    ("text", "key", "left"),
    [
        ("(a int, PRIMARY KEY (a))", ("a",), "(a int)"),
        ("(PRIMARY KEY (a, `b c`), a int, `b c` int)", ("a", "b c"), "( a int, `b c` int)"),
        ("(a int PRIMARY KEY NOT ENFORCED, b int)", ("a",), "(a int , b int)"),
        ("(a int, CONSTRAINT k PRIMARY KEY (a) RELY) COMMENT 'x'", ("a",), "(a int) COMMENT 'x'"),
        (
            "(m map<string, int>, a int DEFAULT (1 + 2), PRIMARY KEY (a))",
            ("a",),
            "(m map<string, int>, a int DEFAULT (1 + 2))",
        ),
        ("(constraint int, primary int, unique int)", None, "(constraint int, primary int, unique int)"),
        ("(a int COMMENT 'PRIMARY KEY')", None, "(a int COMMENT 'PRIMARY KEY')"),
    ],
)
def test_the_key_is_read_and_the_rest_is_left_to_spark(text: str, key: tuple[str, ...] | None, left: str) -> None:
    found = words(text)
    assert (None if found.key is None else found.key.columns) == key
    assert found.text.text.replace(" ", "") == f"CREATE TABLE t {left}".replace(" ", "")
    assert len(found.text.text) == len(f"CREATE TABLE t {text}"), "all offsets stay"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a int PRIMARY KEY, PRIMARY KEY (a))", "at most one PRIMARY KEY"),
        ("(a int UNIQUE)", "the only constraint of a table is its PRIMARY KEY"),
        ("(a int, CONSTRAINT c CHECK (a > 1))", "the only constraint of a table is its PRIMARY KEY"),
        ("(a int, PRIMARY KEY ())", "expected the name of a column"),
        ("(a int, PRIMARY KEY (a) b)", "expected , or \\) after the PRIMARY KEY"),
        ("(PRIMARY KEY (a)) AS SELECT 1 AS a", "AS SELECT takes no PRIMARY KEY"),
    ],
)
def test_other_constraints_and_wrong_keys_are_refused(text: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        words(text)
