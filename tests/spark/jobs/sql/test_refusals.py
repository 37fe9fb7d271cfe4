"""Refused queries, in `cases/refusals.yaml`: each SELECT with the message of CREATE MATERIALIZED VIEW."""

from typing import Any

import pytest

from tests.support.jobs.sql.fixtures import Case, load_cases
from tussock.jobs.catalog.checks import check_plan
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.sql.catalyst import bind_view
from tussock.jobs.sql.sandbox import Sandbox
from tussock.statestore.errors import InputError


@pytest.mark.spark
@pytest.mark.parametrize("case", load_cases("refusals.yaml", "error"))
def test_an_unmaintainable_query_is_refused_with_reason_and_place(case: Case, sandbox: Sandbox, expect: Any) -> None:
    with sandbox.active(), pytest.raises(InputError) as caught:
        check_plan(bind_view(sandbox, SourceText(case.sql)))
    expect(case, "error", f"{type(caught.value).__name__}: {caught.value}")
