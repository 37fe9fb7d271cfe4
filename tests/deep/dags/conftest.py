"""See tests/support/dags/fixtures.py."""

import tests.support.dags.fixtures  # noqa: F401
