"""A relation of the catalog as the outline of a table in a sink."""

from tussock.jobs.catalog.definition import TableDefinition, definition_of
from tussock.jobs.reading.reader import key_of, stored_table
from tussock.jobs.settings.home import Home
from tussock.jobs.sinks.base import Outline
from tussock.statestore.meta.catalog import Relation


def outline_of(relation: Relation, home: Home) -> Outline:
    """Return a relation's visible columns, its comments, and its key if all key columns are visible.

    Raises NoStoredRowsError for a source.
    """
    names = [column.name for column in relation.columns]
    places = key_of(relation)
    key = tuple(names[place] for place in places) if all(place < len(names) for place in places) else ()
    definition = definition_of(relation)
    statement = definition.statement if isinstance(definition, TableDefinition) else None
    said = {} if statement is None else dict(statement.comments)
    comment = "" if statement is None else statement.comment or ""
    comments = tuple(said.get(place, "") for place in range(len(names)))
    return Outline(home.id, home.ids, relation.name, relation.columns, key, comment, comments, stored_table(relation))
