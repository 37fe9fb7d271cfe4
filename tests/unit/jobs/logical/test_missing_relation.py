"""Errors about a missing relation name those that a person wrote."""

import pytest

from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.logical.errors import NoRelationError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import INTERNAL

EXISTING = (f"{INTERNAL}orders_numbers_{'a' * 32}", "orders", "shops")


@pytest.mark.parametrize(
    "error", [NoRelationError("`odrers`", EXISTING), UnknownRelationError("odrers", "relation", EXISTING)]
)
def test_internal_views_are_not_listed(error: InputError) -> None:
    assert "those that exist: orders, shops. Did you mean 'orders'?" in str(error)


def test_a_store_with_internal_views_alone_has_none() -> None:
    assert "those that exist: none yet" in str(UnknownRelationError("orders", "view", EXISTING[:1]))
