"""Facts of the SQL of a project's models."""

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tussock.jobs.importing.names import relation_text
from tussock.jobs.importing.project import ForeignProject, Model


def query_of(model: Model) -> str | None:
    """The SELECT of a model's CREATE statement; None if it has none."""
    if model.kind == "history of a snapshot":
        (rows,) = model.reads
        time = "timestamp'2000-01-01'"
        return f"SELECT *, {time} AS __START_AT, {time} AS __END_AT FROM {relation_text(rows)}"
    match = re.match(r"CREATE (?:MATERIALIZED )?VIEW .*? AS\n", model.statement)
    return model.statement[match.end() :] if match is not None else None


def compared_literals(project: ForeignProject) -> dict[str, list[str]]:
    """The texts to which the project's SQL compares columns, by the name of the column."""
    literals: dict[str, dict[str, None]] = {}
    for query in filter(None, map(query_of, project.models)):
        try:
            tree = sqlglot.parse_one(query, read="spark")
        except SqlglotError:
            continue
        for column, text in _comparisons(tree):
            literals.setdefault(column, {})[text] = None
    return {column: list(texts) for column, texts in literals.items()}


def _comparisons(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    for node in tree.find_all(exp.EQ, exp.In, exp.Case):
        column = next(node.this.find_all(exp.Column), None) if node.this is not None else None
        if column is not None:
            texts = (text for text in node.find_all(exp.Literal) if text.is_string)
            yield from ((column.name.lower(), text.name) for text in texts)
