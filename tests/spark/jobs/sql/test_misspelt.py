"""Misspelt keywords of statements, with Spark's parser and the grammar of the other statements."""

import pytest

from tests.unit.jobs.logical.test_misspelt import MISSPELT, OTHER
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.sandbox import Sandbox

STATEMENTS = (
    ("INSRT INTO accounts VALUES (1)", "INSRT", "INSERT"),
    ("INSERT INTO accounts (id) VALUSE (1)", "VALUSE", "VALUES"),
    ("INSERT INTO accounts SELECT * FORM accounts", "FORM", "FROM"),
    ("UPDATE accounts STE rate = 1 WHERE id = 1", "STE", "SET"),
    ("UPDATE accounts SET rate = 1 WEHRE id = 1", "WEHRE", "WHERE"),
    ("DELETE FORM accounts WHERE id = 1", "FORM", "FROM"),
    ("DELETE FROM accounts WHRE id = 1", "WHRE", "WHERE"),
    ("MERGE INTO accounts a USNG accounts b ON a.id = b.id WHEN MATCHED THEN DELETE", "USNG", "USING"),
    ("MERGE INTO accounts a USING accounts b ON a.id = b.id WHEN MATCHD THEN DELETE", "MATCHD", "MATCHED"),
    ("MERGE INTO accounts a USING accounts b ON a.id = b.id WHEN MATCHED THNE DELETE", "THNE", "THEN"),
    ("CREATE MATERIALISED VIEW v AS SELECT 1 AS a", "MATERIALISED", "MATERIALIZED"),
    ("CREATE MATERIALIZED VEIW v AS SELECT 1 AS a", "VEIW", "VIEW"),
    ("CREATE MATERIALIZED VIEW v SA SELECT 1 AS a", "SA", "AS"),
    ("CREATE MATERIALIZED VIEW v AS SELECT id FORM orders", "FORM", "FROM"),
    ("CREATE MATERIALIZED VIEW v AS SLECT id FROM orders", "SLECT", "SELECT"),
    ("CREATE TABEL t (k INT)", "TABEL", "TABLE"),
    ("CREATE SOURCE s USNIG parquet OPTIONS (path 'x')", "USNIG", "USING"),
    ("DROP VEIW v", "VEIW", "VIEW"),
    ("SHOW TALBES", "TALBES", "TABLES"),
    ("TRUNCAT TABLE accounts", "TRUNCAT", "TRUNCATE"),
    ("EXPLAIN SELECT id FORM orders", "FORM", "FROM"),
    ("WIHT x AS (SELECT 1) SELECT * FROM x", "WIHT", "WITH"),
)


@pytest.mark.spark
def test_a_misspelt_keyword_of_a_statement_is_found_at_its_word(binder: Binder) -> None:
    wrong = []
    for sql, word, keyword in (*MISSPELT, *STATEMENTS):
        with pytest.raises(SqlError) as caught:
            binder.bind(sql)
        err = caught.value
        assert err.excerpt is not None, sql
        line, caret = err.excerpt.split("\n")
        if f"found {word}. Did you mean {keyword}?" not in err.reason or not line[len(caret) - 1 :].startswith(word):
            wrong.append(f"{sql}\n{err}")
    assert "\n\n".join(wrong) == ""


@pytest.mark.spark
def test_other_syntax_errors_keep_the_message_of_spark(sandbox: Sandbox) -> None:
    with sandbox.active():
        for sql in OTHER:
            if sql.endswith("WHERE"):  # Spark's parser takes it for an alias; the binder refuses it
                continue
            with pytest.raises(SqlError) as caught:
                sandbox.parse_query(SourceText(sql))
            assert "Did you mean" not in str(caught.value), sql
