"""Fixtures of the page tests; see serving.py."""

from tests.pages.serving import admin, app, shop, visitors

__all__ = ["admin", "app", "shop", "visitors"]
