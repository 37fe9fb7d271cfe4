"""Rows and helpers of test_functions.py, which is in several lanes."""

from tests.support.functions.registry import load

FUNCTIONS = load()
