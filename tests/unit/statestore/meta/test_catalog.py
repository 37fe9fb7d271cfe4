"""The catalog's names, as people see them."""

import pytest

from tussock.statestore.meta.catalog import shown_name

DIGEST = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("daily", "daily"),
        (f"__quality__paid_assertion_{DIGEST}", "assertion paid"),
        (f"__quality__daily_numbers_{DIGEST}", "numbers of daily"),
        (f"__quality__daily_total_values_{DIGEST}", "values of daily_total"),
        (f"__quality__no_assertion_repeated_{DIGEST}", "repeated of no_assertion"),
        (f"__quality__x_numbers_assertion_{DIGEST}", "assertion x_numbers"),
        (f"daily_numbers_{DIGEST}", f"daily_numbers_{DIGEST}"),
        (f"__quality__daily_numbers_{DIGEST[:31]}", f"__quality__daily_numbers_{DIGEST[:31]}"),
    ],
)
def test_only_an_internal_view_is_shown_by_its_kind_and_subject(name: str, shown: str) -> None:
    assert shown_name(name) == shown
