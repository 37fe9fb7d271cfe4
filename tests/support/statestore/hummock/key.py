"""Rows and helpers of test_key.py, which is in several lanes."""

from itertools import product

from tussock.statestore.meta.catalog import KeyColumn

ORDERS = [KeyColumn(0, descending, nulls_last) for descending, nulls_last in product((False, True), repeat=2)]
