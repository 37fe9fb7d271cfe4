"""A statement that ran once does not run again when only its blanks, comments or the case of its letters change."""

from hashlib import sha256

import pytest

from tests.jobs.plan.catalogs import catalog_of, table
from tussock.jobs.catalog.once import Once
from tussock.jobs.logical.statements import Insert, Transaction
from tussock.jobs.plan.apply import apply_statement
from tussock.statestore.meta.catalog import Catalog

FIRST = "INSERT INTO t VALUES (1, 'Oslo', 2)"
LOWER = "insert into t values (1, 'Oslo', 2)"


def after(text: str) -> Catalog:
    """A catalog in which the statement has run."""
    catalog = catalog_of(table("t"))
    found = Once().of(catalog, text)
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
    found = Once().of(after(FIRST), text)
    assert found is not None
    assert found.ran is ran


def test_the_second_of_two_equal_statements_runs_in_any_case_of_letters() -> None:
    catalog, once = after(FIRST), Once()
    found = [once.of(catalog, text) for text in (LOWER, FIRST)]
    assert [one.ran for one in found if one is not None] == [True, False]


def earlier_name(text: str, number: int) -> str:
    """The name that earlier releases recorded: a hash of the words with their case, and the number."""
    words = text.replace("(", "( ").replace(",", " ,").replace(")", " )").split()
    digest = sha256("\0".join(words).encode()).hexdigest()[:32]
    return f"{digest}/{number}"


@pytest.mark.parametrize(
    "texts", [[FIRST], [FIRST, LOWER], [LOWER, FIRST], [FIRST, FIRST, LOWER], [LOWER, FIRST, LOWER, FIRST]]
)
def test_statements_that_an_earlier_release_recorded_with_their_case_have_run(texts: list[str]) -> None:
    catalog = catalog_of(table("t"))
    names = [earlier_name(text, texts[: n + 1].count(text)) for n, text in enumerate(texts)]
    for name in names:
        catalog = apply_statement(catalog, Transaction((Insert("t", 1, "rows"),), ((0, name),)), 2)
    once = Once()
    found = [one for text in texts if (one := once.of(catalog, text)) is not None]
    assert [one.ran for one in found] == [True] * len(texts)
    assert [one.client_id.partition("/")[2].partition("/")[2] for one in found] == names
    further = once.of(catalog, LOWER)
    assert further is not None
    assert not further.ran, "a statement that is added later runs"
