"""The fixtures of tests/support/pages/fixtures.py."""

from tests.support.pages.fixtures import admin, app, shop, visitors

__all__ = ["admin", "app", "shop", "visitors"]
