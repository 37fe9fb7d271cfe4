"""Catalyst's nodes that have no executor, in a user's words: what it is, and what to do."""

REASONS: dict[str, tuple[str, str]] = {
    "Window": ("a window function", "window functions are not kept yet"),
    "Expand": ("ROLLUP, CUBE, GROUPING SETS or a sliding window", "one input row counts in several groups; make a view per grouping"),
    "Generate": ("EXPLODE or LATERAL VIEW", "rows that make several rows are not kept yet"),
    "LocalRelation": ("a list of VALUES", "rows must come from a relation; put them into a table"),
    "OneRowRelation": ("a SELECT without FROM", "rows must come from a relation"),
    "Range": ("range()", "rows must come from a relation"),
    "Sample": ("TABLESAMPLE", "it picks other rows on every run"),
    "LogicalRelation": ("a relation of Spark's own catalog", "only relations made here are known; declare it with CREATE SOURCE"),
    "Offset": ("OFFSET without LIMIT", "add a LIMIT"),
}
