"""Catalyst's nodes that have no executor, in a user's words: what it is, and what to do."""

REASONS: dict[str, tuple[str, str]] = {
    "Window": ("a window function", "window functions are not kept yet"),
    "Sample": ("TABLESAMPLE", "it picks other rows on every run"),
    "LogicalRelation": ("a relation of Spark's own catalog", "only relations made here are known; declare it with CREATE SOURCE"),
}
