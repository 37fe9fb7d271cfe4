"""Fixtures of the page tests; see serving.py."""

from tests.support.pages.serving import admin, app, shop, visitors

__all__ = ["admin", "app", "shop", "visitors"]
