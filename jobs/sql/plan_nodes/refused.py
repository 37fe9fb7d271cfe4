"""Catalyst nodes without an executor: their name for users, and advice."""

_OUTSIDE = "only relations of this store can be used; declare it with CREATE SOURCE"
_PYTHON = (
    "a Python function of a DataFrame",
    "the store does not have its code; register it with CREATE FUNCTION and create the view by SQL, or use Spark's "
    "functions",
)

OF_SQL: dict[str, tuple[str, str]] = {
    "UnionLoop": (
        "a WITH that reads itself",
        "any row may lead to any other in any number of rounds; write the rounds out",
    ),
    "ScriptTransformation": ("TRANSFORM", "the output of an external program may differ from run to run"),
    "Sample": ("TABLESAMPLE", "it selects other rows on every run"),
}
"""Nodes that a statement can contain."""

OF_FRAMES: dict[str, tuple[str, str]] = {
    "LogicalRelation": ("a relation of Spark's own catalog", _OUTSIDE),
    "DataSourceV2ScanRelation": ("a relation of Spark's own catalog", _OUTSIDE),
    "StreamingRelationV2": ("a stream of Spark", _OUTSIDE),
    "InMemoryRelation": ("a cached DataFrame", "its query is hidden; call unpersist() on it first"),
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
"""Nodes that only a DataFrame can contain. SQL cannot name files, streams, caches or unknown Python functions."""

REASONS = OF_SQL | OF_FRAMES
