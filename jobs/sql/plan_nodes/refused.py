"""Catalyst's nodes that have no executor, in a user's words: what it is, and what to do."""

_OUTSIDE = "only relations made here are known; declare it with CREATE SOURCE"
_PYTHON = (
    "a Python function of a DataFrame",
    "its code is no part of the store; make it known with CREATE FUNCTION and create the view by SQL, or write it in Spark's functions",
)

OF_SQL: dict[str, tuple[str, str]] = {
    "UnionLoop": (
        "a WITH that reads itself",
        "any row may lead to any other in any number of rounds; write out the rounds that there are",
    ),
    "ScriptTransformation": ("TRANSFORM", "what a program outside answers may differ from run to run"),
    "Sample": ("TABLESAMPLE", "it picks other rows on every run"),
}
"""What a statement can name."""

OF_FRAMES: dict[str, tuple[str, str]] = {
    "LogicalRelation": ("a relation of Spark's own catalog", _OUTSIDE),
    "DataSourceV2ScanRelation": ("a relation of Spark's own catalog", _OUTSIDE),
    "StreamingRelationV2": ("a stream of Spark's", _OUTSIDE),
    "InMemoryRelation": ("a cached DataFrame", "what it was made of is hidden; call unpersist() on it first"),
    **dict.fromkeys(
        (
            "ArrowEvalPython",
            "BatchEvalPython",
            "MapInArrow",
            "MapInPandas",
            "FlatMapGroupsInArrow",
            "FlatMapGroupsInPandas",
            "FlatMapCoGroupsInArrow",
            "FlatMapCoGroupsInPandas",
            "BatchEvalPythonUDTF",
            "ArrowEvalPythonUDTF",
        ),
        _PYTHON,
    ),
}
"""What only a DataFrame can hold: no text reaches a file, a stream, a cache or a Python function that is not known here."""

REASONS = OF_SQL | OF_FRAMES
