"""The fixtures of tests/support/statestore/fixtures.py."""

from tests.support.statestore.fixtures import any_store, moto_endpoint, objects, versitygw_endpoint

__all__ = ["any_store", "moto_endpoint", "objects", "versitygw_endpoint"]
