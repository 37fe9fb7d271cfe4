"""A statement that ran once does not run again when only its blanks, comments or the case of its letters change."""

import pytest

from tests.support.jobs.plan.catalogs import catalog_of, table
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import Insert, Transaction
from tussock.jobs.statements.once import Once
from tussock.statestore.meta.catalog import Catalog

FIRST = "INSERT INTO t VALUES (1, 'Oslo', 2)"
LOWER = "insert into t values (1, 'Oslo', 2)"


def after(text: str) -> Catalog:
    """A catalog in which the statement has run."""
    catalog = catalog_of(table("t"))
    found = Once().next_statement(catalog, SourceText(text))
    assert found is not None
    assert not found.ran
    return apply_statement(catalog, Transaction((Insert("t", 1, "rows"),), ((0, found.name),)), 2)


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        (FIRST, True),
        ("insert into  T\n values (1, 'Oslo', 2) -- as before", True),
        ("Insert Into `t` Values (1, 'Oslo', 2)", False),
        (FIRST.replace("Oslo", "oslo"), False),
        (FIRST.replace("2", "3"), False),
    ],
)
def test_only_words_and_strings_identify_a_statement(text: str, ran: bool) -> None:
    found = Once().next_statement(after(FIRST), SourceText(text))
    assert found is not None
    assert found.ran is ran


def test_the_second_of_two_equal_statements_runs_in_any_case_of_letters() -> None:
    catalog, once = after(FIRST), Once()
    found = [once.next_statement(catalog, SourceText(text)) for text in (LOWER, FIRST)]
    assert [one.ran for one in found if one is not None] == [True, False]
