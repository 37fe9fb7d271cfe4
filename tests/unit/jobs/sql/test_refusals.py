"""Refused queries, in `cases/refusals.yaml`: each SELECT with the message of CREATE MATERIALIZED VIEW."""

import pytest
import yaml

from tests.support.jobs.sql.fixtures import CASES
from tussock.jobs.sql.plan_nodes.refused import OF_SQL


@pytest.mark.parametrize("construct", [construct for construct, _ in OF_SQL.values()])
def test_every_node_that_is_refused_has_a_case(construct: str) -> None:
    errors = [entry["error"] for entry in yaml.safe_load((CASES / "refusals.yaml").read_text())]
    assert any(f"{construct} is not supported" in error for error in errors)
