"""Rows and helpers of test_without_spark.py, which is in several lanes."""

from decimal import Decimal
from typing import Any


def decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "meta": {}}
