"""Catalyst's nodes that have no executor, in a user's words: what it is, and what to do."""

REASONS: dict[str, tuple[str, str]] = {
    "UnionLoop": ("a WITH that reads itself", "any row may lead to any other in any number of rounds; write out the rounds that there are"),
    "ScriptTransformation": ("TRANSFORM", "what a program outside answers may differ from run to run"),
    "Sample": ("TABLESAMPLE", "it picks other rows on every run"),
    "LogicalRelation": ("a relation of Spark's own catalog", "only relations made here are known; declare it with CREATE SOURCE"),
}
