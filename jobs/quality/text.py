"""The text of an expectation, as used by records, reports and pages."""

from collections.abc import Mapping
from typing import Any

_NOT_SHOWN = frozenset({"batch_id", "result_format", "catch_exceptions", "meta", "severity"})


def item_text(item: Mapping[str, Any]) -> str:
    """Return the text of an expectation of a suite."""
    return str(item.get("text") or expectation_text(item["type"], item.get("kwargs", {})))


def expectation_text(type_: str, arguments: Mapping[str, Any]) -> str:
    """Format a type and its arguments, as in `expect_column_values_to_not_be_null(column='name')`."""
    return f"{type_}({', '.join(f'{name}={value!r}' for name, value in arguments.items() if name not in _NOT_SHOWN)})"
