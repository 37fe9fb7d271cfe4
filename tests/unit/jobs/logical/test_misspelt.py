"""Misspelt keywords: each is found at its word, and no other syntax error is taken for one. The parser is DuckDB's.

tests/spark/jobs/sql/test_misspelt.py repeats the first part with Spark's parser.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tussock.jobs.logical.misspelt import Fails, edit_distance, find_misspelling
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.jobs.reading.duck_syntax import duck_parser

SELECTS = Path(__file__).parents[3] / "support/jobs/sql/cases/selects.yaml"
NAMES = frozenset(("orders", "shops", "cities", "accounts", "id", "shop", "item", "amount", "price", "at", "day"))
NAMES |= frozenset(("name", "city", "country", "people", "owner"))
MISSPELT = (
    ("SELECT id FORM orders", "FORM", "FROM"),
    ("SELECT id FRM orders WHERE id > 1", "FRM", "FROM"),
    ("SELCT id FROM orders", "SELCT", "SELECT"),
    ("select id from orders wehre id > 1", "wehre", "WHERE"),
    ("SELECT id FROM orders o WHER id > 1", "WHER", "WHERE"),
    ("SELECT shop, count(*) FROM orders GROPU BY shop", "GROPU", "GROUP"),
    ("SELECT shop, count(*) FROM orders GROUPBY shop", "GROUPBY", "GROUP BY"),
    ("SELECT shop FROM orders GROUP YB shop", "YB", "BY"),
    ("SELECT shop FROM orders GROUP BY shop HAVIGN count(*) > 1", "HAVIGN", "HAVING"),
    ("SELECT id FROM orders ORDRE BY id", "ORDRE", "ORDER"),
    ("SELECT id FROM orders ORDER BY id LIMTI 3", "LIMTI", "LIMIT"),
    ("SELECT id FROM orders LIMT 3", "LIMT", "LIMIT"),
    ("SELECT o.id FROM orders o JION shops s ON o.shop = s.id", "JION", "JOIN"),
    ("SELECT o.id FROM orders o LEFT JOIN shops s ONN o.shop = s.id", "ONN", "ON"),
    ("SELECT o.id FROM orders o JOIN shops s USIGN (id)", "USIGN", "USING"),
    ("SELECT o.id FROM orders o LEFT OUTTER JOIN shops s ON o.shop = s.id", "OUTTER", "OUTER"),
    ("SELECT id FROM orders UNIN ALL SELECT id FROM shops", "UNIN", "UNION"),
    ("SELECT id FROM orders INTERSCT SELECT id FROM shops", "INTERSCT", "INTERSECT"),
    ("SELECT CASE WEN id > 1 THEN 2 ELSE 3 END FROM orders", "WEN", "WHEN"),
    ("SELECT CASE WHEN id > 1 THNE 2 ELSE 3 END FROM orders", "THNE", "THEN"),
    ("SELECT CASE WHEN id > 1 THEN 2 ELES 3 END FROM orders", "ELES", "ELSE"),
    ("SELECT id FROM orders WHERE id BETWEN 1 AND 2", "BETWEN", "BETWEEN"),
    ("SELECT id FROM orders WHERE id BETWEEN 1 ADN 2", "ADN", "AND"),
    ("SELECT id FROM orders WHERE item IS NTO NULL", "NTO", "NOT"),
    ("SELECT id FROM orders WHERE item LKIE 'a%'", "LKIE", "LIKE"),
    ("SELECT id FROM orders WHERE EXSITS (SELECT 1 FROM shops s)", "EXSITS", "EXISTS"),
    ("SELECT rank() OVRE (PARTITION BY shop ORDER BY id) FROM orders", "OVRE", "OVER"),
    ("SELECT rank() OVER (PARTITON BY shop ORDER BY id) FROM orders", "PARTITON", "PARTITION"),
    ("WITH x SA (SELECT 1) SELECT * FROM x", "SA", "AS"),
    ("SELECT CAST(id AZ int) FROM orders", "AZ", "AS"),
    ("SELECT id FORM orders WEHRE id > 1", "FORM", "FROM"),
    ("SELECT 'é', id FORM orders", "FORM", "FROM"),
    ("SELECT id -- FROM\n FORM orders", "FORM", "FROM"),
)
OTHER = (
    "SELECT id item shop FROM orders",
    "SELECT id,, shop FROM orders",
    "SELECT (id FROM orders",
    "SELECT id FROM orders o p q",
    "SELECT id FROM orders WHERE",
    "SELECT id FROM orders WHERE id >",
    "SELECT o.form t u FROM orders o",
    "SELECT id AS form t FROM orders",
    "SELECT id FROM orders WHERE item = 'FORM' x y",
    "SELECT id FROM `form` x y",
    "SELECT 'FORM FROM orders",
)


@pytest.fixture(scope="module")
def parser() -> Iterator[tuple[Fails, frozenset[str]]]:
    with duck_parser() as found:
        yield found


def found_in(sql: str, parser: tuple[Fails, frozenset[str]]) -> tuple[Token, str] | None:
    """The misspelt word and its keyword. Fails if the parser reads the text."""
    fails, keywords = parser
    failed = fails(sql)
    assert failed is not None, sql
    found = find_misspelling(SourceText(sql), failed, fails, keywords, NAMES)
    return None if found is None else (found.token, found.keyword)


@pytest.mark.parametrize(("sql", "word", "keyword"), MISSPELT)
def test_a_misspelt_keyword_is_found_at_its_word(
    sql: str, word: str, keyword: str, parser: tuple[Fails, frozenset[str]]
) -> None:
    found = found_in(sql, parser)
    assert found is not None
    assert (found[0].text, found[1]) == (word, keyword)


@pytest.mark.parametrize("sql", OTHER)
def test_other_syntax_errors_name_no_keyword(sql: str, parser: tuple[Fails, frozenset[str]]) -> None:
    assert found_in(sql, parser) is None


def test_swapped_letters_are_found_in_all_selects_and_missing_words_are_not_misspelt(
    parser: tuple[Fails, frozenset[str]],
) -> None:
    """One keyword of each SELECT: its letters in the middle are swapped, and then the word before it is left out."""
    fails, keywords = parser
    swapped = left_out = 0
    for number, entry in enumerate(yaml.safe_load(SELECTS.read_text())):
        sql = entry["sql"]
        if fails(sql) is not None:  # only Spark's parser reads it
            continue
        tokens = tokens_of(SourceText(sql))
        long = [t for t in tokens if t.text.upper() in keywords and len(t.text) > 2 and t.text.lower() not in NAMES]
        token, middle = long[number % len(long)], len(long[number % len(long)].text) // 2
        wrong = token.text[: middle - 1] + token.text[middle] + token.text[middle - 1] + token.text[middle + 1 :]
        text = sql[: token.start] + wrong + sql[token.end :]
        if wrong.upper() not in keywords and fails(text) is not None:
            swapped += 1
            found = found_in(text, parser)
            assert found is not None, text
            assert (found[0].start, found[1]) == (token.start, token.text.upper()), text
        gone = tokens[number % len(tokens)]
        text = sql[: gone.start] + sql[gone.end :]
        if fails(text) is not None:
            left_out += 1
            assert found_in(text, parser) is None, text
    assert swapped > 40
    assert left_out > 20


def test_edits_are_letters_inserted_deleted_replaced_or_swapped() -> None:
    assert [edit_distance(a, "FROM") for a in ("FROM", "FORM", "FRM", "FROMM", "FLOM", "FMOR", "")] == [
        0,
        1,
        1,
        1,
        1,
        2,
        4,
    ]
