"""Fixtures of the page tests; see serving.py. No answer depends on the speed of the machine."""

import pytest

from tests.support.pages.fixtures import admin, app, shop, visitors

__all__ = ["admin", "app", "shop", "visitors"]


@pytest.fixture(autouse=True)
def pages_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page looks at the store anew and waits for the answer; otherwise it shows answers of the last seconds."""
    from tussock_pages import stores  # imports Airflow, which needs the home that serving.py makes

    monkeypatch.setattr(stores, "FRESH_S", 0.0)
    monkeypatch.setattr(stores, "OLD_PATIENCE_S", 2.0)
