"""Compare a CREATE statement with the catalog by its text, without Spark.

If the text cannot decide, Spark's binder does.
"""

from pathlib import Path

from tussock.jobs.catalog.alter_source import created_source
from tussock.jobs.catalog.builds import find_planned
from tussock.jobs.catalog.definition import (
    PlainViewDefinition,
    SourceDefinition,
    TableDefinition,
    ViewDefinition,
    definition_of,
)
from tussock.jobs.catalog.difference import list_differences, words_of
from tussock.jobs.logical.script import digest_under
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.sources.describe import place_source
from tussock.jobs.sources.registry import READERS, WITHOUT_PATH
from tussock.jobs.sql.flow_select import flow_select
from tussock.jobs.sql.flow_words import FlowHeader, find_flow
from tussock.jobs.sql.grammar import Cursor, read_source, read_view
from tussock.jobs.statements.show import declared_text
from tussock.jobs.statements.transaction import query_of
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.objectstore.base import ObjectStore


def unchanged_relation(catalog: Catalog, text: SourceText, base: Path, store: ObjectStore) -> Relation | None:
    """The relation that a CREATE SOURCE, TABLE, FLOW or [MATERIALIZED] VIEW defines, if it is unchanged.

    None: it is changed, or the text cannot decide.

    Args:
        base: the folder that relative paths of sources start from.
        store: the store of the catalog.

    Raises: SqlError if the head of the statement is invalid.
    """
    cursor = Cursor(text)
    if not cursor.accept("CREATE"):
        return None
    if (flow := find_flow(cursor)) is not None:
        return _find_unchanged_flow(catalog, cursor.source, flow)
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("MATERIALIZED", "VIEW"):
        return _find_unchanged_view(catalog, RelationKind.VIEW, cursor, or_replace)
    if cursor.accept("VIEW"):
        return _find_unchanged_view(catalog, RelationKind.PLAIN_VIEW, cursor, or_replace)
    if cursor.accept("SOURCE"):
        return _find_unchanged_source(catalog, cursor, base, store)
    if cursor.accept("TABLE"):
        return _find_unchanged_table(catalog, cursor)
    return None


def _find_relation(catalog: Catalog, name: str, kind: RelationKind) -> Relation | None:
    if (building := find_planned(catalog, name)) is not None:
        return building if building.kind is kind else None
    return next((r for r in catalog.live_relations() if (r.name, r.kind) == (name, kind)), None)


def _find_unchanged_view(catalog: Catalog, kind: RelationKind, cursor: Cursor, or_replace: bool) -> Relation | None:
    header = read_view(cursor, or_replace)
    if (relation := _find_relation(catalog, header.name, kind)) is None:
        return None
    (sql, columns), select = query_of(relation), cursor.source.text[header.select :]
    if written := digest_under(cursor.source.schema, select):
        same = written == _written_of(relation)
    else:
        same = words_of(sql) == words_of(select)
    return relation if same and columns == (header.columns or ()) else None


def _written_of(view: Relation) -> str:
    definition = definition_of(view)
    if isinstance(definition, PlainViewDefinition):
        return definition.statement.written
    assert isinstance(definition, ViewDefinition)
    return definition.written


def _find_unchanged_flow(catalog: Catalog, text: SourceText, flow: FlowHeader) -> Relation | None:
    """The target, if the flow's SELECT over the present columns of its source has the same words."""
    relation = _find_relation(catalog, flow.target, RelationKind.VIEW)
    source = next((r for r in catalog.live_relations() if r.name == flow.source), None)
    if relation is None or source is None:
        return None
    select = flow_select(text, flow, [c.name for c in source.columns])
    return relation if words_of(query_of(relation)[0]) == words_of(select) else None


def _find_unchanged_source(catalog: Catalog, cursor: Cursor, base: Path, store: ObjectStore) -> Relation | None:
    header = read_source(cursor, tuple(READERS), WITHOUT_PATH)
    if (relation := _find_relation(catalog, header.name, RelationKind.SOURCE)) is None:
        return None
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    there = created_source(definition)
    if list_differences(there, place_source(CreateSource(header.name, header.format, (), header.options), base, store)):
        return None
    declared = "" if header.columns is None else cursor.source.text[slice(*header.columns)]
    return relation if not declared or _fold_case(declared) == _fold_case(declared_text(there)) else None


def _find_unchanged_table(catalog: Catalog, cursor: Cursor) -> Relation | None:
    cursor.accept("IF", "NOT", "EXISTS")
    if (relation := _find_relation(catalog, cursor.name("the table"), RelationKind.TABLE)) is None:
        return None
    definition = definition_of(relation)
    assert isinstance(definition, TableDefinition)
    there = Cursor(SourceText(declared_text(definition.created or definition.statement)))
    return relation if _fold_case(cursor.source.text[cursor.offset :]) == _fold_case(there.source.text) else None


def _fold_case(text: str) -> list[str]:
    """The tokens of a text, in lower case outside of strings: `DEFAULT 'a'` and `DEFAULT 'A'` differ."""
    return [t.text if t.kind == "string" else t.text.lower() for t in tokens_of(SourceText(text))]
